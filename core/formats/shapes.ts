/**
 * The one reader of request shapes: whatever the path, a body, its tools, calls, results and parts are recognised by what they have.
 * The path says only the form of the answer. A body in the shape of its path stays as it is.
 */
import type { Body } from './body.ts'
import type { Format } from './format.ts'
import { list } from './json.ts'
import type { FormatName } from './terms.ts'
import { BLOCKS } from './translate/elements.ts'
import { isForeignType } from './translate/parts.ts'
import { SHAPE_TRAITS } from './translate/respelled.ts'
import { isForeignChoice, isForeignTool } from './translate/tools.ts'
import { bufferOf, type TranslatedRequest, type TranslationJob } from './translate/translate-request.ts'

/** How bodies of another format are recognised at the path of one: by a member that it has, and one that it lacks. */
export const BODY_SHAPES: readonly (readonly [path: FormatName, has: string, lacks: string, shape: FormatName])[] = [
  ['chat-completions', 'input', 'messages', 'responses'],
  ['chat-completions', 'system', 'input', 'messages'],
  ['messages', 'input', 'messages', 'responses'],
  ['messages', 'max_completion_tokens', 'system', 'chat-completions'],
  ['messages', 'response_format', 'system', 'chat-completions'],
  ['messages', 'reasoning_effort', 'system', 'chat-completions'],
  ['responses', 'system', 'input', 'messages'],
  ['responses', 'stop_sequences', 'input', 'messages'],
  ['responses', 'messages', 'input', 'chat-completions'],
]

/** Returns the format whose shape a body has. */
export function shapeOfBody(body: Pick<Body, 'has'>, { name }: Pick<Format, 'name'>): FormatName {
  const row = BODY_SHAPES.find(([path, has, lacks]) => path === name && body.has(has) && !body.has(lacks))
  return row?.[3] ?? name
}

/** Whether a body has tools, a choice of them, calls, results or parts in the shape of another format. */
export function hasForeign(body: Pick<Body, 'get' | 'contents'>, { name }: Pick<Format, 'name'>): boolean {
  const { shapes, partTypes } = body.contents
  return (
    list(body.get('tools')).some(tool => isForeignTool(tool, name)) ||
    isForeignChoice(body.get('tool_choice'), name) ||
    [...shapes].some(shape => shape !== name) ||
    [...partTypes].some(type => isForeignType(type, name) || (name !== 'messages' && BLOCKS.has(type)))
  )
}

/** How a body is brought into the shape of its path. */
export interface Reshaping {
  readonly path: Format
  /** The format whose shape it has, or that of the path if only parts of it have others. */
  readonly shape: Format
  readonly headers: TranslationJob['headers']
  /** Runs the job, on another thread if the body is large. */
  readonly translate: (job: TranslationJob) => TranslatedRequest | Promise<TranslatedRequest>
  /** Reads JSON as a body. */
  readonly read: (bytes: Buffer) => Promise<Body>
}

/**
 * Brings a body into the shape of its path. What that shape cannot carry is in `losses`.
 * @throws GatewayError invalid_body if the shape of the path cannot carry it
 */
export async function reshaped(body: Body, { path, shape, headers, translate, read }: Reshaping): Promise<Body> {
  const made = await translate({ client: shape, upstream: path, bytes: body.received, headers, traits: SHAPE_TRAITS })
  const result = await read(bufferOf(made.bytes))
  result.losses = made.dropped
  if (shape === path) return result
  // A limit that the client has not set is not its own, nor is a wish for usage.
  if (made.maxOutput === undefined) result.remove('max_tokens')
  result.remove('stream_options')
  // What only the path knows is meant as it says.
  const kept = [...body.names].filter(
    name => !result.has(name) && path.codec.translates.includes(name) && !shape.codec.translates.includes(name),
  )
  for (const name of kept) result.setBytes(name, Buffer.from(body.view(name)?.bytes ?? []))
  const whole = await read(result.bytes())
  whole.losses = made.dropped.filter(name => !kept.includes(name))
  return whole
}
