/** Decodes messages in the chat-completions format. */
import {
  arrayAt,
  cacheMark,
  type Elements,
  marked,
  objectAt,
  partsOf,
  type Place,
  refused,
  textAt,
} from '../translate/decoding.ts'
import { inputText, wrappedInput } from '../translate/calls.ts'
import type { Call, Item, Part } from '../translate/neutral.ts'
import { partsIn } from '../translate/parts.ts'
import { restoreId } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { object, text, words } from '../json.ts'
import { reasoningsOf } from './reasoning.ts'

const MESSAGE = new Set(
  words(`
    role content name audio refusal tool_calls tool_call_id function_call annotations cache_control
    reasoning_content reasoning reasoning_details
  `),
)

/** Decodes a message. @throws GatewayError invalid_body */
export function decodeElement(message: Json, at: string, place: Place, others: Elements): Item[] {
  const { dropped } = place
  const role = text(message['role'])
  dropped.have(message, ['name', 'audio'])
  dropped.within(message, at, MESSAGE)
  if (role !== 'assistant' && decodeCalls(message, at).length > 0)
    throw refused(`${at}.role`, `"${at}" has calls, so its role must be assistant.`)
  switch (role) {
    case 'system':
    case 'developer':
    case 'user':
      return [{ kind: 'message', role, parts: contentOf(message, at, place) }]
    case 'assistant': {
      const calls = decodeCalls(message, at)
      others.legacy = calls.at(-1)?.id ?? others.legacy
      return assistantItems(message, at, calls, place)
    }
    case 'tool':
    case 'function': {
      const id = role === 'tool' ? restoreId(textAt(message['tool_call_id'], `${at}.tool_call_id`)) : others.legacy
      return [{ kind: 'result', id, parts: contentOf(message, at, place), failed: false }]
    }
    default:
      throw refused(`${at}.role`, `"${at}.role" must be system, developer, user, assistant, tool or function.`)
  }
}

/** The parts of a message. A mark of the message for the cache is one of its last part. */
function contentOf(message: Json, at: string, place: Place): Part[] {
  return marked(
    partsOf(message['content'], `${at}.content`, place, partsIn('chat-completions')),
    message,
    place.dropped,
  )
}

function assistantItems(message: Json, at: string, made: readonly Call[], place: Place): Item[] {
  const content = partsOf(message['content'], `${at}.content`, place, partsIn('chat-completions'))
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

/** Decodes the calls of a message. @throws GatewayError invalid_body */
export function decodeCalls(message: Json, at: string): Call[] {
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
      id: `function_${/\d+/.exec(at)?.[0] ?? ''}`,
      name: textAt(old['name'], `${at}.function_call.name`),
      input: inputText(old['arguments']),
    },
  ]
}
