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

/** What a request holds beside its text. */
export interface Contents {
  readonly attachments: readonly Attachment[]
  /** What it names of the state that lies with its provider: earlier replies, conversations, files, containers, items. */
  readonly references: readonly StoredReference[]
  /** It lets the provider run tools. */
  readonly providerTools: boolean
}

const known = new WeakMap<Json, Contents>()

/** Looks through a request, once. */
export function contentsOf(request: Json): Contents {
  let contents = known.get(request)
  if (!contents) known.set(request, (contents = lookThrough(request)))
  return contents
}

function lookThrough(request: Json): Contents {
  const attachments: Attachment[] = []
  const references: StoredReference[] = []
  const refer = (param: string, value: unknown): void => {
    const id = text(value) ?? text(object(value)?.['id'])
    if (id !== undefined && id !== '') references.push({ param, id })
  }
  for (const name of ['previous_response_id', 'conversation', 'container', 'thread']) refer(name, request[name])
  refer('prompt', object(request['prompt']))
  for (const tool of list(request['tools'])) referToolState(object(tool) ?? {}, refer)
  for (const item of list(request['input'])) referItem(object(item) ?? {}, refer)
  walk([request['messages'], request['input'], request['system']], part => {
    refer('file_id', part['file_id'])
    refer('file_id', object(part['file'])?.['file_id'])
    if (part['role'] === 'assistant') refer('audio', object(part['audio']))
    attach(part, attachments)
  })
  return { attachments, references, providerTools: runsProviderTools(request) }
}

type Refer = (param: string, value: unknown) => void

/** Containers, files and stores that a provider's tool works on. */
function referToolState(tool: Json, refer: Refer): void {
  if (typeof tool['container'] === 'string') refer('tools.container', tool['container'])
  for (const name of ['vector_store_ids', 'file_ids']) for (const id of list(tool[name])) refer(`tools.${name}`, id)
  for (const id of list(object(tool['container'])?.['file_ids'])) refer('tools.container.file_ids', id)
}

/** An item that is nothing but its id, or whose content lies with the provider. */
function referItem({ type, id, role, encrypted_content: sealed, content, result }: Json, refer: Refer): void {
  const bare = type === undefined || type === null || type === 'item_reference'
  const emptied = (type === 'reasoning' && typeof sealed !== 'string' && content === undefined) || (type === 'image_generation_call' && result === undefined)
  if ((bare && role === undefined) || emptied) refer('input.id', id)
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

function runsProviderTools(request: Json): boolean {
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

/** Goes through all objects in some values. */
function walk(values: readonly unknown[], visit: (part: Json) => void): void {
  const waiting = [...values]
  while (waiting.length > 0) {
    const at = waiting.pop()
    if (typeof at !== 'object' || at === null) continue
    if (!Array.isArray(at)) visit(at as Json)
    // Most members are texts and numbers.
    for (const each of Array.isArray(at) ? at : Object.values(at)) if (typeof each === 'object') waiting.push(each)
  }
}

/** Notes a part that is an attachment. */
function attach(part: Json, found: Attachment[]): void {
  const add = (kind: Attachment['kind'], source: unknown): void => {
    const encoded = text(source)
    if (encoded === undefined) found.push({ kind, place: 'stored' })
    else if (isEncoded(encoded)) found.push({ kind, place: 'inline', encoded })
    else found.push({ kind, place: 'url' })
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
    case 'document': {
      const { type, data, url } = object(part['source']) ?? {}
      // Plain text, and parts of its own, count by themselves.
      if (type === 'base64' || type === 'url' || type === 'file') add(part['type'], type === 'base64' ? data : url)
    }
  }
}
