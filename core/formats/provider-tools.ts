/** Tools that a provider runs: how requests ask for them, and how replies report their calls. */
import type { CallName, Calls } from '../money/price.ts'
import type { SeenCall, Json, RequestMembers, SeenRound } from './terms.ts'
import { POLICIES, type Policy } from './policies.ts'
import { GatewayError, invalidBody } from '../errors.ts'
import { indexOf, object, positive, text } from './json.ts'

/** A tool that a request lets the provider run. */
export interface ProviderTool {
  /** What it is billed as. An advisor is billed as the model that it asks. */
  readonly kind: CallName | 'advisor'
  /** The member or entry that asks for it, such as `tools[2]` or `web_search_options`. */
  readonly param: string
  /** Its type, or the name of the member. */
  readonly type: string
  /** Its index in the list of tools; undefined for members, and for tools inside others. */
  readonly index: number | undefined
  /** How often it may be run at most; undefined if the request does not say. */
  readonly most: number | undefined
  /** The model that an advisor asks. */
  readonly model: string | undefined
  /** What it asks for that its fee does not cover, as a sentence; undefined for nothing. */
  readonly beyond: string | undefined
}

/** Types of tools that the client runs, with their dates. The provider may run all others. */
const CLIENT_TOOLS =
  /^(?:function|custom|namespace|programmatic_tool_calling|tool_search(?:_tool_[a-z]+\d*)?|local_shell|shell|apply_patch|(?:computer|browser)_toolset|computer(?:[_-]use)?|bash|text_editor|memory)(?:[_-]preview)?(?:_\d{8}|_\d{4}_\d{2}_\d{2})?$/
/** Provider tools that accept a limit of their uses. */
const LIMITED_TOOLS = /^(?:web_search|web_fetch|advisor)_\d{8}$/

/** Most provider tools that one request may declare, in all its lists. */
export const TOOLS_MAX = 1000

/** Members that let the provider run tools without declaring any. */
const MEMBERS: readonly (readonly [name: string, kind: CallName])[] = (
  Object.entries(POLICIES) as [string, Policy][]
).flatMap(([policy, { members, needs }]) =>
  needs?.kind === 'call' ? members.map(name => [name, policy as CallName] as const) : [],
)

/** The container size that providers use by default. */
const CONTAINER_SIZE = '1g'

const KINDS: readonly (readonly [RegExp, CallName | 'advisor'])[] = [
  [/^(?:web|google|x|live|browser)_search/, 'webSearch'],
  [/^(?:web_fetch|url_context|open_page)/, 'webFetch'],
  [/^(?:file|collections|document|attachment)_search|^retrieval/, 'fileSearch'],
  [
    /^(?:code_interpreter|code_execution|bash_code_execution|text_editor_code_execution|shell|container)/,
    'codeExecution',
  ],
  [/^image_gen/, 'imageGeneration'],
  [/^mcp/, 'mcp'],
  [/^advisor/, 'advisor'],
]

/** What a tool, an item or a counter of this name is billed as. */
function kindOf(name: string): CallName | 'advisor' {
  return KINDS.find(([pattern]) => pattern.test(name))?.[1] ?? 'otherTools'
}

/** Whether the provider runs a tool. */
export function isProviderTool(tool: Json): boolean {
  const { type, environment } = tool
  // The client's own tools have a name, with or without a type.
  if (type === undefined || type === null) return text(tool['name']) === undefined && !object(tool['function'])
  if (typeof type !== 'string' || !CLIENT_TOOLS.test(type)) return true
  return environment !== undefined && environment !== null && object(environment)?.['type'] !== 'local'
}

/** Whether a tool of a messages request accepts a limit of its uses. */
export function takesLimit(tool: Json | undefined): boolean {
  return LIMITED_TOOLS.test(text(tool?.['type']) ?? '')
}

/** What a tool asks for that its fee does not cover. */
function beyondFee(tool: Json, type: string): string | undefined {
  const sizes = [object(tool['container']), object(tool['environment'])].map(
    where => where?.['memory_limit'] ?? CONTAINER_SIZE,
  )
  if (sizes.some(size => size !== CONTAINER_SIZE))
    return 'It asks for a larger container than the one that has a price here.'
  return kindOf(type) === 'imageGeneration' && (tool['model'] ?? null) !== null
    ? 'It asks for another model, which has no price here.'
    : undefined
}

/**
 * The provider tools in a list, and in the lists inside its tools.
 * @param at where the list stands, for errors
 * @param most most calls that the request allows, for all tools together
 * @param outermost whether it is the request's own list
 * @throws GatewayError invalid_body for more than TOOLS_MAX of them
 */
