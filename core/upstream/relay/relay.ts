/**
 * Relays an upstream's answer to the client. Nothing is sent before the gateway knows that the answer is no failure:
 * until then the client can still get an error with a status of its own.
 */
import type { Readable } from 'node:stream'
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import type { Attempt, Outcome } from '../../exchange/exchange.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { classify, standingIn } from '../../formats/classify.ts'
import { drainRemainder, readFailure } from './collect.ts'
import { decoded, encodingOf } from '../../lib/decoders.ts'
import { deadline } from '../../lib/deadline.ts'
import { failedWith, type MakeHead, type Relayed } from './endings.ts'
import { downwardHeaders } from '../connection/headers.ts'
import type { UpstreamReply } from '../connection/send.ts'
import { StreamRelay } from './stream-relay.ts'
import { relayWhole } from './whole-reply.ts'

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\b/

/** @throws FailedAttempt if the answer is neither a stream nor JSON */
function passOn(
  relayed: Relayed,
  {
    type,
    isStream,
    clientGetsStream,
  }: { readonly type: string; readonly isStream: boolean; readonly clientGetsStream: boolean },
): Promise<Outcome> {
  const { x, makeHead } = relayed
  if (isStream && clientGetsStream) return new StreamRelay(relayed).run()
  if (!isStream && !clientGetsStream) {
    if (x.waiting) throw failedWith(makeHead({ message: 'a reply in one piece to a request for a stream' }))
    // Nothing but this reply may be sent to the client from now on.
    x.inOnePiece = true
  }
  if (isStream || type === '' || JSON_TYPE.test(type)) return relayWhole(relayed, isStream)
  throw failedWith(makeHead({ message: `content-type ${type} under status 200` }))
}

/** How a server-sent event begins. */
const EVENT = /^(?:\ufeff)?\s*(?::|(?:data|event|id|retry):)/

/**
 * Returns whether an answer of another type, or of none, is a stream, by its first bytes. They may be long in coming.
 * @param idleMs as long as the upstream may be silent
 */
async function beginsAsStream({ body, headers }: UpstreamReply, idleMs: number, x: HttpExchange): Promise<boolean> {
  if (encodingOf({ headers }) !== 'identity') return false
  const { promise, resolve } = Promise.withResolvers<Buffer | undefined>()
  const silence = deadline(idleMs, () => resolve(undefined))
  const forget = x.whenOver(() => resolve(undefined))
  void body.first().then(resolve)
  const first = await promise
  silence.clear()
  forget()
  return first !== undefined && EVENT.test(first.toString('utf8', 0, 64))
}

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
  const isTyped = type.startsWith('text/event-stream')
  const isUntyped = type === '' && reply.status === 200
  const asksForStream = x.inference && x.body.get('stream') === true && reply.status === 200
  // A reply that says it is JSON may come in one piece, so no comment precedes its first bytes.
  x.inOnePiece = JSON_TYPE.test(type) && translation?.streams !== true
  // Some providers leave the type out, or send streams under another one.
  const isStream = isTyped || (asksForStream && (await beginsAsStream(reply, how.patience.idleMs, x)))
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
        ...(isUntyped && { 'content-type': 'application/json' }),
        ...downwardHeaders(reply.headers, x.route),
        ...(isStream && !isTyped && { 'content-type': 'text/event-stream' }),
      },
      attempt,
    }
  }
  const body = decoded(reply.body, encodingOf(reply))
  if (!body) {
    reply.abort()
    throw failedWith(makeHead({ message: `content-encoding ${encodingOf(reply)}` }))
  }
  if (body !== reply.body) (body as Readable).on('error', () => reply.abort())
  const relayed: Relayed = { x, hooks, body, makeHead, abort: () => reply.abort(), ...how }
  let outcome: Outcome | undefined
  try {
    if (reply.status !== 200) {
      x.endReadOnPolicy()
      throw failedWith(makeHead(await readFailure(relayed, reply.status)))
    }
    outcome = await passOn(relayed, { type, isStream, clientGetsStream })
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
