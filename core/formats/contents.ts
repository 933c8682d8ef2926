/**
 * What a request contains beside text, in any format: media, documents, and references to state stored at the provider.
 * A part is recognised by its type. A part of unknown type counts as text, which never counts too little.
 */
import { GatewayError } from '../errors.ts'
import type { JsonView } from '../lib/json/view.ts'
import { type Attachment, attached } from './attachments.ts'
import {
  memberTools,
  mostCalls,
  type ProviderTool,
  providerToolsOf,
  takesLimit,
  tooManyTools,
  TOOLS_MAX,
} from './provider-tools.ts'
import type { FormatName, Json, RequestMembers } from './terms.ts'
import { isBare } from './bare-items.ts'
import { list, object, positive, text } from './json.ts'
import { compactionName } from './compaction-names.ts'
import { NEEDS_SOURCE } from './translate/parts.ts'
import { mayBeOwnItem } from './translate/passthrough.ts'
import { checkSpelling } from './spelling.ts'

/** A member that names something stored at the provider. */
export interface StoredReference {
  /** The name of the member, for errors. */
  readonly param: string
  readonly id: string
}

/** What a request contains beside text. */
export interface Contents {
  readonly attachments: readonly Attachment[]
  /** The stored state that it refers to: earlier replies, conversations, files, containers, items. */
  readonly references: readonly StoredReference[]
  /** The names of compactions that providers made. Only the account that made one can read it. */
  readonly compactions: readonly StoredReference[]
  /** The tools that the provider may run. */
  readonly providerTools: readonly ProviderTool[]
  /** The longest time for which its input is to be kept in a prompt cache. */
  readonly caches: '5m' | '1h' | undefined
  /** The types of its parts. */
  readonly partTypes: ReadonlySet<string>
  /** The formats that elements of its conversation have the shape of, whatever the path. */
  readonly shapes: ReadonlySet<FormatName>
}

/** Most stored things that one request may refer to. */
const REFERENCES_MAX = 5000
/** Most compactions whose account is looked up. */
const COMPACTIONS_MAX = 100
/** Most values in the tools of one item. They are parsed in one go. */
const ITEM_TOOLS_MAX = 10_000

/** Most characters of an id. */
export const ID_MAX = 512

function tooManyReferences(): GatewayError {
  return new GatewayError('invalid_body', {
    message: `The request refers to more than ${REFERENCES_MAX} stored objects.`,
  })
}

/** What was found in one part of a request. */
class Findings {
  readonly attachments: Attachment[] = []
  readonly references = new Map<string, StoredReference>()
  ownItems = false
  readonly compactions: StoredReference[] = []
  readonly tools: ProviderTool[] = []
  readonly partTypes = new Set<string>()
  readonly shapes = new Set<FormatName>()
  caches: Contents['caches']

  refer(param: string, id: string | undefined): void {
    // A second reference to the same thing counts once.
    if (id === undefined || id === '' || this.references.has(`${param} ${id}`)) return
    if (id.length > ID_MAX)
      throw new GatewayError('invalid_body', {
        param,
        message: `"${param}" is not an id: it has more than ${ID_MAX} characters.`,
      })
    if (this.references.size >= REFERENCES_MAX) throw tooManyReferences()
    this.references.set(`${param} ${id}`, { param, id })
  }

  cache(control: boolean, hour: boolean): void {
    if (control && this.caches !== '1h') this.caches = hour ? '1h' : '5m'
  }
}

/**
 * Notes the containers, files, stores and masks that a provider's tool uses. The parameters of functions are not
 * searched.
 */
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

/** An id: a string, or the `id` of an object. */
function idOf(value: unknown): string | undefined {
  return text(value) ?? text(object(value)?.['id'])
}

/** As `idOf`, for a value that is not parsed. */
function viewedId(value: JsonView | undefined): string | undefined {
  return value?.text ?? value?.member('id')?.text
}

/** Searches a request, at the places where its format has parts and at no others. */
export class ContentsReader {
  readonly #body: RequestMembers
  /** What the conversation contains, once it has been searched. */
  #conversation: Findings | undefined

