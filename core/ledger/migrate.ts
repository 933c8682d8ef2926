/**
 * Takes over a store of the first layout, in which each account had its history, its grants and its outcomes in the
 * store. Everything is copied to the records and compared; then one marker makes the new layout valid, and the old keys
 * are deleted. Until the marker is set, a migration that was interrupted begins again and skips what is complete.
 */
import type { Redis } from 'ioredis'
import { movedId, timeOfId } from '../lib/ids.ts'
import { counted, type EntryKind, KINDS, type Notes } from '../records/entry.ts'
import type { KeyRecord } from '../records/key-records.ts'
import type { EndedEntry } from '../records/entry.ts'
import { refundOf } from './accounts.ts'
import { bucketAt } from './buckets.ts'
import type { Ledger } from './ledger.ts'
import { OF_QUOTAS } from './store-keys.ts'
import { stored } from './scripts.ts'

/** Entries that are read and recorded at once, keys that one scan returns, accounts that are compared at once. */
const PAGE = 1000
/** How long an exchange of the first layout could still be settled, in milliseconds. */
const SETTLED_LATE_MS = 30 * 86_400_000

/** The result of a migration. */
export interface Migrated {
  readonly accounts: number
  readonly entries: number
  /** Holds whose gateways ended without settling them. */
  readonly holds: number
}

type Fields = ReadonlyMap<string, string>

/** Moves one store. */
export class Migration {
  readonly #ledger: Ledger
  readonly #prefix: string
  #entries = 0
  #holds = 0

  /** @param prefix of the store's keys */
  constructor(ledger: Ledger, prefix: string) {
    this.#ledger = ledger
    this.#prefix = prefix
  }

  /** Moves everything. @throws Error for the operator if an account is not in order; then nothing has changed */
  async run(): Promise<Migrated> {
    const { scripts, continuity } = this.#ledger
    const { redis, keys } = scripts
    const done = await stored(redis.exists(keys.shared('meta')))
    const accounts = await stored(redis.smembers(keys.shared('accounts')))
    if (accounts.length === 0) throw new Error('the store has nothing to migrate')
    if (done === 0) {
      await this.#movePrices()
      for (let at = 0; at < accounts.length; at += PAGE) {
        const part = accounts.slice(at, at + PAGE)
        const complete = await stored(this.#openings.complete(part))
        for (const account of part.filter(each => !complete.has(each))) await this.#moveAccount(account)
      }
      await this.#scan(key => this.#copy(key))
      // This sets the marker.
      await continuity.rebuildAll('migrating')
    }
    await this.#scan(key => this.#delete(key))
    for (const name of ['open', 'prices', 'accounts']) await stored(redis.del(keys.shared(name)))
    return { accounts: accounts.length, entries: this.#entries, holds: this.#holds }
  }

  get #openings() {
    return this.#ledger.records.openings
  }

  #old(account: string, part: string): string {
    return `${this.#prefix}:{${account}}:${part}`
  }

  async #movePrices(): Promise<void> {
    const { redis, keys } = this.#ledger.scripts
    const prices = await stored(redis.hgetall(keys.shared('prices')))
    await stored(this.#ledger.records.addPrices(new Map(Object.entries(prices))))
  }

