/**
 * Records again what the store still knows, after the database fell back: keys, grants, the entries that still wait in the
 * store, and the sums of all others.
 */
import { sideBySide } from '../../lib/side-by-side.ts'
import { OF_SUMS } from '../script/buckets.ts'
import { chargesAdded, type EndedEntry } from '../../records/entry.ts'
import type { RecordedAccount } from '../../records/account-rows.ts'
import {
  type AccountInStore,
  type KeyInStore,
  recoverKeys,
  recoverMoves,
  type RecoveredKeys,
} from '../../records/recovered-keys.ts'
import type { Records } from '../../records/records.ts'
import { namesIn, type NamesInStore } from '../script/scan.ts'
import { type FieldName, FIELDS } from '../script/names.ts'
import type { Scripts } from '../script/scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'
import { partsIn } from '../script/parts.ts'
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

/** An account with its sums, as the store has them. */
interface InStore extends AccountInStore {
  readonly settled: bigint
  readonly balance: bigint
  readonly ordinal: number
  /** What each of its keys was charged there, if it is shared. */
  readonly parts: ReadonlyMap<string, bigint>
  /** The record of the key with its name, also if it was moved away from there. */
  readonly key: KeyInStore | undefined
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
  const moved: Placed[] = []
  for await (const page of namesIn(scripts)) {
    const found = (await Promise.all(page.keys.map(spender => readKey(scripts, spender)))).filter(isHere)
    const others = found.filter(({ place, key }) => key.account === place).map(({ key }) => key)
    const ids = new Set([...page.accounts.filter(id => !id.startsWith(OF_QUOTAS)), ...others.map(key => key.account)])
    if (ids.size === 0) continue
    const accounts = (await Promise.all([...ids].map(id => readAccount(scripts, id)))).filter(isHere)
    const keys = [...others, ...accounts.flatMap(({ id, key }) => (key?.account === id ? key : []))]
    for (const { id, key } of accounts) if (key) found.push({ place: id, key })
    moved.push(...found.filter(({ place, key }) => key.account !== place))
    const recorded = new Map(
      (await orUnavailable(records.accounts.withIds(accounts.map(({ id }) => id)))).map(each => [each.id, each]),
    )
    const recordedKeys = new Map(
      (await orUnavailable(records.keys.withIds(keys.map(({ id }) => id)))).map(each => [each.id, each.version]),
    )
    const lacking = {
      accounts: accounts.filter(({ id, grants, shared }) => {
        const known = recorded.get(id)
        return !known || known.grants < grants || (shared && !known.shared)
      }),
      keys: keys.filter(({ id, version }) => (recordedKeys.get(id) ?? -1) < version),
    }
    if (lacking.accounts.length + lacking.keys.length > 0) {
      const { added, changed, grants, granted } = await orUnavailable(recoverKeys(records.database, lacking, host))
      done.added += added
      done.changed += changed
      done.grants += grants
      done.granted += granted
    }
    const behind = accounts.filter(({ id, ordinal }) => ordinal > (recorded.get(id)?.ordinal ?? 0))
    await sideBySide(behind, SIDE_BY_SIDE, async account => {
      const known = recorded.get(account.id)
      const inStream = await waitingOf(scripts, account)
      const isKnown = new Set(inStream.map(entry => entry.ordinal))
      const again = await reapedAgain(scripts, records, account, host.at)
      const waiting = [...inStream, ...again.filter(entry => !isKnown.has(entry.ordinal))]
      const lost = await lostOf(records, account, { known, waiting }, host)
      // An archiver that has recorded them before the database fell back may delete those that wait at any moment.
      await orUnavailable(records.recorder.record([...waiting, ...lost.entries], new Map(), host.epoch))
      if (lost.count === 0) return
      done.exchanges += lost.count
      done.accounts++
      done.charges += lost.entries.reduce((sum, { charge }) => sum + charge, 0n)
    })
  }
  await orUnavailable(recoverMoves(records.database, moved))
  return done
}

function isHere<T>(found: T | undefined): found is T {
  return found !== undefined
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
      const [, charge = '', covered = '0', tokens = '0', number = ''] =
        /^R(\d+)(?:,(\d+),(\d+))?:(\d+):\d+$/.exec(outcome ?? '') ?? []
      const ordinal = Number(number)
      // What it has counted since it was read is recorded by itself.
      const isLater = ordinal > entry.ordinal && ordinal <= last
      const plan = entry.plan && { ...entry.plan, covered: BigInt(covered), tokens: Number(tokens) }
      const again = { ...entry, account, balance, ordinal, charge: BigInt(charge), waived: 0n, at }
      return isLater ? [{ ...again, ...(plan && { plan }) }] : []
    }),
  )
  return found.flat()
}

