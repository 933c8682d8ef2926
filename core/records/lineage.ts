/**
 * The lineage of the records: each transaction adds a commit, which is a number and a random id. The store keeps the
 * latest one, and each process the latest that it has seen. A database that lacks a commit that somebody has seen fell back:
 * another server took its place without the last transactions, or it was restored from a backup. After that, it begins
 * another branch.
 */
import { type Database, RecordsError, type Sql, type Transaction } from './database.ts'
import { LEFT, leftWords, setMeta } from './migrations.ts'
import { valueOf } from '../lib/value-of.ts'

/** One transaction of the records. */
export interface Commit {
  readonly no: number
  readonly id: string
  /** The branch that it belongs to; empty for the first. */
  readonly branch: string
}

/** Commits that are kept. A process that has seen none of them has been idle for long. */
const KEPT_MAX = 10_000
/** Name of the id of the branch in the database: the word of the first version. An epoch is something else today. */
const BRANCH = 'epoch'

/** The database lacks transactions that were committed. */
export class FellBack extends RecordsError {
  constructor() {
    super('the database lacks transactions that it had committed')
  }
}

/** Follows the transactions of a database. */
export class Lineage {
  readonly #database: Database
  readonly #newId: () => string
  #seen: Commit | undefined
  /** Notes the latest commit elsewhere, before its transaction is reported as done. Must not reject. */
  onCommit: (commit: Commit) => Promise<void> = () => Promise.resolve()
  /** Called when a transaction finds that the database fell back. */
  onFellBack: () => void = () => {}
  /** Called when what was read from the database before may be wrong. */
  readonly onForget: (() => void)[] = []

  constructor(database: Database, newId: () => string) {
    this.#database = database
    this.#newId = newId
  }

  /** The database, whose transactions add commits. They are refused while it lacks what this process has seen. */
  followed(): Database {
    const opened = this.#database
    return {
      ...opened,
      get failure() {
        return opened.failure
      },
      transaction: async use => {
        let committed: (() => Promise<void>) | undefined
        const result = await this.#database.transaction(async sql => {
          // The first statements go together. What a database that fell back answers to the others does not count.
          const [found, used] = await Promise.allSettled([this.#checked(sql), use(sql)])
          const { last, branch } = valueOf(found)
          const done = valueOf(used)
          const commit = this.#add(sql, last + 1, branch)
          committed = () => this.#committed(commit)
          return done
        })
        await committed?.()
        return result
      },
    }
  }

  /** Whether the database has a commit, or is so much further that nothing tells. */
  async has(commit: Commit): Promise<boolean> {
    return isFound(await commits(this.#database, commit.no), commit)
  }

  /** Notes what another process has committed: transactions are refused until the database has it. */
  expect(commit: Commit | undefined): void {
    if (!commit) return
    if (this.#seen && this.#seen.branch !== commit.branch) this.#forget()
    if (commit.no > (this.#seen?.no ?? 0)) this.#seen = commit
  }

  /** Goes on with what the database has now. What was read from it before is forgotten if this process has seen more. */
  async follow(): Promise<void> {
    if (this.#seen && !(await this.has(this.#seen))) this.#forget()
  }

  /**
   * Begins a branch of a database that fell back. The numbers of its commits are above that of the lost one.
   * @param lost the latest commit that somebody has seen
   * @param use further changes of the same transaction
   */
  async begin(lost: Commit, use: (sql: Sql) => Promise<void>): Promise<Commit> {
    const branch = this.#newId()
    const commit = await this.#database.transaction(async sql => {
      const { last } = await commits(sql, 0)
      await use(sql)
      await setMeta(sql, BRANCH, branch)
      return this.#add(sql, Math.max(last, lost.no) + 1, branch)
    })
    this.#forget()
    await this.#committed(commit)
    return commit
  }

  #forget(): void {
    this.#seen = undefined
    for (const forget of this.onForget) forget()
  }

  /** Checks that the database has what this process has seen. */
  async #checked(sql: Sql): Promise<Found> {
    // More may be seen while the database answers: another process may have committed before this transaction began.
    const seen = this.#seen
    const found = await commits(sql, seen?.no ?? 0)
    if (found.left !== undefined) throw new RecordsError(leftWords(this.#database.description, found.left))
    if (seen && !isFound(found, seen)) {
      this.onFellBack()
      throw new FellBack()
    }
    return found
  }

  #add(sql: Transaction, no: number, branch: string): Commit {
    const commit = { no, id: this.#newId(), branch }
    sql.put('INSERT INTO commits (no, id) VALUES (?, ?)', [no, commit.id])
    if (no % (KEPT_MAX / 10) === 0) sql.put('DELETE FROM commits WHERE no <= ?', [no - KEPT_MAX * 2])
    return commit
  }

  async #committed(commit: Commit): Promise<void> {
    if (commit.no > (this.#seen?.no ?? 0)) this.#seen = commit
    await this.onCommit(commit)
  }
}

/** What a database has: its branch, the number of its last commit, and the id of another one. */
interface Found {
  readonly branch: string
  readonly last: number
  readonly id: string | undefined
  /** Where the records were copied to, if they were. */
  readonly left: string | undefined
}

async function commits(sql: Sql, no: number): Promise<Found> {
  const rows = await sql.all(
    `SELECT no, id, (SELECT value FROM meta WHERE name = '${BRANCH}') AS branch,
     (SELECT value FROM meta WHERE name = '${LEFT}') AS left_for FROM commits
     WHERE no = ? OR no = (SELECT MAX(no) FROM commits)`,
    [no],
  )
  const row = rows.find(each => Number(each['no']) === no)
  return {
    branch: String(rows[0]?.['branch'] ?? ''),
    last: Math.max(0, ...rows.map(each => Number(each['no']))),
    id: row && String(row['id']),
    left: rows[0]?.['left_for'] ? String(rows[0]['left_for']) : undefined,
  }
}

/** Whether a commit was found in its branch, or is so old that it is no longer kept. */
function isFound({ branch, last, id }: Found, commit: Commit): boolean {
  if (branch !== commit.branch) return false
  return id === undefined ? last >= commit.no + KEPT_MAX : id === commit.id
}
