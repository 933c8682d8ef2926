import { type Failure, GatewayError, type Head, type Rewriter } from 'tollgate/plugin'
import {
  afterWait,
  classify,
  defineBuiltIn,
  failureCause,
  overflowOf,
  type BuiltInWith,
} from 'tollgate/plugin/metering'

/** How long a client waits if the upstream does not say. */
const WAIT_MS = 1000

/** Statuses of a failure about the request that clients get. */
const REJECTIONS: ReadonlySet<number> = new Set([400, 404, 413, 422])

const OVERLOAD = /overloaded|slow_down|capacity/

/**
 * Decides what customers see of an upstream's failure. A failure about the request passes with its own message, which
 * agents match; after a translation, a prompt that is too long gets the message of the client's format. All other
 * failures become one of the gateway's errors.
 */
export default defineBuiltIn({
  name: 'upstream-errors',
  summary:
    "Turns an upstream's failures into the gateway's errors. A failure about the request passes with its own message.",
  on: ['inference', 'counting'],
  needs: ['route'],
  setup(_options, { now }) {
    const verdictOf = ({ route }: Known, { status, headers }: Head, failure: Failure): Verdict =>
      classify(
        { status, headers, failure },
        { rules: route.upstream.failures, standsInRequest: () => true, now: now() },
      )

    return {
      response(x, head) {
        if (head.failure) throw errorOf(x, head, head.failure, head.verdict ?? verdictOf(x, head, head.failure))
      },
      rewrite(x, head): Rewriter | undefined {
        // A failure in one piece does not get here, because `response` has replaced it.
        if (!head.stream) return undefined
        let hasFailed = false
        return {
          matches: x.format.signals,
          event(event) {
            const { failure } = event.reading
            // What an upstream sends behind it, such as a regular end, would hide the failure.
            if (!failure) return hasFailed ? [] : undefined
            hasFailed = true
            const inStream = { ...head, status: 200 }
            const error = errorOf(x, inStream, failure, verdictOf(x, inStream, failure))
            const replaced = x.format.replaceError(event.json, error, x.id) as { readonly type?: string }
            // Clients of formats with named events skip an event without its name.
            return [{ type: x.format.namesEvents ? (replaced.type ?? '') : event.type, data: JSON.stringify(replaced) }]
          },
        }
      },
    }
  },
})

type Known = BuiltInWith<'route'>
type Verdict = ReturnType<typeof classify>

function errorOf(x: Known, head: Head, failure: Failure, { about, isLimit, waitMs }: Verdict): GatewayError {
  const kind = `${failure.type ?? ''} ${failure.code ?? ''}`
  if (about === 'request') {
    // Its message is for the customer only.
    const cause = failureCause(head.status, { ...failure, message: '' })
    // Agents read another status as a fault of their login, or of the provider.
    const status = REJECTIONS.has(head.status) ? head.status : 400
    return rejection(x, status, clean(failure, secretsOf(x)), cause)
  }
  const cause = failureCause(head.status, failure)
  // The upstream knows that a retry is useless.
  const final = head.headers['x-should-retry'] === 'false' ? { retry: false } : {}
  const isOverloaded = head.status === 200 && OVERLOAD.test(kind)
  if (isLimit || about === 'model' || isOverloaded || [429, 503, 529].includes(head.status)) {
    // An exhausted account of the operator looks like a rate limit, but it is not the customer's business.
    const retryAfterMs = Math.max(waitMs ?? WAIT_MS, WAIT_MS)
    return new GatewayError('overloaded', { cause, ...afterWait(retryAfterMs), ...final })
  }
  if (head.status === 408 || head.status === 504) return new GatewayError('upstream_timeout', { cause, ...final })
  return new GatewayError('upstream_failed', { cause, ...final })
}

/** Returns a rejection in the upstream's words, with its codes if the client uses the same format. */
function rejection({ route, format }: Known, status: number, failure: Failure, cause: Error): GatewayError {
  const own = route.format === format
  const { message, param, type, waitMs: _waitMs, ...codes } = own ? format.recognisable(failure) : failure
  const overflow = own ? undefined : overflowOf(failure)
  if (overflow)
    return new GatewayError('context_too_long', { cause, message: format.overflow(overflow.tokens, overflow.most) })
  return new GatewayError('upstream_rejected', {
    cause,
    status,
    upstream: { ...codes, ...(own && type !== undefined && { type }) },
    ...(own && param !== undefined && { param }),
    ...(message !== '' && { message }),
  })
}

function secretsOf({ route }: Known): string[] {
  return route.candidates.map(({ account }) => account.key)
}

/** Removes the account's credentials from a failure. */
function clean(failure: Failure, secrets: readonly string[]): Failure {
  const scrub = (text: string): string => secrets.reduce((rest, secret) => rest.replaceAll(secret, '***'), text)
  return Object.fromEntries(
    Object.entries(failure).map(([name, text]) => [name, scrub(String(text))]),
  ) as unknown as Failure
}
