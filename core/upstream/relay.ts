/**
 * Brings an upstream's reply to the client: bytes through, events seen. Events go out whole, so a stream that breaks can
 * always be ended in the format's own words. Nothing is sent before the first event, or the whole JSON reply, is known
 * not to be a failure: until then the client can still be given an honest status.
 */
import type { Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'
import type { ReplyHooks } from '../chain/chain.ts'
import { deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt, Outcome } from '../exchange/exchange.ts'
import { type Failure, type Format, ReplyEvent, type ReplyTranslation, type Rewriter } from '../formats/index.ts'
import { outlineOf } from '../lib/json/outline.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { Allowance, shortOfMemory } from '../exchange/memory.ts'
import { ChunkList } from '../lib/byte-buffer.ts'
import { turn } from '../lib/turns.ts'
import { downwardHeaders } from './headers.ts'
import { endedByClient, type MakeHead, type UpstreamPatience, failWith } from './endings.ts'
import { rewrite, rewritten } from './stream-filter.ts'
import { eventsIn, framed, lastBoundary, nextBoundary } from './sse.ts'
import { textBytes } from './event-filter.ts'
import { goOnInTurn, LONG_BYTES, type ReplyBody } from './reply-body.ts'
import type { UpstreamReply } from './send.ts'
import { StreamRelay } from './stream-relay.ts'

/** Bytes from which on a whole reply is outlined rather than parsed, and of a stream that are parsed in one go. */
const OUTLINED_BYTES = 256 * 1024

/** Most bytes of a blank line that can stand before a place where it is looked for. */
const BEGUN = 3

/** Events of a stream that its client gets as a whole. */
const EVENTS_MAX = 250_000

/** Most bytes that are read of an answer that is an error. */
const ERROR_BYTES = 256 * 1024

/**
 * Relays a reply to its end.
 * @throws GatewayError while nothing has gone to the client: the upstream failed, or a stage replaced the reply
 */
export async function relay(x: HttpExchange, up: ReplyHooks, reply: UpstreamReply, attempt: Attempt, patience: UpstreamPatience): Promise<Outcome> {
  const type = (reply.headers['content-type'] ?? '').toLowerCase()
  const body = decoded(reply)
  const make: MakeHead = (failure, opening) => ({
    status: reply.status,
    headers: reply.headers,
    stream: x.route.translation ? spreads(x) : type.startsWith('text/event-stream'),
    failure,
    model: x.route.translation ? x.model.asked : opening && x.format.modelOf(opening.json),
    reply: downwardHeaders(reply.headers, x.route.translation),
    attempt,
  })
  let outcome: Outcome | undefined
  try {
    if (reply.status !== 200) x.endAbandonedReply()
    if (reply.status !== 200) return failWith(up, make(await readFailure(x, body, patience)))
    const stream = type.startsWith('text/event-stream')
    if (stream && (!x.route.translation || spreads(x))) return (outcome = await new StreamRelay(x, up, body, make, patience, () => reply.abort()).run())
    if (stream || /^application\/(?:[\w.+-]+\+)?json\b/.test(type)) return (outcome = await relayWhole(x, up, body, stream, make, patience))
    return failWith(up, make({ message: `content-type ${type || 'missing'} under status 200` }))
  } finally {
    if (outcome?.kind === 'relayed') drainRemainder(reply, x.limits.keepalive)
    else if (!body.readableEnded) {
      reply.abort()
      // A decompressor would go on unpacking a reply that is not wanted any more.
      body.destroy()
    }
  }
}

/** Lets a reply end whose client has all of it: its connection can be used again then. */
function drainRemainder(reply: UpstreamReply, ms: number): void {
  const { body } = reply
  if (body.readableEnded || body.destroyed) return
  const late = deadline(ms, () => reply.abort())
  body.on('close', () => late.clear())
  body.resume()
}

/** Bytes that are unpacked at a time. */
const CHUNKS = { chunkSize: 64 * 1024 }
const DECODERS = new Map<string, () => NodeJS.ReadWriteStream>([
  ['gzip', () => createGunzip(CHUNKS)],
  ['x-gzip', () => createGunzip(CHUNKS)],
  ['deflate', () => createInflate(CHUNKS)],
  ['br', () => createBrotliDecompress(CHUNKS)],
  ['zstd', () => createZstdDecompress(CHUNKS)],
])

/** The body as it is without its content encoding; identity was asked for, but some upstreams compress all the same. */
function decoded(reply: UpstreamReply): ReplyBody {
  const encoding = (reply.headers['content-encoding'] ?? 'identity').toLowerCase()
  if (encoding === 'identity') return reply.body
  const decoder = DECODERS.get(encoding)
  if (!decoder) {
    reply.abort()
    throw new GatewayError('upstream_failed', { cause: new Error(`content-encoding ${encoding}`) })
  }
  const plain = decoder() as unknown as Readable & NodeJS.WritableStream
  reply.body.on('data', chunk => {
    if (plain.write(chunk)) return
    reply.body.pause()
    plain.once('drain', () => reply.body.resume())
  })
  reply.body.on('end', () => plain.end())
  reply.body.on('close', () => {
    if (!reply.body.readableEnded) plain.destroy(new Error('upstream broke off'))
  })
  plain.on('error', () => reply.abort())
  return plain
}

/** Reads a body to its end. @throws GatewayError upstream_failed, upstream_timeout; undefined result: the client left */
function collect(x: HttpExchange, body: ReplyBody, limit: number, patience: UpstreamPatience): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const pieces = new ChunkList()
    const timedOut = (): void => fail(new GatewayError('upstream_timeout', { cause: new Error('upstream went silent in a reply') }))
    const idle = deadline(patience.idle, timedOut)
    const done = (): void => {
      idle.clear()
      forget()
      body.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    const fail = (error: GatewayError): void => {
      done()
      reject(error)
    }
    const left = (): void => {
      done()
      resolve(undefined)
    }
    const memory = new Allowance(x.memory)
    const end = performance.now() + patience.total
    const onData = (chunk: Buffer): void => {
      idle.refresh()
      if (performance.now() > end) return timedOut()
      const length = pieces.push(chunk)
      if (!memory.cover(chunk)) return fail(shortOfMemory())
      if (length > limit) return fail(new GatewayError('upstream_failed', { cause: new Error(`reply over ${limit} bytes`) }))
      if (length > LONG_BYTES) goOnInTurn(body, x.owner, () => true)
    }
    const onEnd = (): void => {
      done()
      resolve(pieces.take())
    }
    const onClose = (): void => fail(new GatewayError('upstream_failed', { cause: new Error('upstream broke off in a reply') }))
    const forget = x.whenOver(left)
    if (x.over) return left()
    body.on('data', onData).on('end', onEnd).on('close', onClose)
    if (body.destroyed) onClose()
  })
}

