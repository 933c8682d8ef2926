/** Encodes requests of the neutral model in the responses format. */
import { ownReasoning, present, resultParts, sampling, textOnly, untranslatable, urlOf } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Item, Part, Request, AnswerFormat, Tool, ToolChoice } from '../translate/neutral.ts'
import { fitName, shortened, shortId } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { text } from '../json.ts'
import { loosened, objectSchema } from '../translate/schemas.ts'
import { effortOf, FREEFORM_SCHEMA } from '../translate/tools.ts'

/** Encodes a request. @throws GatewayError invalid_body, naming what this format cannot carry */
export function encodeRequest(request: Request, dropped: DroppedFields): Json {
  if (request.topK !== undefined) dropped.add('top_k')
  if (request.stops.length > 0) dropped.add('stop')
  if (request.tools.some(loosened)) dropped.add('strict')
  const { temperature, topP } = sampling(request, dropped)
  const items = ownReasoning(request.items, 'responses', dropped)
  // If there are only system messages, they become the input.
  const split = Math.max(
    0,
    items.findIndex(item => item.kind !== 'message' || item.role !== 'system'),
  )
  const instructions = items
    .slice(0, split)
    .map(item => ('parts' in item ? textOnly(item.parts, 'system').join('\n\n') : ''))
  const thinking = request.thinking
  const format = request.answerFormat && encodeShape(request.answerFormat)
  const said = { ...(format && { format }), ...(request.verbosity !== undefined && { verbosity: request.verbosity }) }
  const effort = effortOf(thinking)
  const summary = thinking?.on === true && thinking.shown
  const tools = request.tools.length > 0
  return present({
    model: request.model,
    instructions: instructions.length > 0 ? instructions.join('\n\n') : undefined,
    input: items.slice(split).flatMap(encodeItem),
    stream: request.stream || undefined,
    // Stored replies would be accessible to all customers of the upstream account.
    store: false,
    include: thinking?.on ? ['reasoning.encrypted_content'] : undefined,
    max_output_tokens: request.maxOutput,
    tools: tools ? request.tools.map(encodeTool) : undefined,
    tool_choice: tools ? encodeChoice(request.toolChoice) : undefined,
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

function encodeItem(item: Item): Json[] {
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
        { type: 'function_call', call_id: shortId(item.id), name: fitName(item.name), arguments: item.input || '{}' },
      ]
    case 'result': {
      const parts = resultParts(item.parts, item.failed)
      const [first = { kind: 'text', text: '' }, ...others] = parts
      const output = others.length === 0 && first.kind === 'text' ? first.text : encodeParts(parts)
      return [{ type: 'function_call_output', call_id: shortId(item.id), output }]
    }
  }
}

function encodeSaid(parts: readonly Part[]): Json[] {
  return textOnly(parts, 'assistant').map((said, index) =>
    parts[index]?.kind === 'refusal' ? { type: 'refusal', refusal: said } : { type: 'output_text', text: said },
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

function encodeTool(tool: Tool): Json {
  const { name, description, schema, strict, freeform } = tool
  // By default, `strict` would be true and change the schema.
  return present({
    type: 'function',
    name: fitName(name),
    description,
    parameters: freeform ? FREEFORM_SCHEMA : objectSchema(schema),
    strict: strict === true && !loosened(tool),
  })
}

function encodeChoice(choice: ToolChoice | undefined): unknown {
  if (choice?.kind === 'tool') return { type: 'function', name: fitName(choice.name) }
  return choice?.kind === 'any' ? 'required' : choice?.kind
}

function encodeShape(shape: AnswerFormat): Json {
  if (shape.kind === 'json') return { type: 'json_object' }
  const { name, schema, strict, description } = shape
  return present({ type: 'json_schema', name, schema, strict, description })
}
