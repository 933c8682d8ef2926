/** Encodes requests of the neutral model in the messages format. */
import type { GatewayError } from '../../errors.ts'
import { inputObject } from '../translate/calls.ts'
import { ownReasoning, present, refused, sampling, untranslatable } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import { carried, onlyUsers, type Speaker } from '../translate/history.ts'
import {
  type CacheMark,
  type Item,
  type ModelTraits,
  type Part,
  type Request,
  type Source,
  joinedText,
  type Tool,
} from '../translate/neutral.ts'
import { fitId, fitName } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { text } from '../json.ts'
import { objectSchema } from '../translate/root-schema.ts'
import { answerSchema, toolSchemas, type ToolSchema } from '../translate/schemas.ts'
import { described, FREEFORM_SCHEMA } from '../translate/tools.ts'
import { encodeThinking, type EncodedTurn } from './thinking.ts'

/** Encodes a request. @throws GatewayError invalid_body, naming what this format cannot carry */
export function encodeRequest(request: Request, dropped: DroppedFields, traits: ModelTraits): Json {
  const standard = request.serviceTier === 'default'
  for (const [name, value] of Object.entries({
    verbosity: request.verbosity,
    service_tier: standard ? undefined : request.serviceTier,
    metadata: request.metadata,
  })) {
    if (value !== undefined) dropped.add(name)
  }
  if (request.answerFormat?.kind === 'json') dropped.add('response_format')
  if (
    request.items.some(
      item => 'parts' in item && item.parts.some(part => part.kind === 'image' && (part.detail ?? 'auto') !== 'auto'),
    )
  )
    dropped.add('detail')
  const stops = request.stops.filter(stop => stop.trim() !== '')
  if (stops.length < request.stops.length) dropped.add('stop')
  const items = carried({ ...request, items: ownReasoning(request.items, 'messages', dropped) }, refusal, dropped)
  const { system, turns } = encodeTurns(items)
  const maxTokens = request.maxOutput ?? traits.output
  const thinking = encodeThinking(request, turns, maxTokens, traits)
  if (request.thinking && thinking.on !== request.thinking.on) dropped.add('reasoning_effort')
  const shape =
    request.answerFormat?.kind === 'schema'
      ? { format: { type: 'json_schema', schema: answerSchema(request.answerFormat, 'messages', dropped).schema } }
      : {}
  const config = { ...(thinking.effort !== undefined && { effort: thinking.effort }), ...shape }
  const schemas = toolSchemas(request.tools, 'messages', dropped)
  const tools =
    request.tools.length > 0
      ? request.tools.map((tool, index) => encodeTool(tool, schemas[index]))
      : formerTools(request.items)
  const former = tools.length > 0 ? { type: 'none' } : undefined
  const choice = request.tools.length > 0 ? encodeChoice(request) : former
  markPrompt(request, traits, { tools, system, turns }, dropped)
  return present({
    model: request.model,
    max_tokens: maxTokens,
    system: system.length > 0 ? system : undefined,
    messages: turns,
    stream: request.stream || undefined,
    tools: tools.length > 0 ? tools : undefined,
    tool_choice: choice,
    stop_sequences: stops.length > 0 ? stops : undefined,
    ...encodeSampling(request, thinking.on, traits, dropped),
    thinking: thinking.spelled,
    cache_control: request.cache && control(request.cache),
    service_tier: standard ? 'standard_only' : undefined,
    output_config: Object.keys(config).length > 0 ? config : undefined,
    metadata:
      (request.user ?? request.cacheKey) === undefined ? undefined : { user_id: request.user ?? request.cacheKey },
  })
}

/** The error for a part that cannot be carried. */
function refusal(part: Part, speaker: Speaker): GatewayError | undefined {
  if ('text' in part) return undefined
  if (part.kind === 'audio') return untranslatable('messages', 'its format has no sound')
  const { source } = part
  if (part.kind === 'file' && source.from === 'data' && !/^(?:text\/|application\/pdf$)/.test(source.mediaType))
    return untranslatable('messages', `its format has no files of type ${source.mediaType.slice(0, 60)}`)
  return onlyUsers(part, speaker)
}

/** Most marks for the prompt cache that a request may have. */
const MARKS_MAX = 4

