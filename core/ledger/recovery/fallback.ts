/**
 * Notices that the database fell back: that it lacks a transaction of which the store knows. Then what the store still
 * knows is recorded again, before anything is held, settled or recorded.
 */
import type { Log } from '../../lib/log.ts'
import { OnceInAWhile } from '../../lib/once-in-a-while.ts'
import { formatCredits } from '../../money/credits.ts'
import type { Commit } from '../../records/lineage.ts'
import { beginEpoch } from '../../records/migrations.ts'
import type { Records } from '../../records/records.ts'
import type { Recovery } from './recovery.ts'
import { recoverRecords } from './records-recovery.ts'
import type { Scripts } from '../script/scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'
import { commitText, type StoreMeta } from './store-meta.ts'

/** What is known of the store whose database fell back. */
export interface FallenStore {
  readonly id: string | undefined
  readonly commit: Commit
  readonly epoch: number
  /** The time by its clock, in milliseconds since the epoch. */
  readonly nowMs: number
}

/** What a comparison of a store with its database needs. */
export interface FallbackNeeds {
  readonly scripts: Scripts
  readonly records: Records
  readonly meta: StoreMeta
  readonly recovery: Recovery
  readonly log: Log
  readonly newId: () => string
}

/** Compares one store with its database. */
export class Fallback {
  readonly #needs: FallbackNeeds
  readonly #reports = new OnceInAWhile()

  constructor(needs: FallbackNeeds) {
    this.#needs = needs
    // While the store is away, the next commit is noted there.
    needs.records.lineage.onCommit = commit => needs.meta.noteCommit(commit).catch(() => {})
  }

  /** Whether the database lacks a commit that the store knows. @throws GatewayError unavailable */
  async hasHappened(commit: Commit | undefined): Promise<boolean> {
    if (commit && !(await orUnavailable(this.#needs.records.lineage.has(commit)))) return true
    // This process may have seen another lineage.
    await orUnavailable(this.#needs.records.lineage.follow())
    return false
  }

  /**
   * Records again what the store knows.
   * @returns the epoch that begins
   * @throws BeingRestored if another process does so
   */
  recover({ id, commit, epoch, nowMs }: FallenStore): Promise<number> {
    return this.#needs.recovery.alone(async () => {
      const said = 'the database lacks transactions that it had committed; recording again what the store knows'
      if (this.#reports.due('fallen', said, nowMs)) this.#needs.log.error(said)
      await this.#needs.meta.set({ fallen: '1' })
      let next = epoch
      const begun = await orUnavailable(
        this.#needs.records.lineage.begin(commit, async sql => {
          next = await beginEpoch(sql, id, epoch)
        }),
      )
      const { granted, charges, ...counts } = await recoverRecords(this.#needs.scripts, this.#needs.records, {
        at: nowMs,
        newId: this.#needs.newId,
        epoch: next,
      })
      // A late note of a lost commit does not stay.
      await this.#needs.meta.set({ generation: String(next), fallen: '', commit: commitText(begun) })
      this.#needs.log.error(
        { ...counts, granted: formatCredits(granted), charges: formatCredits(charges) },
        'recorded again what the store knew after the database fell back; names of keys, entries of histories, codes and other changes of that time are lost',
      )
      return next
    })
  }
}