export function providerToolsOf(
  tools: readonly unknown[],
  at: string,
  most: number | undefined,
  outermost: boolean,
): ProviderTool[] {
  const found: ProviderTool[] = []
  const walk = (inner: readonly unknown[], where: string, own: boolean): void => {
    inner.forEach((each, index) => {
      const tool = object(each)
      if (!tool) return
      const param = `${where}[${index}]`
      if (isProviderTool(tool)) {
        if (found.length >= TOOLS_MAX) throw tooManyTools()
        const type = text(tool['type']) ?? Object.keys(tool)[0] ?? ''
        found.push({
          kind: text(tool['type']) === undefined ? 'otherTools' : kindOf(type),
          param,
          type,
          index: own ? index : undefined,
          most: takesLimit(tool) ? callLimit(tool['max_uses'], `${param}.max_uses`) : most,
          model: text(tool['model']),
          beyond: beyondFee(tool, type),
        })
      }
      walk(toolsIn(tool, param), `${param}.tools`, false)
    })
  }
  walk(tools, at, outermost)
  return found
}

/** Returns the tools inside a tool. @throws GatewayError invalid_body if the member is not a list */
function toolsIn(tool: Json, param: string): readonly unknown[] {
  const inner = tool['tools'] ?? []
  if (!Array.isArray(inner)) throw invalidBody(`"${param}.tools" must be a list.`, `${param}.tools`)
  return inner as readonly unknown[]
}

/** The most calls that a request allows its provider, for all tools together. @throws GatewayError invalid_body */
export function mostCalls(body: Pick<RequestMembers, 'get' | 'has'>): number | undefined {
  return body.has('messages') ? undefined : callLimit(body.get('max_tool_calls'), 'max_tool_calls')
}

/**
 * Returns a limit of calls; undefined for none. Providers take other values than their documentation says in different
 * ways: as no call, as no limit, or as an error.
 * @throws GatewayError invalid_body
 */
function callLimit(value: unknown, param: string): number | undefined {
  if (value === undefined || value === null) return undefined
  const most = positive(value)
  if (most === undefined)
    throw new GatewayError('invalid_body', { param, message: `"${param}" must be a whole number above 0.` })
  return most
}

/** The error for a request that declares more than TOOLS_MAX tools. */
export function tooManyTools(): GatewayError {
  return new GatewayError('invalid_body', {
    param: 'tools',
    message: `The request declares more than ${TOOLS_MAX} tools that the provider runs.`,
  })
}

/** What a request lets its provider run by members that declare no tool. */
export function memberTools(body: Pick<RequestMembers, 'get' | 'has'>): ProviderTool[] {
  const most = mostCalls(body)
  return MEMBERS.flatMap(([name, kind]): ProviderTool[] => {
    const value = body.get(name)
    if (
      value === undefined ||
      value === null ||
      value === false ||
      (Array.isArray(value) && value.length === 0) ||
      object(value)?.['mode'] === 'off'
    )
      return []
    return [{ kind, param: name, type: name, index: undefined, most, model: undefined, beyond: undefined }]
  })
}

/**
 * Calls by the names of a vendor's counters. A counter of zero means that there was no call.
 * @param of reads a counter
 */
export function callsNamed(counters: Json, of: (name: string) => number): Calls {
  const calls: Partial<Record<CallName, number>> = {}
  for (const name of Object.keys(counters)) {
    const kind = kindOf(name)
    // Searching for a tool is not a call of it, and an advisor is billed by its tokens.
    if (!name.startsWith('tool_search') && kind !== 'advisor') calls[kind] = (calls[kind] ?? 0) + of(name)
  }
  return calls
}

/** Names of a provider's own searches that it reports as calls of custom tools. */
const CUSTOM_SEARCHES = /^x_(?:(?:keyword|semantic|user)_search|thread_fetch)$/

function isCustomSearch(item: Json | undefined): boolean {
  return item?.['type'] === 'custom_tool_call' && CUSTOM_SEARCHES.test(text(item['name']) ?? '')
}

