/** Encodes requests of the neutral model in the responses format. */
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
  joinedText,
  type Tool,
  type ToolChoice,
} from '../translate/neutral.ts'
import { fitName, shortened, shortId } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { text } from '../json.ts'
import { answerSchema, toolSchemas, type ToolSchema } from '../translate/schemas.ts'
import { freeformInput } from '../translate/calls.ts'
import { described, effortFor, FREEFORM_SCHEMA, reasons, textTools } from '../translate/tools.ts'

/** The least output limit that providers accept, in tokens. */
export const LEAST_OUTPUT = 16

/** Encodes a request. @throws GatewayError invalid_body, naming what this format cannot carry */
export function encodeRequest(request: Request, dropped: DroppedFields, traits: ModelTraits): Json {
  if (request.topK !== undefined) dropped.add('top_k')
  if (request.stops.length > 0) dropped.add('stop')
  dropMarks(request.items, [request, ...request.tools], dropped)
  const isReasoning = reasons(request.thinking, traits)
  const { temperature, topP } = sampling(request, traits, isReasoning, dropped)
  const items = carried({ ...request, items: ownReasoning(request.items, 'responses', dropped) }, refusal, dropped)
  // If there are only system messages, they become the input.
  const split = Math.max(
    0,
    items.findIndex(item => item.kind !== 'message' || item.role !== 'system'),
  )
  const instructions = items
    .slice(0, split)
    .map(item => ('parts' in item ? item.parts.map(part => joinedText([part])).join('\n\n') : ''))
  const thinking = request.thinking
  const format = request.answerFormat && encodeShape(request.answerFormat, dropped)
  const said = { ...(format && { format }), ...(request.verbosity !== undefined && { verbosity: request.verbosity }) }
  const effort = effortFor(thinking, traits, dropped)
  const summary = isReasoning && thinking?.shown === true
  const tools = request.tools.length > 0
  const schemas = toolSchemas(request.tools, 'responses', dropped)
  const ofText = textTools(request.tools, traits)
  const textCalls = new Set(items.flatMap(item => (item.kind === 'call' && ofText.has(item.name) ? [item.id] : [])))
  const { maxOutput, maxOutputMember } = request
  if (maxOutput !== undefined && maxOutput < LEAST_OUTPUT) dropped.add(maxOutputMember ?? 'max_tokens')
  return present({
    model: request.model,
    instructions: instructions.length > 0 ? instructions.join('\n\n') : undefined,
    input: items.slice(split).flatMap(item => encodeItem(item, textCalls)),
    stream: request.stream || undefined,
    // Stored replies would be accessible to all customers of the upstream account.
    store: false,
    include: isReasoning ? ['reasoning.encrypted_content'] : undefined,
    max_output_tokens: maxOutput && Math.max(maxOutput, LEAST_OUTPUT),
    tools: tools ? request.tools.map((tool, index) => encodeTool(tool, schemas[index], ofText)) : undefined,
    tool_choice: tools ? encodeChoice(request.toolChoice, ofText) : undefined,
    parallel_tool_calls: tools ? request.parallelTools : undefined,
    temperature,
    top_p: topP,
    reasoning:
      effort === undefined && !summary ? undefined : present({ effort, summary: summary ? 'auto' : undefined }),
    text: Object.keys(said).length > 0 ? said : undefined,
    prompt_cache_key: request.cacheKey === undefined ? undefined : shortened(request.cacheKey),
    safety_identifier: request.user === undefined ? undefined : shortened(request.user),
    service_tier: request.serviceTier,
    metadata: request.metadata,
  })
}

/** The error for a part that cannot be carried. */
function refusal(part: Part, speaker: Speaker): GatewayError | undefined {
  if ('text' in part) return undefined
  return part.kind === 'audio' ? untranslatable('messages', 'its format has no sound') : onlyUsers(part, speaker)
}

/** @param textCalls the ids of calls whose input is text */
function encodeItem(item: Item, textCalls: ReadonlySet<string>): Json[] {
  switch (item.kind) {
    case 'message':
      if (item.parts.length === 0) return []
      return [
        {
          type: 'message',
          role: item.role,
          content: item.role === 'assistant' ? encodeSaid(item.parts) : encodeParts(item.parts),
        },
      ]
    case 'reasoning': {
      const { encrypted, id, summary = item.text === '' ? [] : [item.text] } = item.signature?.data ?? {}
      const summaryParts = (Array.isArray(summary) ? summary : []).map(part => ({
        type: 'summary_text',
        text: String(part),
      }))
      return [present({ type: 'reasoning', id: text(id), summary: summaryParts, encrypted_content: encrypted })]
    }
    case 'call':
      return [
        textCalls.has(item.id)
          ? { type: 'custom_tool_call', call_id: shortId(item.id), name: fitName(item.name), input: freeformInput(item.input) } // prettier-ignore
          : {
              type: 'function_call',
              call_id: shortId(item.id),
              name: fitName(item.name),
              arguments: item.input || '{}',
            },
      ]
    case 'result': {
      const parts = resultParts(item.parts, item.failed)
      const [first = { kind: 'text', text: '' }, ...others] = parts
      const output = others.length === 0 && first.kind === 'text' ? first.text : encodeParts(parts)
      const type = textCalls.has(item.id) ? 'custom_tool_call_output' : 'function_call_output'
      return [{ type, call_id: shortId(item.id), output }]
    }
  }
}

function encodeSaid(parts: readonly Part[]): Json[] {
  return parts.map(part =>
    part.kind === 'refusal'
      ? { type: 'refusal', refusal: part.text }
      : { type: 'output_text', text: joinedText([part]) },
  )
}

function encodeParts(parts: readonly Part[]): Json[] {
  return parts.map((part): Json => {
    switch (part.kind) {
      case 'text':
      case 'refusal':
        return { type: 'input_text', text: part.text }
      case 'image':
        return { type: 'input_image', image_url: urlOf(part.source), detail: part.detail ?? 'auto' }
      case 'file':
        if (part.source.from === 'url') return { type: 'input_file', file_url: part.source.url }
        return { type: 'input_file', filename: part.name ?? 'file', file_data: urlOf(part.source) }
      case 'audio':
        throw untranslatable('messages', 'its format has no sound')
    }
  })
}

function encodeTool(tool: Tool, enforced: ToolSchema | undefined, ofText: ReadonlySet<string>): Json {
  const { name, freeform, grammar } = tool
  if (ofText.has(name)) {
    const format = grammar && { type: 'grammar', ...grammar }
    return present({ type: 'custom', name: fitName(name), description: tool.description, format })
  }
  // By default, `strict` would be true and change the schema.
  return present({
    type: 'function',
    name: fitName(name),
    description: described(tool),
    parameters: freeform ? FREEFORM_SCHEMA : enforced?.schema,
    strict: enforced?.strict === true,
  })
}

function encodeChoice(choice: ToolChoice | undefined, ofText: ReadonlySet<string>): unknown {
  if (choice?.kind === 'tool')
    return { type: ofText.has(choice.name) ? 'custom' : 'function', name: fitName(choice.name) }
  return choice?.kind === 'any' ? 'required' : choice?.kind
}

function encodeShape(shape: AnswerFormat, dropped: DroppedFields): Json {
  if (shape.kind === 'json') return { type: 'json_object' }
  const { name, description } = shape
  const { schema, strict } = answerSchema(shape, 'responses', dropped)
  return present({ type: 'json_schema', name, schema, strict, description })
}
