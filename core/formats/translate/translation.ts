/** Translates one exchange between a client and an upstream of another format. */
import { NOTHING } from '../../lib/byte-buffer.ts'
import type { Body } from '../body.ts'
import { parseExact, present } from './decoding.ts'
import type { Format } from '../format.ts'
import { DroppedFields } from './dropped-fields.ts'
import type { ModelTraits, ReplyContext } from './neutral.ts'
import type { SaidReading } from '../usage-reading.ts'
import { type ReplyJob, ReplyTranslation, translateReply } from './translate-reply.ts'
import { bufferOf, byName, translateRequest, type TranslatedRequest, type TranslationJob } from './translate-request.ts'

/** What to translate. */
export interface Between {
  readonly client: Format
  readonly upstream: Format
  readonly body: Body
  readonly headers: Readonly<Record<string, unknown>>
  /** The name of the model that the client used. */
  readonly asked: string
  readonly traits: ModelTraits
  readonly requestId: string
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  /** What the operator says of the upstream's counters. */
  readonly said?: SaidReading | undefined
  /** Translates what is large; without it, everything is translated here. */
  readonly elsewhere?: Translator
}

/** Runs large translations. */
export interface Translator {
  /** Rejects with a GatewayError as `translateRequest` does. */
  request(job: TranslationJob): Promise<TranslatedRequest>
  /** Rejects with a GatewayError as `translateReply` does. */
  reply(job: ReplyJob): Promise<Uint8Array>
}

/** The translation of one exchange. */
export class Translation {
  /** The client asked for a stream. */
  readonly streams: boolean
  /** What of the request was left out. */
  readonly dropped: DroppedFields
  /** Translates the replies. */
  readonly replies: ReplyTranslation
  readonly #between: Between
  #translated: TranslatedRequest
  readonly #context: ReplyContext
  /** The request is large. */
  readonly #large: boolean

  /** Translates a large request by `elsewhere`. Rejects as the constructor throws. */
  static async large(between: Between & { readonly elsewhere: Translator }): Promise<Translation> {
    return new Translation(between, await between.elsewhere.request(jobOf(between)))
  }

  /**
   * @param translated the request, if it has been translated
   * @throws GatewayError invalid_body if the request asks for something that the upstream's format cannot carry
   */
  constructor(between: Between, translated?: TranslatedRequest) {
    this.#between = between
    this.#large = translated !== undefined
    this.#translated = translated ?? translateRequest(jobOf(between))
    const { tools, usageAsked, dropped, streams } = this.#translated
    const { body, asked, startedAt, client, upstream, requestId, said } = between
    const members = new Map<string, unknown>()
    const member = (name: string): unknown => {
      const view = members.has(name) ? undefined : body.view(name)
      if (view) members.set(name, parseExact(view.bytes.toString('utf8')))
      return members.get(name)
    }
    this.#context = { model: asked, at: Math.floor(startedAt / 1000), usageAsked, member, tools: byName(tools) }
    this.replies = new ReplyTranslation({ client, upstream, requestId, said }, this.#context)
    this.dropped = new DroppedFields(dropped)
    this.streams = streams
  }

  /** The output limit of the request for the upstream, if the client has set one. It may be higher. */
  get maxOutput(): number | undefined {
    return this.#translated.maxOutput
  }

  /** Whether the gateway may mark the prompt for a cache that costs something to fill. */
  get marksPrompt(): boolean {
    return this.#translated.marksPrompt
  }

  /** Whether the request for the upstream names a service tier. */
  get asksForTier(): boolean {
    return this.#translated.asksForTier
  }

  /** The request for the upstream. */
  get bytes(): Buffer {
    return bufferOf(this.#translated.bytes)
  }

  /** The request for the upstream, with an output limit that a stage has lowered. */
  async limited(maxOutput: number | undefined): Promise<Buffer> {
    if (maxOutput === undefined || maxOutput === this.#translated.maxOutput) return this.bytes
    const job = { ...jobOf(this.#between), maxOutput }
    const { elsewhere } = this.#between
    const { bytes } = this.#large && elsewhere ? await elsewhere.request(job) : translateRequest(job)
    return bufferOf(bytes)
  }

  /** Releases the request for the upstream, which has been sent. */
  release(): void {
    this.#translated = { ...this.#translated, bytes: NOTHING }
  }

  /**
   * Translates a large JSON reply.
   * @returns the bytes to send: JSON, or the events of a stream if the client asked for one
   * @throws GatewayError as `translateReply` does
   */
  async largeReply(bytes: Uint8Array): Promise<Buffer> {
    const { client, upstream, requestId, said, body, elsewhere } = this.#between
    const { model, at, usageAsked, tools } = this.#context
    const members = client.codec.repeats.flatMap(name => {
      const view = body.view(name)
      return view ? [[name, view.bytes.toString('utf8')] as const] : []
    })
    const context = { model, at, usageAsked, tools: [...tools.values()], members }
    const job: ReplyJob = { client, upstream, requestId, said, bytes, stream: this.streams, context: context }
    return bufferOf(elsewhere ? await elsewhere.reply(job) : translateReply(job))
  }
}

/** The traits alone: a model's entry has more, and some of it cannot be sent to another thread. */
function traitsOf({ output, thinking, thinkingOff, sampling, cacheMarks, reasoning }: ModelTraits): ModelTraits {
  return present({ output, thinking, thinkingOff, sampling, cacheMarks, reasoning })
}

function jobOf({ client, upstream, body, headers, traits }: Between): TranslationJob {
  return {
    client,
    upstream,
    headers,
    traits: traitsOf(traits),
    bytes: body.bytes(),
  }
}
