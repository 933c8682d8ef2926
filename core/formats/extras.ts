/** Finds the members of a request that the table of policies names, and removes them. */
import type { Body } from './body.ts'
import { GatewayError } from '../errors.ts'
import { isStandard } from '../money/price.ts'
import type { Format } from './format.ts'
import { POLICIES, type Policy, type PolicyName } from './policies.ts'
import { TOOL_MEMBERS, unlisted } from './members.ts'
import { isProviderTool, type ProviderTool } from './provider-tools.ts'
import type { Json } from './terms.ts'
import { list, object, text, words } from './json.ts'
import { checkCompound, checkSpelling, compounds } from './spelling.ts'

/** Something that a request asks for beside tokens. */
export interface Extra {
  readonly policy: PolicyName
  /** The member or entry that asks for it. */
  readonly param: string
  /** What it asks for: the name of a condition, or of media. */
  readonly asks: readonly string[]
  /** The tool, if it is one. */
  readonly tool?: ProviderTool
}

/** Policies for references, which `contents` finds. */
const BY_REFERENCE: ReadonlySet<string> = new Set([
  'previous_response_id',
  'conversation',
  'prompt',
  'container',
  'thread',
] satisfies PolicyName[])

/** The members of each policy, apart from tools and references. */
const MEMBERS: ReadonlyMap<string, PolicyName> = new Map(
  (Object.entries(POLICIES) as [PolicyName, Policy][]).flatMap(([policy, { members, needs }]) =>
    needs?.kind === 'call' || BY_REFERENCE.has(policy) ? [] : members.map(name => [name, policy] as const),
  ),
)

/** The policy for a reference, by the member that holds it. */
function rowOf(param: string): PolicyName {
  if (param === 'audio') return 'sound'
  const [member = ''] = param.split('.')
  return BY_REFERENCE.has(member) ? (member as PolicyName) : 'files'
}

/** Members that must not be misspelled: some upstreams ignore the case of names. */
const READ: ReadonlySet<string> = new Set([
  ...MEMBERS.keys(),
  ...words(`
  model messages input system instructions stream stream_options n tools tool_choice max_tokens max_completion_tokens
  max_output_tokens max_tool_calls thinking reasoning reasoning_effort web_search_options search_parameters mcp_servers plugins
  previous_response_id conversation prompt container thread
`),
])

/** Members that cost money or change the address. Some upstreams also accept them without underscores. */
const BILLED = compounds(Object.values(POLICIES).flatMap(({ members }: Policy) => members))

/**
 * Finds what a request asks for beside tokens.
 * @throws GatewayError invalid_body for a misspelled member that an upstream may accept
 */
export function extrasOf(body: Body): Extra[] {
  const found: Extra[] = []
  const tools = body.get('tools')
  if (tools !== undefined && tools !== null && (!Array.isArray(tools) || !tools.every(object))) {
    throw new GatewayError('invalid_body', { param: 'tools', message: '"tools" must be a list of objects.' })
  }
  for (const name of body.names) {
    checkSpelling(name, READ)
    checkCompound(name, BILLED)
    const policy = MEMBERS.get(name)
    if (policy === undefined) continue
    const asks = asked(name, body.get(name))
    if (asks) found.push({ policy, param: name, asks })
  }
  const { providerTools, references, attachments } = body.contents
  for (const tool of providerTools) found.push({ policy: tool.kind, param: tool.param, asks: [], tool })
  for (const { param } of references) found.push({ policy: rowOf(param), param, asks: [] })
  if (attachments.some(({ kind }) => kind === 'sound'))
    found.push({ policy: 'sound', param: !body.has('messages') ? 'input' : 'messages', asks: [] })
  return found
}

/** What a member asks for; undefined if it asks for nothing. */
function asked(name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null || value === false || value === '') return undefined
  if (typeof value === 'object' && Object.keys(value).length === 0) return undefined
  if (name === 'modalities') {
    const media = list(value)
      .map(each => text(each) ?? 'unknown')
      .filter(each => each !== 'text')
    return Array.isArray(value) && media.length === 0 ? undefined : media
  }
  if (name === 'audio') return ['audio']
  // Without a message there is nothing to compare with.
  if (name === 'diagnostics' && (object(value)?.['previous_message_id'] ?? null) === null) return undefined
  if (name === 'service_tier' || name === 'speed' || name === 'inference_geo') {
    const condition = text(value) ?? ''
    return condition !== 'auto' && condition !== '' && isStandard(condition) ? undefined : [condition]
  }
  return []
}

