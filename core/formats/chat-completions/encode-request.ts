/** Encodes requests of the neutral model in the chat-completions format. */
import type { GatewayError } from '../../errors.ts'
import { ownReasoning, present, resultParts, sampling, untranslatable } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import { carried, dropMarks, onlyUsers, type Speaker } from '../translate/history.ts'
import { urlOf } from '../translate/media.ts'
import {
  type AnswerFormat,
  type Item,
  type ModelTraits,
  type Part,
  type Request,
  type Role,
  joinedText,
  type Tool,
  type ToolChoice,
} from '../translate/neutral.ts'
import { fitName, shortened, shortId } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { answerSchema, toolSchemas, type ToolSchema } from '../translate/schemas.ts'
import { freeformInput } from '../translate/calls.ts'
import { described, effortFor, FREEFORM_SCHEMA, reasons, textTools } from '../translate/tools.ts'
import { spelledReasoning } from './reasoning.ts'

/** Most characters of the id of a tool call. */
const ID_MAX = 40
/** Most stop sequences. */
const STOPS_MAX = 4

/** Encodes a request. @throws GatewayError invalid_body, naming what this format cannot carry */
export function encodeRequest(request: Request, dropped: DroppedFields, traits: ModelTraits): Json {
  if (request.topK !== undefined) dropped.add('top_k')
  dropMarks(request.items, [request, ...request.tools], dropped)
  // Providers accept it only together with `store`.
  if (request.metadata) dropped.add('metadata')
  if (request.stops.length > STOPS_MAX) dropped.add('stop')
  const { temperature, topP } = sampling(request, traits, reasons(request.thinking, traits), dropped)
  const items = carried(
    { ...request, items: ownReasoning(request.items, 'chat-completions', dropped) },
    refusal,
    dropped,
  )
  const schemas = toolSchemas(request.tools, 'chat-completions', dropped)
  const ofText = textTools(request.tools, traits)
  return present({
    model: request.model,
    messages: encodeMessages(items, ofText),
    stream: request.stream || undefined,
    stream_options: request.stream ? { include_usage: true } : undefined,
    max_completion_tokens: request.maxOutput,
    tools:
      request.tools.length > 0
        ? request.tools.map((tool, index) => encodeTool(tool, schemas[index], ofText))
        : undefined,
    tool_choice: request.tools.length > 0 ? encodeChoice(request.toolChoice, ofText) : undefined,
    parallel_tool_calls: request.tools.length > 0 ? request.parallelTools : undefined,
    stop: request.stops.length > 0 ? request.stops.slice(0, STOPS_MAX) : undefined,
    temperature,
    top_p: topP,
    reasoning_effort: effortFor(request.thinking, traits, dropped),
    response_format: encodeShape(request.answerFormat, dropped),
    verbosity: request.verbosity,
    safety_identifier: request.user === undefined ? undefined : shortened(request.user),
    prompt_cache_key: request.cacheKey === undefined ? undefined : shortened(request.cacheKey),
    service_tier: request.serviceTier,
  })
}

/** The error for a part that cannot be carried. */
function refusal(part: Part, speaker: Speaker): GatewayError | undefined {
  if ('text' in part) return undefined
  if (part.kind === 'file' && part.source.from === 'url')
    return untranslatable('messages', 'its format has no files behind URLs; send the data')
  return onlyUsers(part, speaker === 'developer' ? 'system' : speaker)
}

/** The message of an assistant, as it grows. */
interface Turn {
  readonly role: 'assistant'
  content: string | null
  refusal?: string
  tool_calls?: unknown[]
}

/** @param ofText the names of tools whose input is text */
function encodeMessages(items: readonly Item[], ofText: ReadonlySet<string>): Json[] {
  const messages: object[] = []
  let turn: Turn | undefined
  /** Media that tools returned. Only a user's message can carry them, after all results. */
  let shown: Part[] = []
  const endTurn = (): void => {
    if (turn) messages.push(turn)
    turn = undefined
  }
  const endResults = (): void => {
    if (shown.length > 0) messages.push({ role: 'user', content: encodeParts(shown) })
    shown = []
  }
  for (const item of items) {
    if (item.kind !== 'result') endResults()
    if (item.kind === 'result') {
      endTurn()
      messages.push(encodeResult(item, shown))
    } else if (item.kind === 'message' && item.role !== 'assistant') {
      endTurn()
      // Every provider knows `system`, but not every one knows `developer`.
      const role = item.role === 'developer' ? 'system' : item.role
      if (item.parts.length > 0) messages.push({ role, content: encodeContent(role, item.parts) })
    } else {
      // Two messages stay two; the text, reasoning and calls of one turn become one.
      if (item.kind === 'message' && turn?.content) endTurn()
      turn = grown(turn, item, ofText)
    }
  }
  endTurn()
  endResults()
  return messages as Json[]
}

