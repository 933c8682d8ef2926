/** Decodes the items of a conversation in the responses format. */
import { GatewayError } from '../../errors.ts'
import {
  arrayAt,
  type Elements,
  marked,
  partsOf,
  type Place,
  refused,
  textAt,
  textWithin,
  unknownType,
  unlessPast,
  untranslatable,
} from '../translate/decoding.ts'
import { inputText, wrappedInput } from '../translate/calls.ts'
import type { Item, Part } from '../translate/neutral.ts'
import { reasoningIn, restoreId, summaryIn, summaryText } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { object, text, words } from '../json.ts'
import { partsIn } from '../translate/parts.ts'
import { flatName } from '../translate/tools.ts'

/** Why a reference is refused. */
export const STORED = 'it refers to objects that the provider stored; send the whole conversation as input'

/** Items about tools that the provider ran. The text of the reply contains what they found. */
const PROVIDER_ITEM =
  /^(?:web_search|file_search|image_generation|code_interpreter|tool_search|mcp)_|^program|^(?:additional_tools|configuration_update)$/

/** The members of items that are translated, or that have no meaning for a model. */
const KNOWN: Readonly<Record<string, ReadonlySet<string>>> = {
  message: new Set(words('type id role content status cache_control')),
  reasoning: new Set(words('type id summary content encrypted_content status')),
  function_call: new Set(words('type id call_id name namespace arguments status')),
  custom_tool_call: new Set(words('type id call_id name namespace input status')),
  function_call_output: new Set(words('type id call_id output status cache_control')),
  custom_tool_call_output: new Set(words('type id call_id output status name cache_control')),
}

/** Items that declare tools. */
export const DECLARING: ReadonlySet<unknown> = new Set(['additional_tools', 'tool_search_output'])

/** Decodes an item. @throws GatewayError invalid_body, naming what no other format can carry in the last turn */
export function decodeElement(item: Json, at: string, place: Place, { callIds }: Elements): Item[] {
  const role = text(item['type'])?.endsWith('_call') || item['role'] === 'assistant' ? 'assistant' : 'user'
  const decode = (): Item[] => decodeItem(item, at, place, callIds)
  return unlessPast(place, text(item['type']) ?? 'message', decode, part => ({ kind: 'message', role, parts: [part] }))
}

function decodeItem(item: Json, at: string, place: Place, callIds: ReadonlyMap<unknown, unknown>): Item[] {
  const { dropped } = place
  const type = text(item['type']) ?? 'message'
  const known = Object.hasOwn(KNOWN, type) ? KNOWN[type] : undefined
  if (known) dropped.within(item, at, known)
  switch (type) {
    case 'message': {
      const { role } = item
      if (role !== 'user' && role !== 'assistant' && role !== 'system' && role !== 'developer') {
        throw refused(`${at}.role`, `"${at}.role" must be user, assistant, system or developer.`)
      }
      const parts = partsOf(item['content'], `${at}.content`, place, partsIn('responses'))
      return [{ kind: 'message', role, parts: marked(parts, item, dropped) }]
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
      const input = type === 'function_call' ? inputText(item['arguments']) : wrappedInput(text(item['input']) ?? '')
      return [{ kind: 'call', id, name, input }]
    }
    case 'function_call_output':
    case 'custom_tool_call_output': {
      const id = restoreId(textAt(item['call_id'], `${at}.call_id`))
      const parts = partsOf(item['output'], `${at}.output`, place, partsIn('responses'))
      return [{ kind: 'result', id, parts: marked(parts, item, dropped), failed: false }]
    }
    case 'item_reference':
      throw untranslatable(at, STORED)
    case 'compaction':
    case 'compaction_summary':
    case 'context_compaction': {
      const summary = summaryIn(item['encrypted_content'])
      if (summary === undefined) throw new GatewayError('compaction_bound', { param: at })
      return [{ kind: 'message', role: 'user', parts: [{ kind: 'text', text: summaryText(summary) }] }]
    }
    case 'compaction_trigger':
      throw untranslatable(at, 'it asks for a compaction, and is not the last item of "input"')
    default:
      return otherItem(item, at, place, callIds)
  }
}

/** The end of the type of a call, and of what its tool returned. */
const CALL = '_call'
const OUTPUT = '_call_output'

/**
 * An item that other formats do not have. A call of a tool that the client runs, such as a shell, becomes a call of a
 * tool with that name. Other items become text, if they have any.
 */
function otherItem(item: Json, at: string, place: Place, callIds: ReadonlyMap<unknown, unknown>): Item[] {
  const { dropped } = place
  const type = text(item['type']) ?? ''
  if (PROVIDER_ITEM.test(type)) {
    if (!DECLARING.has(type)) dropped.add(type)
    return []
  }
  const { type: _type, id, call_id, status, output, ...rest } = item
  const callId = text(call_id) ?? text(callIds.get(id)) ?? text(id)
  if (callId !== undefined && type.endsWith(OUTPUT)) {
    const failed = status === 'failed'
    return [{ kind: 'result', id: restoreId(callId), parts: outputParts(output, `${at}.output`, place), failed }]
  }
  if (callId !== undefined && type.endsWith(CALL))
    return [{ kind: 'call', id: restoreId(callId), name: type.slice(0, -CALL.length), input: JSON.stringify(rest) }]
  const said = textWithin(item)
  if (said === '') throw unknownType(at, type)
  dropped.add(type)
  const role = item['role'] === 'assistant' ? 'assistant' : 'user'
  return [{ kind: 'message', role, parts: [{ kind: 'text', text: said }] }]
}

/** What a tool returned: text, parts, one part, or another value, which becomes JSON. */
function outputParts(output: unknown, at: string, place: Place): Part[] {
  if (output === undefined || output === null) return []
  const values = object(output) ? [output] : output
  const isParts = Array.isArray(values) && values.every(value => text(object(value)?.['type']) !== undefined)
  if (typeof values === 'string' || isParts) return partsOf(values, at, place, partsIn('responses'))
  return [{ kind: 'text', text: JSON.stringify(output) }]
}
