/** Encodes requests of the neutral model in the messages format. */
import {
  inputObject,
  ownReasoning,
  present,
  refused,
  sampling,
  textOnly,
  untranslatable,
} from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Item, ModelLimits, Part, Request, Source, Tool } from '../translate/neutral.ts'
import { fitId, fitName } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { text } from '../json.ts'
import { loosened, objectSchema } from '../translate/schemas.ts'
import { budgetOf, effortOf, FREEFORM_SCHEMA } from '../translate/tools.ts'

/** Encodes a request. @throws GatewayError invalid_body, naming what this format cannot carry */
export function encodeRequest(request: Request, dropped: DroppedFields, limits: ModelLimits): Json {
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
  if (request.tools.some(loosened)) dropped.add('strict')
  const stops = request.stops.filter(stop => stop.trim() !== '')
  if (stops.length < request.stops.length) dropped.add('stop')
  const { system, turns } = encodeTurns(ownReasoning(request.items, 'messages', dropped))
  const maxTokens = request.maxOutput ?? limits.output
  const thinking = encodeThinking(request, turns, maxTokens, limits)
  if (request.thinking?.on && thinking?.spelled['type'] === 'disabled') dropped.add('reasoning_effort')
  const shape =
    request.answerFormat?.kind === 'schema'
      ? { format: { type: 'json_schema', schema: request.answerFormat.schema } }
      : {}
  const config = { ...(thinking?.effort !== undefined && { effort: thinking.effort }), ...shape }
  const tools = request.tools.length > 0 ? request.tools.map(encodeTool) : formerTools(request.items)
  const former = tools.length > 0 ? { type: 'none' } : undefined
  const choice = request.tools.length > 0 ? encodeChoice(request) : former
  // A prompt is cached up to a mark. A client that names a cache key gets two: after what never changes, and at the
  // end.
  if (request.cacheKey !== undefined) mark([system.at(-1) ?? tools.at(-1), turns.at(-1)?.content.at(-1)])
  return present({
    model: request.model,
    max_tokens: maxTokens,
    system: system.length > 0 ? system : undefined,
    messages: turns,
    stream: request.stream || undefined,
    tools: tools.length > 0 ? tools : undefined,
    tool_choice: choice,
    stop_sequences: stops.length > 0 ? stops : undefined,
    ...encodeSampling(request, thinking !== undefined && thinking.spelled['type'] !== 'disabled', dropped),
    thinking: thinking?.spelled,
    service_tier: standard ? 'standard_only' : undefined,
    output_config: Object.keys(config).length > 0 ? config : undefined,
    metadata:
      (request.user ?? request.cacheKey) === undefined ? undefined : { user_id: request.user ?? request.cacheKey },
  })
}

function mark(blocks: readonly (Json | undefined)[]): void {
  for (const block of blocks)
    if (block && block['type'] !== 'thinking' && block['type'] !== 'redacted_thinking')
      Object.assign(block, { cache_control: { type: 'ephemeral' } })
}

/** Sampling. Temperatures above 1 do not exist here, and models accept either a temperature or top_p. */
function encodeSampling(request: Request, thinks: boolean, dropped: DroppedFields): Json {
  const { temperature, topP } = sampling({ ...request, thinking: { on: thinks, shown: false } }, dropped)
  if (temperature !== undefined && temperature > 1) dropped.add('temperature')
  if (temperature !== undefined && topP !== undefined) dropped.add('top_p')
  const topK = thinks ? undefined : request.topK
  return present({
    temperature: temperature === undefined ? undefined : Math.min(temperature, 1),
    top_p: temperature === undefined ? topP : undefined,
    top_k: topK,
  })
}

interface EncodedTurn {
  readonly role: 'user' | 'assistant'
  readonly content: Json[]
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
    .flatMap(item => (isSystem(item) ? encodeTexts(textOnly(item.parts, item.role)) : []))
  for (const item of rest) {
    if (item.kind === 'result') add('user', [encodeResult(item)])
    else if (item.kind === 'reasoning') add('assistant', [encodeReasoning(item)])
    else if (item.kind === 'call')
      add('assistant', [
        { type: 'tool_use', id: fitId(item.id), name: fitName(item.name), input: inputObject(item.input) },
      ])
    else if (isSystem(item)) add('user', encodeTexts(textOnly(item.parts, item.role)).map(reminder))
    else if (item.role === 'assistant') add('assistant', encodeTexts(textOnly(item.parts, item.role)))
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
  return { type: 'text', text: `<system-reminder>\n${text(block['text']) ?? ''}\n</system-reminder>` }
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
  return present({
    type: 'tool_result',
    tool_use_id: fitId(id),
    content: encodeParts(parts),
    is_error: failed || undefined,
  })
}

function encodeTexts(texts: readonly string[]): Json[] {
  return texts.flatMap(text => (text.trim() === '' ? [] : [{ type: 'text', text }]))
}

function encodeParts(parts: readonly Part[]): Json[] {
  return parts.flatMap((part): Json[] => {
    switch (part.kind) {
      case 'text':
      case 'refusal':
        return encodeTexts([part.text])
      case 'image':
        return [{ type: 'image', source: encodeSource(part.source) }]
      case 'file':
        return [encodeFile(part)]
      case 'audio':
        throw untranslatable('messages', 'its format has no sound')
    }
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
  if (source.from === 'data' && source.mediaType !== 'application/pdf')
    throw untranslatable('messages', `its format has no files of type ${source.mediaType.slice(0, 60)}`)
  return present({ type: 'document', source: encodeSource(source), title: name })
}

function encodeTool(tool: Tool): Json {
  const { name, description, schema, strict, freeform } = tool
  return present({
    name: fitName(name),
    description,
    input_schema: freeform ? FREEFORM_SCHEMA : objectSchema(schema),
    strict: (strict && !loosened(tool)) || undefined,
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

/**
 * Returns how to ask the model to reason. Reasoning is off where providers would refuse it: if a tool is forced, if the
 * request begins the reply, and if the history calls tools without the reasoning that led to them.
 */
function encodeThinking(
  { thinking, toolChoice }: Request,
  turns: readonly EncodedTurn[],
  maxTokens: number,
  limits: ModelLimits,
): { spelled: Json; effort?: string } | undefined {
  if (!thinking) return undefined
  const off = { spelled: { type: 'disabled' } }
  const forced = toolChoice?.kind === 'any' || toolChoice?.kind === 'tool'
  if (!thinking.on || forced || turns.at(-1)?.role === 'assistant' || unexplainedCalls(turns)) return off
  const display = thinking.shown ? {} : { display: 'omitted' }
  const effort = effortOf(thinking)
  if (limits.thinking === 'adaptive')
    return {
      spelled: { type: 'adaptive', ...display },
      ...(effort !== undefined && { effort: effort === 'minimal' ? 'low' : effort }),
    }
  const budget = budgetOf(thinking, maxTokens)
  return budget === undefined ? off : { spelled: { type: 'enabled', budget_tokens: budget, ...display } }
}

/** Whether the running turn, after the user's last message, has calls but does not begin with reasoning. */
function unexplainedCalls(turns: readonly EncodedTurn[]): boolean {
  const asked = turns.findLastIndex(
    ({ role, content }) => role === 'user' && content.some(block => block['type'] !== 'tool_result'),
  )
  const running = turns.slice(asked + 1).filter(({ role }) => role === 'assistant')
  const [first] = running.flatMap(({ content }) => content)
  const calls = running.some(({ content }) => content.some(block => block['type'] === 'tool_use'))
  return calls && first?.['type'] !== 'thinking' && first?.['type'] !== 'redacted_thinking'
}