/** Whether the gateway marks the prompt itself, because the client has not. */
export function marksPrompt({ cache, cacheKey }: Request, { cacheMarks = 'conversations' }: ModelTraits): boolean {
  return cache === undefined && (cacheMarks === 'always' || (cacheMarks === 'conversations' && cacheKey !== undefined))
}

/**
 * Marks the prompt for the cache of the provider, which keeps it up to a mark. The client's own marks count. Without
 * any, the gateway may set two: after what never changes, and at the end.
 */
function markPrompt(
  request: Request,
  traits: ModelTraits,
  { tools, system, turns }: { tools: readonly Json[]; system: readonly Json[]; turns: readonly EncodedTurn[] },
  dropped: DroppedFields,
): void {
  const blocks = [...tools, ...system, ...turns.flatMap(({ content }) => content)]
  const marks = blocks.filter(block => block['cache_control'] !== undefined)
  const most = MARKS_MAX - (request.cache ? 1 : 0)
  // The last marks stay: each covers the prompt up to itself.
  for (const block of marks.slice(0, Math.max(0, marks.length - most))) {
    dropped.add('cache_control')
    delete (block as { cache_control?: unknown }).cache_control
  }
  if (marks.length > 0 || !marksPrompt(request, traits)) return
  for (const block of [system.at(-1) ?? tools.at(-1), turns.at(-1)?.content.at(-1)])
    if (block && block['type'] !== 'thinking' && block['type'] !== 'redacted_thinking')
      Object.assign(block, { cache_control: control('5m') })
}

/** A mark, of five minutes if it does not say. */
function control(cache: CacheMark): Json {
  return { type: 'ephemeral', ...(cache === '1h' && { ttl: cache }) }
}

/** The blocks of a part, with its mark at the last one. */
function marked(blocks: Json[], { cache }: { readonly cache?: CacheMark }): Json[] {
  const last = blocks.at(-1)
  if (last && cache) Object.assign(last, { cache_control: control(cache) })
  return blocks
}

/** Sampling. Temperatures above 1 do not exist here, and models accept either a temperature or top_p. */
function encodeSampling(request: Request, thinks: boolean, traits: ModelTraits, dropped: DroppedFields): Json {
  const { temperature, topP, topK } = sampling(request, traits, thinks, dropped)
  if (temperature !== undefined && temperature > 1) dropped.add('temperature')
  if (temperature !== undefined && topP !== undefined) dropped.add('top_p')
  return present({
    temperature: temperature === undefined ? undefined : Math.min(temperature, 1),
    top_p: temperature === undefined ? topP : undefined,
    top_k: topK,
  })
}

/** Turns that alternate and begin with the user's. Results of tools come first in theirs; empty texts are left out. */
function encodeTurns(items: readonly Item[]): { system: Json[]; turns: EncodedTurn[] } {
  const turns: EncodedTurn[] = []
  const add = (role: EncodedTurn['role'], blocks: readonly Json[]): void => {
    const last = turns.at(-1)
    if (blocks.length === 0) return
    const content = last?.role === role ? last.content : []
    if (last?.role !== role) turns.push({ role, content })
    for (const block of blocks) content.push(block)
  }
  const leading = items.findIndex(item => !isSystem(item))
  const rest = leading === -1 ? [] : items.slice(leading)
  const system = items
    .slice(0, leading === -1 ? items.length : leading)
    .flatMap(item => (isSystem(item) ? encodeTexts(item.parts) : []))
  for (const item of rest) {
    if (item.kind === 'result') add('user', [encodeResult(item)])
    else if (item.kind === 'reasoning') add('assistant', [encodeReasoning(item)])
    else if (item.kind === 'call')
      add('assistant', [
        present({
          type: 'tool_use',
          id: fitId(item.id),
          name: fitName(item.name),
          input: inputObject(item.input),
          cache_control: item.cache && control(item.cache),
        }),
      ])
    else if (isSystem(item)) add('user', encodeTexts(item.parts).map(reminder))
    else if (item.role === 'assistant') add('assistant', encodeTexts(item.parts))
    else add('user', encodeParts(item.parts))
  }
  // There must be a user's message. If there are only system messages, they become one.
  if (turns.length === 0 && system.length === 0)
    throw refused('messages', 'The request has no message that is not empty.')
  if (turns.length === 0) return { system: [], turns: [{ role: 'user', content: system }] }
  if (turns[0]?.role === 'assistant')
    turns.unshift({ role: 'user', content: [{ type: 'text', text: '(The conversation begins.)' }] })
  trimLast(turns)
  return { system, turns }
}

