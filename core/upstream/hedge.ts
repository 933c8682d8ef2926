/**
 * Hedging: when the account that is asked is late with its answer, another one is asked at the same time. The first
 * good answer counts. The other attempt is cancelled, and the stages count what it may have cost.
 */
import type { ReplyHooks } from '../chain/reply-hooks.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { type Candidate, namesOf } from '../exchange/route.ts'
import { deadline } from '../lib/deadline.ts'
import type { Pool } from '../pool/pool.ts'
import { FailedAttempt } from './endings.ts'
import type { Client, TakenBack, UpstreamReply } from './send.ts'

/** Sends a request to an account. @throws GatewayError */
export type Start = (candidate: Candidate, client: Client) => Promise<UpstreamReply | TakenBack>

/** An attempt that runs beside another one. */
interface Running {
  readonly candidate: Candidate
  readonly reply: Promise<UpstreamReply | TakenBack>
  cancel(): void
}

/** Why an attempt was cancelled, for the history. */
const SLOWER = 'another account answered first'

/** The failure of an attempt that the second account takes the place of: that one has answered, or alone has the request. */
export class Slower extends FailedAttempt {
  /** How the attempt ended. */
  readonly attempt: Pick<Attempt, 'failure' | 'cancelled'>

  /** @param taken whether the account may have begun to work */
  constructor(taken: TakenBack) {
    const cause = new Error(`late, and ${SLOWER}`)
    super('slower', new GatewayError('upstream_timeout', { cause }))
    this.attempt = cancelledAttempt(taken)
  }
}

function cancelledAttempt(taken: TakenBack, failure = SLOWER): Pick<Attempt, 'failure' | 'cancelled'> {
  return { failure, ...(taken === 'sent' && { cancelled: true }) }
}

/** What an exchange's attempts at two accounts need. */
interface Parts {
  readonly x: HttpExchange
  readonly up: ReplyHooks
  readonly pool: Pool
  readonly start: Start
  /** Notes what the failure of the second attempt tells about its account. */
  readonly failed: (candidate: Candidate, answer: UpstreamReply | GatewayError, hurry: Promise<void>) => Promise<void>
}

/** The attempts of one exchange that run at the same time: the one at the route's current account, and a second one. */
export class Hedge {
  /** How many second accounts were asked and lost: none or one. */
  lost = 0
  readonly #parts: Parts
  /** Whether a second account was asked. A request has at most one. */
  #asked = false
  /** The second attempt, while it may still win. */
  #second: Running | undefined
  /** The second attempt, once the route has gone on to its account. */
  #taken: Running | undefined
  /** Ends the reading of why the second attempt failed. */
  #hurry: () => void = () => {}
  #noting: Promise<void> | undefined

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Whether a second attempt runs, which the route goes on to next. */
  get runs(): boolean {
    return this.#second !== undefined
  }

  /** Notes that the route has gone on to an account. From now on, a second attempt there is the request's own. */
  goneTo(candidate: Candidate): void {
    if (this.#second?.candidate !== candidate) return
    this.#taken = this.#second
    this.#second = undefined
  }

  /** Whether the account that the route has gone on to is being asked already. */
  isAsking(candidate: Candidate): boolean {
    return this.#taken?.candidate === candidate
  }

  /** Cancels the attempt at the account that the route has gone on to. @returns it, if there was one */
  async refuse(): Promise<Attempt | undefined> {
    const { pool } = this.#parts
    const taken = this.#taken
    if (!taken) return undefined
    this.#taken = undefined
    taken.cancel()
    const attempt = { ...namesOf(taken.candidate), ...cancelledAttempt(await takenBack(taken), 'not wanted any more') }
    this.#note(attempt)
    pool.ended(taken.candidate)
    return attempt
  }

  #note(attempt: Attempt): void {
    const { x } = this.#parts
    // A client that left owes the input even if only the second account has begun to work.
    x.attempts.push(x.gone && attempt.cancelled ? { ...attempt, failure: undefined } : attempt)
  }

