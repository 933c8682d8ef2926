/** Decodes requests in the chat-completions format into the neutral model. */
import {
  arrayAt,
  boolean,
  cacheMark,
  lastPast,
  marked,
  number,
  objectAt,
  partsOf,
  type Place,
  present,
  refuseAll,
  refusePrewarming,
  refused,
  shapeOf,
  textAt,
  untranslatable,
} from '../translate/decoding.ts'
import { inputText, wrappedInput } from '../translate/calls.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { AnswerFormat, Call, Item, Part, Request, Tool, ToolChoice } from '../translate/neutral.ts'
import { restoreId } from '../translate/passthrough.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import {
  allowed,
  checkChoice,
  distinct,
  freeformTool,
  functionTool,
  providerTools,
  type SkippedTool,
  skipTool,
} from '../translate/tools.ts'
import { decodePart } from './parts.ts'
import { reasoningsOf, thinkingOf } from './reasoning.ts'

/** The members that are translated, as far as the other format has a counterpart. */
export const CARRIES = words(`
  model messages stream stream_options max_tokens max_completion_tokens n tools tool_choice parallel_tool_calls functions function_call
  reasoning_effort response_format service_tier prompt_cache_key safety_identifier user metadata stop verbosity temperature top_p modalities
  cache_control reasoning thinking enable_thinking
`)

/** The members that only a provider of this format can handle, with the reason why they are refused. */
export const REFUSES = {
  audio: 'other formats have no sound output',
  web_search_options: 'the provider runs this search itself',
}

/** Decodes a request. @throws GatewayError invalid_body, naming what no other format can carry */
export function decodeRequest(body: Json, dropped: DroppedFields): Request {
  if ((number(body['n']) ?? 1) > 1) throw untranslatable('n', 'other formats return only one choice')
  refuseAll(body, REFUSES)
  if (arrayAt(body['modalities'], 'modalities').some(modality => modality !== 'text'))
    throw untranslatable('modalities', 'other formats return only text')
  refusePrewarming(body)
  dropped.beyond(body, [...CARRIES, ...Object.keys(REFUSES)])
  dropped.within(object(object(body['response_format'])?.['json_schema']), 'response_format.json_schema', SHAPE)
  const tools = distinct(
    [
      ...decodeTools(body['tools'], dropped),
      ...arrayAt(body['functions'], 'functions').map((tool, at) => declared(tool, `functions[${at}]`, dropped)),
    ],
    dropped,
  )
  const choice = decodeChoice(body['tool_choice'] ?? body['function_call'], tools)
  checkChoice(choice.choice, choice.tools)
  return present({
    model: text(body['model']) ?? '',
    stream: body['stream'] === true,
    usageAsked: object(body['stream_options'])?.['include_usage'] === true,
    items: pairToolResults(decodeMessages(arrayAt(body['messages'], 'messages'), dropped), dropped),
    tools: choice.tools,
    toolChoice: choice.choice,
    parallelTools: boolean(body['parallel_tool_calls']),
    maxOutput: positive(body['max_completion_tokens']) ?? positive(body['max_tokens']),
    maxOutputMember: positive(body['max_completion_tokens']) === undefined ? 'max_tokens' : 'max_completion_tokens',
    stops:
      typeof body['stop'] === 'string'
        ? [body['stop']]
        : arrayAt(body['stop'], 'stop').map((stop, at) => textAt(stop, `stop[${at}]`)),
    temperature: number(body['temperature']),
    topP: number(body['top_p']),
    thinking: thinkingOf(body, dropped),
    answerFormat: decodeShape(body['response_format']),
    verbosity: text(body['verbosity']),
    user: text(body['safety_identifier']) ?? text(body['user']),
    cacheKey: text(body['prompt_cache_key']),
    cache: cacheMark(body, dropped),
    serviceTier: text(body['service_tier']),
    metadata: object(body['metadata']),
  })
}

const SHAPE = new Set(words('name schema strict description'))
const MESSAGE = new Set(
  words(`
    role content name audio refusal tool_calls tool_call_id function_call annotations cache_control
    reasoning_content reasoning reasoning_details
  `),
)

function decodeMessages(messages: readonly unknown[], dropped: DroppedFields): Item[] {
  const last = lastPast(messages, message => object(message)?.['role'] === 'assistant')
  /** The id for the next call in the old style, which has none. */
  let legacy = ''
  return messages.flatMap((value, index): Item[] => {
    const at = `messages[${index}]`
    const message = objectAt(value, at)
    const role = text(message['role'])
    const place = { past: index <= last, dropped }
    dropped.have(message, ['name', 'audio'])
    dropped.within(message, at, MESSAGE)
    switch (role) {
      case 'system':
      case 'developer':
      case 'user':
        return [{ kind: 'message', role, parts: contentOf(message, at, place) }]
      case 'assistant': {
        const calls = decodeCalls(message, at, index)
        legacy = calls.at(-1)?.id ?? legacy
        return assistantItems(message, at, calls, place)
      }
      case 'tool':
        return [
          {
            kind: 'result',
            id: restoreId(textAt(message['tool_call_id'], `${at}.tool_call_id`)),
            ...resultOf(message, at, place),
          },
        ]
      case 'function':
        return [{ kind: 'result', id: legacy, ...resultOf(message, at, place) }]
      default:
        throw refused(`${at}.role`, `"${at}.role" must be system, developer, user, assistant, tool or function.`)
    }
  })
}

function resultOf(message: Json, at: string, place: Place): { parts: Part[]; failed: boolean } {
  return { parts: contentOf(message, at, place), failed: false }
}

