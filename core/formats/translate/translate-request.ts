/** A request of one format as a request of another: a function of its bytes, which may run on another thread. */
import { parseExact, refused } from './decoding.ts'
import type { Format } from '../format.ts'
import { DroppedFields } from './dropped-fields.ts'
import type { ModelLimits, Tool } from './neutral.ts'
import type { Json } from '../terms.ts'
import { object } from '../json.ts'

/** What is to be translated. All of it can be handed to another thread, but for the formats. */
export interface TranslationJob {
  readonly client: Format
  readonly upstream: Format
  /** The request as it would be sent to an upstream of the client's format, in JSON. */
  readonly bytes: Uint8Array
  readonly headers: Readonly<Record<string, unknown>>
  readonly limits: ModelLimits
  /** The most output tokens, where a stage has lowered what was asked for. */
  readonly maxOutput?: number | undefined
}

/** What is left of a tool when its request has gone out: what its calls are told by. */
export type CalledTool = Pick<Tool, 'name' | 'freeform' | 'home'>

/** A translated request, and what its reply has to know of it. */
export interface TranslatedRequest {
  /** The request as the upstream gets it. */
  readonly bytes: Uint8Array
  /** The client asked for a stream, and for its usage at the end. */
  readonly streams: boolean
  readonly usageAsked: boolean
  readonly maxOutput: number | undefined
  /** The request that the upstream gets has a service tier. */
  readonly asksForTier: boolean
  readonly tools: readonly CalledTool[]
  /** Names of what is not in it. */
  readonly dropped: readonly string[]
}

/** The same bytes as a Buffer: on their way between threads they lose that. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}

/** What tools are called by. */
export function byName(tools: readonly CalledTool[]): ReadonlyMap<string, CalledTool> {
  return new Map(tools.map(tool => [tool.name, tool]))
}

/** Translates a request. @throws GatewayError invalid_body when it asks for what the upstream's format cannot carry */
export function translateRequest({
  client,
  upstream,
  bytes,
  headers,
  limits,
  maxOutput,
}: TranslationJob): TranslatedRequest {
  const dropped = new DroppedFields()
  const text = bufferOf(bytes).toString('utf8')
  const request = client.codec.decodeRequest(object(parseExact(text)) as Json, headers, dropped)
  if (request.items.length === 0)
    throw refused(Object.keys(client.required)[0] ?? 'messages', 'The request says nothing: there must be a message.')
  const encoded = upstream.codec.encodeRequest(
    { ...request, ...(maxOutput !== undefined && { maxOutput }) },
    dropped,
    limits,
  )
  return {
    bytes: Buffer.from(JSON.stringify(encoded)),
    streams: request.stream,
    usageAsked: request.usageAsked,
    maxOutput: request.maxOutput,
    asksForTier: encoded['service_tier'] !== undefined,
    tools: request.tools.map(({ name, freeform, home }) => ({ name, freeform, ...(home && { home }) })),
    dropped: dropped.names,
  }
}