/**
 * Returns one entry for all exchanges of an account that are neither recorded nor in the store any more; of an account that is
 * shared, one for each key.
 */
async function lostOf(
  { accounts, history }: Records,
  { id: account, settled, ordinal, balance, parts }: InStore,
  {
    known = { ordinal: 0, settled: 0n },
    waiting,
  }: {
    readonly known: Pick<RecordedAccount, 'ordinal' | 'settled'> | undefined
    readonly waiting: readonly EndedEntry[]
  },
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<{ readonly entries: readonly EndedEntry[]; readonly count: number }> {
  const count = ordinal - known.ordinal - waiting.filter(entry => entry.ordinal > known.ordinal).length
  if (count <= 0) return { entries: [], count: 0 }
  const recorded = await orUnavailable(history.withIds(waiting.map(({ id }) => id)))
  const charges = new Map<string | undefined, bigint>()
  if (parts.size === 0) charges.set(undefined, settled - known.settled - chargesAdded(waiting, recorded))
  else {
    const { parts: before } = await orUnavailable(accounts.withParts(account))
    for (const [key, charged] of parts) {
      const own = waiting.filter(entry => (entry.key ?? account) === key)
      const charge = charged - (before.get(key) ?? 0n) - chargesAdded(own, recorded)
      if (charge !== 0n) charges.set(key === account ? undefined : key, charge)
    }
    if (charges.size === 0) charges.set(undefined, 0n)
  }
  const entries = [...charges].map(([key, charge], index): EndedEntry => ({
    id: newId(),
    account,
    ...(key !== undefined && { key }),
    ordinal: known.ordinal + count - (charges.size - 1 - index),
    at,
    kind: charge < 0n ? 'credit' : 'settle',
    charge,
    balance,
    bucket: OF_SUMS,
    waived: 0n,
    notes: { endpoint: '', model: '', stream: false, status: 'ok', reason: `the database lost ${count} entries` },
  }))
  return { entries, count }
}

type Fields = Readonly<Record<string, string>>

async function fieldsOf({ redis }: Scripts, key: string): Promise<Fields> {
  return orUnavailable(redis.hgetall(key))
}

function numberIn(fields: Fields, name: FieldName): number {
  return Number(fields[FIELDS[name]] ?? 0)
}

async function readAccount(scripts: Scripts, id: string): Promise<InStore | undefined> {
  const fields = await fieldsOf(scripts, scripts.keys.of(id).account)
  const amount = (name: FieldName): bigint => BigInt(fields[FIELDS[name]] ?? 0)
  if (fields[FIELDS.balance] === undefined) return undefined
  const [granted, balance] = [amount('granted'), amount('balance')]
  const parts = partsIn(id, fields)
  const key = keyIn({ account: id, key: id }, fields)
  return {
    id,
    shared: parts.size > 0,
    grants: numberIn(fields, 'grants'),
    granted,
    plan: fields[FIELDS.plan],
    settled: granted - balance - amount('held'),
    balance,
    ordinal: numberIn(fields, 'ordinal'),
    parts: new Map([...parts].map(([owner, { charged }]) => [owner, charged])),
    key,
  }
}

/** A record of a key, and the account that has it: that of the key, or one that it was moved away from. */
interface Placed {
  readonly place: string
  readonly key: KeyInStore
}

/** Reads the record of a key with another name than the account. */
async function readKey(scripts: Scripts, spender: NamesInStore['keys'][number]): Promise<Placed | undefined> {
  const key = keyIn(spender, await fieldsOf(scripts, scripts.keys.record(spender)))
  return key && { place: spender.account, key }
}

function keyIn(
  { account, key: id }: { readonly account: string; readonly key: string },
  fields: Fields,
): KeyInStore | undefined {
  const of = (name: FieldName): string | undefined => fields[FIELDS[name]]
  if (of('version') === undefined) return undefined
  return {
    id,
    account: of('home') || account,
    type: of('type') ?? '',
    status: of('status') === 'active' ? 'active' : 'disabled',
    expiresAt: of('expiresAt') ? numberIn(fields, 'expiresAt') : undefined,
    createdAt: numberIn(fields, 'createdAt'),
    version: numberIn(fields, 'version'),
    digest: of('digest') ?? '',
    label: of('label') ?? '',
    rotation: numberIn(fields, 'rotation'),
    cap: of('cap') ? BigInt(of('cap') ?? 0) : undefined,
    limits: of('limits') || undefined,
    lifetimeMs: of('lifetime') ? numberIn(fields, 'lifetime') : undefined,
  }
}