  async #moveAccount(account: string): Promise<void> {
    const { redis } = this.#ledger.scripts
    const fields = new Map(Object.entries(await stored(redis.hgetall(this.#old(account, 'a')))))
    const sum = (name: string): bigint => BigInt(fields.get(name) ?? 0)
    // A key whose creation was interrupted has no record and no secret.
    if (!fields.has('sec')) return
    const grants = await this.#grants(account)
    await stored(this.#openings.add(keyFrom(account, fields), grants))
    const { ids, counts, last } = await this.#moveHistory(account)
    const holds = await this.#moveHolds(account, ids, last)
    const counters = await stored(redis.hgetall(this.#old(account, 'u')))
    const before = (name: string): number => Number(counters[`all:${name}`] ?? 0)
    const opening = {
      settled: sum('arch'),
      requests: Math.max(0, before('n') - counts.requests),
      input: Math.max(0, before('i') - counts.input),
      output: Math.max(0, before('o') - counts.output),
      quarantined: Math.max(0, before('q') - counts.quarantined),
    }
    const recorded = await stored(this.#ledger.records.history.totals(account))
    const granted = grants.reduce((total, { amount }) => total + amount, 0n)
    const expected = sum('bal') + holds.held - holds.floors
    if (granted - recorded.settled - opening.settled !== expected)
      throw new Error(
        `${account} is not in order: its grants less its entries are ${granted - recorded.settled - opening.settled} nano-credits, its balance is ${expected}; run \`tollgate audit\` of the version before, and report this`,
      )
    await stored(this.#openings.finish(account, opening, ids))
  }

  async #grants(account: string) {
    const rows = await stored(this.#ledger.scripts.redis.xrange(this.#old(account, 'g'), '-', '+'))
    return rows.map(([id, flat]) => {
      const fields = fieldsOf(flat)
      const notes = JSON.parse(fields.get('m') ?? '{}') as Record<string, string>
      const at = Number(notes['at'] ?? id.split('-')[0])
      return { id: fields.get('id') ?? id, amount: BigInt(fields.get('c') ?? 0), at, notes }
    })
  }

  /** Records an account's history. Returns the new ids of exchanges that may still be settled. */
  async #moveHistory(account: string) {
    const { records, scripts } = this.#ledger
    const late = this.#ledger.now() - SETTLED_LATE_MS
    const ids = new Map<string, string>()
    const byPlace = new Map<string, EndedEntry>()
    const counts = { requests: 0, input: 0, output: 0, quarantined: 0 }
    let ordinal = 0
    let balance = 0n
    for (let from = '-'; ;) {
      const rows = await stored(scripts.redis.xrange(this.#old(account, 'x'), from, '+', 'COUNT', PAGE))
      const entries = rows.map(([place, flat]) => {
        const fields = fieldsOf(flat)
        const ms = Number(place.split('-')[0])
        const old = fields.get('id') ?? ''
        const kind = KINDS.find(name => name === fields.get('k')) ?? 'settle'
        const notes = JSON.parse(fields.get('m') ?? '{}') as Partial<Notes>
        const refunded = kind === 'credit' ? byPlace.get(notes.entry ?? '') : undefined
        const id = kind === 'credit' ? refundOf(refunded?.id ?? movedId(ms, place)) : (ids.get(old) ?? movedId(ms, old))
        if (kind !== 'credit') ids.set(old, id)
        balance = BigInt(fields.get('b') ?? 0)
        const entry = entryFrom(account, id, ++ordinal, ms, kind, fields, { ...notes, ...refundNotes(refunded) })
        byPlace.set(place, entry)
        return entry
      })
      for (const entry of entries) {
        const count = counted(entry)
        // An exchange that was reaped and settled later was counted when it was settled.
        const again = entry.kind === 'reaped' ? 0 : 1
        counts.requests += count.requests * again
        counts.input += count.input * again
        counts.output += count.output * again
        counts.quarantined += entry.notes.quarantined ? 1 : 0
      }
      if (entries.length > 0) await stored(records.recorder.record(entries, new Map()))
      this.#entries += entries.length
      if (rows.length < PAGE) break
      from = `(${rows.at(-1)?.[0]}`
    }
    for (const [old, id] of ids) if (timeOfId(id) < late) ids.delete(old)
    return { ids, counts, last: { ordinal, balance } }
  }

  /** Ends the holds of gateways that ended without settling them: what was delivered is charged. */
  async #moveHolds(account: string, ids: Map<string, string>, last: { ordinal: number; balance: bigint }) {
    const { records, scripts } = this.#ledger
    const holds = Object.entries(await stored(scripts.redis.hgetall(this.#old(account, 'd'))))
    // The ends of the leases are the same when this is repeated.
    const ends = new Map(
      await Promise.all(
        holds.map(async ([old]) => [old, await stored(scripts.redis.zscore(this.#old(account, 'h'), old))] as const),
      ),
    )
    let [held, floors] = [0n, 0n]
    const entries = holds.map(([old, text], index): EndedEntry => {
      const [, amount = '0', floor = '0', notes = '{}'] = /^(\d+):(\d+):(.*)$/s.exec(text) ?? []
      held += BigInt(amount)
      floors += BigInt(floor)
      const id = ids.get(old) ?? movedId(Number(ends.get(old) ?? 0), old)
      ids.set(old, id)
      const fields = new Map([
        ['c', floor],
        ['b', String(last.balance)],
      ])
      const read = JSON.parse(notes) as Partial<Notes>
      return entryFrom(account, id, last.ordinal + index + 1, timeOfId(id), 'reaped', fields, read)
    })
    if (entries.length > 0) await stored(records.recorder.record(entries, new Map()))
    this.#holds += entries.length
    return { held, floors }
  }

  /** Copies what has no place in the records: quotas, objects at providers, and claimed names. */
  async #copy(key: string): Promise<void> {
    const { redis, keys } = this.#ledger.scripts
    const [, account = '', part = ''] = new RegExp(`^${this.#prefix}:\\{([^}]+)\\}:(.+)$`).exec(key) ?? []
    if (account.startsWith(OF_QUOTAS) && part === 'a') {
      const [quota, win, set, base] = await stored(redis.hmget(key, 'quota', 'win', 'set', 'base'))
      if (quota === null || quota === undefined) return
      const left = BigInt(quota) - (BigInt(set ?? 0) - BigInt(base ?? 0))
      await stored(
        redis.hset(keys.of(account).account, {
          win: win ?? '',
          gra: quota,
          bal: String(left),
          rsv: '0',
          n: '0',
          sq: '0',
        }),
      )
      return
    }
    let target: string | undefined
    if (part.startsWith('s:')) target = keys.stored(account, part.slice(2))
    else if (part.startsWith('i:claim:')) target = keys.claim(account, part.slice('i:claim:'.length))
    if (target === undefined) return
    const [value, ms] = [await stored(redis.get(key)), await stored(redis.pttl(key))]
    if (value !== null && ms > 0) await stored(redis.set(target, value, 'PX', ms))
  }

  /** Deletes a key of the first layout. */
  async #delete(key: string): Promise<void> {
    const rest = key.slice(this.#prefix.length + 1)
    if (/^\{(?:key_|quota:)/.test(rest) || rest.startsWith('key:')) await stored(this.#ledger.scripts.redis.unlink(key))
  }

  async #scan(visit: (key: string) => Promise<void>): Promise<void> {
    const { redis } = this.#ledger.scripts
    const servers: Redis[] =
      'nodes' in redis ? (redis as unknown as { nodes(role: string): Redis[] }).nodes('master') : [redis]
    for (const server of servers) {
      let cursor = '0'
      do {
        const [next, found] = await stored(server.scan(cursor, 'MATCH', `${this.#prefix}:*`, 'COUNT', PAGE))
        cursor = next
        await Promise.all(found.map(visit))
      } while (cursor !== '0')
    }
  }
}

function entryFrom(
  account: string,
  id: string,
  ordinal: number,
  at: number,
  kind: EntryKind,
  fields: Fields,
  { requestId: _requestId, ...notes }: Partial<Notes> & { requestId?: string },
): EndedEntry {
  const of = (name: string): bigint => BigInt(fields.get(name) ?? 0)
  const charge = kind === 'credit' ? of('c') - of('p') : of('c')
  return { id, account, ordinal, at, kind, charge, balance: of('b'), bucket: bucketAt(at), waived: of('w'), notes }
}

function refundNotes(refunded: EndedEntry | undefined): Partial<Notes> {
  if (!refunded) return {}
  const { endpoint = '', model = '' } = refunded.notes
  return { endpoint, model, entry: refunded.id, endedAt: refunded.at }
}

function keyFrom(id: string, fields: Fields): KeyRecord {
  const of = (name: string): string => fields.get(name) ?? ''
  return {
    id,
    type: of('type'),
    name: of('name'),
    batch: '',
    status: of('status') === 'active' ? 'active' : 'disabled',
    expiresAt: of('expires') === '' ? undefined : Number(of('expires')),
    createdAt: Number(of('created')),
    version: 1,
    digest: Buffer.from(of('sec'), 'hex').toString('base64url'),
    label: of('label'),
    hint: of('label'),
    rotation: of('rot') === '' ? 0 : 1,
  }
}

function fieldsOf(flat: readonly string[]): Map<string, string> {
  const fields = new Map<string, string>()
  for (let at = 0; at < flat.length; at += 2) fields.set(flat[at] ?? '', flat[at + 1] ?? '')
  return fields
}
