/**
 * Relays an answer that is sent on only when all of it has arrived: a JSON reply, or a stream of another format whose
 * client asked for a JSON reply.
 */
import { GatewayError } from '../../errors.ts'
import type { Head, Outcome } from '../../exchange/exchange.ts'
import { Allowance } from '../../client/memory.ts'
import { failureFrom } from '../../formats/failures.ts'
import { type Format, ReplyEvent, type Rewriter, unknownEnd } from '../../formats/index.ts'
import { type Outline, outlineOf } from '../../lib/json/outline.ts'
import { afterEvents, turn } from '../../lib/turns.ts'
import { collect, utf8Of, withoutByteOrderMark } from './collect.ts'
import { endedByClient, FailedAttempt, failedWith, type Relayed, tooLarge } from './endings.ts'
import { OutputBytes, outputBytes } from './event-filter.ts'
import { eventsIn, framed, lastBoundary, nextBoundary } from './sse.ts'
import { rewrite, rewritten } from './stream-filter.ts'

/** A JSON reply of at least this many bytes is outlined, not parsed. A stream is parsed this many bytes at a time. */
const OUTLINED_BYTES = 256 * 1024
/** Most events of a stream that becomes one JSON reply. */
const EVENTS_MAX = 250_000
/** Bytes before an index among which a blank line may begin that ends behind it. */
const BLANK_LINE_BYTES = 3

/** An answer that has arrived. */
interface WholeAnswer {
  readonly bytes: Buffer
  /** What the upstream sent, as events of its format: one for a JSON reply. */
  readonly events: readonly ReplyEvent[]
  /** Set for a large JSON reply. */
  readonly outline: Outline | undefined
}

/**
 * Relays the answer.
 * @param isStream the upstream sent a stream, and the client asked for a JSON reply in another format
 * @throws FailedAttempt; GatewayError unavailable; what a stage throws
 */
export async function relayWhole(relayed: Relayed, isStream: boolean): Promise<Outcome> {
  const { x, hooks } = relayed
  const memory = new Allowance(x.memory)
  let answer: WholeAnswer | undefined
  let translated: Awaited<ReturnType<typeof translateAnswer>>
  try {
    answer = await readAnswer(relayed, isStream, memory)
    if (!answer) return endedByClient(x)
    checkAnswer(relayed, answer, isStream)
    translated = await translateAnswer(relayed, answer, isStream)
  } catch (thrown) {
    // Another account may be asked, whose reply needs memory too.
    memory.clear()
    throw thrown
  }
  const head = relayed.makeHead(undefined, answer.events[0])
  hooks.response(head)
  x.completed()
  x.delivered = deliveredBytes(answer, x.route.format.text, isStream)
  for (const event of answer.events) hooks.event(event)
  return sendAnswer(relayed, head, answer, translated)
}

/** Reads the whole answer. @returns undefined if the client left */
async function readAnswer(relayed: Relayed, isStream: boolean, memory: Allowance): Promise<WholeAnswer | undefined> {
  const { x } = relayed
  const bytes = await collect(relayed, x.limits.replyBytes, memory)
  if (!bytes) return undefined
  x.upstreamClock.stop()
  const { reader: format } = x.route
  if (isStream) return { bytes, events: throughEnd(await eventsInSlices(format, bytes, x.owner)), outline: undefined }
  if (bytes.length < OUTLINED_BYTES)
    return { bytes, events: [new ReplyEvent(format, '', utf8Of(bytes))], outline: undefined }
  // A long reply is read in slices, so that other exchanges get their turn between two of them.
  const outline = await outlineOf(withoutByteOrderMark(bytes), x.owner)
  if (outline === 'too large') throw tooLarge('a reply with too many values, or too deep')
  if (!outline) throw failedWith(relayed.makeHead({ message: 'the reply is not a JSON object' }))
  await turn(x.owner)
  return { bytes, events: [new ReplyEvent(format, '', outline)], outline }
}

/**
 * Fails the exchange if the answer is a failure, or not a reply.
 * @throws FailedAttempt
 */
function checkAnswer(relayed: Relayed, { events, outline }: WholeAnswer, isStream: boolean): void {
  const { x } = relayed
  const failure = events.find(({ reading }) => reading.failure)?.reading.failure
  if (failure) {
    countUsage(relayed, events)
    throw failedWith(relayed.makeHead(failure))
  }
  const json = events[0]?.json
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw failedWith(relayed.makeHead({ message: 'the reply is not a JSON object' }))
  }
  // A large reply is not parsed. It says something.
  if (isStream || outline || !x.inference || x.route.format.isReply(json)) return
  countUsage(relayed, events)
  const said = failureFrom(json)
  throw failedWith(relayed.makeHead({ ...said, message: said.message || 'the reply has no content' }))
}

/** Returns the bytes of output in an answer. */
function deliveredBytes({ bytes, events, outline }: WholeAnswer, text: Format['text'], isStream: boolean): number {
  if (outline) return outline.view.textBytes(text.reply)
  if (!isStream) return outputBytes(bytes.toString('latin1'), text)
  const output = new OutputBytes(text)
  output.take(bytes.toString('latin1'))
  for (const { reading } of events) output.addName(reading.nameBytes ?? 0)
  return output.bytes
}

