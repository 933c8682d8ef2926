/**
 * Tells the store what only the records know: keys, grants and exchanges that it never heard of, or that it lost. All
 * of it is applied by id and number, so telling it twice changes nothing.
 */
import { leaseOf } from './operations.ts'
import type { HistoryEntry } from '../records/entry.ts'
import type { RecordedKey } from '../records/key-records.ts'
import type { Records } from '../records/records.ts'
import { type Scripts, stored } from './scripts.ts'

/** Exchanges that are read at once. */
const PAGE = 500

/** Restores accounts in the store. */
export class Restorer {
  readonly #scripts: Scripts
  readonly #records: Records

  constructor(scripts: Scripts, records: Records) {
    this.#scripts = scripts
    this.#records = records
  }

  /**
   * Brings an account up to what the records know of it.
   * @returns whether the store had an older record of the key
   * @throws GatewayError unavailable
   */
  async restore(key: RecordedKey): Promise<boolean> {
    const { keys, redis } = this.#scripts
    const written = await this.put(key)
    const [granted, ordinal] = await stored(redis.hmget(keys.of(key.id).account, 'gn', 'sq'))
    if (Number(granted ?? 0) < key.grants) await this.grant(key.id, Number(granted ?? 0) + 1)
    const known = Number(ordinal ?? 0)
    const { history } = this.#records
    const before = known < key.ordinal ? await stored(history.chargedBefore(key.id, known)) : undefined
    for (let from = known; from < key.ordinal;) {
      const entries = await stored(history.entriesAfter(key.id, from, PAGE))
      for (const entry of entries) await this.#replay(key.id, entry, before?.get(entry.id) ?? 0n)
      from = entries.at(-1)?.ordinal ?? key.ordinal
    }
    await stored(redis.set(keys.pointer(key.digest), key.id))
    return written
  }

  /** Writes the record of a key to the store, unless the store has a newer one. @returns whether it was written */
  async put(key: RecordedKey): Promise<boolean> {
    const { id, version, type, status, expiresAt, digest, label, rotation, grants, granted, settled, ordinal } = key
    const [answer] = await this.#scripts.run({
      name: 'put',
      account: id,
      keys: [this.#scripts.keys.of(id).account],
      args: [version, type, status, expiresAt ?? '', digest, label, rotation, grants, granted, settled, ordinal].map(
        String,
      ),
    })
    return answer === 'ok'
  }

  /** Applies the grants of an account from a number on, in their order. */
  async grant(account: string, from: number): Promise<void> {
    for (const { n, amount } of await stored(this.#records.keys.grants(account, from))) {
      await this.#scripts.run({
        name: 'grant',
        account,
        keys: [this.#scripts.keys.of(account).account],
        args: [String(n), String(amount)],
      })
    }
  }

  async #replay(account: string, { id, ordinal, charge, kind, bucket }: HistoryEntry, before: bigint): Promise<void> {
    const { keys } = this.#scripts
    const own = keys.of(account)
    await this.#scripts.run({
      name: 'replay',
      account,
      keys: [own.account, keys.hold(account, id), own.leases, keys.outcomes(account, bucket), own.places],
      args: [
        leaseOf({ account, id }, bucket),
        id,
        String(ordinal),
        String(charge),
        kind === 'reaped' ? 'R' : 'F',
        String(before),
      ],
    })
  }
}