/** @param shown receives the media of the result */
function encodeResult({ id, parts, failed }: Extract<Item, { kind: 'result' }>, shown: Part[]): Json {
  const results = resultParts(parts, failed)
  const short = shortId(id, ID_MAX)
  const media = results.filter(part => !('text' in part))
  if (media.length > 0) shown.push({ kind: 'text', text: `What the call ${short} showed:` })
  for (const part of media) shown.push(part)
  return { role: 'tool', tool_call_id: short, content: joinedText(results) || (media.length > 0 ? 'Shown below.' : '') }
}

function grown(
  turn: Turn | undefined,
  item: Exclude<Item, { kind: 'result' }>,
  ofText: ReadonlySet<string>,
): Turn | undefined {
  const begun = turn ?? { role: 'assistant', content: null }
  if (item.kind === 'reasoning') return Object.assign(begun, spelledReasoning(item))
  if (item.kind === 'call') {
    const [id, name] = [shortId(item.id, ID_MAX), fitName(item.name)]
    begun.tool_calls ??= []
    begun.tool_calls.push(
      ofText.has(item.name)
        ? { id, type: 'custom', custom: { name, input: freeformInput(item.input) } }
        : { id, type: 'function', function: { name, arguments: item.input || '{}' } },
    )
    return begun
  }
  const said = joinedText(item.parts.filter(({ kind }) => kind === 'text'))
  const refusal = joinedText(item.parts.filter(({ kind }) => kind === 'refusal'))
  // An empty message is left out.
  if (said === '' && refusal === '') return turn
  if (said !== '') begun.content = (begun.content ?? '') + said
  if (refusal !== '') begun.refusal = refusal
  return begun
}

function encodeContent(role: Role, parts: readonly Part[]): unknown {
  // Some providers accept parts only from users.
  if (role !== 'user') return parts.map(part => joinedText([part])).join('\n\n')
  const [only] = parts
  return parts.length === 1 && only?.kind === 'text' ? only.text : encodeParts(parts)
}

function encodeParts(parts: readonly Part[]): Json[] {
  return parts.map((part): Json => {
    switch (part.kind) {
      case 'text':
      case 'refusal':
        return { type: 'text', text: part.text }
      case 'image':
        return { type: 'image_url', image_url: present({ url: urlOf(part.source), detail: part.detail }) }
      case 'audio':
        return { type: 'input_audio', input_audio: { data: part.data, format: part.encoding } }
      case 'file':
        return { type: 'file', file: { filename: part.name ?? 'file', file_data: urlOf(part.source) } }
    }
  })
}

function encodeTool(tool: Tool, enforced: ToolSchema | undefined, ofText: ReadonlySet<string>): Json {
  const { schema, freeform, grammar } = tool
  const name = fitName(tool.name)
  if (ofText.has(tool.name)) {
    const format = grammar && { type: 'grammar', grammar }
    return { type: 'custom', custom: present({ name, description: tool.description, format }) }
  }
  const description = described(tool)
  const parameters = freeform ? FREEFORM_SCHEMA : schema && enforced?.schema
  const strict = tool.strict === undefined ? undefined : enforced?.strict
  return { type: 'function', function: present({ name, description, parameters, strict }) }
}

function encodeChoice(choice: ToolChoice | undefined, ofText: ReadonlySet<string>): unknown {
  const type = choice?.kind === 'tool' && ofText.has(choice.name) ? 'custom' : 'function'
  if (choice?.kind === 'tool') return { type, [type]: { name: fitName(choice.name) } }
  return choice?.kind === 'any' ? 'required' : choice?.kind
}

function encodeShape(shape: AnswerFormat | undefined, dropped: DroppedFields): unknown {
  if (shape?.kind === 'json') return { type: 'json_object' }
  if (!shape) return undefined
  const { name, description } = shape
  const { schema, strict } = answerSchema(shape, 'chat-completions', dropped)
  return { type: 'json_schema', json_schema: present({ name, description, schema, strict }) }
}
