/**
 * What a request brings beside its text, in any of the formats: media, documents, and references to what lies with the
 * provider. It is recognised by the type of its part. What is not recognised counts as text, which is never too little.
 */
import { type Json, object, text } from './reading.ts'

/** One part that is no text. */
export interface Attachment {
  readonly kind: 'image' | 'sound' | 'document'
  /** In the request, behind a URL, or with the provider. */
  readonly place: 'inline' | 'url' | 'stored'
  /** The encoded text, where it is in the request. */
  readonly encoded?: string
}

/** A member that names something that lies with the provider. */
export interface StoredReference {
  /** The member's name, for the error that refuses it. */
  readonly param: string
  readonly id: string
}

/** Media, documents and references among the parts of a request. */
export function attachmentsOf(request: Json): readonly Attachment[] {
  const found: Attachment[] = []
  walk(request, part => attachment(part, found))
  return found
}

/** What the request names of the state that lies with its provider: earlier replies, conversations, files, containers, items. */
export function storedReferences(request: Json): readonly StoredReference[] {
  const found: StoredReference[] = []
  const add = (param: string, value: unknown): void => {
    const id = text(value) ?? text(object(value)?.['id'])
    if (id !== undefined && id !== '') found.push({ param, id })
  }
  for (const name of ['previous_response_id', 'conversation', 'container', 'thread']) add(name, request[name])
  add('prompt', object(request['prompt']))
  for (const tool of list(request['tools'])) {
    if (typeof object(tool)?.['container'] === 'string') add('tools.container', object(tool)?.['container'])
    for (const name of ['vector_store_ids', 'file_ids']) for (const id of list(object(tool)?.[name])) add(`tools.${name}`, id)
    for (const id of list(object(object(tool)?.['container'])?.['file_ids'])) add('tools.container.file_ids', id)
  }
  for (const item of list(request['input'])) {
    const { type, id, role, encrypted_content: sealed, content, result } = object(item) ?? {}
    const bare = type === undefined || type === null || type === 'item_reference'
    const emptied = (type === 'reasoning' && typeof sealed !== 'string' && content === undefined) || (type === 'image_generation_call' && result === undefined)
    if ((bare && role === undefined) || emptied) add('input.id', id)
  }
  walk(request, part => {
    add('file_id', part['file_id'])
    add('file_id', object(part['file'])?.['file_id'])
    if (part['role'] === 'assistant') add('audio', object(part['audio']))
    return false
  })
  return found
}

/** What a reply, or the event that tells its usage, says it left with its provider: the reply itself, and what lies beside it. */
export function storedIds(json: unknown): { readonly reply: string | undefined; readonly others: readonly string[] } {
  const event = object(json) ?? {}
  const reply = object(event['response']) ?? object(event['message']) ?? object(event['delta']) ?? event
  const items = list(reply['output']).map(object)
  const spoken = list(reply['choices']).map(choice => object(object(object(choice)?.['message'])?.['audio'])?.['id'])
  const ids = [
    object(reply['conversation'])?.['id'],
    object(reply['container'])?.['id'],
    ...items.flatMap(item => [item?.['id'], item?.['container_id']]),
    ...spoken,
  ]
  return {
    reply: reply['object'] === 'response' ? text(reply['id']) : undefined,
    others: ids.filter((id): id is string => typeof id === 'string' && id !== ''),
  }
}

/** Tools that the client itself runs. All others may be run by the provider. */
const CLIENT_TOOLS = /^(?:function|custom|namespace|tool_search|local_shell|shell|apply_patch|computer|bash|text_editor|memory)(?:_|$)/

/** Whether the request lets the provider run tools. */
export function runsProviderTools(request: Json): boolean {
  const tools = list(request['tools']).map(tool => text(object(tool)?.['type']))
  return (
    request['mcp_servers'] !== undefined || request['web_search_options'] !== undefined || tools.some(type => type !== undefined && !CLIENT_TOOLS.test(type))
  )
}

/** Base64, with or without the head of a data URL. What is not is text, and counts as that beside the medium it claims to be. */
function isEncoded(value: string): boolean {
  return /^(?:data:[\w/+.-]+(?:;[\w=-]+)*;base64,)?[A-Za-z0-9+/=_-]{0,64}$/.test(value.slice(0, value.indexOf(',') + 65))
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** Goes through the objects in a request's messages or input. @param visit returns true for one that need not be gone into */
function walk(request: Json, visit: (part: Json) => boolean): void {
  const waiting: unknown[] = [request['messages'], request['input'], request['system']]
  for (let at = waiting.pop(); waiting.length > 0 || at !== undefined; at = waiting.pop()) {
    if (typeof at !== 'object' || at === null) continue
    if (Array.isArray(at)) for (const each of at) waiting.push(each)
    else if (!visit(at as Json)) for (const name in at) waiting.push((at as Json)[name])
  }
}

/** @returns whether the part is one, which then need not be gone into */
function attachment(part: Json, found: Attachment[]): boolean {
  const add = (kind: Attachment['kind'], source: unknown): true => {
    const encoded = text(source)
    if (encoded === undefined) found.push({ kind, place: 'stored' })
    else if (isEncoded(encoded)) found.push({ kind, place: 'inline', encoded })
    else found.push({ kind, place: 'url' })
    return true
  }
  switch (part['type']) {
    case 'image_url':
    case 'input_image':
    case 'computer_screenshot':
      return add('image', object(part['image_url'])?.['url'] ?? part['image_url'])
    case 'image_generation_call':
      return add('image', part['result'])
    case 'input_audio':
      return add('sound', object(part['input_audio'])?.['data'])
    case 'file':
    case 'input_file': {
      const file = object(part['file']) ?? part
      return add('document', file['file_data'] ?? file['file_url'])
    }
    case 'video_url':
    case 'input_video':
      return add('document', object(part['video_url'])?.['url'] ?? part['video_url'])
    case 'container_upload':
      return add('document', undefined)
    case 'image':
    case 'document':
      return sourced(part['type'] === 'image' ? 'image' : 'document', object(part['source']), add)
    default:
      return false
  }
}

function sourced(kind: Attachment['kind'], source: Json | undefined, add: (kind: Attachment['kind'], source: unknown) => true): boolean {
  switch (source?.['type']) {
    case 'base64':
      return add(kind, source['data'])
    case 'url':
      return add(kind, source['url'])
    case 'file':
      return add(kind, undefined)
    default:
      // Plain text, or parts of its own.
      return false
  }
}
