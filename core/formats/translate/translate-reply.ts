/** Replies, whole ones and streams, of one format as replies of another. */
import { GatewayError } from '../../errors.ts'
import { NO_USAGE, type Usage } from '../../money/usage.ts'
import { noReply, parseExact } from './decoding.ts'
import { frame, type OutgoingEvent, ReplyEvent } from '../events.ts'
import type { Reading } from '../terms.ts'
import type { Format } from '../format.ts'
import type { Call, Decoder, Encoder, NeutralEvent, Reply, ReplyContext } from './neutral.ts'
import { fitId, namesOf, ownId, renameId, type Taken } from './passthrough.ts'
import { object } from '../json.ts'
import { eventsOf, replyOf, PartOrder } from './part-order.ts'
import { UsageTally } from '../tally.ts'
import { bufferOf, byName, type CalledTool } from './translate-request.ts'

/** Between whom replies are translated. */
interface Parties {
  readonly client: Format
  readonly upstream: Format
  readonly requestId: string
}

/** A whole reply that is to be translated. All of it can be handed to another thread, but for the formats. */
export interface ReplyJob extends Parties {
  readonly bytes: Uint8Array
  /** The client asked for a stream. */
  readonly stream: boolean
  readonly context: Pick<ReplyContext, 'model' | 'at' | 'usageAsked'> & {
    readonly tools: readonly CalledTool[]
    /** Members of the request that the reply repeats, in JSON. */
    readonly members: readonly (readonly [name: string, json: string])[]
  }
}

/**
 * Translates a whole reply.
 * @returns the bytes to send: JSON, or the events of the stream that the client asked for
 * @throws GatewayError upstream_failed when the bytes are not a reply
 */
export function translateReply({ client, upstream, requestId, bytes, stream, context }: ReplyJob): Uint8Array {
  const members = new Map(context.members)
  const member = (name: string): unknown => (members.has(name) ? parseExact(members.get(name) ?? '') : undefined)
  const replies = new ReplyTranslation(
    { client, upstream, requestId },
    { ...context, member, tools: byName(context.tools) },
  )
  const event = new ReplyEvent(upstream, '', bufferOf(bytes).toString('utf8'))
  const events = stream ? replies.toStream(event) : [replies.reply(event)]
  return Buffer.from(events.map(({ type, data }) => (stream ? frame(type, data) : data)).join(''))
}

