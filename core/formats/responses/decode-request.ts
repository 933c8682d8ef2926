/** Decodes requests in the responses format into the neutral model. */
import {
  arrayAt,
  boolean,
  cacheMark,
  number,
  present,
  refuseAll,
  refusePrewarming,
  shapeOf,
} from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import { decodeElements } from '../translate/elements.ts'
import type { Request, Thinking } from '../translate/neutral.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import { checkChoice, decodeChoice, decodeTools, distinct } from '../translate/tools.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import { DECLARING, STORED } from './decode-items.ts'

/** The members that are translated, as far as the other format has a counterpart. */
export const CARRIES = words(`
  model input instructions stream stream_options max_output_tokens tools tool_choice parallel_tool_calls reasoning include store text truncation
  service_tier metadata user safety_identifier prompt_cache_key temperature top_p client_metadata cache_control
`)

/** The members that only a provider of this format can handle, with the reason why they are refused. */
export const REFUSES = {
  previous_response_id: STORED,
  conversation: STORED,
  prompt: STORED,
  background: 'replies are not stored here',
}

/** The members of members that are translated. Other formats cannot ask for a longer or shorter summary of reasoning. */
const REASONING = new Set(words('effort summary generate_summary'))
const TEXT = new Set(words('format verbosity'))
const SHAPE = new Set(words('type name schema strict description'))

/**
 * Decodes a request.
 * @param isPast whether all items but the last one are older than the last turn
 * @throws GatewayError invalid_body, naming what no other format can carry
 */
export function decodeRequest(
  body: Json,
  headers: Readonly<Record<string, unknown>>,
  dropped: DroppedFields,
  isPast = false,
): Request {
  refuseAll(body, REFUSES)
  refusePrewarming(body)
  dropped.beyond(body, [...CARRIES, ...Object.keys(REFUSES)])
  dropped.within(object(body['reasoning']), 'reasoning', REASONING)
  dropped.within(object(body['text']), 'text', TEXT)
  dropped.within(object(object(body['text'])?.['format']), 'text.format', SHAPE)
  if (body['store'] === true) dropped.add('store')
  if (body['truncation'] === 'auto') dropped.add('truncation')
  if (arrayAt(body['include'], 'include').some(name => name !== 'reasoning.encrypted_content')) dropped.add('include')
  const input =
    typeof body['input'] === 'string' ? [{ role: 'user', content: body['input'] }] : arrayAt(body['input'], 'input')
  const added = input.flatMap((item, at) =>
    DECLARING.has(object(item)?.['type']) ? arrayAt(object(item)?.['tools'], `input[${at}].tools`) : [],
  )
  const all = distinct(decodeTools([...arrayAt(body['tools'], 'tools'), ...added], dropped), dropped)
  const { choice, tools } = decodeChoice(body['tool_choice'], all)
  checkChoice(choice, tools)
  const items = decodeElements(input, { member: 'input', own: 'responses', isPast }, dropped)
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
    maxOutputMember: 'max_output_tokens',
    stops: [],
    temperature: number(body['temperature']),
    topP: number(body['top_p']),
    thinking: decodeThinking(object(body['reasoning'])),
    answerFormat: shapeOf(shape?.['type'], 'text.format', () => shape ?? {}),
    verbosity: text(format?.['verbosity']),
    user: text(body['safety_identifier']) ?? text(body['user']),
    cacheKey: text(body['prompt_cache_key']) ?? text(headers['session-id']),
    cache: cacheMark(body, dropped),
    serviceTier: text(body['service_tier']),
    metadata: object(body['metadata']),
  })
}

function decodeThinking(reasoning: Json | undefined): Thinking | undefined {
  if (!reasoning) return undefined
  const effort = text(reasoning['effort'])
  return present({ on: effort !== 'none', effort, shown: (text(reasoning['summary']) ?? 'none') !== 'none' })
}
