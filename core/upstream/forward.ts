/**
 * Forwards a routed exchange: asks the route's accounts in order until one of them answers well, and relays that
 * answer. Once anything of a reply has gone to the client, no other account is asked.
 */
import type { Forward } from '../chain/chain.ts'
import { known, type ReplyHooks } from '../chain/reply-hooks.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt, Failure, Head, Outcome } from '../exchange/exchange.ts'
import { presented } from '../exchange/credential.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { type Candidate, namesOf } from '../exchange/route.ts'
import { keepWaiting } from '../exchange/waiting.ts'
import { isOfTheAccount, isOfTheRequest } from '../formats/failures.ts'
import { waitAsked } from '../formats/rate-limits.ts'
import { deadline } from '../lib/deadline.ts'
import { reasonOf } from '../lib/log.ts'
import { NEAR_MS, noneLeft } from '../pool/none-left.ts'
import { type Pool, refusesAccount } from '../pool/pool.ts'
import { endedByClient, FailedAttempt } from './endings.ts'
import { passedQuery, upwardHeaders } from './headers.ts'
import { Hedge, Slower } from './hedge.ts'
import { ReadOn } from './read-on.ts'
import { failureOf, relay } from './relay.ts'
import { type Client, type Sender, type TakenBack, Unsent, type UpstreamReply } from './send.ts'

/** The failure of an account that cannot be asked at this moment: another request tries it, or it must wait. */
const NOT_ASKED = new FailedAttempt('connect', new GatewayError('overloaded'))

/** Two waits that differ by less are the same, in milliseconds. */
const HARDLY_MS = 1000

/** Which other accounts an attempt may be given up for: a second one at the same time, or the next one. */
interface Others {
  readonly mayHedge: boolean
  readonly mayAsk: boolean
}

/**
 * Creates the function at the end of every chain.
 * @param simulated returns the base address of the simulated provider, for upstreams without a URL
 * @param now milliseconds since the epoch
 */
