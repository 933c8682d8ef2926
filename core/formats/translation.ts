/** One exchange between a client and an upstream of another format: its request, its reply or its stream, through the neutral form. */
import { Body } from '../body.ts'
import { GatewayError } from '../errors.ts'
import { NO_USAGE, type Usage } from '../ledger/money.ts'
import { parseExact } from './decoding.ts'
import { type OutgoingEvent, ReplyEvent } from './events.ts'
import type { Format, Reading } from './format.ts'
import { Losses } from './losses.ts'
import type { Call, Encoder, ModelLimits, NeutralEvent, Reply, Request, Telling } from './neutral.ts'
import { fitId, toolNamed } from './opaque.ts'
import { type Json, object } from './reading.ts'
import { eventsOf, Sequence } from './sequence.ts'
import { UsageTally } from './tally.ts'

/** What is to be translated, and between whom. */
export interface Between {
  readonly client: Format
  readonly upstream: Format
  readonly body: Body
  readonly headers: Readonly<Record<string, unknown>>
  /** The model's name as the client asked for it. */
  readonly asked: string
  readonly limits: ModelLimits
  readonly requestId: string
  /** Milliseconds since the epoch. */
  readonly startedAt: number
}

/** Longest id of a call that a client is given. */
const MOST_ID = 64

export class Translation {
  /** The client asked for a stream. */
  readonly streams: boolean
  /** What of the request is not in it. */
  readonly losses = new Losses()
  readonly #between: Between
  readonly #telling: Telling
  readonly #encoded: Json

  /** @throws GatewayError invalid_body when the request asks for what the upstream's format cannot carry */
  constructor(between: Between) {
    const { client, upstream, headers, asked, limits, startedAt } = between
    const body = wholeOf(between.body)
    const request = client.dialect.decodeRequest(body, headers, this.losses)
    this.#between = between
    this.#telling = { model: asked, at: Math.floor(startedAt / 1000), request, body }
    this.streams = request.stream
    this.#encoded = upstream.dialect.encodeRequest(request, this.losses, limits)
  }

  /** The request as the upstream gets it, with at most so many output tokens where a stage has lowered what was asked for. */
  bytes(maxOutput: number | undefined = this.#telling.request.maxOutput): Buffer {
    const { upstream, limits } = this.#between
    const { request } = this.#telling
    const lowered = maxOutput !== undefined && maxOutput !== request.maxOutput
    return Buffer.from(JSON.stringify(lowered ? upstream.dialect.encodeRequest({ ...request, maxOutput }, this.losses, limits) : this.#encoded))
  }

  /**
   * A whole reply as the client gets it.
   * @throws GatewayError upstream_failed when it is none
   */
  reply(event: ReplyEvent): ReplyEvent {
    const { client, upstream } = this.#between
    const reply = this.#decoded(event)
    const usage = client.tell(upstream.count(event.reading.usage ?? {})?.usage ?? NO_USAGE)
    return new ReplyEvent(client, '', JSON.stringify(client.dialect.encodeReply(reply, usage, this.#telling)))
  }

  /** A whole reply as the events of the stream that the client asked for. */
  spread(event: ReplyEvent): readonly ReplyEvent[] {
    const stream = this.stream()
    return stream.take(event, eventsOf(this.#decoded(event)))
  }

  stream(): StreamTranslation {
    return new StreamTranslation(this.#between, this.#telling)
  }

  #decoded(event: ReplyEvent): Reply {
    const reply = this.#between.upstream.dialect.decodeReply(object(parseExact(event.data)) ?? {})
    const parts = reply.parts.map(part => (part.kind === 'call' ? asClients(part, this.#telling.request) : part))
    return { ...reply, parts }
  }
}

/** A stream on its way from one format into another. */
export class StreamTranslation {
  readonly #between: Between
  readonly #request: Request
  readonly #encoder: Encoder
  readonly #decode: (event: ReplyEvent) => readonly NeutralEvent[]
  readonly #sequence = new Sequence()
  readonly #tally: UsageTally
  #stopped = false
  #over = false

  constructor(between: Between, telling: Telling) {
    const decoder = between.upstream.dialect.decoder()
    this.#between = between
    this.#request = telling.request
    this.#encoder = between.client.dialect.encoder(telling)
    this.#decode = event => decoder.read(event)
    this.#tally = new UsageTally(between.upstream)
  }

  /** What the client gets for an event of the upstream's. */
  event(event: ReplyEvent): readonly ReplyEvent[] {
    const { failure } = event.reading
    if (failure && !this.#over) return this.#fail(new GatewayError('upstream_failed'), { failure, last: true })
    return this.take(event, this.#decode(event))
  }

  /** What the client gets for what an event says. */
  take(event: ReplyEvent, said: readonly NeutralEvent[]): readonly ReplyEvent[] {
    if (event.reading.usage) this.#tally.learn(event.reading.usage)
    return said.flatMap(each => (each.kind === 'end' ? this.finish() : this.#write(each)))
  }

  /** The upstream has said all it had to say. */
  finish(): readonly ReplyEvent[] {
    // Without a reason why it stopped, nobody knows whether it is whole.
    if (!this.#stopped) return this.fail(new GatewayError('upstream_failed', { message: 'The provider ended the reply without a reason.' }))
    return this.#end(this.#tally.usage()?.usage ?? NO_USAGE)
  }

  /** Ends the stream as one whose output limit is reached. */
  cut(usage: Usage): readonly ReplyEvent[] {
    return [...this.#write({ kind: 'stop', stop: { reason: 'length' } }), ...this.#end(usage)]
  }

  /** Ends the stream as a failure. */
  fail(error: GatewayError): readonly ReplyEvent[] {
    return this.#fail(error, { last: true })
  }

  #write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly ReplyEvent[] {
    if (this.#over || this.#stopped) return []
    const named = event.kind === 'open' && event.what.kind === 'call' ? { ...event, what: asClients(event.what, this.#request) } : event
    if (event.kind === 'stop') this.#stopped = true
    return this.#sent(this.#sequence.push(named).flatMap(each => (each.kind === 'end' ? [] : this.#encoder.write(each))))
  }

  #end(usage: Usage): readonly ReplyEvent[] {
    if (this.#over) return []
    this.#over = true
    return this.#sent(this.#encoder.end(this.#between.client.tell(usage)))
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

/** A call by the names the client knows: the tool's as it declared it, and an id that it can repeat. */
function asClients<C extends Pick<Call, 'id' | 'name'>>(call: C, { tools }: Request): C {
  return { ...call, id: fitId(call.id, MOST_ID), name: toolNamed(call.name, tools)?.name ?? call.name }
}

/** The body as it would be sent; read anew where it holds numbers that its first reading could not keep. */
function wholeOf(body: Body): Json {
  const text = body.received.toString('latin1')
  return /\d{16}/.test(text) ? (parseExact(body.bytes().toString('utf8')) as Json) : body.whole()
}
