/** Finds in a request the members of the table of policies, and takes them out of it. */
import type { Body } from './body.ts'
import { GatewayError } from '../errors.ts'
import { isStandard } from '../money/price.ts'
import type { Format } from './format.ts'
import { POLICIES, type Policy, type PolicyName } from './policies.ts'
import type { ProviderTool } from './provider-tools.ts'
import { list, object, text, words } from './json.ts'
import { checkCompound, checkSpelling, compounds } from './spelling.ts'

/** One thing that a request asks for beside its tokens. */
export interface Extra {
  readonly policy: PolicyName
  /** The member or entry that asks for it. */
  readonly param: string
  /** What is asked for: a condition's name, or media. */
  readonly asks: readonly string[]
  /** The tool, where it is one. */
  readonly tool?: ProviderTool
}

/** Rows that are asked for by references, of which `contents` tells. */
const BY_REFERENCE: ReadonlySet<string> = new Set([
  'previous_response_id',
  'conversation',
  'prompt',
  'container',
  'thread',
] satisfies PolicyName[])

/** Members by which a row of the table is asked for, apart from tools and references. */
const MEMBERS: ReadonlyMap<string, PolicyName> = new Map(
  (Object.entries(POLICIES) as [PolicyName, Policy][]).flatMap(([policy, { members, needs }]) =>
    needs?.kind === 'call' || BY_REFERENCE.has(policy) ? [] : members.map(name => [name, policy] as const),
  ),
)

/** The row that a reference belongs to, by the member that holds it. */
function rowOf(param: string): PolicyName {
  if (param === 'audio') return 'sound'
  const [member = ''] = param.split('.')
  return BY_REFERENCE.has(member) ? (member as PolicyName) : 'files'
}

/** Members that must not stand under another spelling: some upstreams read names without regard to case. */
const READ: ReadonlySet<string> = new Set([
  ...MEMBERS.keys(),
  ...words(`
  model messages input system instructions stream stream_options n tools tool_choice max_tokens max_completion_tokens
  max_output_tokens max_tool_calls thinking reasoning reasoning_effort web_search_options search_parameters mcp_servers plugins
  previous_response_id conversation prompt container thread
`),
])

/** Those that cost money or change the address, which some upstreams read in other spellings of compounds, too. */
const BILLED = compounds(Object.values(POLICIES).flatMap(({ members }: Policy) => members))

/**
 * What a request asks for beside its tokens.
 * @throws GatewayError invalid_body for a member that an upstream may read though it is spelled otherwise
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

/** What a member asks for; undefined where that is nothing. */
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
  if (name === 'service_tier' || name === 'speed' || name === 'inference_geo') {
    const told = text(value) ?? ''
    return told !== 'auto' && told !== '' && isStandard(told) ? undefined : [told]
  }
  return []
}

/** Takes what was found out of a request. @returns the name of what was dropped; undefined where it cannot be dropped */
export function dropExtra(body: Body, { policy, param, tool }: Extra, format: Format): string | undefined {
  if (tool && tool.index !== undefined) return undefined
  // Tools inside others, parts of messages and references hold the request together.
  if (/[.[]/.test(param) || policy === 'sound') return undefined
  if (policy === 'service_tier') body.set(param, format.standardTier)
  else if (policy === 'store') body.set(param, false)
  else body.remove(param)
  return param
}

/**
 * Takes tools out of a request's list; all other bytes stay.
 * @returns false where they are all it has, or where it insists on one of them: then nothing is changed
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
  // Some tools may be called by code alone that the provider runs.
  const callers = left.flatMap(tool => list(tool?.['allowed_callers']))
  if (
    chosen.some(each => names.has(each?.['type']) || names.has(each?.['name'])) ||
    callers.some(name => names.has(name))
  )
    return false
  body.change('tools', (tool, index) => (indexes.has(index) ? undefined : tool))
  return true
}

/** The models that a member names, as a list of names or of objects with a name; undefined for anything else. */
export function modelsNamed(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined
  // What stands beside a name would go along unread.
  const names = value.map(
    each => text(each) ?? (Object.keys(object(each) ?? {}).length === 1 ? text(object(each)?.['model']) : undefined),
  )
  return names.every(name => name !== undefined) ? names : undefined
}

/** Gives the models that a member names other names. */
export function renameModels(body: Body, member: string, rename: (name: string) => string): void {
  body.change(member, each => (typeof each === 'string' ? rename(each) : renamedModel(each, rename)))
}

/** Gives the models that advise other names. */
export function renameAdvisors(body: Body, rename: (name: string) => string): void {
  body.change('tools', tool =>
    text(object(tool)?.['type'])?.startsWith('advisor') ? renamedModel(tool, rename) : tool,
  )
}

function renamedModel(value: unknown, rename: (name: string) => string): unknown {
  const model = text(object(value)?.['model'])
  return model === undefined || rename(model) === model ? value : { ...object(value), model: rename(model) }
}

/** Tokens of a prediction, counted at two bytes each. */
export function predictedTokens(body: Body): number {
  const prediction = body.get('prediction')
  return prediction === undefined || prediction === null
    ? 0
    : Math.ceil(Buffer.byteLength(JSON.stringify(prediction)) / 2)
}