  constructor(body: RequestMembers) {
    this.#body = body
  }

  /** Forgets the conversation, which has changed. */
  forget(): void {
    this.#conversation = undefined
  }

  /**
   * Everything that was found.
   * @throws GatewayError invalid_body for a part with misspelled members that some upstreams may accept
   */
  contents(): Contents {
    const conversation = this.#searched()
    const frame = this.#frame()
    const references = [...new Map([...frame.references, ...conversation.references]).values()]
    if (references.length > REFERENCES_MAX) throw tooManyReferences()
    const tools = [...frame.tools, ...conversation.tools]
    if (tools.length > TOOLS_MAX) throw tooManyTools()
    const caches = frame.caches === '1h' ? '1h' : (conversation.caches ?? frame.caches)
    return {
      attachments: conversation.attachments,
      references,
      compactions: conversation.compactions,
      providerTools: [...tools, ...memberTools(this.#body)],
      caches,
      partTypes: conversation.partTypes,
      shapes: conversation.shapes,
    }
  }

  /** Whether the conversation may contain items whose ids the gateway made. */
  get ownItems(): boolean {
    return this.#searched().ownItems
  }

  #searched(): Findings {
    const walk = this.walkConversation()
    while (walk.next().done !== true);
    return this.#conversation as Findings
  }

  /** What the request contains outside its conversation. */
  #frame(): Findings {
    const found = new Findings()
    const body = this.#body
    for (const name of ['previous_response_id', 'conversation', 'container', 'thread'])
      found.refer(name, idOf(body.get(name)))
    found.refer('prompt', idOf(object(body.get('prompt'))))
    found.refer('thread', text(object(body.get('thread'))?.['previous_message_id']))
    const compared = text(object(body.get('prompt_cache_options'))?.['comparison_response_id'])
    found.refer('prompt_cache_options.comparison_response_id', compared)
    for (const skill of list(object(body.get('container'))?.['skills']))
      if (object(skill)?.['type'] !== 'anthropic') found.refer('container.skills', idOf(object(skill)?.['skill_id']))
    for (const each of list(body.get('documents'))) found.refer('documents.file_id', idOf(object(each)?.['file_id']))
    const tools = list(body.get('tools'))
    for (const tool of tools) readTool(object(tool) ?? {}, found)
    found.tools.push(...providerToolsOf(tools, 'tools', mostCalls(body), true))
    const control = object(body.get('cache_control'))
    found.cache(control !== undefined, control?.['ttl'] === '1h')
    // Longer caching may be billed as the dearest kind of cache write.
    if (object(body.get('prompt_cache_options')) || body.get('prompt_cache_retention') === '24h') found.caches = '1h'
    return found
  }

