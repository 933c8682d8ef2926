/** Decodes requests in the messages format into the neutral model. */
import { arrayAt, number, objectAt, present, refuseAll, textAt } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Part, Request, Thinking } from '../translate/neutral.ts'
import { decodeElements } from '../translate/elements.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import { checkChoice, decodeChoice, decodeTools, distinct } from '../translate/tools.ts'
import { sessionOf } from '../conversation.ts'

/**
 * A line in which one client counts its versions. It changes all the time, which would spoil the prompt caches of other
 * providers.
 */
const BILLING_LINE = /^x-anthropic-billing-header:[^\n]*\n*/

/** The members that are translated, as far as the other format has a counterpart. */
export const CARRIES = words(`
  model messages system stream max_tokens tools tool_choice stop_sequences temperature top_p top_k thinking output_config metadata service_tier
`)

/** The members that only a provider of this format can handle, with the reason why they are refused. */
export const REFUSES = {
  safeguards: 'the provider runs these checks itself',
  container: 'it is stored at the provider',
  thread: 'it is stored at the provider',
  mcp_servers: 'the provider runs these tools itself',
  compaction: 'only its own providers answer with a compaction',
}

/** The members of members that are translated. */
const WITHIN = {
  thinking: new Set(words('type budget_tokens display')),
  output_config: new Set(words('effort format')),
  metadata: new Set(words('user_id')),
}

const THINKING = new Set(words('adaptive enabled disabled'))

/** Decodes a request. @throws GatewayError invalid_body, naming what no other format can carry */
export function decodeRequest(body: Json, headers: Readonly<Record<string, unknown>>, dropped: DroppedFields): Request {
  refuseAll(body, REFUSES)
  dropped.beyond(body, [...CARRIES, ...Object.keys(REFUSES)])
  for (const [name, known] of Object.entries(WITHIN)) dropped.within(object(body[name]), name, known)
  const all = distinct(decodeTools(arrayAt(body['tools'], 'tools'), dropped), dropped)
  const { choice: toolChoice, tools } = decodeChoice(body['tool_choice'], all)
  checkChoice(toolChoice, tools)
  const system = decodeSystem(body['system'], dropped)
  const turns = arrayAt(body['messages'], 'messages')
  const messages = decodeElements(turns, { member: 'messages', own: 'messages' }, dropped)
  // Only `standard_only` has a counterpart in other formats.
  const standard = body['service_tier'] === 'standard_only'
  if (!standard) dropped.have(body, ['service_tier'])
  const userId = text(object(body['metadata'])?.['user_id'])
  const format = object(object(body['output_config'])?.['format'])
  return present({
    model: text(body['model']) ?? '',
    stream: body['stream'] === true,
    usageAsked: true,
    items: pairToolResults(
      system.length > 0 ? [{ kind: 'message', role: 'system', parts: system }, ...messages] : messages,
      dropped,
    ),
    tools,
    toolChoice,
    parallelTools: object(body['tool_choice'])?.['disable_parallel_tool_use'] === true ? false : undefined,
    // No other format has a request without output.
    maxOutput: body['max_tokens'] === 0 ? 1 : positive(body['max_tokens']),
    maxOutputMember: 'max_tokens',
    stops: arrayAt(body['stop_sequences'], 'stop_sequences').map((stop, at) => textAt(stop, `stop_sequences[${at}]`)),
    temperature: number(body['temperature']),
    topP: number(body['top_p']),
    topK: number(body['top_k']),
    thinking: decodeThinking(object(body['thinking']), text(object(body['output_config'])?.['effort']), dropped),
    answerFormat:
      format?.['type'] === 'json_schema'
        ? { kind: 'schema' as const, name: 'reply', schema: format['schema'], at: 'output_config.format.schema' }
        : undefined,
    user: userId,
    serviceTier: standard ? 'default' : undefined,
    cacheKey: text(headers['x-claude-code-session-id']) ?? sessionOf(userId),
  })
}

const SYSTEM = new Set(words('type text cache_control citations'))

function decodeSystem(value: unknown, dropped: DroppedFields): Part[] {
  const blocks = typeof value === 'string' ? [{ text: value }] : arrayAt(value, 'system')
  return blocks.flatMap((entry, index): Part[] => {
    const block = objectAt(entry, `system[${index}]`)
    const said = textAt(block['text'], `system[${index}].text`).replace(BILLING_LINE, '')
    dropped.have(block, ['cache_control'])
    dropped.within(block, `system[${index}]`, SYSTEM)
    return said === '' ? [] : [{ kind: 'text', text: said }]
  })
}

function decodeThinking(
  thinking: Json | undefined,
  effort: string | undefined,
  dropped: DroppedFields,
): Thinking | undefined {
  const type = text(thinking?.['type'])
  // Other formats cannot ask for reasoning between tools.
  if (type !== undefined && !THINKING.has(type)) dropped.add(`thinking.${type}`)
  if (type === undefined && effort === undefined) return undefined
  if (type === 'disabled') return { on: false, shown: false }
  const budget = type === 'enabled' ? positive(thinking?.['budget_tokens']) : undefined
  return present({ on: true, effort, budget, shown: type !== undefined && thinking?.['display'] !== 'omitted' })
}
