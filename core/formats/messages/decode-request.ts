/** Decodes requests in the messages format into the neutral model. */
import { GatewayError } from '../../errors.ts'
import {
  arrayAt,
  lastPast,
  number,
  objectAt,
  partsOf,
  type Place,
  present,
  refuseAll,
  refused,
  textAt,
  unknownPart,
  unlessPast,
  untranslatable,
} from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import { inline } from '../translate/media.ts'
import type { Item, Part, Request, Source, Thinking, Tool, ToolChoice } from '../translate/neutral.ts'
import { reasoningIn, restoreId } from '../translate/passthrough.ts'
import { pairToolResults } from '../translate/tool-pairs.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'
import { checkChoice, distinct, functionTool, providerTools, type SkippedTool, skipTool } from '../translate/tools.ts'
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
  const tools = distinct(decodeTools(body['tools'], dropped), dropped)
  const choice = object(body['tool_choice'])
  const toolChoice = decodeChoice(choice)
  checkChoice(toolChoice, tools)
  const system = decodeSystem(body['system'], dropped)
  const turns = arrayAt(body['messages'], 'messages')
  const last = lastPast(turns, turn => object(turn)?.['role'] === 'assistant')
  const messages = turns.flatMap((message, index) =>
    decodeMessage(message, `messages[${index}]`, { past: index <= last, dropped }),
  )
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
    parallelTools: choice?.['disable_parallel_tool_use'] === true ? false : undefined,
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

/** The members of blocks that are translated, or that are named in other words. */
const BLOCK = new Set(
  words(`
    type text citations cache_control thinking signature data id name input tool_use_id content is_error source title
    context encrypted_content caller toolset_name
  `),
)
/** The types of blocks that are translated. Others are named as a whole. */
const TYPES = new Set(
  words('text image document thinking redacted_thinking tool_use tool_result search_result compaction'),
)
const MESSAGE = new Set(words('role content id type model stop_reason stop_sequence usage'))
const SYSTEM = new Set(words('type text cache_control citations'))
const SOURCE = new Set(words('type url media_type data file_id content'))

function decodeMessage(value: unknown, at: string, where: Place): Item[] {
  const { dropped } = where
  const message = objectAt(value, at)
  const role = message['role']
  if (role !== 'user' && role !== 'assistant' && role !== 'system')
    throw refused(`${at}.role`, `"${at}.role" must be user, assistant or system.`)
  dropped.within(message, at, MESSAGE)
  const blocks = blocksOf(message['content'], `${at}.content`)
  const items: Item[] = []
  let parts: Part[] = []
  const flush = (): void => {
    if (parts.length > 0) items.push({ kind: 'message', role, parts })
    parts = []
  }
  blocks.forEach((entry, index) => {
    const place = `${at}.content[${index}]`
    const block = objectAt(entry, place)
    dropped.have(block, ['cache_control', 'citations'])
    if (TYPES.has(text(block['type']) ?? '')) dropped.within(block, place, BLOCK)
    const item = decodeItem(block, place, where)
    if (item) {
      // Results belong to the turn before, so they come first wherever they stand.
      if (item.kind !== 'result') flush()
      items.push(item)
    } else
      for (const part of unlessPast(where, text(block['type']) ?? '', () => decodePart(block, place, where)))
        parts.push(part)
  })
  flush()
  return items
}

/** Content as blocks: a string is one block. */
function blocksOf(content: unknown, at: string): readonly unknown[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : arrayAt(content, at)
}

function decodeParts(content: unknown, at: string, place: Place): Part[] {
  return partsOf(content, at, place, (block, where) => {
    place.dropped.have(block, ['cache_control'])
    place.dropped.within(block, where, BLOCK)
    return decodePart(block, where, place)
  })
}