  /** Searches the conversation, step by step. */
  *walkConversation(): Generator<void> {
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
      noteShape(message, found)
      if (message.member('role')?.is('assistant')) {
        const audio = message.member('audio')
        if (audio?.isObject) found.refer('audio', viewedId(audio))
      }
      for (const id of message.member('file_ids')?.elements() ?? []) found.refer('messages.file_ids', viewedId(id))
      for (const each of message.member('attachments')?.elements() ?? [])
        if (each.isObject) found.refer('messages.attachments', viewedId(each.member('file_id')))
      yield* parts(message.member('content'), found)
    }
    yield* parts(body.view('system'), found)
    this.#conversation = found
  }

  /** Searches an item of a conversation: a message, a call, a result, or a reference. */
  *#item(item: JsonView, toolsAt: string, found: Findings): Generator<void> {
    yield* checkNames(item)
    noteShape(item, found)
    const compacted = compactionName(item.member('type')?.text, item.member('encrypted_content')?.text)
    if (compacted !== undefined && found.compactions.length < COMPACTIONS_MAX)
      found.compactions.push({ param: 'input.compaction', id: compacted })
    const id = item.member('id')?.text
    const own = id !== undefined && mayBeOwnItem(id)
    found.ownItems ||= own
    // Reasoning that the gateway named is no reference: there is nothing behind it.
    if (isBare(item) && !(own && item.member('type')?.is('reasoning')))
      found.refer('input.id', viewedId(item.member('id')))
    const tools = item.member('tools')
    if (tools?.isList) {
      if (tools.entries > ITEM_TOOLS_MAX)
        throw new GatewayError('invalid_body', {
          param: 'input',
          message: `"${toolsAt}" has more than ${ITEM_TOOLS_MAX} values and names.`,
        })
      const declared = list(tools.json)
      for (const tool of declared) readTool(object(tool) ?? {}, found)
      found.tools.push(...providerToolsOf(declared, toolsAt, mostCalls(this.#body), false))
    }
    for (const place of [item, item.member('environment')])
      found.refer('input.container_id', place?.isObject ? viewedId(place.member('container_id')) : undefined)
    yield* attached(item, found.attachments)
    yield* parts(item.member('content'), found)
    yield* parts(item.member('output'), found)
  }
}

/** Notes the shape of an element, as the table of `elements.ts` has it; its parts tell that of messages. */
function noteShape(element: JsonView, { shapes }: Findings): void {
  const type = element.member('type')?.text
  if (type !== undefined && type !== 'message') shapes.add('responses')
  const role = element.member('role')
  const calls = element.member('tool_calls')?.isList || element.member('function_call')?.isObject
  if (role?.is('tool') || role?.is('function') || calls) shapes.add('chat-completions')
}

/** Notes a tool that a part of a message declares. */
function noteDeclaredTool(definition: JsonView, found: Findings): void {
  if (definition.entries > ITEM_TOOLS_MAX)
    throw new GatewayError('invalid_body', {
      param: 'messages',
      message: `A tool in "messages" has more than ${ITEM_TOOLS_MAX} values and names.`,
    })
  const tool = object(definition.json) ?? {}
  readTool(tool, found)
  // The gateway sets no limit there.
  const unlimited = takesLimit(tool) && positive(tool['max_uses']) === undefined
  const beyond = unlimited ? 'Within a message it needs `max_uses`.' : undefined
  for (const each of providerToolsOf([tool], 'messages.tool', undefined, false))
    found.tools.push({ ...each, beyond: each.beyond ?? beyond })
}

/** Most characters of a type that tells a shape. */
const TYPE_CHARS = 32

/** Searches the parts of a message, of a tool's result, or of a document. A single part counts as a list of one. */
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
    const type = part.member('type')?.text ?? ''
    // Other vendors have an image without a source.
    if (type.length <= TYPE_CHARS && (source?.isObject || !NEEDS_SOURCE.has(type))) found.partTypes.add(type)
    // A provider may use any of them.
    for (const place of [part, part.member('file'), source]) {
      if (place && place !== part) yield* checkNames(place)
      found.refer('file_id', viewedId(place?.member('file_id')))
    }
    // Tools that are declared within a conversation.
    const changes = part.member('tool_changes')
    for (const place of [part, ...(changes?.isObject ? [changes] : (changes?.elements() ?? []))]) {
      const tool = place.isObject ? place.member('tool') : undefined
      if (!tool?.isObject) continue
      yield* checkNames(tool)
      const definition = tool.member('definition')
      for (const each of definition?.isList ? definition.elements() : [definition])
        if (each?.isObject) noteDeclaredTool(each, found)
    }
    yield* parts(part.member('content'), found)
    yield* parts(source?.member('content'), found)
  }
}

/** Names that tell what a part, an item or a tool is, what it refers to, or what it costs. */
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
  'tool',
  'definition',
  'tool_changes',
  'environment',
  'container',
  'memory_limit',
  'cache_control',
  'ttl',
])

/** Names that are checked in one step. */
const NAMES_STEP = 500

function* checkNames(part: JsonView): Generator<void> {
  let count = 0
  for (const name of part.names()) {
    checkSpelling(name, SPELLED_NAMES)
    if (++count % NAMES_STEP === 0) yield
  }
}
