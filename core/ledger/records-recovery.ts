/**
 * Records again what the store still knows, after the database fell back: keys, grants, and the sums of charges. Entries
 * that still wait in the store are recorded as always.
 */
import { sideBySide } from '../lib/side-by-side.ts'
import type { EndedEntry } from '../records/entry.ts'
import { type KeyInStore, type RecoveredKeys, recoverKeys } from '../records/recovered-keys.ts'
import type { RecordedKey } from '../records/key-records.ts'
import type { Records } from '../records/records.ts'
import { namesIn } from './scan.ts'
import { type Scripts, stored } from './scripts.ts'
import { OF_QUOTAS } from './store-keys.ts'
import { unrecorded } from './stream.ts'

/** Accounts that are compared at the same time. */
const SIDE_BY_SIDE = 32

/** What was recorded again, and what is lost. */
export interface Recovered extends RecoveredKeys {
  /** Exchanges of which only the charges are known, the accounts that they belong to, and their charges in nano-credits. */
  exchanges: number
  accounts: number
  charges: bigint
}

/** A key with its sums, as the store has them. */
interface InStore extends KeyInStore {
  readonly settled: bigint
  readonly balance: bigint
  readonly ordinal: number
}

/** Compares every account of the store with the records. @throws GatewayError unavailable */
export async function recoverRecords(
  scripts: Scripts,
  records: Records,
  host: { readonly at: number; readonly newId: () => string },
): Promise<Recovered> {
  const done: Recovered = { added: 0, changed: 0, grants: 0, granted: 0n, exchanges: 0, accounts: 0, charges: 0n }
  for await (const { accounts: all } of namesIn(scripts)) {
    const ids = all.filter(id => !id.startsWith(OF_QUOTAS))
    if (ids.length === 0) continue
    const found = await Promise.all(ids.map(id => readAccount(scripts, id)))
    const accounts = found.filter(account => account !== undefined)
    const recorded = new Map(
      (await stored(records.keys.withIds(accounts.map(({ id }) => id)))).map(key => [key.id, key]),
    )
    const lacking = accounts.filter(account => {
      const key = recorded.get(account.id)
      return !key || key.version < account.version || key.grants < account.grants
    })
    if (lacking.length > 0) {
      const { added, changed, grants, granted } = await stored(recoverKeys(records.database, lacking, host))
      done.added += added
      done.changed += changed
      done.grants += grants
      done.granted += granted
    }
    const behind = accounts.filter(({ id, ordinal }) => ordinal > (recorded.get(id)?.ordinal ?? 0))
    await sideBySide(behind, SIDE_BY_SIDE, async account => {
      const entry = await lostOf(scripts, account, recorded.get(account.id), host)
      if (!entry) return
      await stored(records.recorder.record([entry], new Map()))
      done.exchanges += entry.ordinal - (recorded.get(account.id)?.ordinal ?? 0)
      done.accounts++
      done.charges += entry.charge
    })
  }
  return done
}

/** Returns one entry for all exchanges of an account that are neither recorded nor in the store any more. */
async function lostOf(
  scripts: Scripts,
  { id: account, settled, ordinal, balance }: InStore,
  key: Pick<RecordedKey, 'ordinal' | 'settled'> | undefined,
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<EndedEntry | undefined> {
  const known = key ?? { ordinal: 0, settled: 0n }
  const waiting = (await unrecorded(scripts, account)).filter(
    entry => entry.ordinal > known.ordinal && entry.ordinal <= ordinal,
  )
  const lost = ordinal - known.ordinal - waiting.length
  if (lost <= 0) return undefined
  const charge = settled - waiting.reduce((sum, entry) => sum + entry.charge - entry.before, known.settled)
  return {
    id: newId(),
    account,
    ordinal: known.ordinal + lost,
    at,
    kind: charge < 0n ? 'credit' : 'settle',
    charge,
    balance,
    bucket: '0.0',
    waived: 0n,
    notes: { endpoint: '', model: '', stream: false, status: 'ok', reason: `the database lost ${lost} entries` },
  }
}

async function readAccount({ redis, keys }: Scripts, id: string): Promise<InStore | undefined> {
  const fields = await stored(redis.hgetall(keys.of(id).account))
  if (fields['ve'] === undefined) return undefined
  const amount = (name: string): bigint => BigInt(fields[name] ?? 0)
  return {
    id,
    type: fields['ty'] ?? '',
    status: fields['st'] === 'active' ? 'active' : 'disabled',
    expiresAt: fields['ex'] ? Number(fields['ex']) : undefined,
    createdAt: Number(fields['cr'] ?? 0),
    version: Number(fields['ve']),
    digest: fields['sec'] ?? '',
    label: fields['la'] ?? '',
    rotation: Number(fields['ro'] ?? 0),
    grants: Number(fields['gn'] ?? 0),
    granted: amount('gra'),
    settled: amount('gra') - amount('bal') - amount('rsv'),
    balance: amount('bal'),
    ordinal: Number(fields['sq'] ?? 0),
  }
}