async function readFailure(x: HttpExchange, body: ReplyBody, patience: UpstreamPatience): Promise<Failure> {
  try {
    const bytes = await collect(x, body, ERROR_BYTES, patience)
    const json: unknown = JSON.parse(bytes ? textOf(bytes) : '')
    return x.route.format.read(json).failure ?? { message: '' }
  } catch {
    // Whatever the body was, the status alone says enough.
    return { message: '' }
  }
}

/** The text of bytes. */
function textOf(bytes: Buffer): string {
  return withoutMark(bytes).toString('utf8')
}

/** Bytes without a byte order mark, which is nothing of the text. */
function withoutMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes
}

/** All events of a stream. @throws GatewayError upstream_failed where there are too many of them */
async function eventsInSlices(format: Format, bytes: Buffer, owner: string): Promise<ReplyEvent[]> {
  const events: ReplyEvent[] = []
  for (let at = 0; at < bytes.length;) {
    if (at > 0) await turn(owner)
    let end = Math.min(at + OUTLINED_BYTES, bytes.length)
    if (end < bytes.length) {
      const boundary = lastBoundary(bytes.subarray(at, end))
      end = boundary > 0 ? at + boundary : nextBoundary(bytes, end - BEGUN)
    }
    for (const event of eventsIn(format, bytes.subarray(at, end), at === 0)) events.push(event)
    if (events.length > EVENTS_MAX) throw new GatewayError('upstream_failed', { cause: new Error(`a stream of more than ${EVENTS_MAX} events`) })
    at = end
  }
  return events
}