/** Lets the stages see the usage of a reply that fails: its cost counts all the same. */
function countUsage({ hooks }: Relayed, events: readonly ReplyEvent[]): void {
  for (const event of events) if (event.reading.usage) hooks.event(event)
}

/**
 * Translates the answer into the client's format.
 * @returns undefined if both formats are the same
 * @throws FailedAttempt if it cannot be translated
 */
async function translateAnswer(
  relayed: Relayed,
  { bytes, events, outline }: WholeAnswer,
  isStream: boolean,
): Promise<Buffer | readonly ReplyEvent[] | undefined> {
  const { translation } = relayed.x.route
  if (!translation) return undefined
  const [event] = events as readonly [ReplyEvent]
  const word = events.find(({ reading }) => reading.unknownEnd !== undefined)?.reading.unknownEnd
  if (word !== undefined) {
    countUsage(relayed, events)
    throw new FailedAttempt('unknown end', unknownEnd(word))
  }
  try {
    if (outline) return await translation.largeReply(withoutByteOrderMark(bytes))
    if (translation.streams) return translation.replies.toStream(event)
    return [isStream ? translation.replies.fromStream(events) : translation.replies.reply(event)]
  } catch (thrown) {
    countUsage(relayed, events)
    const error = GatewayError.from(thrown)
    // The provider may bill what it has generated, so this is like a reply that broke off.
    throw error.code === 'upstream_failed' ? new FailedAttempt('timeout', error) : error
  }
}

/** Sends the reply as the stages rewrite it. The stages decide before its last bytes go out. */
async function sendAnswer(
  { x, hooks }: Relayed,
  head: Head,
  { bytes, events }: WholeAnswer,
  translated: Buffer | readonly ReplyEvent[] | undefined,
): Promise<Outcome> {
  const rewriters = hooks.rewriters(head)
  // Headers that a rewriter sets later have not been checked, and are not sent.
  const headers = { ...head.reply }
  const out = translated
    ? rewrittenTranslation(x.format, translated, head.stream, rewriters)
    : rewrittenReply(x.route.format, events[0] as ReplyEvent, bytes, rewriters)
  x.begin(head.status, {
    ...headers,
    ...(translated && { 'content-type': head.stream ? 'text/event-stream' : 'application/json' }),
    ...(head.stream && { 'x-accel-buffering': 'no' }),
  })
  const decide = async (): Promise<void> => {
    // A client may have left while the upstream answered.
    await afterEvents()
    x.outlet.look()
    if (!x.gone) await hooks.decide({ kind: 'relayed', status: head.status, attempts: x.attempts })
  }
  x.usageIsFinal = events.some(({ reading }) => reading.usage)
  await x.outlet.end(out, x.usageIsFinal ? decide : undefined)
  return x.gone ? endedByClient(x) : { kind: 'relayed', status: head.status, attempts: x.attempts }
}

function rewrittenReply(format: Format, event: ReplyEvent, bytes: Buffer, rewriters: readonly Rewriter[]): Buffer {
  const replacement = rewrite(format, event, rewriters)
  return replacement ? Buffer.concat(replacement.map(each => each.bytes)) : bytes
}

/** @param reply the events, or the bytes of a large reply */
function rewrittenTranslation(
  format: Format,
  reply: Buffer | readonly ReplyEvent[],
  stream: boolean,
  rewriters: readonly Rewriter[],
): Buffer {
  if (Buffer.isBuffer(reply) && rewriters.length === 0) return reply
  const out = rewritten(format, Buffer.isBuffer(reply) ? eventsOfReply(format, reply, stream) : reply, rewriters)
  return Buffer.from(stream ? framed(out) : out.map(({ data }) => data).join(''))
}

function eventsOfReply(format: Format, bytes: Buffer, stream: boolean): readonly ReplyEvent[] {
  return stream ? eventsIn(format, bytes, true) : [new ReplyEvent(format, '', utf8Of(bytes))]
}

/** All events of a stream, parsed in slices. @throws FailedAttempt if there are more than EVENTS_MAX */
async function eventsInSlices(format: Format, bytes: Buffer, owner: string): Promise<ReplyEvent[]> {
  const events: ReplyEvent[] = []
  for (let at = 0; at < bytes.length;) {
    if (at > 0) await turn(owner)
    let end = Math.min(at + OUTLINED_BYTES, bytes.length)
    if (end < bytes.length) {
      const boundary = lastBoundary(bytes.subarray(at, end))
      end = boundary > 0 ? at + boundary : nextBoundary(bytes, end - BLANK_LINE_BYTES)
    }
    for (const event of eventsIn(format, bytes.subarray(at, end), at === 0)) events.push(event)
    if (events.length > EVENTS_MAX) throw tooLarge(`a stream of more than ${EVENTS_MAX} events`)
    at = end
  }
  return events
}

/** The events up to the one that ends the reply: what an upstream sends after it is ignored. */
function throughEnd(events: readonly ReplyEvent[]): readonly ReplyEvent[] {
  const end = events.findIndex(({ reading }) => reading.endsStream)
  return end === -1 ? events : events.slice(0, end + 1)
}
