/** One attempt at an account: sends the request, relays the answer, and notes what that tells about the account. */
import { known, type ReplyHooks } from '../../chain/reply-hooks.ts'
import { GatewayError } from '../../errors.ts'
import type { Attempt, Outcome } from '../../exchange/exchange.ts'
import { presented } from '../../client/credential.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { namesOf } from '../../exchange/route.ts'
import { classify, type Verdict } from '../../formats/classify.ts'
import { codesOf } from '../../formats/failures.ts'
import type { Failure } from '../../formats/terms.ts'
import { reasonOf } from '../../lib/reason.ts'
import type { Pool, PooledAccount } from '../../pool/pool.ts'
import { type About, aboutFailed, aboutOf, DECISIONS } from './decisions.ts'
import { FailedAttempt } from '../relay/endings.ts'
import { passedQuery, upwardHeaders } from '../connection/headers.ts'
import { ReadOn } from './read-on.ts'
import { relay } from '../relay/relay.ts'
import { type Sender, type TakenBack, Unsent, type UpstreamReply } from '../connection/send.ts'

/** How an attempt ended. */
export type AttemptEnd =
  /** The answer was relayed, to its end or not. */
  | { readonly kind: 'done'; readonly outcome: Outcome }
  /** Nothing has gone to the client, so that another account may be asked. */
  | { readonly kind: 'failed'; readonly failure: FailedAttempt; readonly attempt: Attempt }
  /** The client left, or the gateway ended the exchange, before the account answered. */
  | { readonly kind: 'left' }

/** What attempts need of the gateway. */
export interface Asking {
  readonly sender: Sender
  readonly pool: Pool
  /** Returns the base address of the simulated provider, for upstreams without a URL. */
  readonly simulated: () => URL
  /** Milliseconds since the epoch. */
  readonly now: () => number
}

/** The failure of an account that cannot be asked at this moment: another request tries it, or it must wait. */
const NOT_ASKED = new FailedAttempt('not asked', new GatewayError('overloaded'))

/**
 * Asks the current account of the route.
 * @param mayAskAnother whether another account would be asked if this one fails before any content
 * @throws what a stage throws, and GatewayError if the gateway itself ends the exchange
 */
export async function attempt(
  x: HttpExchange,
  up: ReplyHooks,
  asking: Asking,
  mayAskAnother: boolean,
): Promise<AttemptEnd> {
  const { pool } = asking
  const asked = x.route.current
  if (!pool.begin(asked, !x.route.more)) return { kind: 'failed', failure: NOT_ASKED, attempt: namesOf(asked) }
  const beganMs = asking.now()
  try {
    const end = await ask(x, up, asking, mayAskAnother)
    const about = aboutEnd(x, end, asking)
    const failure = end.kind === 'failed' ? end.failure : undefined
    learn(x, asking.pool, asked, { about, failure })
    explain(x, { about, failure }, { beganMs, endedMs: asking.now() })
    return end
  } catch (thrown) {
    // What the gateway itself fails at tells nothing about the account.
    pool.ended(asked)
    throw thrown
  }
}

async function ask(x: HttpExchange, up: ReplyHooks, asking: Asking, mayAskAnother: boolean): Promise<AttemptEnd> {
  const { current, upstream } = x.route
  const name = namesOf(current)
  x.readOnPolicy = new ReadOn(x, up, upstream)
  let reply: UpstreamReply | TakenBack
  try {
    reply = await send(x, up, asking)
  } catch (thrown) {
    const error = GatewayError.from(thrown)
    if (!error.code.startsWith('upstream_')) {
      note(x, { ...name, failure: error.message })
      throw error
    }
    const kind = error instanceof Unsent ? 'connect' : 'timeout'
    return { kind: 'failed', failure: new FailedAttempt(kind, error), attempt: note(x, { ...name, failure: kind }) }
  }
  if (reply === 'unsent') return { kind: 'left' }
  if (reply === 'sent') {
    note(x, name)
    return { kind: 'left' }
  }
  const noted = note(x, { ...name, status: reply.status })
  const begun = (): void => asking.pool.answers(current)
  try {
    const how = { attempt: noted, patience: upstream.timeouts, mayAskAnother, begun, now: asking.now }
    return { kind: 'done', outcome: await relay(x, up, reply, how) }
  } catch (thrown) {
    if (!(thrown instanceof FailedAttempt)) throw thrown
    const { kind } = thrown
    const failed = typeof kind === 'number' ? noted : { ...noted, failure: kind }
    x.attempts[x.attempts.length - 1] = failed
    return { kind: 'failed', failure: thrown, attempt: failed }
  }
}

/** Adds an attempt to those of the exchange. @returns the attempt */
function note({ attempts }: HttpExchange, attempt: Attempt): Attempt {
  attempts.push(attempt)
  return attempt
}

