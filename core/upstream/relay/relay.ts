/**
 * Relays an upstream's answer to the client. Nothing is sent before the gateway knows that the answer is no failure:
 * until then the client can still get an error with a status of its own.
 */
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import type { Attempt, Outcome } from '../../exchange/exchange.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { classify, standingIn } from '../../formats/classify.ts'
import { drainRemainder, readFailure } from './collect.ts'
import { decompressed, encodingOf } from '../connection/decompress.ts'
import { failedWith, type MakeHead, type Relayed } from './endings.ts'
import { downwardHeaders } from '../connection/headers.ts'
import type { UpstreamReply } from '../connection/send.ts'
import { StreamRelay } from './stream-relay.ts'
import { relayWhole } from './whole-reply.ts'

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\b/

/** How an answer is relayed. */
type How = Pick<Relayed, 'patience' | 'mayAskAnother' | 'begun'> & {
  readonly attempt: Attempt
  /** Milliseconds since the epoch. */
  readonly now: () => number
}

/**
 * Relays an answer to its end.
 * @throws FailedAttempt while nothing has gone to the client; GatewayError if a stage replaced the reply
 */
export async function relay(
  x: HttpExchange,
  hooks: ReplyHooks,
  reply: UpstreamReply,
  { attempt, now, ...how }: How,
): Promise<Outcome> {
  const { translation } = x.route
  const rules = x.route.upstream.failures
  const standsInRequest = standingIn(() => x.body.bytes(), x.headers)
  const type = (reply.headers['content-type'] ?? '').toLowerCase()
  // Some providers leave the type out. Then it is what the client asked for. No stream has a length.
  const isUntyped = type === '' && reply.status === 200
  const mayBeStream = x.inference && x.body.get('stream') === true && reply.headers['content-length'] === undefined
  const isStream = type.startsWith('text/event-stream') || (isUntyped && mayBeStream)
  const clientGetsStream = translation ? translation.streams : isStream
  const makeHead: MakeHead = (failure, opening) => {
    // The event that names the model may have no other news.
    if (opening && x.tally) x.tally.model ??= x.route.format.modelOf(opening.json)
    return {
      status: reply.status,
      headers: reply.headers,
      stream: clientGetsStream,
      failure,
      verdict: failure && classify({ ...reply, failure }, { rules, standsInRequest, now: now() }),
      model: translation ? x.model.asked : opening && x.format.modelOf(opening.json),
      reply: {
        ...(isUntyped && { 'content-type': isStream ? 'text/event-stream' : 'application/json' }),
        ...downwardHeaders(reply.headers, x.route),
      },
      attempt,
    }
  }
  const body = decompressed(reply)
  if (!body) {
    reply.abort()
    throw failedWith(makeHead({ message: `content-encoding ${encodingOf(reply)}` }))
  }
  const relayed: Relayed = { x, hooks, body, makeHead, abort: () => reply.abort(), ...how }
  let outcome: Outcome | undefined
  try {
    if (reply.status !== 200) {
      x.endReadOnPolicy()
      throw failedWith(makeHead(await readFailure(relayed, reply.status)))
    }
    if (!isStream && !clientGetsStream) {
      if (x.waiting) throw failedWith(makeHead({ message: 'a reply in one piece to a request for a stream' }))
      // Nothing but this reply may be sent to the client from now on.
      x.inOnePiece = true
    }
    if (isStream && clientGetsStream) outcome = await new StreamRelay(relayed).run()
    else if (isStream || isUntyped || JSON_TYPE.test(type)) outcome = await relayWhole(relayed, isStream)
    else throw failedWith(makeHead({ message: `content-type ${type} under status 200` }))
    return outcome
  } finally {
    if (outcome?.kind === 'relayed') drainRemainder(reply, x.limits.keepaliveMs)
    else if (!body.readableEnded) {
      reply.abort()
      // Otherwise a decompressor would go on with a reply that is no longer wanted.
      body.destroy()
    }
  }
}
