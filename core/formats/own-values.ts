/**
 * Values that the gateway made for a client: signatures of other formats' reasoning, ids of items, and ids of calls. They
 * come back with the client's next request, and mean nothing to a provider. Translation undoes them. In a request that
 * goes up in the client's format, they are undone here.
 */
import type { Body } from './body.ts'
import { list, object, text } from './json.ts'
import type { FormatName, Json } from './terms.ts'
import { parseExact } from './translate/decoding.ts'
import { DroppedFields } from './translate/dropped-fields.ts'
import { isSealed, mayBeOwnItem, ownCallId, summaryIn, summaryText } from './translate/passthrough.ts'

/** The beginnings of those that have one. */
const SIGNS: readonly Buffer[] = ['tollgate.', 'tgid'].map(sign => Buffer.from(sign))

/** An element of a conversation with such a value contains one of these. */
const NEEDS: readonly Buffer[] = [...SIGNS, Buffer.from('"id"')]

/** A request without values of the gateway's own. */
export interface Cleaned {
  readonly bytes: Buffer
  readonly dropped: DroppedFields
}

/** The request as its provider gets it in the client's format. All that needs no change keeps its bytes. */
export function withoutOwn(body: Body, format: FormatName): Cleaned | undefined {
  const bytes = body.bytes()
  if (!SIGNS.some(sign => bytes.includes(sign)) && !body.ownItems) return undefined
  const copy = body.fork()
  const dropped = new DroppedFields()
  const { member, clean } = CLEANERS[format]
  let lost = -1
  copy.changeElements(member, (element, index) => {
    if (!NEEDS.some(sign => element.includes(sign))) return element
    const json = object(parseExact(element.toString('utf8')))
    const losses = new DroppedFields()
    const cleaned = json && clean(json, losses)
    for (const name of losses.names) dropped.add(name)
    if (losses.names.length > 0) lost = index
    if (cleaned === json) return element
    return cleaned && Buffer.from(JSON.stringify(cleaned))
  })
  if (format === 'messages' && lost >= runningFrom(body)) relaxThinking(copy, dropped)
  return { bytes: copy.bytes(), dropped }
}

/** What cleans one element of a conversation. It returns undefined to leave the element out. */
interface Cleaner {
  readonly member: string
  readonly clean: (element: Json, dropped: DroppedFields) => Json | undefined
}

const CLEANERS: Readonly<Record<FormatName, Cleaner>> = {
  'chat-completions': { member: 'messages', clean: cleanMessage },
  responses: { member: 'input', clean: cleanItem },
  messages: { member: 'messages', clean: cleanTurn },
}

/** The value with some members replaced; the value itself if they are the same. Undefined removes a member. */
function withMembers(json: Json, members: Json): Json {
  if (Object.entries(members).every(([name, value]) => json[name] === value)) return json
  const changed = Object.entries({ ...json, ...members }).filter(([, value]) => value !== undefined)
  return Object.fromEntries(changed)
}

/** The list with its elements changed; the list itself if none was. */
function each(values: unknown, change: (value: Json) => Json | undefined): unknown {
  if (!Array.isArray(values)) return values
  const changed = values.flatMap((value: unknown) => {
    const json = object(value)
    return json ? (change(json) ?? []) : [value]
  })
  return changed.length === values.length && changed.every((value, index) => value === values[index]) ? values : changed
}

/** A member with the id of a call as the format can have it. */
function callId(json: Json, name: string, format: FormatName): Json {
  const id = text(json[name])
  return id === undefined ? {} : { [name]: ownCallId(id, format) }
}

function cleanItem(item: Json, dropped: DroppedFields): Json | undefined {
  const id = text(item['id'])
  const own = id !== undefined && mayBeOwnItem(id)
  const sealed = isSealed(item['encrypted_content'])
  const summary = summaryIn(item['encrypted_content'])
  if (summary !== undefined)
    return { type: 'message', role: 'user', content: [{ type: 'input_text', text: summaryText(summary) }] }
  const empty = !text(item['encrypted_content']) && list(item['content']).length === 0
  if (item['type'] === 'reasoning' && (sealed || (own && empty))) {
    dropped.add('reasoning')
    return undefined
  }
  // A reference is nothing but an id.
  const named = own && item['type'] !== 'item_reference'
  return withMembers(item, { ...(named && { id: undefined }), ...callId(item, 'call_id', 'responses') })
}

function cleanTurn(turn: Json, dropped: DroppedFields): Json | undefined {
  const content = each(turn['content'], block => {
    if (isSealed(block['signature']) || isSealed(block['data'])) {
      dropped.add('reasoning')
      return undefined
    }
    const name = block['type'] === 'tool_use' ? 'id' : 'tool_use_id'
    return withMembers(block, callId(block, name, 'messages'))
  })
  // A provider refuses a turn without content.
  return Array.isArray(content) && content.length === 0 ? undefined : withMembers(turn, { content })
}

function cleanMessage(message: Json, dropped: DroppedFields): Json {
  const details = each(message['reasoning_details'], detail => (isSealed(detail['data']) ? undefined : detail))
  const foreign = details !== message['reasoning_details']
  if (foreign) dropped.add('reasoning')
  const calls = each(message['tool_calls'], call => withMembers(call, callId(call, 'id', 'chat-completions')))
  return withMembers(message, {
    ...callId(message, 'tool_call_id', 'chat-completions'),
    ...(calls !== message['tool_calls'] && { tool_calls: calls }),
    ...(foreign && {
      reasoning_details: list(details).length > 0 ? details : undefined,
      // Its text is the other model's too.
      reasoning_content: undefined,
    }),
  })
}

/** Where the running turn begins: the user's last message that is more than results of tools. */
function runningFrom(body: Body): number {
  return list(body.get('messages')).findLastIndex(turn => {
    const { role, content } = object(turn) ?? {}
    return (
      role === 'user' && (!Array.isArray(content) || content.some(block => object(block)?.['type'] !== 'tool_result'))
    )
  })
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
