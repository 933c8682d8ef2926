/** Translates replies, JSON and streams, from one format into another. */
import { GatewayError } from '../../errors.ts'
import { NO_USAGE, type Usage } from '../../money/usage.ts'
import { readerOf } from '../ends.ts'
import { noReply, parseExact } from './decoding.ts'
import { frame, type OutgoingEvent, ReplyEvent } from '../events.ts'
import type { Reading } from '../terms.ts'
import type { Format } from '../format.ts'
import type { Call, Decoder, Encoder, NeutralEvent, Reply, ReplyContext, ReplyPart } from './neutral.ts'
import { fitId, namesOf, ownId, renameId, type Taken } from './passthrough.ts'
import { object } from '../json.ts'
import { eventsOf, replyOf, PartOrder } from './part-order.ts'
import { UsageTally } from '../tally.ts'
import type { SaidReading } from '../usage-reading.ts'
import { bufferOf, byName, type CalledTool } from './translate-request.ts'

/** The two formats, and the request. */
interface Parties {
  readonly client: Format
  readonly upstream: Format
  readonly requestId: string
  /** What the operator says of the upstream's counters. */
  readonly said?: SaidReading | undefined
}

/** A whole reply to translate. Apart from the formats, it can be sent to another thread. */
export interface ReplyJob extends Parties {
  readonly bytes: Uint8Array
  /** The client asked for a stream. */
  readonly stream: boolean
  readonly context: Pick<ReplyContext, 'model' | 'at' | 'usageAsked'> & {
    readonly tools: readonly CalledTool[]
    /** Members of the request that the reply repeats, as JSON. */
    readonly members: readonly (readonly [name: string, json: string])[]
  }
}

/**
 * Translates a whole reply.
 * @returns the bytes to send: JSON, or the events of a stream if the client asked for one
 * @throws GatewayError upstream_failed if the bytes are not a reply
 */
export function translateReply({ bytes, stream, context, ...between }: ReplyJob): Uint8Array {
  const members = new Map(context.members)
  const member = (name: string): unknown => (members.has(name) ? parseExact(members.get(name) ?? '') : undefined)
  const replies = new ReplyTranslation(between, { ...context, member, tools: byName(context.tools) })
  const reader = readerOf(between.upstream, between.said?.ends)
  const event = new ReplyEvent(reader, '', bufferOf(bytes).toString('utf8'))
  const events = stream ? replies.toStream(event) : [replies.reply(event)]
  return Buffer.from(events.map(({ type, data }) => (stream ? frame(type, data) : data)).join(''))
}

/** The error for a reply that ends with an unknown word. It may be incomplete. */
export function unknownEnd(word: string): GatewayError {
  return new GatewayError('upstream_failed', {
    message: 'The provider ended the reply for a reason that this gateway does not know.',
    cause: new Error(`a reply that ends with ${word}`),
  })
}

/** Translates the replies to one request. */
export class ReplyTranslation {
  readonly #between: Parties
  readonly #context: ReplyContext
  readonly #names: ReadonlyMap<string, string>

  constructor(between: Parties, context: ReplyContext) {
    this.#between = between
    this.#context = context
    this.#names = namesOf([...context.tools.values()])
  }

  /**
   * A JSON reply as a JSON reply.
   * @throws GatewayError upstream_failed if the event is not a reply
   */
  reply(event: ReplyEvent): ReplyEvent {
    return this.#asEvent(this.#decoded(event), [event])
  }

