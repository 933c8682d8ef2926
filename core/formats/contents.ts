/**
 * What a request brings beside its text, in any of the formats: media, documents, and references to what lies with the
 * provider. It is recognised by the type of its part. What is not recognised counts as text, which is never too little.
 */
import { GatewayError } from '../errors.ts'
import { type ProviderTool, providerToolsIn } from './provider-tools.ts'
import { type Json, list, object, text } from './reading.ts'
import { checkSpelling } from './spelling.ts'

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
  /** The tools that it lets the provider run. */
  readonly providerTools: readonly ProviderTool[]
  /** The longest time for which it asks its input to be kept in a prompt cache. */
  readonly caches: '5m' | '1h' | undefined
}

/** Looks through a request. @throws GatewayError invalid_body for a part whose members are spelled otherwise than upstreams may read them */
export function contentsOf(request: Json): Contents {
  return new Look(request).contents()
}

/** Stored things that one request may refer to. */
const REFERENCES_MAX = 5000

/** One look through a request: at the places where its format has parts, and at no others. */
class Look {
  readonly #request: Json
  readonly #attachments: Attachment[] = []
  readonly #references: StoredReference[] = []
  readonly #referred = new Set<string>()
  #caches: Contents['caches']

  constructor(request: Json) {
    this.#request = request
  }

