/**
 * Forwards a routed exchange: asks the route's accounts in order until one of them answers well, and relays that
 * answer. Once anything of a reply has gone to the client, no other account is asked.
 */
import type { Forward } from '../../chain/chain.ts'
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import { afterWait, GatewayError } from '../../errors.ts'
import type { Attempt, Head, Outcome } from '../../exchange/exchange.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { keepWaiting } from '../../exchange/waiting.ts'
import { deadline } from '../../lib/deadline.ts'
import { afterEvents } from '../../lib/turns.ts'
import { noneLeft } from '../../pool/none-left.ts'
import type { Pool } from '../../pool/pool.ts'
import { type Asking, attempt } from './attempt.ts'
import { aboutFailed, decide, mayGoOn } from './decisions.ts'
import { endedByClient, type FailedAttempt } from '../relay/endings.ts'

/** Two waits that differ by less are the same, in milliseconds. */
const HARDLY_MS = 1000

/** Creates the function at the end of every chain. */
export function forwarder(asking: Asking): Forward {
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
    try {
      // The end of a connection is handled a turn after its last bytes.
      await afterEvents()
      x.outlet.look()
      return await askInTurn(x, up, asking)
    } finally {
      silence?.clear()
      x.upstreamClock.stop()
      x.endReadOnPolicy()
    }
  }
}

/** How often a conversation is shortened for its compaction. */
const SHORTENINGS_MAX = 6

/** Asks the accounts until one serves. @throws the error that the client is sent */
async function askInTurn(x: HttpExchange, up: ReplyHooks, asking: Asking): Promise<Outcome> {
  const { route } = x
  const { attempts, on, openingMs } = route.retry
  const beganMs = performance.now()
  let elapsedMs = 0
  let shortenings = 0
  for (let tries = 0; ;) {
    const isLast = tries + 1 >= attempts || !route.more
    // A conversation that is too long may still be shortened for its compaction.
    const mayShorten =
      shortenings < SHORTENINGS_MAX && route.compacting !== undefined && route.translation !== undefined
    const end = await attempt(x, up, asking, mayShorten || (!isLast && openingMs > 0 && on.has('empty')))
    if (end.kind === 'left') return endedByClient(x)
    if (end.kind === 'done') return end.outcome
    const { failure } = end
    const refusal = failure.head?.failure
    const isInTime = performance.now() - beganMs < route.retry.totalMs
    if (mayShorten && refusal && isInTime && !x.gone && !x.over && (await route.shorten(refusal))) {
      shortenings++
      if (!(await up.beforeNextAttempt(end.attempt))) throw conclusion(x, up, failure, asking.pool)
      x.forgetAttempt()
      continue
    }
    const about = aboutFailed(failure)
    const isRule = failure.head?.verdict?.isRule
    const { countsAsTry, asksNext, mayBeAskedAgain } = decide(about, failure.kind, on, isRule)
    if (countsAsTry) tries++
    if (mayBeAskedAgain) route.postpone()
    // An account that was not asked took no time.
    if (about !== 'not asked') elapsedMs = performance.now() - beganMs
    if (!asksNext || !mayGoOn(x, tries, elapsedMs)) throw conclusion(x, up, failure, asking.pool)
    // The stages still see what the attempt has delivered, and for how long it ran.
    if (!(await next(x, up, end.attempt))) throw conclusion(x, up, failure, asking.pool)
    x.forgetAttempt()
  }
}

/**
 * Goes on to the next account that the stages accept.
 * @param failed the attempt at the account before
 * @returns false if there is none
 */
async function next(x: HttpExchange, up: ReplyHooks, failed: Attempt): Promise<boolean> {
  while (x.route.more) {
    if (!(await x.route.next())) return false
    if (x.over || x.gone) return false
    if (await up.beforeNextAttempt(failed)) return true
  }
  return false
}

/** Returns what the client is told. The stages see the failure first, and may throw an error of their own for it. */
function conclusion(x: HttpExchange, up: ReplyHooks, failure: FailedAttempt, pool: Pool): unknown {
  const { error, head } = failure
  const about = aboutFailed(failure)
  const { upstreams, sends } = x.model.entry
  // The client's next request would fail as well, until an account can serve again.
  const waitMs = pool.waitMs(upstreams, sends)
  const isRefused = about === 'refused' || about === 'suspected refusal' || about === 'echoed refusal'
  if (about === 'not asked' || (isRefused && waitMs > 0)) return noneLeft(pool, upstreams, sends, error.details.cause)
  if (!head) return error
  try {
    up.response(head)
  } catch (thrown) {
    return sooner(thrown, waitMs, head)
  }
  return error
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
    ...afterWait(Math.max(waitMs, HARDLY_MS)),
    ...(isFinal && { retry: false }),
  })
}