/** Sends the request to the current account. @throws GatewayError */
async function send(
  x: HttpExchange,
  up: ReplyHooks,
  { sender, simulated }: Asking,
): Promise<UpstreamReply | TakenBack> {
  const { current, translation } = x.route
  const { upstream, account, format } = current
  const body = await x.route.partsFor(x.body, x.format, () => x.format.outputLimit(x.body))
  const headers = upwardHeaders(x.headers, {
    format,
    account,
    extra: x.model.headers,
    translated: translation !== undefined,
  })
  const { timeouts, http2 } = upstream
  const to = { url: account.url ?? simulated(), proxy: account.url && account.proxy, timeouts, http2 }
  // A compacted conversation that the provider makes has an endpoint of its own.
  const path = x.inference && (translation || x.path !== format.compaction?.path) ? format.path : x.path
  const passes = (name: string): boolean => format.query.includes(name) || upstream.passes.has(name)
  const query = translation ? '' : passedQuery(x.rawQuery, passes, presented(x.headers))
  return sender.send(to, { path: path + query, headers, body }, x, () => {
    sender.repeated++
    up.log.info(
      { exchange: x.id, ...namesOf(current) },
      'request sent again: the upstream closed an idle connection as the request was sent',
    )
  })
}

/** Returns what the end of an attempt is about. */
function aboutEnd(x: HttpExchange, end: AttemptEnd, { now }: Asking): About {
  if (end.kind === 'left') return 'left'
  if (end.kind === 'failed') return aboutFailed(end.failure)
  const { outcome } = end
  if (outcome.kind === 'broken' && outcome.by === 'upstream') return 'cut'
  if (outcome.kind !== 'relayed') return 'left'
  const { failure, hasUnknownEnd } = known(x).tally ?? {}
  if (!failure) return hasUnknownEnd ? 'unknown end' : 'served'
  const verdict = verdictInStream(x, failure, now())
  const about = aboutOf(200, verdict)
  if (about === 'request') return 'ended about the request'
  // After any other failure, the reply ended with an error.
  return ABOUT_IN_STREAM.has(about) ? about : 'ended with an error'
}

const ABOUT_IN_STREAM: ReadonlySet<About> = new Set(['refused', 'limited model', 'none'])

/** Returns what a failure within a stream is about. Its wording counts as echoed: the model may have written it. */
function verdictInStream(x: HttpExchange, failure: Failure, now: number): Verdict {
  const circumstances = { rules: x.route.upstream.failures, standsInRequest: () => true, now }
  return classify({ status: 200, failure }, circumstances)
}

/** What the end of an attempt is about, and the failure, if there is one. */
interface Explained {
  readonly about: About
  readonly failure: FailedAttempt | undefined
}

/** Notes why an attempt failed, and when. */
function explain(
  x: HttpExchange,
  { about, failure }: Explained,
  { beganMs, endedMs }: { readonly beganMs: number; readonly endedMs: number },
): void {
  const { who } = DECISIONS[about]
  const noted = x.attempts.at(-1)
  if (who === undefined || !noted) return
  x.attempts[x.attempts.length - 1] = { ...noted, about, who, afterMs: beganMs - x.startedAt, ms: endedMs - beganMs }
  const said = failure?.head?.failure ?? known(x).tally?.failure
  // Without an answer, the words are the gateway's own.
  const cause = failure && reasonOf(failure.error.details.cause ?? failure.error)
  x.providersWords =
    said && (said.message !== '' || codesOf(said).length > 0)
      ? { codes: codesOf(said), message: said.message }
      : { codes: [cause ?? WORDS[about] ?? about], message: '' }
}

/** What the log and the operator read of failures that have no error. */
const WORDS: Partial<Record<About, string>> = {
  cut: 'the reply broke off',
  'ended with an error': 'the reply ended with an error',
  refused: 'the reply ended with an error about the account',
  'limited model': 'the reply ended with an error about the model',
}

/** Notes what the end of an attempt tells about the account. */
function learn(
  { key, inference }: HttpExchange,
  pool: Pool,
  asked: PooledAccount,
  { about, failure }: Explained,
): void {
  const { health } = DECISIONS[about]
  const { head, error } = failure ?? {}
  const status = head?.status ?? 200
  // A time of 0 says nothing.
  const waitMs = head?.verdict?.waitMs || undefined
  const reason = error ? reasonOf(error.details.cause ?? error) : (WORDS[about] ?? about)
  // Counting has limits of its own, and not every provider allows it. It tells nothing, neither good nor bad.
  if (health === 'nothing' || !inference) pool.ended(asked)
  else if (health === 'success') pool.succeeded(asked)
  else if (health === 'refusal') pool.refused(asked, status, reason, waitMs)
  else if (health === 'suspicion') pool.suspected(asked, key?.id ?? '', status, reason)
  else if (health === 'limit') pool.limited(asked, reason, waitMs)
  else pool.failed(asked, reason, health === 'failure and wait' ? waitMs : undefined)
}