/** Removes what was found from a request. @returns the name of what was removed; undefined if it cannot be removed */
export function dropExtra(body: Body, { policy, param, tool }: Extra, format: Format): string | undefined {
  if (tool && tool.index !== undefined) return undefined
  // Tools inside others, parts of messages, and references cannot be removed alone.
  if (/[.[]/.test(param) || policy === 'sound') return undefined
  if (policy === 'service_tier') body.set(param, format.standardTier)
  else if (policy === 'store') body.set(param, false)
  else body.remove(param)
  return param
}

/**
 * Removes tools from the list of a request.
 * @returns false, without any change, if no tool would be left or the request insists on one of them
 */
export function dropTools(body: Body, dropped: readonly ProviderTool[]): boolean {
  const tools = list(body.get('tools')).map(object)
  const indexes = new Set(dropped.map(({ index }) => index))
  const left = tools.filter((_tool, index) => !indexes.has(index))
  if (left.length === 0) return false
  const names = new Set<unknown>(dropped.flatMap(({ index, type }) => [type, tools[index ?? -1]?.['name'] ?? type]))
  const choice = object(body.get('tool_choice'))
  const chosen = [
    choice,
    ...[choice, object(choice?.['allowed_tools'])].flatMap(each => list(each?.['tools'])).map(object),
  ]
  // Some tools may only be called by code that the provider runs.
  const callers = left.flatMap(tool => list(tool?.['allowed_callers']))
  if (
    chosen.some(each => names.has(each?.['type']) || names.has(each?.['name'])) ||
    callers.some(name => names.has(name))
  )
    return false
  body.change('tools', (tool, index) => (indexes.has(index) ? undefined : tool))
  return true
}

/**
 * Removes what is not listed: members, and members of the client's own tools.
 * @param passes the members that the file lets through
 * @returns the names of what was removed
 */
export function dropUnlisted(body: Body, format: Format, passes: ReadonlySet<string>): readonly string[] {
  const members = unlisted(format.name, body.names, passes)
  for (const name of members) body.remove(name)
  const tools = body.get('tools')
  if (!Array.isArray(tools) || tools.every(tool => isListedTool(object(tool), passes))) return members
  const ofTools = new Set<string>()
  body.change('tools', tool => listedTool(tool, passes, ofTools))
  return [...members, ...[...ofTools].map(name => `tools.${name}`)]
}

/** Whether a tool has listed members only, or is the provider's, about which policies decide. */
function isListedTool(tool: Json | undefined, passes: ReadonlySet<string>): boolean {
  if (!tool || isProviderTool(tool)) return true
  const hasOnlyListed = [tool, object(tool['function']), object(tool['custom'])].every(each =>
    Object.keys(each ?? {}).every(name => isListedMember(name, passes)),
  )
  return hasOnlyListed && list(tool['tools']).every(inner => isListedTool(object(inner), passes))
}

function isListedMember(name: string, passes: ReadonlySet<string>): boolean {
  return TOOL_MEMBERS.has(name) || passes.has(name)
}

/**
 * Returns a tool with its listed members only. A value that is not an object stays as it is.
 * @param dropped gets the names of the others
 */
function listedTool(value: unknown, passes: ReadonlySet<string>, dropped: Set<string>): unknown {
  const tool = object(value)
  if (!tool || isListedTool(tool, passes)) return value
  const left = (of: unknown): unknown => {
    const members = object(of)
    if (!members) return of
    for (const name in members) if (!isListedMember(name, passes)) dropped.add(name)
    return Object.fromEntries(Object.entries(members).filter(([name]) => isListedMember(name, passes)))
  }
  const { function: declared, custom, tools, ...rest } = left(tool) as Json
  return {
    ...rest,
    ...(declared !== undefined && { function: left(declared) }),
    ...(custom !== undefined && { custom: left(custom) }),
    ...(tools !== undefined && {
      tools: Array.isArray(tools) ? tools.map(inner => listedTool(inner, passes, dropped)) : tools,
    }),
  }
}

/** The models that a member names, as names or as objects with only a name; undefined for anything else. */
export function modelsNamed(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined
  // Further members beside a name would pass without being checked.
  const names = value.map(
    each => text(each) ?? (Object.keys(object(each) ?? {}).length === 1 ? text(object(each)?.['model']) : undefined),
  )
  return names.every(name => name !== undefined) ? names : undefined
}

/** Renames the models that a member names. */
export function renameModels(body: Body, member: string, rename: (name: string) => string): void {
  body.change(member, each => (typeof each === 'string' ? rename(each) : renamedModel(each, rename)))
}

/** Renames the models of advisors. */
export function renameAdvisors(body: Body, rename: (name: string) => string): void {
  body.change('tools', tool =>
    text(object(tool)?.['type'])?.startsWith('advisor') ? renamedModel(tool, rename) : tool,
  )
}

function renamedModel(value: unknown, rename: (name: string) => string): unknown {
  const model = text(object(value)?.['model'])
  return model === undefined || rename(model) === model ? value : { ...object(value), model: rename(model) }
}

/** Whether the provider may read the input again without a tool of its own: it searches for tools, or compacts. */
export function mayReadAgain(body: Body): boolean {
  const compacts = JSON.stringify(body.get('context_management') ?? null).includes('"compact')
  return (
    compacts ||
    (body.get('compaction') ?? null) !== null ||
    list(body.get('tools')).some(tool => isHostedToolSearch(object(tool)))
  )
}

function isHostedToolSearch(tool: Json | undefined): boolean {
  return text(tool?.['type'])?.startsWith('tool_search') === true && tool?.['execution'] !== 'client'
}

/** Tokens of a prediction, at two bytes a token. */
export function predictedTokens(body: Body): number {
  const prediction = body.get('prediction')
  return prediction === undefined || prediction === null
    ? 0
    : Math.ceil(Buffer.byteLength(JSON.stringify(prediction)) / 2)
}