  contents(): Contents {
    const request = this.#request
    for (const name of ['previous_response_id', 'conversation', 'container', 'thread']) this.#refer(name, request[name])
    this.#refer('prompt', object(request['prompt']))
    for (const skill of list(object(request['container'])?.['skills']))
      if (object(skill)?.['type'] !== 'anthropic') this.#refer('container.skills', object(skill)?.['skill_id'])
    for (const tool of list(request['tools'])) this.#tool(object(tool) ?? {})
    for (const item of list(request['input'])) this.#item(object(item) ?? {})
    for (const message of list(request['messages'])) {
      const { content, audio, role } = object(message) ?? {}
      checkNames(object(message) ?? {})
      if (role === 'assistant') this.#refer('audio', object(audio))
      this.#parts(content)
    }
    this.#parts(request['system'])
    this.#cache(request)
    // Longer caching may be billed as the dearest kind of write.
    if (object(request['prompt_cache_options']) || request['prompt_cache_retention'] === '24h') this.#caches = '1h'
    return { attachments: this.#attachments, references: this.#references, providerTools: providerToolsIn(request), caches: this.#caches }
  }

  #refer(param: string, value: unknown): void {
    const id = text(value) ?? text(object(value)?.['id'])
    // What is referred to twice is there once.
    if (id === undefined || id === '' || this.#referred.has(`${param} ${id}`)) return
    this.#referred.add(`${param} ${id}`)
    if (this.#references.length >= REFERENCES_MAX)
      throw new GatewayError('invalid_body', { message: `The request refers to more than ${REFERENCES_MAX} stored things.` })
    this.#references.push({ param, id })
  }

  /** Parts of a message, a tool's result, or a document. */
  #parts(parts: unknown): void {
    // One part alone is taken for a list of one.
    for (const each of Array.isArray(parts) ? parts : [parts]) {
      const part = object(each)
      if (!part) continue
      checkNames(part)
      attach(part, this.#attachments)
      this.#cache(part)
      this.#refer('file_id', part['file_id'] ?? object(part['file'])?.['file_id'] ?? object(part['source'])?.['file_id'])
      this.#parts(part['content'])
      this.#parts(object(part['source'])?.['content'])
    }
  }

  /** An item of a conversation: a message, a call or its result, or one that lies with the provider. */
  #item(item: Json): void {
    const { type, id, content, output } = item
    checkNames(item)
    if (isBare(item)) this.#refer('input.id', id)
    for (const tool of list(item['tools'])) this.#tool(object(tool) ?? {})
    this.#refer('input.container_id', item['container_id'])
    attach(item, this.#attachments)
    this.#parts(content)
    this.#parts(output)
    if (type === 'computer_call_output') this.#parts([output])
  }

  /** Containers, files, stores and masks that a tool of the provider's works on. What a function takes is none of them. */
  #tool(tool: Json): void {
    this.#cache(tool)
    for (const inner of list(tool['tools'])) this.#tool(object(inner) ?? {})
    const { container, environment, input_image_mask: mask } = tool
    for (const where of [tool, object(container), object(environment), object(mask)]) {
      checkNames(where ?? {})
      for (const name of ['container_id', 'file_id']) this.#refer(`tools.${name}`, where?.[name])
      for (const name of ['vector_store_ids', 'file_ids']) for (const id of list(where?.[name])) this.#refer(`tools.${name}`, id)
    }
    if (typeof container === 'string') this.#refer('tools.container', container)
    for (const skill of list(object(environment)?.['skills'])) this.#refer('tools.skills', object(skill)?.['skill_id'])
  }

  #cache(part: Json): void {
    const control = object(part['cache_control'])
    if (control && this.#caches !== '1h') this.#caches = control['ttl'] === '1h' ? '1h' : '5m'
  }
}

/** Names by which a part, an item or a tool says what it is, or what it refers to. */
const TELLING: ReadonlySet<string> = new Set([
  'type',
  'id',
  'file_id',
  'container_id',
  'model',
  'file',
  'source',
  'input_audio',
  'image_url',
  'audio_url',
  'content',
  'tools',
  'environment',
  'container',
  'memory_limit',
])

function checkNames(part: Json): void {
  for (const name in part) checkSpelling(name, TELLING)
}

/** Members without which an item of a type is nothing but its id. Items of other types carry what they say in several. */
const SUBSTANCE: Readonly<Record<string, readonly string[]>> = {
  message: ['content'],
  reasoning: ['encrypted_content', 'content'],
  compaction: ['encrypted_content'],
  image_generation_call: ['result'],
}

/** The item is nothing but its id: its provider looks up what it says. */
function isBare(item: Json): boolean {
  const type = text(item['type'])
  if (type === 'item_reference') return true
  // A search that was made says little more than that.
  if (type?.endsWith('_search_call')) return false
  if (Object.keys(item).every(name => name === 'id' || name === 'type' || name === 'status')) return true
  const substance = type === undefined ? ['content'] : SUBSTANCE[type]
  return (
    substance?.every(name => item[name] === undefined || item[name] === null || item[name] === '' || (Array.isArray(item[name]) && item[name].length === 0)) ??
    false
  )
}

/** Members that say how a reply is to be made, and are no input. */
const MANNER = new Set([
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'temperature',
  'top_p',
  'metadata',
  'user',
  'store',
])
/** Members by which a provider may leave out what was said. */
const SHORTENING = ['context_management', 'truncation', 'transforms', 'compression']

/** What a request says, one message or item after the other, and all else of it that becomes input. */
export interface Saying {
  readonly said: readonly unknown[]
  readonly frame: unknown
  /** The provider may leave out some of it. */
  readonly shortened: boolean
}

/** Most messages or items of a request that are compared one by one; a longer request counts as shortened. */
const SAID_MAX = 5000

/** What a request says. @param member that its format says it in */
export function sayingOf(request: Json, member: string): Saying {
  const { [member]: value, ...rest } = request
  const said = Array.isArray(value) ? value : [value]
  const frame = Object.entries(rest).filter(([name]) => !MANNER.has(name))
  return { said, frame, shortened: said.length > SAID_MAX || SHORTENING.some(name => request[name] !== undefined) }
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

/** Base64, with or without the head of a data URL. What is not is text, and counts as that beside the medium it claims to be. */
function isEncoded(value: string): boolean {
  const head = /^data:[\w/+.-]{1,100}(?:;[\w=-]{1,100}){0,4};base64,/.exec(value)
  return /^[A-Za-z0-9+/=_\r\n-]*$/.test(head ? value.slice(head[0].length) : value)
}

/** Whether encoded bytes may be an image: a data URL says so, and nothing begins as a PDF or a packed document does. */
function isImage(encoded: string): boolean {
  const begins = encoded.slice(encoded.indexOf(',') + 1, encoded.indexOf(',') + 9)
  return (!encoded.startsWith('data:') || /^data:image\//i.test(encoded)) && !begins.startsWith('JVBERi') && !begins.startsWith('UEsD')
}

/** Notes a part that is an attachment. */
function attach(part: Json, found: Attachment[]): void {
  const add = (kind: Attachment['kind'], source: unknown): void => {
    const encoded = text(source)
    if (encoded === undefined) found.push({ kind, place: 'stored' })
    else if (isEncoded(encoded)) found.push({ kind: kind === 'image' && !isImage(encoded) ? 'document' : kind, place: 'inline', encoded })
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
    case 'audio_url':
      return add('sound', object(part['audio_url'])?.['url'] ?? part['audio_url'])
    case 'document_url':
      return add('document', object(part['document_url'])?.['url'] ?? part['document_url'])
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
