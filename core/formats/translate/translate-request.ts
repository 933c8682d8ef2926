/** Translates requests from one format into another. It is a function of the bytes, so it can run on another thread. */
import { parseExact, refused } from './decoding.ts'
import type { Format } from '../format.ts'
import { DroppedFields } from './dropped-fields.ts'
import type { ModelTraits, Tool } from './neutral.ts'
import type { Json } from '../terms.ts'
import { object } from '../json.ts'
import { respelled } from './respelled.ts'

/** A request to translate. Apart from the formats, it can be sent to another thread. */
export interface TranslationJob {
  readonly client: Format
  readonly upstream: Format
  /** The request as an upstream of the client's format would get it, in JSON. */
  readonly bytes: Uint8Array
  readonly headers: Readonly<Record<string, unknown>>
  readonly traits: ModelTraits
  /** Most output tokens, if a stage has lowered the limit. */
  readonly maxOutput?: number | undefined
}

/** What is needed of a tool after the request was sent: what identifies its calls. */
export type CalledTool = Pick<Tool, 'name' | 'freeform' | 'home'>

/** A translated request, and what its reply needs to know. */
export interface TranslatedRequest {
  /** The request for the upstream. */
  readonly bytes: Uint8Array
  /** The client asked for a stream, and for usage at its end. */
  readonly streams: boolean
  readonly usageAsked: boolean
  /** The output limit for the upstream, if the client has set one: at least what the upstream accepts. */
  readonly maxOutput: number | undefined
  /** The request for the upstream may be marked for a prompt cache, although the client's is not. */
  readonly marksPrompt: boolean
  /** The request for the upstream names a service tier. */
  readonly asksForTier: boolean
  readonly tools: readonly CalledTool[]
  /** Names of what was left out. */
  readonly dropped: readonly string[]
}

/** The same bytes as a Buffer. A message to another thread turns it into a plain Uint8Array. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}

/** Tools by name. */
export function byName(tools: readonly CalledTool[]): ReadonlyMap<string, CalledTool> {
  return new Map(tools.map(tool => [tool.name, tool]))
}

/** A request that only changes its shape, which its reply need not know. */
const UNTRANSLATED = {
  streams: false,
  usageAsked: false,
  maxOutput: undefined,
  marksPrompt: false,
  asksForTier: false,
  tools: [],
}

/**
 * Translates a request. In its upstream's own format, only what has the shape of others changes.
 * @throws GatewayError invalid_body if it asks for something that the upstream's format cannot carry
 */
export function translateRequest({
  client,
  upstream,
  bytes,
  headers,
  traits,
  maxOutput,
}: TranslationJob): TranslatedRequest {
  const dropped = new DroppedFields()
  const body = object(parseExact(bufferOf(bytes).toString('utf8'))) as Json
  if (client === upstream) {
    const made = Buffer.from(JSON.stringify(respelled(body, upstream, dropped)))
    return { ...UNTRANSLATED, bytes: made, dropped: dropped.names }
  }
  const request = client.codec.decodeRequest(body, headers, dropped)
  if (request.items.length === 0)
    throw refused(Object.keys(client.required)[0] ?? 'messages', 'The request has no messages.')
  const limit = maxOutput ?? request.maxOutput
  const encoded = upstream.codec.encodeRequest(
    { ...request, ...(limit !== undefined && { maxOutput: limit }) },
    dropped,
    traits,
  )
  return {
    bytes: Buffer.from(JSON.stringify(encoded)),
    streams: request.stream,
    usageAsked: request.usageAsked,
    maxOutput: limit && Math.max(limit, upstream.leastOutput),
    marksPrompt: upstream.codec.marksPrompt?.(request, traits) === true,
    asksForTier: encoded['service_tier'] !== undefined,
    tools: request.tools.map(({ name, freeform, home }) => ({ name, freeform, ...(home && { home }) })),
    dropped: dropped.names,
  }
}
