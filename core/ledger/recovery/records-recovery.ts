/**
 * Records again what the store still knows, after the database fell back: keys, grants, the entries that still wait in the
 * store, and the sums of all others.
 */
import { sideBySide } from '../../lib/side-by-side.ts'
import { OF_SUMS } from '../script/buckets.ts'
import { chargesAdded, type EndedEntry } from '../../records/entry.ts'
import { type KeyInStore, type RecoveredKeys, recoverKeys } from '../../records/recovered-keys.ts'
import type { RecordedKey } from '../../records/key-records.ts'
import type { Records } from '../../records/records.ts'
import { namesIn } from '../script/scan.ts'
import { type FieldName, FIELDS } from '../script/names.ts'
import type { Scripts } from '../script/scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'
import { OF_QUOTAS } from '../script/store-keys.ts'
import { type StreamEntry, unrecorded } from '../script/stream.ts'

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

/**
 * Compares every account of the store with the records.
 * @param host `epoch` is the one in which this is done: a process that was too slow records nothing in a later one
 * @throws GatewayError unavailable
 */
export async function recoverRecords(
  scripts: Scripts,
  records: Records,
  host: { readonly at: number; readonly newId: () => string; readonly epoch: number },
): Promise<Recovered> {
  const done: Recovered = { added: 0, changed: 0, grants: 0, granted: 0n, exchanges: 0, accounts: 0, charges: 0n }
  for await (const { accounts: all } of namesIn(scripts)) {
    const ids = all.filter(id => !id.startsWith(OF_QUOTAS))
    if (ids.length === 0) continue
    const found = await Promise.all(ids.map(id => readAccount(scripts, id)))
    const accounts = found.filter(account => account !== undefined)
    const recorded = new Map(
      (await orUnavailable(records.keys.withIds(accounts.map(({ id }) => id)))).map(key => [key.id, key]),
    )
    const lacking = accounts.filter(account => {
      const key = recorded.get(account.id)
      return !key || key.version < account.version || key.grants < account.grants
    })
    if (lacking.length > 0) {
      const { added, changed, grants, granted } = await orUnavailable(recoverKeys(records.database, lacking, host))
      done.added += added
      done.changed += changed
      done.grants += grants
      done.granted += granted
    }
    const behind = accounts.filter(({ id, ordinal }) => ordinal > (recorded.get(id)?.ordinal ?? 0))
    await sideBySide(behind, SIDE_BY_SIDE, async account => {
      const key = recorded.get(account.id)
      const inStream = await waitingOf(scripts, account)
      const known = new Set(inStream.map(entry => entry.ordinal))
      const again = await reapedAgain(scripts, records, account, host.at)
      const waiting = [...inStream, ...again.filter(entry => !known.has(entry.ordinal))]
      const added = chargesAdded(waiting, await orUnavailable(records.history.withIds(waiting.map(({ id }) => id))))
      const lost = lostOf(account, key, { waiting, added }, host)
      // An archiver that has recorded them before the database fell back may delete those that wait at any moment.
      await orUnavailable(records.recorder.record(lost ? [...waiting, lost.entry] : waiting, new Map(), host.epoch))
      if (!lost) return
      done.exchanges += lost.count
      done.accounts++
      done.charges += lost.entry.charge
    })
  }
  return done
}

/** Returns the entries that the account has counted, and that still wait in the store to be recorded. */
async function waitingOf(scripts: Scripts, { id, ordinal }: InStore): Promise<readonly StreamEntry[]> {
  const entries = await unrecorded(scripts, id)
  return entries.filter(entry => entry.ordinal <= ordinal)
}

/**
 * Returns the later ends of exchanges that are recorded as reaped, and that were reaped again since. The store knows their
 * charges, so that they need not be among those of which only the sum is known.
 */
async function reapedAgain(
  { redis, keys }: Scripts,
  { history }: Records,
  { id: account, balance, ordinal: last }: InStore,
  at: number,
): Promise<readonly EndedEntry[]> {
  const recorded = await orUnavailable(history.reaped(account))
  const found = await Promise.all(
    recorded.map(async entry => {
      const outcome = await orUnavailable(redis.hget(keys.outcomes(account, entry.bucket), entry.id))
      const [, charge = '', number = ''] = /^R(\d+):(\d+)$/.exec(outcome ?? '') ?? []
      const ordinal = Number(number)
      // What it has counted since it was read is recorded by itself.
      const isLater = ordinal > entry.ordinal && ordinal <= last
      return isLater ? [{ ...entry, account, balance, ordinal, charge: BigInt(charge), waived: 0n, at }] : []
    }),
  )
  return found.flat()
}

/** Returns one entry for all exchanges of an account that are neither recorded nor in the store any more. */
function lostOf(
  { id: account, settled, ordinal, balance }: InStore,
  known: Pick<RecordedKey, 'ordinal' | 'settled'> = { ordinal: 0, settled: 0n },
  { waiting, added }: { readonly waiting: readonly EndedEntry[]; readonly added: bigint },
  { at, newId }: { readonly at: number; readonly newId: () => string },
): { readonly entry: EndedEntry; readonly count: number } | undefined {
  const count = ordinal - known.ordinal - waiting.filter(entry => entry.ordinal > known.ordinal).length
  if (count <= 0) return undefined
  const charge = settled - known.settled - added
  const entry: EndedEntry = {
    id: newId(),
    account,
    ordinal: known.ordinal + count,
    at,
    kind: charge < 0n ? 'credit' : 'settle',
    charge,
    balance,
    bucket: OF_SUMS,
    waived: 0n,
    notes: { endpoint: '', model: '', stream: false, status: 'ok', reason: `the database lost ${count} entries` },
  }
  return { entry, count }
}

async function readAccount({ redis, keys }: Scripts, id: string): Promise<InStore | undefined> {
  const found = await orUnavailable(redis.hgetall(keys.of(id).account))
  const of = (name: FieldName): string | undefined => found[FIELDS[name]]
  if (of('version') === undefined) return undefined
  const amount = (name: FieldName): bigint => BigInt(of(name) ?? 0)
  const number = (name: FieldName): number => Number(of(name) ?? 0)
  const [granted, balance] = [amount('granted'), amount('balance')]
  return {
    id,
    type: of('type') ?? '',
    status: of('status') === 'active' ? 'active' : 'disabled',
    expiresAt: of('expiresAt') ? number('expiresAt') : undefined,
    createdAt: number('createdAt'),
    version: number('version'),
    digest: of('digest') ?? '',
    label: of('label') ?? '',
    rotation: number('rotation'),
    grants: number('grants'),
    granted,
    settled: granted - balance - amount('held'),
    balance,
    ordinal: number('ordinal'),
  }
}
