/** Restores a store from the records: all of it if it is empty, or what it may have lost. */
import type { Log } from '../../lib/log.ts'
import { sideBySide } from '../../lib/side-by-side.ts'
import type { RecordedAccount } from '../../records/account-rows.ts'
import type { RecordedKey } from '../../records/key-records.ts'
import type { Records } from '../../records/records.ts'
import type { Duty } from './duty.ts'
import type { Restorer } from './restore.ts'
import { RefusedOperation, type Scripts } from '../script/scripts.ts'
import { causeOf, orUnavailable } from '../../records/unavailable.ts'
import { isBefore, positionOf } from '../script/stream.ts'

/** How long a process that fails while it restores a store keeps others from doing so, in milliseconds. */
export const RESTORING_MS = 10_000
/** Accounts that are read at once, and that are restored at the same time. */
const PAGE = 500
const SIDE_BY_SIDE = 32
/**
 * Milliseconds by which clocks may differ and writes may be late. A replica may lack more than a server that was
 * restarted.
 */
const SLACK_MS = { single: 5000, replicated: 300_000 } as const
/** Outcomes of exchanges that ended in this time have not expired, in milliseconds. */
const REMEMBERED_MS = 1_800_000

/** Another process restores the store at this moment. */
export class BeingRestored extends Error {
  constructor() {
    super('another process restores the store')
  }
}

/** What is known of a store that has lost something. */
export interface Loss {
  /** When its servers were known the last time, in milliseconds of its clock. */
  readonly beatMs: number
  /** When a loss was restored the last time. */
  readonly lostAtMs: number
  readonly nowMs: number
}

/** What restoring a store needs. */
export interface RecoveryNeeds {
  readonly scripts: Scripts
  readonly records: Records
  readonly restorer: Restorer
  /** The duty of restoring this store. */
  readonly duty: Duty
  /** Whether the store has replicas, which may lack more than a server that was restarted. */
  readonly isReplicated: boolean
  readonly log: Log
}

/** Restores one store. */
export class Recovery {
  readonly #needs: RecoveryNeeds
  readonly #slackMs: number

  constructor(needs: RecoveryNeeds) {
    this.#needs = needs
    this.#slackMs = needs.isReplicated ? SLACK_MS.replicated : SLACK_MS.single
  }

  /**
   * Fills an empty store with every key that the records have.
   * @param store the id of the store
   * @param isEmpty whether it is still empty
   * @param finish writes to the store that it belongs to the records
   * @returns the number of keys
   * @throws BeingRestored if another process does so, or has done so
   */
  rebuild(
    store: string,
    isEmpty: () => Promise<boolean>,
    finish: (epoch: number) => Promise<unknown>,
  ): Promise<number> {
    return this.alone(async isMine => {
      if (!(await isEmpty())) throw new BeingRestored()
      const epoch = await orUnavailable(this.#needs.records.nextEpoch(store))
      const { accounts, keys } = this.#needs.records
      const all = { accounts: accounts.pages(PAGE), keys: keys.pages(PAGE) }
      const restored = await this.#restore(all, undefined, isMine)
      await finish(epoch)
      return restored
    })
  }

  /**
   * Restores what the store may have lost.
   * @param finish writes to the store that this epoch has begun
   * @returns the number of accounts that were compared
   * @throws BeingRestored if another process does so, or has begun to
   */
  restore({ beatMs, lostAtMs, nowMs }: Loss, finish: (epoch: number) => Promise<unknown>): Promise<number> {
    return this.alone(async isMine => {
      // From here on, what was read from the store before cannot be recorded.
      const epoch = await orUnavailable(this.#needs.records.nextEpoch())
      const since = await this.#lostSince(beatMs)
      // Outcomes of earlier exchanges may have expired, or may have been lost before.
      const remembered = Math.max(since, lostAtMs + 1, nowMs - REMEMBERED_MS)
      const { accounts, keys } = this.#needs.records
      const changed = { accounts: accounts.changedSince(since, PAGE), keys: keys.changedSince(since, PAGE) }
      const restored = await this.#restore(changed, remembered, isMine)
      const current = await orUnavailable(this.#needs.records.epoch())
      if (!(await this.#needs.duty.renew()) || current !== epoch) throw new BeingRestored()
      await finish(epoch)
      return restored
    })
  }

  /** Does something that one process at a time may do. @throws BeingRestored if another process does */
  async alone<T>(work: (isMine: () => boolean) => Promise<T>): Promise<T> {
    if (!(await this.#needs.duty.take())) throw new BeingRestored()
    let mine = true
    const renewing = setInterval(() => {
      this.#needs.duty.renew().then(
        renewed => (mine &&= renewed),
        () => {},
      )
    }, RESTORING_MS / 3)
    try {
      return await work(() => mine)
    } finally {
      clearInterval(renewing)
      await this.#needs.duty.release().catch(() => {})
    }
  }

  /** Restores accounts first, since keys need them. @returns the number of accounts */
  async #restore(
    { accounts, keys }: { accounts: AsyncIterable<RecordedAccount[]>; keys: AsyncIterable<RecordedKey[]> },
    rememberedMs?: number,
    isMine: () => boolean = () => true,
  ): Promise<number> {
    let restored = 0
    for await (const page of accounts) {
      const restore = (account: RecordedAccount): Promise<unknown> =>
        this.#restoreOne(account.id, this.#needs.restorer.restoreAccount(account, rememberedMs))
      await sideBySide(page, SIDE_BY_SIDE, restore)
      if (!isMine()) throw new BeingRestored()
      restored += page.length
    }
    for await (const page of keys) {
      await sideBySide(page, SIDE_BY_SIDE, key => this.#restoreOne(key.id, this.#needs.restorer.restoreKey(key)))
      if (!isMine()) throw new BeingRestored()
    }
    return restored
  }

  /** Waits for a restoration. One that the store refuses must not keep all others closed: the audit finds it. */
  async #restoreOne(id: string, restoring: Promise<unknown>): Promise<void> {
    try {
      await restoring
    } catch (thrown) {
      const cause = causeOf(thrown)
      if (!(cause instanceof RefusedOperation)) throw thrown
      this.#needs.log.error(
        { key: id, err: cause },
        'the store refuses what is recorded of a key; run `npx tollgate audit`',
      )
    }
  }

  /** Returns the time since when the store may have lost something, in milliseconds since the epoch. */
  async #lostSince(beatMs: number): Promise<number> {
    let since = beatMs
    const recorded = await orUnavailable(this.#needs.records.history.positions())
    for (const [shard, position] of recorded) {
      const survived = await lastIn(this.#needs.scripts, shard)
      if (isBefore(survived, position)) since = Math.min(since, survived.ms)
    }
    return since - this.#slackMs
  }
}

/** Returns the position of the last entry that was ever added to a shard's stream. */
async function lastIn(scripts: Scripts, shard: number): Promise<{ ms: number; seq: number }> {
  try {
    const info = (await scripts.redis.xinfo('STREAM', scripts.keys.stream(shard))) as unknown[]
    return positionOf(String(info[info.indexOf('last-generated-id') + 1]))
  } catch (cause) {
    if (/no such key/i.test((cause as Error).message)) return { ms: 0, seq: 0 }
    return orUnavailable(Promise.reject(cause as Error))
  }
}
