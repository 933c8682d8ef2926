/** Decodes requests in the chat-completions format into the neutral model. */
import {
  arrayAt,
  boolean,
  cacheMark,
  number,
  objectAt,
  present,
  refuseAll,
  refusePrewarming,
  shapeOf,
  textAt,
  untranslatable,
} from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { AnswerFormat, Request } from '../translate/neutral.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import { checkChoice, decodeChoice, decodeTools, distinct, functionTool } from '../translate/tools.ts'
import { decodeElements } from '../translate/elements.ts'
import { thinkingOf } from './reasoning.ts'

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

const OWN = { member: 'messages', own: 'chat-completions' } as const

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
      ...decodeTools(arrayAt(body['tools'], 'tools'), dropped),
      ...arrayAt(body['functions'], 'functions').map((tool, at) =>
        functionTool(objectAt(tool, `functions[${at}]`), 'parameters', `functions[${at}]`, dropped),
      ),
    ],
    dropped,
  )
  const choice = decodeChoice(body['tool_choice'] ?? body['function_call'], tools)
  checkChoice(choice.choice, choice.tools)
  return present({
    model: text(body['model']) ?? '',
    stream: body['stream'] === true,
    usageAsked: object(body['stream_options'])?.['include_usage'] === true,
    items: pairToolResults(decodeElements(arrayAt(body['messages'], 'messages'), OWN, dropped), dropped),
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
function decodeShape(value: unknown): AnswerFormat | undefined {
  const shape = object(value)
  const at = 'response_format.json_schema'
  return shapeOf(shape?.['type'], at, () => objectAt(shape?.['json_schema'], at))
}