function isSystem(item: Item): item is Extract<Item, { kind: 'message' }> & { role: 'system' | 'developer' } {
  return item.kind === 'message' && (item.role === 'system' || item.role === 'developer')
}

/** A system message within a conversation becomes a reminder in the user's turn. */
function reminder(block: Json): Json {
  return { ...block, text: `<system-reminder>\n${text(block['text']) ?? ''}\n</system-reminder>` }
}

/** A reply that the request begins must not end in white space. */
function trimLast(turns: readonly EncodedTurn[]): void {
  const last = turns.at(-1)
  const block = last?.role === 'assistant' ? last.content.at(-1) : undefined
  if (block?.['type'] === 'text') Object.assign(block, { text: (text(block['text']) ?? '').trimEnd() })
}

function encodeReasoning(item: Extract<Item, { kind: 'reasoning' }>): Json {
  const { signature, redacted } = item.signature?.data ?? {}
  return redacted === undefined
    ? { type: 'thinking', thinking: item.text, signature }
    : { type: 'redacted_thinking', data: redacted }
}

function encodeResult({ id, parts, failed }: Extract<Item, { kind: 'result' }>): Json {
  const mark = parts.findLast(({ cache }) => cache !== undefined)?.cache
  return present({
    type: 'tool_result',
    tool_use_id: fitId(id),
    content: encodeParts(parts.map(({ cache: _mark, ...part }) => part as Part)),
    is_error: failed || undefined,
    // A result is marked as a whole.
    cache_control: mark && control(mark),
  })
}

function encodeTexts(parts: readonly Part[]): Json[] {
  return parts.flatMap(part => {
    const said = joinedText([part])
    return said.trim() === '' ? [] : marked([{ type: 'text', text: said }], part)
  })
}

function encodeParts(parts: readonly Part[]): Json[] {
  return parts.flatMap((part): Json[] => {
    if (part.kind === 'image') return marked([{ type: 'image', source: encodeSource(part.source) }], part)
    return part.kind === 'file' ? marked([encodeFile(part)], part) : encodeTexts([part])
  })
}

function encodeSource(source: Source): Json {
  return source.from === 'url'
    ? { type: 'url', url: source.url }
    : { type: 'base64', media_type: source.mediaType, data: source.data }
}

function encodeFile({ source, name }: Extract<Part, { kind: 'file' }>): Json {
  if (source.from === 'data' && source.mediaType.startsWith('text/')) {
    const said = Buffer.from(source.data, 'base64').toString('utf8')
    return present({ type: 'document', source: { type: 'text', media_type: 'text/plain', data: said }, title: name })
  }
  return present({ type: 'document', source: encodeSource(source), title: name })
}

function encodeTool(tool: Tool, enforced: ToolSchema | undefined): Json {
  const { name, freeform, cache } = tool
  return present({
    name: fitName(name),
    description: described(tool),
    input_schema: freeform ? FREEFORM_SCHEMA : enforced?.schema,
    strict: enforced?.strict || undefined,
    cache_control: cache && control(cache),
  })
}

/**
 * Declarations for tools that the history calls and the request no longer has. Without any tool, a history with calls
 * is refused.
 */
function formerTools(items: readonly Item[]): Json[] {
  const names = new Set(items.flatMap(item => (item.kind === 'call' ? [fitName(item.name)] : [])))
  return [...names].map(name => ({ name, input_schema: objectSchema() }))
}

function encodeChoice({ toolChoice, parallelTools }: Request): unknown {
  const kind = toolChoice?.kind ?? (parallelTools === false ? 'auto' : undefined)
  if (kind === undefined) return undefined
  return present({
    type: kind,
    name: toolChoice?.kind === 'tool' ? fitName(toolChoice.name) : undefined,
    disable_parallel_tool_use: parallelTools === false && kind !== 'none' ? true : undefined,
  })
}