/** Items of a reply for tools that the client runs. */
const CLIENT_CALLS = /^(?:function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call$/

/**
 * The call that an item of a responses reply reports; undefined if it reports none.
 * @param place the index of the item; its id if the reply came whole
 * @param begun whether the item has only begun, and may not say yet what it is
 */
export function callOfItem(item: Json | undefined, place: unknown, begun = false): SeenCall | undefined {
  const type = text(item?.['type'])
  if (type === undefined || !type.endsWith('_call')) return undefined
  const environment = object(item?.['environment'])
  const container = text(item?.['container_id']) ?? text(environment?.['container_id'])
  // Some upstreams give an item another id in each event.
  const id = typeof place === 'number' ? `item ${place}` : (text(item?.['id']) ?? 'item')
  if (type === 'shell_call') {
    // If the item does not say where it runs, only the request tells.
    const where = text(environment?.['type'])
    return where === 'local'
      ? undefined
      : { kind: 'codeExecution', id: container ?? 'shell', ...(where === undefined && { ifAsked: true }) }
  }
  if (isCustomSearch(item)) return { kind: 'webSearch', id, ifAsked: true }
  // A call that failed made nothing.
  if (CLIENT_CALLS.test(type) || item?.['status'] === 'failed') return undefined
  const kind = kindOf(type)
  // Everything that runs in one container is billed once.
  if (kind === 'codeExecution') return container === undefined && begun ? undefined : { kind, id: container ?? id }
  const action = text(object(item?.['action'])?.['type'])
  // Only the search is billed, and not what is opened of its results.
  if (kind === 'webSearch' && (action === undefined ? begun : action !== 'search')) return undefined
  return { kind, id }
}

/** The call that a block of a messages reply reports; undefined if it reports none. */
export function callOfBlock(block: Json | undefined, index: unknown): SeenCall | undefined {
  const { type } = block ?? {}
  const id = text(block?.['id']) ?? `block ${indexOf(index)}`
  if (type === 'mcp_tool_use') return { kind: 'mcp', id }
  const name = text(block?.['name']) ?? ''
  if (type !== 'server_tool_use' || name.startsWith('tool_search')) return undefined
  const kind = kindOf(name)
  // A reply has one container, for all tools that run in it.
  return kind === 'codeExecution' ? { kind, id: 'container', ifAsked: true } : { kind, id }
}

/**
 * The members of items that contain what the model reads of a call's results. What a web search lists of its results is
 * shorter than what the model reads.
 */
const RESULT_MEMBERS: Readonly<Record<string, string>> = {
  file_search_call: 'results',
  code_interpreter_call: 'outputs',
  mcp_call: 'output',
}

/**
 * Returns the round that an item of a responses reply begins or ends.
 * @param place as for `callOfItem`
 * @param begun as for `callOfItem`
 */
export function roundOfItem(item: Json | undefined, place: unknown, begun = false): SeenRound | undefined {
  const type = text(item?.['type']) ?? ''
  const id = typeof place === 'number' ? `item ${place}` : (text(item?.['id']) ?? 'item')
  // The end of an item may be the first event about it.
  const event = begun ? { begins: true } : { ends: true }
  if (isCustomSearch(item)) return { kind: 'webSearch', id, ...event, ifAsked: true }
  if (type === 'compaction' || (type === 'tool_search_call' && item?.['execution'] !== 'client'))
    return { kind: 'reread', id, ...event }
  if (!type.endsWith('_call') || (CLIENT_CALLS.test(type) && type !== 'shell_call')) return undefined
  const where = text(object(item?.['environment'])?.['type'])
  if (type === 'shell_call' && where === 'local') return undefined
  const member = RESULT_MEMBERS[type]
  const found = member === undefined ? undefined : item?.[member]
  return {
    kind: type === 'shell_call' ? 'codeExecution' : kindOf(type),
    id,
    ...event,
    ...(begun && !callOfItem(item, place, true) && { isOpen: true }),
    ...(type === 'shell_call' && where === undefined && { ifAsked: true }),
    ...resultBytes(found),
  }
}

/** Returns the round that a block of a messages reply begins, or the results that it carries. */
export function roundOfBlock(block: Json | undefined, index: unknown): SeenRound | undefined {
  const type = text(block?.['type']) ?? ''
  const name = type === 'mcp_tool_use' ? 'mcp' : (text(block?.['name']) ?? '')
  const isCall = type === 'mcp_tool_use' || type === 'server_tool_use'
  const isResult = type.endsWith('_tool_result')
  if (type === 'compaction') return { kind: 'reread', id: `block ${indexOf(index)}`, begins: true, ends: true }
  if (!isCall && !isResult) return undefined
  const id = text(block?.[isCall ? 'id' : 'tool_use_id']) ?? `block ${indexOf(index)}`
  const event = isCall ? { begins: true } : { ends: true }
  if ((isCall ? name : type).startsWith('tool_search')) return { kind: 'reread', id, ...event }
  return { kind: kindOf(isCall ? name : type), id, ...event, ...(isResult && resultBytes(block?.['content'])) }
}

function resultBytes(found: unknown): { resultBytes?: number } {
  return found === undefined || found === null ? {} : { resultBytes: Buffer.byteLength(JSON.stringify(found)) }
}
