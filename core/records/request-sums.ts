/**
 * The requests that have ended, of one process: they are added up, and recorded with the next batch. A process that is
 * killed loses those since its last one. Money is not counted here.
 */
import { lru } from '../lib/lru.ts'
import { bytesOfId } from '../lib/ids.ts'
import { CommitInDoubt, insertAll, type Sql } from './database.ts'
import { dayOf, type Status } from './entry.ts'

/** A request that has ended, as it is counted. */
export interface CountedRequest {
  readonly id: string
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number
  readonly account: string
  /** Its key, if that has another name than the account. */
  readonly key?: string | undefined
  readonly type: string
  /** Its model, if it is one that the key may use. */
  readonly model: string
  /** The account of the upstream that was asked last; '' for none. */
  readonly upstream: string
  readonly status: Status
  /** The code of its failure; '' for none. */
  readonly code: string
  readonly kind: 'served' | 'failed' | 'refused' | 'left'
}

/** Requests that are counted alike. */
export interface RequestSum extends Pick<
  CountedRequest,
  'account' | 'key' | 'type' | 'model' | 'upstream' | 'status' | 'code'
> {
  /** Days since the epoch. */
  readonly day: number
  requests: number
  errors: number
  refused: number
}

/** Why a request failed. */
export interface FailedRequest {
  readonly id: string
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number
  readonly account: string
  readonly key?: string | undefined
  readonly who: string
  readonly code: string
  readonly httpStatus: number
  readonly model: string
  readonly upstream: string
  /** What the provider said, without secrets and without the request's own words. */
  readonly words: string | undefined
  /** The rest of what is known, as JSON. */
  readonly story: string
}

/** What waits to be recorded. */
export interface RequestBatch {
  readonly sums: Map<string, RequestSum>
  failures: FailedRequest[]
  /** Further failures with the key and the code of a noted one, by its id. */
  readonly alike: Map<string, number>
}

/** Failures that wait to be recorded. Further ones are only counted in the sums. */
const FAILURES_MAX = 5000
/** Pairs of a key and a code whose failures of this minute are remembered. */
const PAIRS_MAX = 10_000

/** Adds up the requests of one process. */
export class RequestSums {
  /** Batches that were taken. */
  batches = 0
  #batch = emptyBatch()
  /** The batch that is being recorded. */
  #taken: RequestBatch | undefined
  /** Resolves when that has been done, or has failed. */
  #recording: Promise<unknown> = Promise.resolve()
  /** The failures of this minute that were noted, by key and code. */
  readonly #noted = lru<string, { readonly minute: number; count: number; id: string }>(PAIRS_MAX)

  /**
   * Counts a request.
   * @param most failures of one key and code that are noted in a minute
   * @param explain returns why it failed
   */
  count(request: CountedRequest, most: number, explain: () => FailedRequest): void {
    const { account, key, type, model, upstream, status, code, kind } = request
    const day = dayOf(request.at)
    const name = `${day} ${account} ${key} ${type} ${model} ${upstream} ${status} ${code}`
    let sum = this.#batch.sums.get(name)
    if (!sum) {
      sum = { day, account, key, type, model, upstream, status, code, requests: 0, errors: 0, refused: 0 }
      this.#batch.sums.set(name, sum)
    }
    sum.requests++
    if (kind === 'failed') sum.errors++
    else if (kind === 'refused') sum.refused++
    if (kind === 'failed' || kind === 'refused') this.#note(request, most, explain)
  }

  #note({ account, key = account, code, at, id }: CountedRequest, most: number, explain: () => FailedRequest): void {
    const { failures, alike } = this.#batch
    const minute = Math.floor(at / 60_000)
    const pair = `${key} ${code}`
    let noted = this.#noted.get(pair)
    if (noted?.minute !== minute) this.#noted.set(pair, (noted = { minute, count: 0, id: '' }))
    if (noted.count < most && failures.length < FAILURES_MAX) {
      noted.count++
      noted.id = id
      failures.push(explain())
    } else if (noted.id !== '') alike.set(noted.id, (alike.get(noted.id) ?? 0) + 1)
  }

  /** Resolves when no batch is being recorded. */
  async idle(): Promise<void> {
    while (this.#taken) await this.#recording
  }

  /** Whether nothing waits to be recorded. */
  get isEmpty(): boolean {
    return this.#batch.sums.size === 0
  }

  /** Returns the requests of an account that wait to be recorded. @param key only those of this key */
  waiting(account: string, key?: string): readonly RequestSum[] {
    const all = [...(this.#taken?.sums.values() ?? []), ...this.#batch.sums.values()]
    return all.filter(sum => sum.account === account && (key === undefined || (sum.key ?? account) === key))
  }

  /**
   * Records what waits. If that fails, it waits again.
   * @throws what `record` throws
   */
  async record(record: (batch: RequestBatch) => Promise<void>): Promise<void> {
    // Transactions take turns anyway.
    await this.idle()
    const batch = (this.#taken = this.#batch)
    this.#batch = emptyBatch()
    this.batches++
    const recording = record(batch).finally(() => (this.#taken = undefined))
    this.#recording = recording.catch(() => {})
    try {
      await recording
    } catch (cause) {
      // What may have been recorded is not counted again.
      if (!(cause instanceof CommitInDoubt)) this.#giveBack(batch)
      throw cause
    }
  }

  #giveBack({ sums, failures, alike }: RequestBatch): void {
    for (const [name, sum] of sums) {
      const newer = this.#batch.sums.get(name)
      if (!newer) this.#batch.sums.set(name, sum)
      else for (const count of ['requests', 'errors', 'refused'] as const) newer[count] += sum[count]
    }
    this.#batch.failures = [...failures, ...this.#batch.failures]
    // The counts of dropped failures are dropped too.
    for (const { id } of this.#batch.failures.splice(FAILURES_MAX)) alike.delete(id)
    for (const [id, count] of alike) this.#batch.alike.set(id, (this.#batch.alike.get(id) ?? 0) + count)
  }
}

function emptyBatch(): RequestBatch {
  return { sums: new Map(), failures: [], alike: new Map() }
}

/** Writes why requests failed. @param number returns the number of a key */
export async function writeFailures(
  sql: Sql,
  { failures, alike }: RequestBatch,
  number: (of: FailedRequest) => number,
): Promise<void> {
  const known = new Set(failures.map(({ id }) => id))
  await insertAll(
    sql,
    'INSERT INTO failures (id, ended, key, alike, status, who, code, model, upstream_account, words, story)',
    failures.map(failure => [
      bytesOfId(failure.id),
      failure.at,
      number(failure),
      1 + (alike.get(failure.id) ?? 0),
      failure.httpStatus,
      failure.who,
      failure.code,
      failure.model,
      failure.upstream,
      failure.words ?? null,
      failure.story,
    ]),
    'ON CONFLICT (id) DO NOTHING',
  )
  for (const [id, count] of alike)
    if (!known.has(id)) await sql.all('UPDATE failures SET alike = alike + ? WHERE id = ?', [count, bytesOfId(id)])
}
