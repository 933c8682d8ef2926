/**
 * What a request brings beside its text, in any of the formats: media, documents, and references to what lies with the
 * provider. It is recognised by the type of its part. What is not recognised counts as text, which is never too little.
 */
import { GatewayError } from '../errors.ts'
import type { JsonView } from '../lib/json/view.ts'
import { type Attachment, attached } from './attachments.ts'
import {
  memberTools,
  mostCalls,
  type ProviderTool,
  providerToolsOf,
  tooManyTools,
  TOOLS_MAX,
} from './provider-tools.ts'
import type { Json, RequestMembers } from './terms.ts'
import { list, object, text } from './json.ts'
import { checkSpelling } from './spelling.ts'

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

/** Stored things that one request may refer to. */
const REFERENCES_MAX = 5000
/** Values in the tools of one item of a conversation: they are parsed in one go. */
const ITEM_TOOLS_MAX = 10_000

/** Characters of an id, and how many of one reply are remembered. */
const ID_MAX = 512
const IDS_MAX = 1000

function tooManyReferences(): GatewayError {
  return new GatewayError('invalid_body', {
    message: `The request refers to more than ${REFERENCES_MAX} stored things.`,
  })
}

/** What is found in one part of a request. */
class Findings {
  readonly attachments: Attachment[] = []
  readonly references = new Map<string, StoredReference>()
  readonly tools: ProviderTool[] = []
  caches: Contents['caches']

  refer(param: string, id: string | undefined): void {
    // What is referred to twice is there once.
    if (id === undefined || id === '' || this.references.has(`${param} ${id}`)) return
    if (id.length > ID_MAX)
      throw new GatewayError('invalid_body', {
        param,
        message: `"${param}" is no id: it has more than ${ID_MAX} characters.`,
      })
    if (this.references.size >= REFERENCES_MAX) throw tooManyReferences()
    this.references.set(`${param} ${id}`, { param, id })
  }

  cache(control: boolean, hour: boolean): void {
    if (control && this.caches !== '1h') this.caches = hour ? '1h' : '5m'
  }
}

/** Notes the containers, files, stores and masks that a tool of the provider works on. The parameters of a function are not looked at. */
function readTool(tool: Json, found: Findings): void {
  const control = object(tool['cache_control'])
  found.cache(control !== undefined, control?.['ttl'] === '1h')
  for (const inner of list(tool['tools'])) readTool(object(inner) ?? {}, found)
  const { container, environment, input_image_mask: mask } = tool
  for (const where of [tool, object(container), object(environment), object(mask)]) {
    for (const name in where) checkSpelling(name, SPELLED_NAMES)
    for (const name of ['container_id', 'file_id']) found.refer(`tools.${name}`, idOf(where?.[name]))
    for (const name of ['vector_store_ids', 'file_ids'])
      for (const id of list(where?.[name])) found.refer(`tools.${name}`, idOf(id))
  }
  if (typeof container === 'string') found.refer('tools.container', container)
  for (const skill of list(object(environment)?.['skills']))
    found.refer('tools.skills', idOf(object(skill)?.['skill_id']))
}

/** An id: a text, or the `id` of an object. */
function idOf(value: unknown): string | undefined {
  return text(value) ?? text(object(value)?.['id'])
}

/** As `idOf`, of a value that is not parsed. */
function viewedId(value: JsonView | undefined): string | undefined {
  return value?.text ?? value?.member('id')?.text
}

/** Looks through a request: at the places where its format has parts, and at no others. */
export class ContentsReader {
  readonly #body: RequestMembers
  /** What the conversation holds, once it has been looked through. */
  #conversation: Findings | undefined

  constructor(body: RequestMembers) {
    this.#body = body
  }

  /** The conversation has changed. */
  forget(): void {
    this.#conversation = undefined
  }