export function forwarder(sender: Sender, pool: Pool, simulated: () => URL, now: () => number): Forward {
  /** Sends the request to an account. @throws GatewayError */
  async function send(
    x: HttpExchange,
    up: ReplyHooks,
    candidate: Candidate,
    client: Client,
  ): Promise<UpstreamReply | TakenBack> {
    const { upstream, account, format } = candidate
    const { translation } = x.route
    const bytes = translation ? await translation.limited(x.format.outputLimit(x.body)) : x.body.bytes()
    const headers = upwardHeaders(x.headers, format, account, x.model.headers, translation !== undefined)
    const { timeouts, http2 } = upstream
    const to = { url: account.url ?? simulated(), proxy: account.url && account.proxy, timeouts, http2 }
    const path = x.inference ? format.path : x.path
    const query = translation ? '' : passedQuery(x.rawQuery, presented(x.headers))
    return sender.send(to, path + query, headers, bytes, client, () => {
      sender.repeated++
      up.log.info(
        { exchange: x.id, ...namesOf(candidate) },
        'request sent again: the upstream closed an idle connection as the request was sent',
      )
    })
  }

  /** Asks the current account. @throws FailedAttempt while nothing has gone to the client; what a stage throws */
  async function ask(x: HttpExchange, up: ReplyHooks, hedge: Hedge | undefined, others: Others): Promise<Outcome> {
    const { current, upstream } = x.route
    const name = namesOf(current)
    x.abandonedReply = new ReadOn(x, up, upstream)
    let reply: UpstreamReply | TakenBack
    try {
      reply = await (hedge
        ? hedge.ask(others.mayHedge ? x.route.retry.hedgeAfterMs : undefined)
        : send(x, up, current, x))
    } catch (thrown) {
      if (thrown instanceof Slower) {
        x.attempts.push({ ...name, ...thrown.attempt })
        throw thrown
      }
      const error = GatewayError.from(thrown)
      x.attempts.push({ ...name, failure: error.message })
      throw unanswered(error)
    }
    if (reply === 'unsent') return endedByClient(x)
    const attempt: Attempt = { ...name, ...(reply !== 'sent' && { status: reply.status }) }
    x.attempts.push(attempt)
    if (reply === 'sent') return endedByClient(x)
    const begun = (): void => pool.answers(current)
    return relay(x, up, reply, { attempt, patience: upstream.timeouts, mayAskAnother: others.mayAsk, begun })
  }

  /** Asks the current account, and notes what that tells about its health. */
  async function attempt(x: HttpExchange, up: ReplyHooks, hedge: Hedge | undefined, others: Others): Promise<Outcome> {
    const asked = x.route.current
    if (!hedge?.isAsking(asked) && !pool.begin(asked, !x.route.more)) throw NOT_ASKED
    try {
      const outcome = await ask(x, up, hedge, others)
      if (outcome.kind === 'broken' && outcome.by === 'upstream') pool.failed(asked, undefined, 'the reply broke off')
      else if (outcome.kind === 'relayed' && isFailed(known(x).tally?.failure))
        pool.failed(asked, undefined, 'the reply ended with an error')
      else if (outcome.kind === 'relayed') pool.succeeded(asked)
      else pool.ended(asked)
      return outcome
    } catch (thrown) {
      learn(asked, thrown)
      throw thrown
    }
  }

  /** Notes what a failure tells about an account. @param thrown anything but a FailedAttempt tells nothing */
  function learn(asked: Candidate, thrown: unknown): void {
    if (!(thrown instanceof FailedAttempt) || isFaultless(thrown)) return pool.ended(asked)
    const { head, kind } = thrown
    const wait = head && waitAsked(head.headers, now())
    const takesOut = kind === 429 || kind === 503 || kind === 529
    // A 403 may be about the request, or about one model: one customer could take every account out.
    const isUnclear = kind === 403 && !(head?.failure && isOfTheAccount(head.failure))
    const status = typeof kind === 'number' && !isUnclear ? kind : undefined
    const reason = reasonOf(thrown.error.details.cause ?? thrown.error)
    pool.failed(asked, status, reason, takesOut && wait ? wait : undefined)
  }

  /** The second attempts of an exchange. */
  function hedgeOf(x: HttpExchange, up: ReplyHooks): Hedge {
    return new Hedge({
      x,
      up,
      pool,
      start: (candidate, client) => send(x, up, candidate, client),
      failed: async (candidate, answer, hurry) => {
        if (answer instanceof GatewayError) return learn(candidate, unanswered(answer))
        const attempt = { ...namesOf(candidate), status: answer.status }
        const how = { attempt, patience: candidate.upstream.timeouts, mayAskAnother: false, begun: () => {} }
        const unread = (): FailedAttempt =>
          new FailedAttempt(
            answer.status,
            new GatewayError('upstream_failed', { cause: new Error(`status ${answer.status}`) }),
          )
        const read = failureOf(x, up, answer, how).catch(unread)
        learn(candidate, await Promise.race([read, hurry.then(unread)]))
        answer.abort()
      },
    })
  }

  async function askAll(x: HttpExchange, up: ReplyHooks, hedge: Hedge | undefined): Promise<Outcome> {
    const { route } = x
    const { attempts, totalMs, on, openingMs } = route.retry
    const began = performance.now()
    for (let asked = 1; ; asked++) {
      const left = (): boolean => asked + (hedge?.lost ?? 0) < attempts && route.more
      const others = { mayHedge: left(), mayAsk: left() && openingMs > 0 && on.has('empty') }
      try {
        return await attempt(x, up, hedge, others)
      } catch (thrown) {
        if (!(thrown instanceof FailedAttempt)) throw thrown
        // It may be asked once more if every other one fails.
        if (thrown === NOT_ASKED || thrown instanceof Slower) route.postpone()
        const failed = noteFailure(x, thrown)
        if (thrown instanceof Slower && x.over) {
          // The second account has the request, so that it is charged there.
          if (await route.next()) hedge?.goneTo(route.current)
          await up.reroute(failed)
          await hedge?.refuse()
          return endedByClient(x)
        }
        // An account that was not asked, or that is refused, is no try.
        const isNoTry = thrown === NOT_ASKED || (refusesAccount(thrown.kind) && isRetried(thrown, on))
        if (isNoTry) asked--
        const isLate = thrown !== NOT_ASKED && performance.now() - began >= totalMs
        const may = isNoTry ? route.more : left() && isRetried(thrown, on)
        // What the request itself causes is not waited for elsewhere.
        const goesOn = hedge?.runs ? !isOfRequest(thrown) : may && !isLate
        if (!goesOn || x.begun || x.gone || x.over) throw conclusion(x, up, thrown)
        x.forgetAttempt()
        if (!(await next(x, up, hedge, failed))) throw conclusion(x, up, thrown)
      }
    }
  }

  /** Returns what the client is told. The stages see the failure first, and may throw an error of their own for it. */
  function conclusion(x: HttpExchange, up: ReplyHooks, failure: FailedAttempt): unknown {
    const { kind, error, head } = failure
    const { upstreams, sends } = x.model.entry
    // The client's next request would fail as well, until an account can serve again.
    const waitMs = pool.waitMs(upstreams, sends)
    if (failure === NOT_ASKED || (refusesAccount(kind) && waitMs > 0)) return noneLeft(waitMs, error.details.cause)
    if (!head) return error
    try {
      up.response(head)
    } catch (thrown) {
      return sooner(thrown, waitMs, head)
    }
    return error
  }

  return async (x, up) => {
    // Without a router there is no upstream; the path exists only because some stage is scoped to it. A request that is
    // not an inference can only go to an upstream of the same format.
    if (!x.route || (!x.inference && x.route.format !== x.format)) throw new GatewayError('not_found')
    // Until the reply begins, the client may hear nothing from a slow upstream, or from several.
    const silence = x.inference && x.body.get('stream') === true ? deadline(x.limits.keepaliveMs, wait) : undefined
    function wait(): void {
      keepWaiting(x)
      silence?.refresh()
    }
    // The first byte of a reply in one piece comes with its last one, so that it says nothing.
    const hedge = silence && x.route.retry.hedgeAfterMs !== undefined ? hedgeOf(x, up) : undefined
    try {
      return await askAll(x, up, hedge)
    } finally {
      if (hedge) await hedge.end()
      silence?.clear()
      x.upstreamClock.stop()
      x.endAbandonedReply()
    }
  }
}

