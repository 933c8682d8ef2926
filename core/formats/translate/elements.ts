/** The elements of conversations in the shapes of all formats: messages, calls and results. What they have tells the shape. */
import * as chat from '../chat-completions/decode-elements.ts'
import { list, object, text } from '../json.ts'
import * as messages from '../messages/decode-elements.ts'
import * as responses from '../responses/decode-items.ts'
import type { FormatName, Json } from '../terms.ts'
import { type Elements, lastPast, objectAt, type Place } from './decoding.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { Item } from './neutral.ts'

/** How the elements that only one format has are recognised, whatever the path. The first that fits counts. */
export const ELEMENT_SHAPES: readonly (readonly [FormatName, words: string, fits: (element: Json) => boolean])[] = [
  [
    'messages',
    'a block `tool_use`, `tool_result` or `redacted_thinking`',
    element => list(element['content']).some(isBlock),
  ],
  [
    'chat-completions',
    'the role `tool` or `function`, `tool_calls` or `function_call`',
    ({ role, tool_calls: calls, function_call: call }) =>
      role === 'tool' || role === 'function' || Array.isArray(calls) || object(call) !== undefined,
  ],
  ['responses', 'a type other than `message`', ({ type }) => typeof type === 'string' && type !== 'message'],
]

/** The blocks that tell the shape of a message. */
export const BLOCKS: ReadonlySet<unknown> = new Set(['tool_use', 'tool_result', 'redacted_thinking'])

function isBlock(part: unknown): boolean {
  return BLOCKS.has(object(part)?.['type'])
}

/** Returns the format whose shape an element has. @param own that of the path, which has all others */
export function shapeOfElement(element: Json, own: FormatName): FormatName {
  return ELEMENT_SHAPES.find(([, , fits]) => fits(element))?.[0] ?? own
}

/** Whether the model made an element, or a tool at its provider. */
function isModels(element: Json): boolean {
  const type = text(element['type'])
  return element['role'] === 'assistant' || type === 'reasoning' || type?.endsWith('_call') === true
}

/** Where a conversation stands. */
interface Conversation {
  readonly member: string
  /** The format of the path. */
  readonly own: FormatName
  /** Whether all elements but the last one are older than the last turn. */
  readonly isPast?: boolean
}

/** Returns the elements, the index of the last one before the last turn, and what decodes one of them. */
export function elementsIn(
  values: readonly unknown[],
  { member, own, isPast = false }: Conversation,
  dropped: DroppedFields,
) {
  const elements = values.map((value, index) => objectAt(value, `${member}[${index}]`))
  const last = isPast ? elements.length - 2 : lastPast(elements, isModels)
  const callIds = elements.flatMap(each => (isModels(each) && text(each['call_id']) ? [[each['id'], each['call_id']]] : [])) // prettier-ignore
  const others: Elements = { callIds: new Map(callIds as [unknown, unknown][]), legacy: '' }
  const decode = (element: Json, index: number): Item[] =>
    DECODERS[shapeOfElement(element, own)](element, `${member}[${index}]`, { past: index <= last, dropped }, others)
  return { elements, last, decode }
}

/**
 * Decodes a conversation.
 * @throws GatewayError invalid_body, naming what no other format can carry in the last turn
 */
export function decodeElements(values: readonly unknown[], where: Conversation, dropped: DroppedFields): Item[] {
  const { elements, decode } = elementsIn(values, where, dropped)
  return elements.flatMap(decode)
}

const DECODERS: Readonly<Record<FormatName, (element: Json, at: string, place: Place, others: Elements) => Item[]>> = {
  'chat-completions': chat.decodeElement,
  responses: responses.decodeElement,
  messages: messages.decodeElement,
}