/** Replies on their way from one format into another. */
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
   * A whole reply as the client gets it.
   * @throws GatewayError upstream_failed when the event is not a reply
   */
  reply(event: ReplyEvent): ReplyEvent {
    return this.#told(this.#decoded(event), [event])
  }

  /** A whole reply as the events of the stream that the client asked for. */
  toStream(event: ReplyEvent): readonly ReplyEvent[] {
    return this.stream().take(event, eventsOf(this.#decoded(event)))
  }

  /**
   * A stream as the whole reply that the client asked for.
   * @throws GatewayError upstream_failed when it does not end as one
   */
  fromStream(events: readonly ReplyEvent[]): ReplyEvent {
    const { upstream } = this.#between
    const decoder = upstream.codec.decoder()
    const reply = replyOf(events.flatMap(event => decoder.read(event)))
    const ended = events.some(
      ({ reading }) => reading.last === true || upstream.isComplete(reading.closes?.length ?? 0, 1),
    )
    if (!reply || !ended) throw noReply('a stream without its end')
    return this.#told(this.#named(reply), events)
  }

  stream(): StreamTranslation {
    return new StreamTranslation(this.#between, this.#context, this.#names)
  }

  #decoded(event: ReplyEvent): Reply {
    try {
      return this.#named(this.#between.upstream.codec.decodeReply(object(parseExact(event.data)) ?? {}))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }

  #named(reply: Reply): Reply {
    const calls = new ClientsCalls(this.#names)
    const id = reply.id || this.#between.requestId
    return { ...reply, id, parts: reply.parts.map(part => (part.kind === 'call' ? calls.named(part, id) : part)) }
  }

  /** The reply in the client's words, with the usage that the upstream's events report. */
  #told(reply: Reply, events: readonly ReplyEvent[]): ReplyEvent {
    const { client, upstream } = this.#between
    const tally = new UsageTally(upstream)
    for (const { reading } of events) if (reading.usage) tally.addUsage(reading.usage)
    const usage = client.encodeUsage(tally.usage()?.usage ?? NO_USAGE)
    try {
      return new ReplyEvent(client, '', JSON.stringify(client.codec.encodeReply(reply, usage, this.#context)))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }
}

/** A stream on its way from one format into another. */
export class StreamTranslation {
  readonly #between: Parties
  readonly #calls: ClientsCalls
  readonly #encoder: Encoder
  readonly #decoder: Decoder
  readonly #sequence = new PartOrder()
  readonly #tally: UsageTally
  /** The reply's id, or where it has none the request's. */
  #id: string
  #stopped = false
  #over = false
  /** The upstream ended the reply without saying why it stopped. */
  unfinished = false

  constructor(between: Parties, context: ReplyContext, names: ReadonlyMap<string, string>) {
    this.#between = between
    this.#id = between.requestId
    this.#calls = new ClientsCalls(names)
    this.#encoder = between.client.codec.encoder(context)
    this.#decoder = between.upstream.codec.decoder()
    this.#tally = new UsageTally(between.upstream)
  }

  /** The client has its whole reply. What the upstream sends after that is ignored. */
  get over(): boolean {
    return this.#over
  }

  /**
   * What the client gets for an event of the upstream's.
   * @throws GatewayError upstream_failed for one that makes no sense
   */
  event(event: ReplyEvent): readonly ReplyEvent[] {
    const { failure } = event.reading
    if (failure) return this.#fail(new GatewayError('upstream_failed'), { failure, last: true })
    try {
      return this.take(event, this.#decoder.read(event))
    } catch (thrown) {
      throw unreadable(thrown)
    }
  }

  /** What the client gets for what an event says. */
  take(event: ReplyEvent, said: readonly NeutralEvent[]): readonly ReplyEvent[] {
    if (event.reading.usage) this.#tally.addUsage(event.reading.usage)
    return said.flatMap(each => (each.kind === 'end' ? this.finish() : this.#write(each)))
  }

  /** The upstream has said all it had to say. */
  finish(): readonly ReplyEvent[] {
    // A reply without a stop reason may be incomplete.
    if (!this.#stopped && !this.#over) {
      this.unfinished = true
      return this.fail(
        new GatewayError('upstream_failed', { message: 'The provider ended the reply without a reason.' }),
      )
    }
    return this.#end(this.#tally.usage()?.usage ?? NO_USAGE)
  }

  /** Ends the stream as one whose output limit is reached. */
  truncate(usage: Usage): readonly ReplyEvent[] {
    return [...this.#write({ kind: 'stop', stop: { reason: 'length' } }), ...this.#end(usage)]
  }

  /** Ends the stream as a failure. */
  fail(error: GatewayError): readonly ReplyEvent[] {
    return this.#fail(error, { last: true })
  }

  #write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly ReplyEvent[] {
    if (this.#over || this.#stopped) return []
    if (event.kind === 'stop') this.#stopped = true
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
    return this.#sent(this.#encoder.end(this.#between.client.encodeUsage(usage)))
  }

  #fail(error: GatewayError, reading: Reading): readonly ReplyEvent[] {
    if (this.#over) return []
    this.#over = true
    return this.#sent(this.#encoder.fail(error, this.#between.requestId), reading)
  }

  #sent(events: readonly OutgoingEvent[], reading?: Reading): readonly ReplyEvent[] {
    return events.map(({ type, data }) => new ReplyEvent(this.#between.client, type, data, undefined, reading))
  }
}

/** The calls of one reply, by the names the client knows: the tool's as it declared it, and ids of their own that it can repeat. */
class ClientsCalls {
  readonly #names: ReadonlyMap<string, string>
  readonly #taken: Taken = new Map()
  #count = 0

  constructor(names: ReadonlyMap<string, string>) {
    this.#names = names
  }

  /** @throws GatewayError upstream_failed for a call of nothing */
  named<C extends Pick<Call, 'id' | 'name'>>(call: C, reply: string): C {
    if (call.name === '') throw noReply('a call without a name')
    // The id of a call that came without one is of its reply, so that it is no other's.
    const id = call.id === '' ? `call_${renameId({ id: reply }, '')}_${this.#count}` : call.id
    this.#count++
    return { ...call, id: fitId(ownId(id, this.#taken)), name: this.#names.get(call.name) ?? call.name }
  }
}

/** Whatever a reply does to its reader is the upstream's failure. */
function unreadable(thrown: unknown): GatewayError {
  return thrown instanceof GatewayError ? thrown : new GatewayError('upstream_failed', { cause: thrown })
}
