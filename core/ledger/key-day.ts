/** Adds up what a key has used today when its limit of the day is asked for and the store has no sum. */
import { setTimeout } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { type Span } from '../plans/calendar.ts'
import { keyWindowsUsed, utcDay } from '../plans/limits.ts'
import { GatewayError, soonMs } from '../errors.ts'
import { countedDay, dayOf } from '../records/entry.ts'
import { moneyLine } from '../records/money-line.ts'
import type { Records } from '../records/records.ts'
import { causeOf, orUnavailable, unavailable } from '../records/unavailable.ts'
import { type Elsewhere, elsewhereOf } from './recovery/elsewhere.ts'
import { FIELDS, operation } from './script/names.ts'
import { endsIn, partField } from './script/parts.ts'
import type { Scripts } from './script/scripts.ts'
import { ownerOf, type Spender } from './script/store-keys.ts'
import { type StreamEntry, unrecorded } from './script/stream.ts'

/** Tries to fill the day of a key, which fail if something of the key ends meanwhile. Then a new request gets 503. */
export const TRIES = 50
/** Those of a stream, which waits meanwhile. Then it is held without the day. */
export const TRIES_OF_STREAM = 3
/** Milliseconds between two of them. */
const PAUSE_MS = 20

/** What a key has used of a day. */
interface UsedDay {
  /** Its windows as the script writes them. */
  readonly windows: string
  /**
   * The number of the key that grows with each end, or the ordinal of an account of its own, before the entries were read; '' if
   * the sum is known to be wrong.
   */
  readonly seen: string
  /** What its record said then that it was charged elsewhere; '' for nothing. */
  readonly elsewhere: string
}

/** What a key has used today cannot be added up. */
export class DayUnknown extends GatewayError {
  constructor(cause: unknown) {
    super('unavailable', { cause, retryAfterMs: soonMs() })
  }
}

/** Fills the windows of keys. */
export class KeyDays {
  readonly #scripts: Scripts
  readonly #records: Records
  /** What runs, by the record of the key: all requests of a key wait for one. */
  readonly #running = new Map<string, Promise<string>>()

  constructor(scripts: Scripts, records: Records) {
    this.#scripts = scripts
    this.#records = records
  }

  /**
   * Runs an operation. If the store has no sum of the day of its key, that is added up, and the operation runs again.
   * @param most how often it runs again
   * @throws DayUnknown; what the operation throws
   */
  async filled(
    spender: Spender,
    most: number,
    store: { now(): number },
    run: () => Promise<readonly string[]>,
  ): Promise<readonly string[]> {
    for (let tries = 0; ; tries++) {
      const answer = await run()
      if (answer[0] !== 'unfilled') return answer
      if (tries === most) throw new DayUnknown(new Error('something of the key has ended in each try'))
      if (tries > 0) await setTimeout(PAUSE_MS)
      await this.fillDay(spender, utcDay(store.now())).catch((cause: unknown) => {
        throw new DayUnknown(causeOf(cause))
      })
    }
  }

  /**
   * Writes to the store what a key has used of its day, unless something of it ends meanwhile.
   * @param redis the connection to read from
   * @returns its windows as the script writes them
   * @throws GatewayError unavailable
   */
  fillDay(spender: Spender, today: Span, redis = this.#scripts.redis): Promise<string> {
    const record = this.#scripts.keys.record(spender)
    let running = this.#running.get(record)
    if (!running) {
      running = this.#fill(spender, record, today, redis).finally(() => this.#running.delete(record))
      this.#running.set(record, running)
    }
    return running
  }

  async #fill(spender: Spender, record: string, today: Span, redis: Redis): Promise<string> {
    const { account } = spender
    const { keys } = this.#scripts
    const { account: own, leases } = keys.of(account)
    const used = await this.used(spender, today, redis)
    const args = { name: account, owner: ownerOf(spender), holdPrefix: keys.hold(account, ''), ...used }
    const [answer, ...windows] = await this.#scripts.run(
      operation('fill', account, { account: own, record, leases }, args),
    )
    return answer === 'ok' ? windows.join(' ') : used.windows
  }

  /**
   * Adds up what a key has used of its day. What it holds on accounts from which it was moved counts as used.
   * @throws GatewayError unavailable
   */
  async used(spender: Spender, today: Span, redis = this.#scripts.redis): Promise<UsedDay> {
    const { account, key = account } = spender
    const { keys, history } = this.#records
    const record = await orUnavailable(keys.get(key))
    if (!record) throw unavailable(new Error(`the records have no key ${key}`))
    await this.#scripts.answered()
    const [[part, ordinal], elsewhere] = await orUnavailable(
      Promise.all([
        redis.hmget(this.#scripts.keys.of(account).account, partField(spender), FIELDS.ordinal),
        redis.hget(this.#scripts.keys.record(spender), FIELDS.elsewhere),
      ]),
    )
    const others = await elsewhereOf(this.#scripts, this.#records, record, account)
    const accounts = [account, ...others.map(({ account: other }) => other)]
    // An entry moves from the store to the records. In the other order, one that moves meanwhile would be missed.
    const fresh: StreamEntry[] = []
    for (const each of accounts) fresh.push(...(await unrecorded(this.#scripts, each, () => redis)))
    const own = fresh.filter(entry => (entry.key ?? entry.account) === key)
    const known = own.length === 0 ? new Map() : await orUnavailable(history.withIds(own.map(({ id }) => id)))
    const day = dayOf(today.from)
    const { used, ordinals } = await orUnavailable(keys.usedOn(record, accounts, day))
    let all = others.reduce((sum, { held }) => sum + held, used)
    // Of an exchange that ended more than once, the last end counts, on the day of the first one.
    const last = new Map(
      [...known].map(([id, entry]) => [id, { worth: moneyLine(entry).paid, day: countedDay(entry) }]),
    )
    for (const entry of own) {
      const before = last.get(entry.id)
      const now = { worth: moneyLine(entry).paid, day: before?.day ?? countedDay(entry) }
      last.set(entry.id, now)
      const isRecorded = entry.ordinal <= (ordinals.get(entry.account) ?? 0)
      if (!isRecorded && now.day === day) all += now.worth - (before?.worth ?? entry.paidBefore)
    }
    // A request that ended on another account between the two reads would count twice: as held, and as used.
    const after = await elsewhereOf(this.#scripts, this.#records, record, account)
    const seen = part == null && ownerOf(spender) === '' ? ordinal : endsIn(part ?? null)
    return {
      windows: keyWindowsUsed(today, all),
      seen: textOf(after) === textOf(others) ? (seen ?? '') : '',
      elsewhere: elsewhere ?? '',
    }
  }
}

function textOf(others: readonly Elsewhere[]): string {
  return others
    .map(each => Object.values(each).join(' '))
    .sort()
    .join()
}
