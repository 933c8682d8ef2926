/** Decodes messages in the messages format. */
import { decodeCalls } from '../chat-completions/decode-elements.ts'
import {
  arrayAt,
  type Elements,
  objectAt,
  partsOf,
  type Place,
  refused,
  SoftDecoding,
  textAt,
} from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import type { Item, Part } from '../translate/neutral.ts'
import { partsIn } from '../translate/parts.ts'
import { reasoningIn, restoreId } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { text, words } from '../json.ts'
import { BLOCK, decodePart } from './parts.ts'

/** The types of blocks that are translated. Others are named as a whole. */
const TYPES = new Set(
  words('text image document thinking redacted_thinking tool_use tool_result search_result compaction'),
)
const MESSAGE = new Set(words('role content id type model stop_reason stop_sequence usage tool_calls function_call'))

/** Decodes a message. @throws GatewayError invalid_body */
export function decodeElement(message: Json, at: string, where: Place, others: Elements): Item[] {
  const { dropped } = where
  const role = message['role']
  if (role !== 'user' && role !== 'assistant' && role !== 'system')
    throw refused(`${at}.role`, `"${at}.role" must be user, assistant or system.`)
  dropped.within(message, at, MESSAGE)
  const blocks = blocksOf(message['content'], `${at}.content`)
  const softly = new SoftDecoding(where)
  const decodeAny = partsIn('messages', decodePart)
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
    } else parts.push(...softly.parts(text(block['type']) ?? '', () => decodeAny(block, place, where)))
  })
  flush()
  softly.check(blocks.length)
  // Calls may stand beside blocks.
  const calls = decodeCalls(message, at)
  others.legacy = calls.at(-1)?.id ?? others.legacy
  return [...items, ...calls]
}

/** Content as blocks: a string is one block. */
function blocksOf(content: unknown, at: string): readonly unknown[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : arrayAt(content, at)
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
      const parts = partsOf(block['content'], `${at}.content`, place, partsIn('messages'))
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