  /** A JSON reply as the events of a stream. */
  toStream(event: ReplyEvent): readonly ReplyEvent[] {
    return this.stream().take(event, eventsOf(this.#decoded(event)))
  }

  /**
   * A stream as a JSON reply.
   * @throws GatewayError upstream_failed if the stream is not complete
   */
  fromStream(events: readonly ReplyEvent[]): ReplyEvent {
    const { upstream } = this.#between
    const decoder = upstream.codec.decoder()
    const reply = replyOf(events.flatMap(event => decoder.read(event)))
    const ended = events.some(
      ({ reading }) => reading.completes === true || upstream.isComplete(reading.closes?.length ?? 0, 1),
    )
    if (!reply || !ended) throw noReply('a stream without its end')
    return this.#asEvent(this.#named(reply), events)
  }

  stream(): StreamTranslation {
    return new StreamTranslation(this.#between, this.#context, this.#names)
  }

  #decoded(event: ReplyEvent): Reply {
    try {
      const json = object(parseExact(event.data)) ?? {}
      return this.#named(this.#between.upstream.codec.decodeReply(json, event.reading))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }

  #named(reply: Reply): Reply {
    const calls = new ClientsCalls(this.#names)
    const id = reply.id || this.#between.requestId
    const parts = reply.parts.filter((part, at) => !comesAgain(part, reply.parts.slice(0, at)))
    return { ...reply, id, parts: parts.map(part => (part.kind === 'call' ? calls.named(part, id) : part)) }
  }

  /** The reply in the client's format, with the usage that the events report. */
  #asEvent(reply: Reply, events: readonly ReplyEvent[]): ReplyEvent {
    const { client, upstream, said } = this.#between
    const tally = new UsageTally(upstream, said)
    for (const { reading } of events) if (reading.usage) tally.addUsage(reading.usage)
    const usage = client.encodeUsage(tally.usage()?.usage ?? NO_USAGE)
    try {
      return new ReplyEvent(client, '', JSON.stringify(client.codec.encodeReply(reply, usage, this.#context)))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }
}

/** Translates one stream. */
export class StreamTranslation {
  readonly #between: Parties
  readonly #calls: ClientsCalls
  readonly #encoder: Encoder
  readonly #decoder: Decoder
  readonly #sequence = new PartOrder()
  readonly #tally: UsageTally
  /** The id of the reply, or of the request if the reply has none. */
  #id: string
  #stopped = false
  #over = false
  /** The word by which it has ended, if that is unknown. */
  #unknownEnd: string | undefined
  /** The upstream ended the reply without a stop reason. */
  unfinished = false

  constructor(between: Parties, context: ReplyContext, names: ReadonlyMap<string, string>) {
    this.#between = between
    this.#id = between.requestId
    this.#calls = new ClientsCalls(names)
    this.#encoder = between.client.codec.encoder(context)
    this.#decoder = between.upstream.codec.decoder()
    this.#tally = new UsageTally(between.upstream, between.said)
  }

  /** The client has its whole reply. Later events of the upstream are ignored. */
  get over(): boolean {
    return this.#over
  }

  /**
   * The events for the client that correspond to one of the upstream's.
   * @throws GatewayError upstream_failed if it makes no sense
   */
  event(event: ReplyEvent): readonly ReplyEvent[] {
    const { failure } = event.reading
    if (failure) return this.#fail(new GatewayError('upstream_failed'), { failure, completes: true })
    try {
      return this.take(event, this.#decoder.read(event))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }

  /** The events for the client that correspond to neutral ones. */
  take(event: ReplyEvent, said: readonly NeutralEvent[]): readonly ReplyEvent[] {
    if (event.reading.usage) this.#tally.addUsage(event.reading.usage)
    this.#unknownEnd ??= event.reading.unknownEnd
    return said.flatMap(each => (each.kind === 'end' ? this.finish() : this.#write(each)))
  }

  /** Ends the reply: the upstream has ended. */
  finish(): readonly ReplyEvent[] {
    // Without a stop reason the reply may be incomplete.
    if (!this.#stopped && !this.#over) {
      this.unfinished = true
      return this.fail(
        new GatewayError('upstream_failed', { message: 'The provider ended the reply without a reason.' }),
      )
    }
    if (this.#unknownEnd !== undefined) return this.fail(unknownEnd(this.#unknownEnd))
    return this.#end(this.#tally.usage()?.usage ?? NO_USAGE)
  }

  /** Ends the stream as if its output limit was reached. */
  truncate(usage: Usage): readonly ReplyEvent[] {
    return [...this.#write({ kind: 'stop', stop: { reason: 'length' } }), ...this.#end(usage)]
  }

  /** Ends the stream with an error. */
  fail(error: GatewayError): readonly ReplyEvent[] {
    return this.#fail(error, { completes: true })
  }

  #write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly ReplyEvent[] {
    if (this.#over || this.#stopped) return []
    if (event.kind === 'stop') this.#stopped = true
    // What the client gets as its end is the error.
    if (event.kind === 'stop' && this.#unknownEnd !== undefined) return []
    return this.#sent(
      this.#sequence.push(this.#named(event)).flatMap(each => (each.kind === 'end' ? [] : this.#encoder.write(each))),
    )
  }

  #named(event: NeutralEvent): NeutralEvent {
    if (event.kind === 'start') return { ...event, id: (this.#id = event.id || this.#id) }
    return event.kind === 'open' && event.what.kind === 'call'
      ? { ...event, what: this.#calls.named(event.what, this.#id) }
      : event
  }

  #end(usage: Usage): readonly ReplyEvent[] {
    if (this.#over) return []
    this.#over = true
    const events = this.#encoder.end(this.#between.client.encodeUsage(usage))
    // An error of the gateway is not one of the provider, whose words would be replaced.
    return this.#sent(events, this.#encoder.failed ? { completes: true } : undefined)
  }

  #fail(error: GatewayError, reading: Reading): readonly ReplyEvent[] {
    if (this.#over) return []
    this.#over = true
    return this.#sent(this.#encoder.fail(error, this.#between.requestId), reading)
  }

  #sent(events: readonly OutgoingEvent[], reading?: Reading): readonly ReplyEvent[] {
    return events.map(({ type, data }) => new ReplyEvent(this.#between.client, type, data, { reading }))
  }
}

/** The calls of one reply, with the names that the client declared and ids that it can send back. */
class ClientsCalls {
  readonly #names: ReadonlyMap<string, string>
  readonly #taken: Taken = new Map()
  #count = 0

  constructor(names: ReadonlyMap<string, string>) {
    this.#names = names
  }

  /** @throws GatewayError upstream_failed for a call without a name */
  named<C extends Pick<Call, 'id' | 'name'>>(call: C, reply: string): C {
    if (call.name === '') throw noReply('a call without a name')
    // A call without an id gets one that no other reply uses.
    const id = call.id === '' ? `call_${renameId({ id: reply }, '')}_${this.#count}` : call.id
    this.#count++
    return { ...call, id: fitId(ownId(id, this.#taken)), name: this.#names.get(call.name) ?? call.name }
  }
}

/** Whether a part is a call that stands before it already: a client would run its tool twice. */
function comesAgain(part: ReplyPart, before: readonly ReplyPart[]): boolean {
  if (part.kind !== 'call' || part.id === '') return false
  return before.some(each => each.kind === 'call' && each.id === part.id && each.input === part.input)
}

/** Any error while a reply is read is the upstream's failure. */
function unreadable(thrown: unknown): GatewayError {
  return thrown instanceof GatewayError ? thrown : new GatewayError('upstream_failed', { cause: thrown })
}
