/**
 * The one reader of request shapes: whatever the path, a body, its tools, calls, results and parts are recognised by what they have.
 * The path says only the form of the answer. A body in the shape of its path stays as it is.
 */
import type { Body } from './body.ts'
import type { Format } from './format.ts'
import { list, object } from './json.ts'
import type { FormatName } from './terms.ts'
import type { ModelTraits } from './translate/neutral.ts'
import { PART_TYPES } from './translate/parts.ts'
import { shapeOfTool, type ToolShape } from './translate/tools.ts'
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

/** The tools, parts and elements that are a format's own. */
const OWN: Readonly<Record<FormatName, { readonly tools: readonly ToolShape[]; readonly marks: readonly string[] }>> = {
  'chat-completions': { tools: ['nested', 'nested text'], marks: ['role tool', 'tool_calls'] },
  responses: { tools: ['flat', 'flat text', 'namespace'], marks: ['item'] },
  messages: { tools: ['schema'], marks: ['tool_use', 'tool_result'] },
}
const MARKS = Object.values(OWN).flatMap(({ marks }) => marks)

/** Whether a body has tools, calls, results or parts in the shape of another format. */
export function hasForeign(body: Pick<Body, 'get' | 'contents'>, { name }: Pick<Format, 'name'>): boolean {
  const { tools, marks } = OWN[name]
  const isForeignTool = (tool: unknown): boolean => {
    const shape = shapeOfTool(object(tool) ?? {})
    return shape !== undefined && !tools.includes(shape)
  }
  if (list(body.get('tools')).some(isForeignTool)) return true
  for (const found of body.contents.shapes) {
    if (MARKS.includes(found) && !marks.includes(found)) return true
    if (Object.hasOwn(PART_TYPES, found) && PART_TYPES[found]?.includes(name) === false) return true
  }
  return false
}

/** What is not lost where a body only changes its shape. The model is not known yet. */
const TRAITS: ModelTraits = { output: 1, thinking: 'adaptive', cacheMarks: 'client', textTools: true }

/** The members that hold the conversation and the tools. */
const SHAPED = new Set([
  'messages',
  'system',
  'input',
  'instructions',
  'tools',
  'tool_choice',
  'functions',
  'function_call',
])

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
  const made = await translate({ client: shape, upstream: path, bytes: body.received, headers, traits: TRAITS })
  const all = await read(bufferOf(made.bytes))
  // A limit that the client has not set is not its own.
  if (made.maxOutput === undefined) all.remove('max_tokens')
  const names = new Set(body.names)
  // The other members of a body in its own shape stay as they are.
  const [whole, part, moved] = shape === path ? [body, all, SHAPED] : [all, body, ['stream_options']]
  for (const name of moved) {
    const view = part.view(name)
    if (view) whole.setBytes(name, Buffer.from(view.bytes))
    else if (whole.has(name)) whole.remove(name)
  }
  const result = await read(whole.bytes())
  result.losses = shape === path ? made.dropped.filter(name => !names.has(name)) : made.dropped
  return result
}