/**
 * Goes on to the next account that the stages accept.
 * @param failed the attempt at the account before
 * @returns false if there is none
 */
async function next(x: HttpExchange, up: ReplyHooks, hedge: Hedge | undefined, failed: Attempt): Promise<boolean> {
  let before = failed
  while (x.route.more) {
    if (!(await x.route.next())) return false
    hedge?.goneTo(x.route.current)
    if (x.over || x.gone) return false
    if (await up.reroute(before)) return true
    const refused = await hedge?.refuse()
    if (!refused) continue
    up.unhedge(refused)
    before = refused
  }
  return false
}

/** Returns an error that tells the client to wait, if another account can serve before that. */
function sooner(thrown: unknown, waitMs: number, { headers }: Head): unknown {
  if (!(thrown instanceof GatewayError)) return thrown
  const { retryAfterMs = 0, ...details } = thrown.details
  if (retryAfterMs <= waitMs + HARDLY_MS) return thrown
  const isFinal = headers['x-should-retry'] === 'false'
  const { retry: _isFar, ...rest } = details
  return new GatewayError(thrown.code, {
    ...rest,
    retryAfterMs: Math.max(waitMs, HARDLY_MS),
    ...((isFinal || waitMs > NEAR_MS) && { retry: false }),
  })
}

/** Notes in the attempt at the current account that its answer was no reply. @returns the attempt */
function noteFailure({ attempts, route }: HttpExchange, failure: FailedAttempt): Attempt {
  const name = namesOf(route)
  const at = attempts.findLastIndex(({ upstream, account }) => upstream === name.upstream && account === name.account)
  const last = attempts[at]
  if (!last || failure === NOT_ASKED) return last ?? name
  const { kind } = failure
  const noted = typeof kind === 'number' || last.failure !== undefined ? last : { ...last, failure: kind }
  attempts[at] = noted
  return noted
}

/** The failure of an attempt that was not answered. Any other error of the gateway is not the account's. */
function unanswered(error: GatewayError): GatewayError | FailedAttempt {
  if (!error.code.startsWith('upstream_')) return error
  return new FailedAttempt(error instanceof Unsent ? 'connect' : 'timeout', error)
}

/** Whether the request itself caused a failure. */
function isOfRequest({ head }: FailedAttempt): boolean {
  return head !== undefined && isOfTheRequest(head.status, head.failure)
}

/** Whether a failure says nothing about the account. */
function isFaultless(failure: FailedAttempt): boolean {
  const { kind } = failure
  if (isOfRequest(failure)) return true
  return typeof kind === 'number' && kind >= 400 && kind < 500 && kind !== 408 && kind !== 429 && !refusesAccount(kind)
}

/** Whether a reply ended with a failure that the request did not cause. */
function isFailed(failure: Failure | undefined): boolean {
  return failure !== undefined && !isOfTheRequest(200, failure)
}

/** Whether another account is asked after a failure. */
function isRetried(failure: FailedAttempt, on: ReadonlySet<string>): boolean {
  const { kind } = failure
  if (isOfRequest(failure)) return false
  if (refusesAccount(kind)) return true
  return on.has(String(kind)) || (typeof kind === 'number' && kind >= 500 && on.has('5xx'))
}
