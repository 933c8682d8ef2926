/** Decodes requests in the responses format into the neutral model. */
import {
  allowed,
  arrayAt,
  boolean,
  checkChoice,
  distinct,
  number,
  objectAt,
  present,
  refuseAll,
  refused,
  shapeOf,
  textAt,
  unknownType,
  untranslatable,
  wrappedInput,
} from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Item, Request, Thinking, Tool, ToolChoice } from '../translate/neutral.ts'
import { reasoningIn, restoreId } from '../translate/passthrough.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import { decodeParts } from './parts.ts'
import { decodeTools, flatName } from './tools.ts'

/** The members that are translated, as far as the other format has a counterpart. */
export const CARRIES = words(`
  model input instructions stream stream_options max_output_tokens tools tool_choice parallel_tool_calls reasoning include store text truncation
  service_tier metadata user safety_identifier prompt_cache_key temperature top_p client_metadata
`)

const STORED = 'it refers to objects that the provider stored; send the whole conversation as input'

/** The members that only a provider of this format can handle, with the reason why they are refused. */
export const REFUSES = {
  previous_response_id: STORED,
  conversation: STORED,
  prompt: STORED,
  background: 'replies are not stored here',
}

/** Decodes a request. @throws GatewayError invalid_body, naming what no other format can carry */
export function decodeRequest(body: Json, headers: Readonly<Record<string, unknown>>, dropped: DroppedFields): Request {
  refuseAll(body, REFUSES)
  dropped.beyond(body, [...CARRIES, ...Object.keys(REFUSES)])
  if (body['store'] === true) dropped.add('store')
  if (body['truncation'] === 'auto') dropped.add('truncation')
  if (arrayAt(body['include'], 'include').some(name => name !== 'reasoning.encrypted_content')) dropped.add('include')
  const input =
    typeof body['input'] === 'string' ? [{ role: 'user', content: body['input'] }] : arrayAt(body['input'], 'input')
  const added = input.flatMap((item, at) =>
    object(item)?.['type'] === 'additional_tools' ? arrayAt(object(item)?.['tools'], `input[${at}].tools`) : [],
  )
  const all = distinct(decodeTools([...arrayAt(body['tools'], 'tools'), ...added], dropped), dropped)
  const { choice, tools } = decodeChoice(body['tool_choice'], all)
  checkChoice(choice, tools)
  const items = input.flatMap((item, index) =>
    decodeItem(objectAt(item, `input[${index}]`), `input[${index}]`, dropped),
  )
  const instructions = text(body['instructions'])
  const system = instructions
    ? [{ kind: 'message' as const, role: 'system' as const, parts: [{ kind: 'text' as const, text: instructions }] }]
    : []
  const format = object(body['text'])
  const shape = object(format?.['format'])
  return present({
    model: text(body['model']) ?? '',
    stream: body['stream'] === true,
    usageAsked: true,
    items: pairToolResults([...system, ...items], dropped),
    tools,
    toolChoice: choice,
    parallelTools: boolean(body['parallel_tool_calls']),
    maxOutput: positive(body['max_output_tokens']),
    stops: [],
    temperature: number(body['temperature']),
    topP: number(body['top_p']),
    thinking: decodeThinking(object(body['reasoning'])),
    answerFormat: shapeOf(shape?.['type'], () => shape ?? {}),
    verbosity: text(format?.['verbosity']),
    user: text(body['safety_identifier']) ?? text(body['user']),
    cacheKey: text(body['prompt_cache_key']) ?? text(headers['session-id']),
    serviceTier: text(body['service_tier']),
    metadata: object(body['metadata']),
  })
}

/** Items about tools that the provider ran. The text of the reply contains what they found. */
const PROVIDER_ITEM =
  /^(?:web_search|file_search|image_generation|code_interpreter|tool_search|mcp)_|^program|^additional_tools$/

function decodeItem(item: Json, at: string, dropped: DroppedFields): Item[] {
  const type = text(item['type']) ?? 'message'
  switch (type) {
    case 'message': {
      const { role } = item
      if (role !== 'user' && role !== 'assistant' && role !== 'system' && role !== 'developer') {
        throw refused(`${at}.role`, `"${at}.role" must be user, assistant, system or developer.`)
      }
      return [{ kind: 'message', role, parts: decodeParts(item['content'], `${at}.content`) }]
    }
    case 'reasoning': {
      const said = [...arrayAt(item['summary'], `${at}.summary`), ...arrayAt(item['content'], `${at}.content`)]
      const shown = said.map(part => text(object(part)?.['text']) ?? '').join('\n\n')
      return [reasoningIn(shown, item['encrypted_content'], 'responses', 'encrypted')]
    }
    case 'function_call':
    case 'custom_tool_call': {
      const id = restoreId(textAt(item['call_id'], `${at}.call_id`))
      const name = flatName(text(item['namespace']), textAt(item['name'], `${at}.name`))
      const input = type === 'function_call' ? (text(item['arguments']) ?? '') : wrappedInput(text(item['input']) ?? '')
      return [{ kind: 'call', id, name, input }]
    }
    case 'function_call_output':
    case 'custom_tool_call_output': {
      const id = restoreId(textAt(item['call_id'], `${at}.call_id`))
      return [{ kind: 'result', id, parts: decodeParts(item['output'], `${at}.output`), failed: false }]
    }
    case 'item_reference':
      throw untranslatable(at, STORED)
    default:
      if (!PROVIDER_ITEM.test(type)) throw unknownType(at, type)
      if (type !== 'additional_tools') dropped.add(type)
      return []
  }
}

function decodeThinking(reasoning: Json | undefined): Thinking | undefined {
  if (!reasoning) return undefined
  const effort = text(reasoning['effort'])
  return present({ on: effort !== 'none', effort, shown: (text(reasoning['summary']) ?? 'none') !== 'none' })
}

function nameOf(tool: Json | undefined): string {
  return flatName(text(tool?.['namespace']), text(tool?.['name']) ?? '')
}

function decodeChoice(value: unknown, tools: Tool[]): { choice: ToolChoice | undefined; tools: Tool[] } {
  if (value === 'auto' || value === 'none') return { choice: { kind: value }, tools }
  if (value === 'required') return { choice: { kind: 'any' }, tools }
  const json = object(value)
  if (!json) return { choice: undefined, tools }
  if (json['type'] === 'allowed_tools') {
    const names = arrayAt(json['tools'], 'tool_choice.tools').map(tool => nameOf(object(tool)))
    return { choice: { kind: json['mode'] === 'required' ? 'any' : 'auto' }, tools: allowed(tools, names) }
  }
  return { choice: { kind: 'tool', name: nameOf(json) || (text(json['type']) ?? '') }, tools }
}
