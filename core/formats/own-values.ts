/**
 * Values that the gateway made for a client: signatures of other formats' reasoning, summaries, ids of items, and ids of
 * calls. They come back with the client's next request, and mean nothing to a provider. Translation undoes them. In a
 * request that goes up in the client's format, they are undone here.
 */
import type { JsonView } from '../lib/json/view.ts'
import { type Change, ListRebuild, withElements, withMembers } from '../lib/json/rebuild.ts'
import { Slices } from '../lib/turns.ts'
import type { Body } from './body.ts'
import { object } from './json.ts'
import type { FormatName } from './terms.ts'
import { DroppedFields } from './translate/dropped-fields.ts'
import { mayBeOwnItem, OWN_BEGINNINGS, ownCallId, SEALED, summaryIn, summaryText } from './translate/passthrough.ts'

/** A request without values of the gateway's own. */
interface Cleaned {
  readonly parts: readonly Buffer[]
  readonly dropped: DroppedFields
}

/** The request as its provider gets it in the client's format; undefined if it has no value of the gateway's own. */
export async function withoutOwn(body: Body, format: FormatName): Promise<Cleaned | undefined> {
  if (!body.mayHoldOwn) return undefined
  const { member, clean } = CLEANERS[format]
  const conversation = body.view(member)
  if (!conversation?.isList) return undefined
  const dropped = new DroppedFields()
  const rebuild = new ListRebuild(conversation)
  const slices = new Slices()
  let lost = -1
  let index = 0
  for (const element of conversation.elements()) {
    const losses = new DroppedFields()
    const change = element.isObject ? clean(element, losses, slices) : element
    rebuild.add(element, change instanceof Promise ? await change : change)
    for (const name of losses.names) dropped.add(name)
    if (losses.names.length > 0) lost = index
    index++
    if (slices.over) await slices.next()
  }
  const { result } = rebuild
  if (result === conversation) return undefined
  const copy = body.fork()
  copy.setBytes(member, result as Buffer)
  if (format === 'messages' && lost !== -1 && lost >= runningFrom(conversation)) relaxThinking(copy, dropped)
  return { parts: copy.parts(), dropped }
}

/** What cleans one element of a conversation. */
interface Cleaner {
  readonly member: string
  readonly clean: (element: JsonView, dropped: DroppedFields, slices: Slices) => Change | Promise<Change>
}

const CLEANERS: Readonly<Record<FormatName, Cleaner>> = {
  'chat-completions': { member: 'messages', clean: cleanMessage },
  responses: { member: 'input', clean: cleanItem },
  messages: { member: 'messages', clean: cleanTurn },
}

const isSealed = (value: JsonView | undefined): boolean => value?.begins(SEALED) === true

/** The id of a call as the format can have it. */
function cleanCallId(id: JsonView, format: FormatName): Change {
  if (!OWN_BEGINNINGS.some(beginning => id.begins(beginning))) return id
  const text = id.text ?? ''
  const own = ownCallId(text, format)
  return own === text ? id : Buffer.from(JSON.stringify(own))
}

function cleanItem(item: JsonView, dropped: DroppedFields): Change {
  const content = item.member('encrypted_content')
  const sealed = isSealed(content)
  const summary = sealed ? summaryIn(content?.text) : undefined
  if (summary !== undefined) {
    const message = { type: 'message', role: 'user', content: [{ type: 'input_text', text: summaryText(summary) }] }
    return Buffer.from(JSON.stringify(message))
  }
  const own = mayBeOwnItem(item.member('id')?.text ?? '')
  const type = item.member('type')
  if (sealed && !type?.is('reasoning')) {
    dropped.add(type?.text ?? 'message')
    return undefined
  }
  if (type?.is('reasoning') && (sealed || (own && isEmptyReasoning(item)))) {
    dropped.add('reasoning')
    return undefined
  }
  // A reference is nothing but an id.
  const isNamed = own && !type?.is('item_reference')
  return withMembers(item, (name, value) => {
    if (name === 'id' && isNamed) return undefined
    return name === 'call_id' ? cleanCallId(value, 'responses') : value
  })
}

/** Whether a reasoning has nothing by which its provider could know it. */
function isEmptyReasoning(item: JsonView): boolean {
  const [encrypted, content] = [item.member('encrypted_content'), item.member('content')]
  return (!encrypted?.isString || encrypted.is('')) && (!content?.isList || content.entries === 1)
}

/** A turn may have as many blocks as a conversation has turns. */
async function cleanTurn(turn: JsonView, dropped: DroppedFields, slices: Slices): Promise<Change> {
  const content = turn.member('content')
  if (!content?.isList) return turn
  const blocks = new ListRebuild(content)
  for (const block of content.elements()) {
    blocks.add(block, cleanBlock(block, dropped))
    if (slices.over) await slices.next()
  }
  const { result } = blocks
  if (result === content) return turn
  // A provider refuses a turn without content.
  return blocks.size === 0 ? undefined : withMembers(turn, (name, value) => (name === 'content' ? result : value))
}

function cleanBlock(block: JsonView, dropped: DroppedFields): Change {
  if (!block.isObject) return block
  if (isSealed(block.member('signature')) || isSealed(block.member('data'))) {
    dropped.add('reasoning')
    return undefined
  }
  const id = block.member('type')?.is('tool_use') ? 'id' : 'tool_use_id'
  return withMembers(block, (name, value) => (name === id ? cleanCallId(value, 'messages') : value))
}

function cleanMessage(message: JsonView, dropped: DroppedFields): Change {
  const details = message.member('reasoning_details')
  const kept = details?.isList ? withElements(details, each => (isSealed(each.member('data')) ? undefined : each)) : undefined // prettier-ignore
  const isForeign = kept !== undefined && kept.result !== details
  if (isForeign) dropped.add('reasoning')
  return withMembers(message, (name, value) => {
    if (name === 'tool_call_id') return cleanCallId(value, 'chat-completions')
    if (name === 'tool_calls' && value.isList) return withElements(value, cleanCall).result
    if (!isForeign) return value
    if (name === 'reasoning_details') return kept.size === 0 ? undefined : kept.result
    // The text of the reasoning is the other model's too.
    return name === 'reasoning_content' || name === 'reasoning' ? undefined : value
  })
}

function cleanCall(call: JsonView): Change {
  return withMembers(call, (name, value) => (name === 'id' ? cleanCallId(value, 'chat-completions') : value))
}

/** Where the running turn begins: the user's last message that is more than results of tools. */
function runningFrom(conversation: JsonView): number {
  let from = -1
  let index = 0
  for (const turn of conversation.elements()) {
    if (turn.member('role')?.is('user') && !isResults(turn.member('content'))) from = index
    index++
  }
  return from
}

/** Whether a content is a list of nothing but results of tools. */
function isResults(content: JsonView | undefined): boolean {
  if (!content?.isList) return false
  for (const block of content.elements()) if (!block.member('type')?.is('tool_result')) return false
  return true
}

/**
 * Leaves it to the model whether it reasons, if the running turn calls tools and has lost the reasoning that led to
 * them. With a budget, providers refuse such a turn.
 */
function relaxThinking(body: Body, dropped: DroppedFields): void {
  if (object(body.get('thinking'))?.['type'] !== 'enabled') return
  body.remove('thinking')
  dropped.add('thinking')
}