  /** All that is found. @throws GatewayError invalid_body for a part whose members are spelled otherwise than upstreams may read them */
  contents(): Contents {
    const walk = this.said()
    while (walk.next().done !== true);
    const walkConversation = this.#conversation as Findings
    const frame = this.#frame()
    const references = [...new Map([...frame.references, ...walkConversation.references]).values()]
    if (references.length > REFERENCES_MAX) throw tooManyReferences()
    const tools = [...frame.tools, ...walkConversation.tools]
    if (tools.length > TOOLS_MAX) throw tooManyTools()
    const caches = frame.caches === '1h' ? '1h' : (walkConversation.caches ?? frame.caches)
    return {
      attachments: walkConversation.attachments,
      references,
      providerTools: [...tools, ...memberTools(this.#body)],
      caches,
    }
  }

  /** What the request holds beside its conversation. */
  #frame(): Findings {
    const found = new Findings()
    const body = this.#body
    for (const name of ['previous_response_id', 'conversation', 'container', 'thread'])
      found.refer(name, idOf(body.get(name)))
    found.refer('prompt', idOf(object(body.get('prompt'))))
    for (const skill of list(object(body.get('container'))?.['skills']))
      if (object(skill)?.['type'] !== 'anthropic') found.refer('container.skills', idOf(object(skill)?.['skill_id']))
    const tools = list(body.get('tools'))
    for (const tool of tools) readTool(object(tool) ?? {}, found)
    found.tools.push(...providerToolsOf(tools, 'tools', mostCalls(body), true))
    const control = object(body.get('cache_control'))
    found.cache(control !== undefined, control?.['ttl'] === '1h')
    // Longer caching may be billed as the dearest kind of write.
    if (object(body.get('prompt_cache_options')) || body.get('prompt_cache_retention') === '24h') found.caches = '1h'
    return found
  }

  /** Goes through the conversation, step by step. */
  *said(): Generator<void> {
    if (this.#conversation) return
    const found = new Findings()
    const body = this.#body
    let index = 0
    for (const item of body.view('input')?.elements() ?? []) {
      yield
      yield* this.#item(item, `input[${index++}].tools`, found)
    }
    for (const message of body.view('messages')?.elements() ?? []) {
      yield
      yield* checkNames(message)
      if (message.member('role')?.is('assistant')) {
        const audio = message.member('audio')
        if (audio?.isObject) found.refer('audio', viewedId(audio))
      }
      yield* parts(message.member('content'), found)
    }
    yield* parts(body.view('system'), found)
    this.#conversation = found
  }

  /** An item of a conversation: a message, a call or its result, or one that lies with the provider. */
  *#item(item: JsonView, toolsAt: string, found: Findings): Generator<void> {
    yield* checkNames(item)
    if (isBare(item)) found.refer('input.id', viewedId(item.member('id')))
    const tools = item.member('tools')
    if (tools?.isList) {
      if (tools.entries > ITEM_TOOLS_MAX)
        throw new GatewayError('invalid_body', {
          param: 'input',
          message: `"${toolsAt}" holds more than ${ITEM_TOOLS_MAX} values and names.`,
        })
      const declared = list(tools.json)
      for (const tool of declared) readTool(object(tool) ?? {}, found)
      found.tools.push(...providerToolsOf(declared, toolsAt, mostCalls(this.#body), false))
    }
    found.refer('input.container_id', viewedId(item.member('container_id')))
    yield* attached(item, found.attachments)
    yield* parts(item.member('content'), found)
    yield* parts(item.member('output'), found)
  }
}

/** Parts of a message, a tool's result, or a document. One part alone is taken for a list of one. */
function* parts(value: JsonView | undefined, found: Findings): Generator<void> {
  for (const part of value?.isObject ? [value] : (value?.elements() ?? [])) {
    yield
    if (!part.isObject) continue
    yield* checkNames(part)
    yield* attached(part, found.attachments)
    const control = part.member('cache_control')
    if (control) yield* checkNames(control)
    if (control?.isObject) found.cache(true, control.member('ttl')?.is('1h') === true)
    const source = part.member('source')
    // Whichever of them its provider heeds.
    for (const place of [part, part.member('file'), source]) {
      if (place && place !== part) yield* checkNames(place)
      found.refer('file_id', viewedId(place?.member('file_id')))
    }
    yield* parts(part.member('content'), found)
    yield* parts(source?.member('content'), found)
  }
}

/** Names by which a part, an item or a tool says what it is, what it refers to, or what it costs. */
const SPELLED_NAMES: ReadonlySet<string> = new Set([
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
  'cache_control',
  'ttl',
])

/** Names that are looked at in one step. */
const NAMES_STEP = 500

function* checkNames(part: JsonView): Generator<void> {
  let count = 0
  for (const name of part.names()) {
    checkSpelling(name, SPELLED_NAMES)
    if (++count % NAMES_STEP === 0) yield
  }
}

/** Members without which an item of a type is nothing but its id. Items of other types carry what they say in several. */
const SUBSTANCE: Readonly<Record<string, readonly string[]>> = {
  message: ['content'],
  reasoning: ['encrypted_content', 'content'],
  compaction: ['encrypted_content'],
  image_generation_call: ['result'],
}

/** Names that say nothing of what an item holds. */
const LABELS: ReadonlySet<string> = new Set(['id', 'type', 'status'])

/** The item is nothing but its id: its provider looks up what it says. */
function isBare(item: JsonView): boolean {
  const type = item.member('type')?.text
  if (type === 'item_reference') return true
  // A search that was made says little more than that.
  if (type?.endsWith('_search_call')) return false
  if (holdsLabelsOnly(item)) return true
  const substance = type === undefined ? ['content'] : SUBSTANCE[type]
  return substance?.every(name => isVoid(item.member(name))) === true
}

function holdsLabelsOnly(item: JsonView): boolean {
  for (const name of item.names()) if (!LABELS.has(name)) return false
  return true
}

/** It is not there, or says nothing. */
function isVoid(value: JsonView | undefined): boolean {
  return !value || value.isNull || value.is('') || (value.isList && value.entries === 1)
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
    // What is beyond cannot be referred to later.
    others: ids
      .filter((id): id is string => typeof id === 'string' && id !== '' && id.length <= ID_MAX)
      .slice(0, IDS_MAX),
  }
}