/** The parts of a message. A mark of the message for the cache is one of its last part. */
function contentOf(message: Json, at: string, place: Place): Part[] {
  return marked(partsOf(message['content'], `${at}.content`, place, decodePart), message, place.dropped)
}

function assistantItems(message: Json, at: string, made: readonly Call[], place: Place): Item[] {
  const content = partsOf(message['content'], `${at}.content`, place, decodePart)
  const hasText = content.some(part => !('text' in part) || part.text.trim() !== '')
  // A mark of a message without text is one of its last call.
  const isOfCall = !hasText && made.length > 0
  const cache = isOfCall ? cacheMark(message, place.dropped) : undefined
  const calls = made.map((call, index) => (cache && index === made.length - 1 ? { ...call, cache } : call))
  const refusal = text(message['refusal'])
  const parts = [
    ...(isOfCall ? content : marked(content, message, place.dropped)),
    ...(refusal ? [{ kind: 'refusal' as const, text: refusal }] : []),
  ]
  const items: Item[] = []
  let [rest, said, called]: [readonly Part[], number, number] = [parts, 0, 0]
  for (const { reasoning, place: stands } of reasoningsOf(message)) {
    const [before, behind] = split(rest, stands.said - said)
    if (before.length > 0) items.push({ kind: 'message', role: 'assistant', parts: before })
    for (const call of calls.slice(called, stands.calls)) items.push(call)
    items.push(reasoning)
    ;[rest, said, called] = [behind, Math.max(said, stands.said), Math.max(called, stands.calls)]
  }
  if (rest.length > 0) items.push({ kind: 'message', role: 'assistant', parts: rest })
  for (const call of calls.slice(called)) items.push(call)
  return items
}

/** Splits parts after a number of characters of text. */
function split(parts: readonly Part[], characters: number): [Part[], Part[]] {
  const before: Part[] = []
  let left = characters
  for (const [index, part] of parts.entries()) {
    if (!('text' in part) || left <= 0) return [before, parts.slice(index)]
    if (part.text.length > left)
      return [
        [...before, { ...part, text: part.text.slice(0, left) }],
        [{ ...part, text: part.text.slice(left) }, ...parts.slice(index + 1)],
      ]
    before.push(part)
    left -= part.text.length
  }
  return [before, []]
}

function decodeCalls(message: Json, at: string, index: number): Call[] {
  const old = object(message['function_call'])
  const calls = arrayAt(message['tool_calls'], `${at}.tool_calls`).map((value, number): Call => {
    const place = `${at}.tool_calls[${number}]`
    const call = objectAt(value, place)
    const id = restoreId(textAt(call['id'], `${place}.id`))
    const custom = object(call['custom'])
    if (custom)
      return {
        kind: 'call',
        id,
        name: textAt(custom['name'], `${place}.custom.name`),
        input: wrappedInput(text(custom['input']) ?? ''),
      }
    const called = objectAt(call['function'], `${place}.function`)
    return {
      kind: 'call',
      id,
      name: textAt(called['name'], `${place}.function.name`),
      input: inputText(called['arguments']),
    }
  })
  if (!old) return calls
  return [
    ...calls,
    {
      kind: 'call',
      id: `function_${index}`,
      name: textAt(old['name'], `${at}.function_call.name`),
      input: inputText(old['arguments']),
    },
  ]
}

const TOOL = new Set(words('type function custom cache_control'))

function decodeTools(value: unknown, dropped: DroppedFields): Tool[] {
  const skippedTools: SkippedTool[] = []
  const tools = arrayAt(value, 'tools').flatMap((entry, index): Tool[] => {
    const at = `tools[${index}]`
    const tool = objectAt(entry, at)
    dropped.within(tool, at, TOOL)
    const cache = cacheMark(tool, dropped) ?? cacheMark(object(tool['function']) ?? {}, dropped)
    if (tool['type'] === 'function')
      return [{ ...declared(tool['function'], `${at}.function`, dropped), ...(cache && { cache }) }]
    if (tool['type'] === 'custom')
      return [
        { ...freeformTool(objectAt(tool['custom'], `${at}.custom`), `${at}.custom`, dropped), ...(cache && { cache }) },
      ]
    skipTool(tool, at, skippedTools, dropped)
    return []
  })
  providerTools(skippedTools, tools, dropped)
  return tools
}

function declared(value: unknown, at: string, dropped: DroppedFields): Tool {
  return functionTool(objectAt(value, at), 'parameters', at, dropped)
}

function decodeChoice(value: unknown, tools: Tool[]): { choice: ToolChoice | undefined; tools: Tool[] } {
  if (value === 'auto' || value === 'none') return { choice: { kind: value }, tools }
  if (value === 'required') return { choice: { kind: 'any' }, tools }
  const json = object(value)
  const some = object(json?.['allowed_tools'])
  if (some) {
    const names = arrayAt(some['tools'], 'tool_choice.allowed_tools.tools').map(
      tool =>
        text((object(object(tool)?.['function']) ?? object(object(tool)?.['custom']) ?? object(tool))?.['name']) ?? '',
    )
    return { choice: { kind: some['mode'] === 'required' ? 'any' : 'auto' }, tools: allowed(tools, names) }
  }
  const name = text((object(json?.['function']) ?? object(json?.['custom']) ?? json)?.['name'])
  return { choice: name === undefined ? undefined : { kind: 'tool', name }, tools }
}

function decodeShape(value: unknown): AnswerFormat | undefined {
  const shape = object(value)
  const at = 'response_format.json_schema'
  return shapeOf(shape?.['type'], at, () => objectAt(shape?.['json_schema'], at))
}
