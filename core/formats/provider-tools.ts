/** Tools that a provider runs by itself: how requests ask for them, and how replies tell that they were run. */
import { CALL_NAMES, type CallName, type Calls } from '../ledger/price.ts'
import { type Json, list, object, positive, text } from './reading.ts'

/** One tool that a request lets the provider run. */
export interface ProviderTool {
  /** What it is billed as; an advisor is billed as the model that it asks. */
  readonly kind: CallName | 'advisor'
  /** The member or entry that asks for it, such as `tools[2]` or `web_search_options`. */
  readonly param: string
  /** The name of its type, or of the member. */
  readonly type: string
  /** Its place in the list of tools; undefined for members, and for tools inside others. */
  readonly index: number | undefined
  /** The most times it may be run; undefined where the request does not say. */
  readonly most: number | undefined
  /** The model that an advisor asks. */
  readonly model: string | undefined
}

/** Types of tools that the client itself runs. All others may be run by the provider. */
const CLIENT_TOOLS = /^(?:function|custom|namespace|tool_search|local_shell|shell|apply_patch|computer|bash|text_editor|memory)(?:_|$)/

/** Members that let the provider run tools without declaring any. */
const MEMBERS: Readonly<Record<string, CallName>> = {
  mcp_servers: 'mcp',
  web_search_options: 'webSearch',
  search_parameters: 'webSearch',
  plugins: 'otherTools',
}

const KINDS: readonly (readonly [RegExp, CallName | 'advisor'])[] = [
  [/^(?:web|google|x|live|browser)_search/, 'webSearch'],
  [/^(?:web_fetch|url_context|open_page)/, 'webFetch'],
  [/^(?:file|collections|document|attachment)_search|^retrieval/, 'fileSearch'],
  [/^(?:code_interpreter|code_execution|bash_code_execution|text_editor_code_execution|shell|container)/, 'codeExecution'],
  [/^image_gen/, 'imageGeneration'],
  [/^mcp/, 'mcp'],
  [/^advisor/, 'advisor'],
]

/** What a tool, an item or a counter of this name is billed as. */
export function kindOf(name: string): CallName | 'advisor' {
  return KINDS.find(([pattern]) => pattern.test(name))?.[1] ?? 'otherTools'
}

/** Whether a tool is run by the provider. */
export function isProviderTool(tool: Json): boolean {
  const type = text(tool['type'])
  return type !== undefined && (!CLIENT_TOOLS.test(type) || object(tool['environment']) !== undefined)
}

/** The tools that a request lets its provider run. */
export function providerToolsIn(request: Json): ProviderTool[] {
  const most = positive(request['max_tool_calls'])
  const found: ProviderTool[] = []
  const walk = (tools: readonly unknown[], at: string, outermost: boolean): void => {
    tools.forEach((each, index) => {
      const tool = object(each)
      if (!tool) return
      const param = `${at}[${index}]`
      if (isProviderTool(tool)) {
        const type = text(tool['type']) ?? ''
        found.push({
          kind: kindOf(type),
          param,
          type,
          index: outermost ? index : undefined,
          most: positive(tool['max_uses']) ?? most,
          model: text(tool['model']),
        })
      }
      walk(list(tool['tools']), `${param}.tools`, false)
    })
  }
  walk(list(request['tools']), 'tools', true)
  list(request['input']).forEach((item, index) => walk(list(object(item)?.['tools']), `input[${index}].tools`, false))
  for (const [name, kind] of Object.entries(MEMBERS)) {
    const value = request[name]
    if (value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)) continue
    found.push({ kind, param: name, type: name, index: undefined, most, model: undefined })
  }
  return found
}

/** Counts with another call in them. */
export function withCall(calls: Calls, kind: CallName | 'advisor', times = 1): Calls {
  // An advisor is billed by its tokens.
  return kind === 'advisor' || times <= 0 ? calls : { ...calls, [kind]: (calls[kind] ?? 0) + times }
}

/** The greater of two counts of each kind; undefined where there are no calls. */
export function mostCalls(one: Calls = {}, other: Calls = {}): Calls | undefined {
  const counts = CALL_NAMES.flatMap(name => {
    const count = Math.max(one[name] ?? 0, other[name] ?? 0)
    return count > 0 ? [[name, count]] : []
  })
  return counts.length === 0 ? undefined : Object.fromEntries(counts)
}

/** Items of a reply that tell of a tool's call by the client. */
const CLIENT_CALLS = /^(?:function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call$/

/** The calls that an item of a responses reply tells of. */
export function callOfItem(item: Json | undefined): CallName | 'advisor' | undefined {
  const type = text(item?.['type'])
  if (type === undefined || !type.endsWith('_call')) return undefined
  // A shell may run in a container of the provider's.
  if (type === 'shell_call' && (text(object(item?.['environment'])?.['type']) ?? 'local') !== 'local') return 'codeExecution'
  return CLIENT_CALLS.test(type) ? undefined : kindOf(type)
}

/** The calls of all items of a responses reply: a container that several of them ran in counts once. */
export function callsOfItems(items: readonly unknown[]): Calls {
  const containers = new Set<string>()
  return items.map(object).reduce<Calls>((calls, item) => {
    const kind = callOfItem(item)
    const container = text(item?.['container_id'])
    if (kind === undefined || (container !== undefined && containers.has(container))) return calls
    if (container !== undefined) containers.add(container)
    return withCall(calls, kind)
  }, {})
}

/** How often a request's tools are run at most, by kind: as far as it says, and so many times where it does not. */
export function mostRuns(tools: readonly ProviderTool[], unsaid: number): Calls {
  return tools.reduce((calls, { kind, most }) => withCall(calls, kind, Math.min(most ?? unsaid, unsaid)), {} as Calls)
}