  /**
   * Asks the route's current account, and a second one if no answer has come after some time.
   * @param afterMs undefined if no second one may be asked
   * @throws Slower if the second one has answered first; GatewayError if the attempt failed. In both cases the second
   * attempt may still run
   */
  async ask(afterMs: number | undefined): Promise<UpstreamReply | TakenBack> {
    const { x } = this.#parts
    const taken = this.#taken
    if (taken) {
      this.#taken = undefined
      x.sent()
      return taken.reply
    }
    const first = this.#begin(x.route.current)
    if (afterMs === undefined || this.#asked || (await isInTime(first.reply, afterMs))) return first.reply
    // The hooks may take long. The first account is not kept waiting for them.
    const second = await Promise.race([this.#hedge(first), settled(first.reply).then(() => undefined)])
    if (!second) return first.reply
    const isFirst = await Promise.race([settled(first.reply), this.#answer(second)])
    // Whether the reply of a client that left is read to its end is decided for the first account.
    if (!isFirst && !x.gone) {
      first.cancel()
      throw new Slower(await takenBack(first))
    }
    if (!isFirst) await this.end()
    const reply = await first.reply
    // Everybody has left, and only the second account has the request.
    if (reply === 'unsent' && this.#second) throw new Slower(reply)
    if (typeof reply === 'string' || reply.status === 200) await this.end()
    return reply
  }

  /** Cancels the second attempt if one runs, and waits until everything about it is noted. */
  async end(): Promise<void> {
    const second = this.#second
    if (second) {
      // Whatever it answers from now on comes too late.
      this.#second = undefined
      second.cancel()
      this.#drop(second, cancelledAttempt(await takenBack(second)))
      this.#parts.pool.ended(second.candidate)
    }
    const refused = await this.refuse()
    if (refused) this.#parts.up.unhedge(refused)
    // The reply is decided, so that the words of a failure are no longer needed.
    this.#hurry()
    await this.#noting
  }

  #begin(candidate: Candidate): Running {
    const client = new CancellableClient(this.#parts.x)
    const reply = this.#parts.start(candidate, client)
    // The attempt may fail before its answer is awaited.
    reply.catch(() => {})
    return { candidate, reply, cancel: () => client.cancel() }
  }

  /** Asks the next account that is well, if the first one has not answered meanwhile. */
  async #hedge(first: Running): Promise<Running | undefined> {
    const { x, up, pool } = this.#parts
    let answered = false
    void settled(first.reply).then(() => (answered = true))
    const isWanted = (): boolean => !x.over && !x.gone && !answered
    for (const candidate of x.route.beside()) {
      if (!isWanted()) return undefined
      if (!pool.begin(candidate, false)) continue
      const accepted = await up.hedge(candidate).catch((cause: unknown) => {
        up.log.error({ exchange: x.id, err: cause }, 'hedge hook failed; the account is not asked')
        return false
      })
      if (accepted && isWanted()) {
        x.route.bring(candidate)
        this.#asked = true
        return (this.#second = this.#begin(candidate))
      }
      pool.ended(candidate)
      up.unhedge({ ...namesOf(candidate), failure: 'not asked' })
    }
    return undefined
  }

  /** Resolves with false when the second account has answered well. If it fails, the first one is waited for. */
  #answer(second: Running): Promise<false> {
    return new Promise(resolve => {
      second.reply.then(
        reply => {
          if (typeof reply === 'string' || this.#second !== second) return
          if (reply.status === 200) resolve(false)
          else this.#failed(second, { status: reply.status }, reply)
        },
        (thrown: unknown) => {
          const error = GatewayError.from(thrown)
          if (this.#second === second) this.#failed(second, { failure: error.message }, error)
        },
      )
    })
  }

  #failed(second: Running, how: Partial<Attempt>, answer: UpstreamReply | GatewayError): void {
    this.#parts.x.route.drop(second.candidate)
    this.#drop(second, how)
    const hurry = new Promise<void>(resolve => (this.#hurry = resolve))
    this.#noting = this.#parts.failed(second.candidate, answer, hurry)
  }

  #drop(second: Running, how: Partial<Attempt>): void {
    const { up } = this.#parts
    this.#second = undefined
    this.lost++
    const attempt = { ...namesOf(second.candidate), ...how }
    this.#note(attempt)
    up.unhedge(attempt)
  }
}

/** The client of an attempt that can be cancelled alone. */
class CancellableClient implements Client {
  readonly #x: HttpExchange
  #cancelled = false
  #whenOver: (() => void) | undefined

  constructor(x: HttpExchange) {
    this.#x = x
  }

  get over(): boolean {
    return this.#cancelled || this.#x.over
  }

  whenOver(callback: () => void): () => void {
    this.#whenOver = callback
    return this.#x.whenOver(callback)
  }

  sent(): void {
    this.#x.sent()
  }

  cancel(): void {
    this.#cancelled = true
    this.#whenOver?.()
  }
}

/** Waits for a cancelled attempt. @returns whether its account may have begun to work */
async function takenBack({ reply }: Running): Promise<TakenBack> {
  const answer = await reply.catch(() => 'unsent' as const)
  if (typeof answer === 'string') return answer
  // It answered as it was cancelled.
  answer.abort()
  return 'sent'
}

/** Resolves with true when an attempt has an answer, or has failed. */
function settled(reply: Running['reply']): Promise<true> {
  return reply.then(
    () => true,
    () => true,
  )
}

/** Whether an attempt has an answer, or has failed, within a time in milliseconds. */
function isInTime(reply: Running['reply'], ms: number): Promise<boolean> {
  return new Promise(resolve => {
    const limit = deadline(ms, () => resolve(false))
    void settled(reply).then(() => {
      limit.clear()
      resolve(true)
    })
  })
}