/** A block that is an item of its own. */
function decodeItem(block: Json, at: string, place: Place): Item | undefined {
  switch (block['type']) {
    case 'thinking':
      return reasoningIn(text(block['thinking']) ?? '', block['signature'], 'messages', 'signature')
    case 'redacted_thinking':
      return reasoningIn('', block['data'], 'messages', 'redacted')
    case 'tool_use':
      return {
        kind: 'call',
        id: restoreId(textAt(block['id'], `${at}.id`)),
        name: textAt(block['name'], `${at}.name`),
        input: inputText(block['input'] ?? {}),
      }
    case 'tool_result': {
      const parts = decodeParts(block['content'], `${at}.content`, place)
      return {
        kind: 'result',
        id: restoreId(textAt(block['tool_use_id'], `${at}.tool_use_id`)),
        parts,
        failed: block['is_error'] === true,
      }
    }
    default:
      return undefined
  }
}

/** Blocks about tools and models of the provider. The text of the reply contains what they found. */
const PROVIDER_BLOCK = /^server_tool_use$|^mcp_tool|_tool_result$|^container_upload$|^tool_|^fallback$/

function decodePart(block: Json, at: string, place: Place): Part[] {
  const { dropped } = place
  const type = text(block['type']) ?? ''
  dropped.within(object(block['source']), `${at}.source`, SOURCE)
  if (type === 'text') {
    const said = textAt(block['text'], `${at}.text`)
    return said === '' ? [] : [{ kind: 'text', text: said }]
  }
  if (type === 'image')
    return [{ kind: 'image', source: decodeSource(objectAt(block['source'], `${at}.source`), `${at}.source`) }]
  if (type === 'document') return decodeDocument(block, at, place)
  if (type === 'compaction') {
    const said = text(block['content'])
    if (!said) throw new GatewayError('compaction_bound', { param: at })
    return [{ kind: 'text', text: said }]
  }
  if (type === 'search_result') return [{ kind: 'text', text: searchResult(block) }]
  if (!PROVIDER_BLOCK.test(type)) return unknownPart(block, at, place)
  dropped.add(type)
  return []
}

function decodeSource(source: Json, at: string): Source {
  if (source['type'] === 'url') return { from: 'url', url: textAt(source['url'], `${at}.url`) }
  if (source['type'] !== 'base64') throw untranslatable(at, 'the file is stored at another provider; send its data')
  return inline(text(source['media_type']) ?? '', textAt(source['data'], `${at}.data`))
}

function decodeDocument(block: Json, at: string, place: Place): Part[] {
  const source = objectAt(block['source'], `${at}.source`)
  const title = text(block['title'])
  const heads = [title, text(block['context'])].flatMap(head =>
    head ? [{ kind: 'text' as const, text: `${head}\n\n` }] : [],
  )
  if (source['type'] === 'text') return [...heads, { kind: 'text', text: textAt(source['data'], `${at}.source.data`) }]
  if (source['type'] === 'content') return [...heads, ...decodeParts(source['content'], `${at}.source.content`, place)]
  return [
    ...heads.slice(title ? 1 : 0),
    present({ kind: 'file' as const, source: decodeSource(source, `${at}.source`), name: title }),
  ]
}

function searchResult(block: Json): string {
  const content = Array.isArray(block['content'])
    ? block['content'].map(part => text(object(part)?.['text']) ?? '')
    : []
  return [text(block['title']), text(block['source']), ...content].filter(line => line).join('\n')
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

function decodeTools(value: unknown, dropped: DroppedFields): Tool[] {
  const skippedTools: SkippedTool[] = []
  const tools = arrayAt(value, 'tools').flatMap((entry, index): Tool[] => {
    const at = `tools[${index}]`
    const tool = objectAt(entry, at)
    dropped.have(tool, ['cache_control'])
    const type = text(tool['type']) ?? 'custom'
    if (type !== 'custom') {
      skipTool(tool, at, skippedTools, dropped)
      return []
    }
    return [functionTool(tool, 'input_schema', at, dropped)]
  })
  providerTools(skippedTools, tools, dropped)
  return tools
}

function decodeChoice(choice: Json | undefined): ToolChoice | undefined {
  const type = choice?.['type']
  if (type === 'auto' || type === 'any' || type === 'none') return { kind: type }
  const name = text(choice?.['name'])
  return type === 'tool' && name !== undefined ? { kind: 'tool', name } : undefined
}
