/** One exchange between a client and an upstream of another format: its request, its reply or its stream, through the neutral form. */
import type { Body } from '../body.ts'
import { parseExact } from './decoding.ts'
import type { Format } from '../format.ts'
import { DroppedFields } from './dropped-fields.ts'
import type { ModelLimits, ReplyContext } from './neutral.ts'
import { type ReplyJob, ReplyTranslation, translateReply } from './translate-reply.ts'
import { bufferOf, byName, translateRequest, type TranslatedRequest, type TranslationJob } from './translate-request.ts'

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
  /** Where what is large is translated; without it, here. */
  readonly elsewhere?: Translator
}

/** Does large translations elsewhere. */
export interface Translator {
  /** @throws GatewayError as `translateRequest` does, as a rejection */
  request(job: TranslationJob): Promise<TranslatedRequest>
  /** @throws GatewayError as `translateReply` does, as a rejection */
  reply(job: ReplyJob): Promise<Uint8Array>
}

export class Translation {
  /** The client asked for a stream. */
  readonly streams: boolean
  /** What of the request is not in it. */
  readonly dropped: DroppedFields
  /** How replies to it are translated. */
  readonly replies: ReplyTranslation
  readonly #between: Between
  readonly #translated: TranslatedRequest
  readonly #context: ReplyContext
  /** The request is large. */
  readonly #large: boolean

  /** Translates a large request elsewhere. @throws GatewayError as the constructor does, as a rejection */
  static async large(between: Between & { readonly elsewhere: Translator }): Promise<Translation> {
    return new Translation(between, await between.elsewhere.request(jobOf(between)))
  }

  /**
   * @param translated the request, where it has been translated
   * @throws GatewayError invalid_body when the request asks for what the upstream's format cannot carry
   */
  constructor(between: Between, translated?: TranslatedRequest) {
    this.#between = between
    this.#large = translated !== undefined
    this.#translated = translated ?? translateRequest(jobOf(between))
    const { tools, usageAsked, dropped, streams } = this.#translated
    const { body, asked, startedAt, client, upstream, requestId } = between
    const members = new Map<string, unknown>()
    const member = (name: string): unknown => {
      const view = members.has(name) ? undefined : body.view(name)
      if (view) members.set(name, parseExact(view.bytes.toString('utf8')))
      return members.get(name)
    }
    this.#context = { model: asked, at: Math.floor(startedAt / 1000), usageAsked, member, tools: byName(tools) }
    this.replies = new ReplyTranslation({ client, upstream, requestId }, this.#context)
    this.dropped = new DroppedFields(dropped)
    this.streams = streams
  }

  /** Whether the request that the upstream gets has a service tier. */
  get asksForTier(): boolean {
    return this.#translated.asksForTier
  }

  /** The request as the upstream gets it. */
  get bytes(): Buffer {
    return bufferOf(this.#translated.bytes)
  }

  /** As `bytes`, with at most so many output tokens where a stage has lowered what was asked for. */
  async limited(maxOutput: number | undefined): Promise<Buffer> {
    if (maxOutput === undefined || maxOutput === this.#translated.maxOutput) return this.bytes
    const job = { ...jobOf(this.#between), maxOutput }
    const { elsewhere } = this.#between
    const { bytes } = this.#large && elsewhere ? await elsewhere.request(job) : translateRequest(job)
    return bufferOf(bytes)
  }

  /**
   * A large whole reply, translated elsewhere.
   * @returns the bytes to send: JSON, or the events of the stream that the client asked for
   * @throws GatewayError as `translateReply` does
   */
  async largeReply(bytes: Uint8Array): Promise<Buffer> {
    const { client, upstream, requestId, body, elsewhere } = this.#between
    const { model, at, usageAsked, tools } = this.#context
    const members = client.codec.repeats.flatMap(name => {
      const view = body.view(name)
      return view ? [[name, view.bytes.toString('utf8')] as const] : []
    })
    const context = { model, at, usageAsked, tools: [...tools.values()], members }
    const job: ReplyJob = { client, upstream, requestId, bytes, stream: this.streams, context: context }
    return bufferOf(elsewhere ? await elsewhere.reply(job) : translateReply(job))
  }
}

function jobOf({ client, upstream, body, headers, limits }: Between): TranslationJob {
  return {
    client,
    upstream,
    headers,
    limits: { output: limits.output, thinking: limits.thinking },
    bytes: body.bytes(),
  }
}