/** @param stream the upstream sent a stream where its client asked for a whole reply, and is translated for in any case */
async function relayWhole(x: HttpExchange, up: ReplyHooks, body: ReplyBody, stream: boolean, make: MakeHead, patience: UpstreamPatience): Promise<Outcome> {
  const bytes = await collect(x, body, x.limits.reply, patience)
  if (!bytes) return endedByClient(x)
  x.upstreamClock.stop()
  const { format: spoken, translation } = x.route
  // What is long is read in slices, between which others have their turn.
  const long = bytes.length >= OUTLINED_BYTES
  const outline = long && !stream ? await outlineOf(withoutMark(bytes), x.owner) : undefined
  if (long && !stream && !outline) return failWith(up, make({ message: 'reply is no JSON object of a size that can be read' }))
  if (outline) await turn(x.owner)
  const events = stream ? toItsEnd(await eventsInSlices(spoken, bytes, x.owner)) : [new ReplyEvent(spoken, '', outline ?? textOf(bytes))]
  const [event] = events
  // What a failed reply says that it cost counts all the same.
  const tellUsage = (): void => {
    for (const each of events) if (each.reading.usage) up.event(each)
  }
  const failure = events.find(({ reading }) => reading.failure)?.reading.failure
  if (failure) {
    tellUsage()
    return failWith(up, make(failure))
  }
  if (!event || typeof event.json !== 'object' || event.json === null || Array.isArray(event.json)) {
    return failWith(up, make({ message: 'reply is no JSON object' }))
  }
  let translated: Buffer | readonly ReplyEvent[] | undefined
  try {
    if (translation) translated = outline ? await translation.largeReply(withoutMark(bytes)) : translatedHere(translation.replies, events, spreads(x), stream)
  } catch (thrown) {
    tellUsage()
    throw thrown
  }
  const head = make(undefined, event)
  up.response(head)
  x.complete = true
  const names = stream ? spoken.text.stream : spoken.text.reply
  x.delivered = outline ? outline.view.textBytes(names) : textBytes(bytes.toString('latin1'), names)
  for (const each of events) up.event(each)
  const rewriters = up.rewriters(head)
  const out = translated ? rewrittenTranslation(x.format, translated, head.stream, rewriters) : rewrittenReply(spoken, event, bytes, rewriters)
  const type = translated && (head.stream ? 'text/event-stream' : 'application/json')
  x.begin(head.status, {
    ...head.reply,
    ...(type && { 'content-type': type }),
    ...(head.stream && { 'x-accel-buffering': 'no' }),
  })
  await x.outlet.end(out)
  return x.gone ? endedByClient(x) : { kind: 'relayed', status: head.status, attempts: x.attempts }
}

/** A whole reply in its own format as the rewriters leave it. */
function rewrittenReply(format: Format, event: ReplyEvent, bytes: Buffer, rewriters: readonly Rewriter[]): Buffer {
  const instead = rewrite(format, event, rewriters)
  return instead ? Buffer.concat(instead.map(each => each.bytes)) : bytes
}

/** A translated reply as the rewriters leave it. @param reply the bytes of a large one */
function rewrittenTranslation(format: Format, reply: Buffer | readonly ReplyEvent[], stream: boolean, rewriters: readonly Rewriter[]): Buffer {
  if (Buffer.isBuffer(reply) && rewriters.length === 0) return reply
  const events = !Buffer.isBuffer(reply) ? reply : stream ? eventsIn(format, reply, true) : [new ReplyEvent(format, '', textOf(reply))]
  const out = rewritten(format, events, rewriters)
  return Buffer.from(stream ? framed(out) : out.map(({ data }) => data).join(''))
}

/** A reply that is no large one, in the client's format. */
function translatedHere(replies: ReplyTranslation, events: readonly ReplyEvent[], spread: boolean, stream: boolean): readonly ReplyEvent[] {
  const [event] = events as readonly [ReplyEvent]
  return spread ? replies.toStream(event) : [stream ? replies.fromStream(events) : replies.reply(event)]
}

/** What an upstream says after the end is nobody's. */
function toItsEnd(events: readonly ReplyEvent[]): readonly ReplyEvent[] {
  const end = events.findIndex(({ reading }) => reading.terminal)
  return end === -1 ? events : events.slice(0, end + 1)
}

/** The client asked for a stream, and is translated for: what comes whole becomes one. */
function spreads(x: HttpExchange): boolean {
  return x.route.translation?.streams === true
}
