/** Finds in a request the members of the table of policies, and takes them out of it. */
import type { Body } from '../body.ts'
import { GatewayError } from '../errors.ts'
import { isStandard } from '../ledger/price.ts'
import type { Format } from './format.ts'
import type { PolicyName } from './policies.ts'
import type { ProviderTool } from './provider-tools.ts'
import { type Json, list, object, text, words } from './reading.ts'

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

/** Members by which a row of the table is asked for, apart from tools and parts of messages. */
const MEMBERS: ReadonlyMap<string, PolicyName> = new Map<string, PolicyName>([
  ['service_tier', 'service_tier'],
  ['speed', 'speed'],
  ['inference_geo', 'inference_geo'],
  ['modalities', 'modalities'],
  ['audio', 'modalities'],
  ['prediction', 'prediction'],
  ['prompt_cache_retention', 'cache'],
  ['prompt_cache_options', 'cache'],
  ['models', 'models'],
  ['fallbacks', 'models'],
  ['background', 'background'],
  ['deferred', 'background'],
  ['store', 'store'],
  ...(
    [
      'route',
      'provider',
      'transforms',
      'preset',
      'api_base',
      'base_url',
      'api_key',
      'api_version',
      'custom_llm_provider',
      'extra_body',
      'extra_headers',
    ] as const
  ).map(name => [name, name] as const),
  ['mock_response', 'mock_response'],
])

/** References by the member that holds them; all others are files and items. */
const REFERENCES: ReadonlyMap<string, PolicyName> = new Map<string, PolicyName>([
  ['previous_response_id', 'previous_response_id'],
  ['conversation', 'conversation'],
  ['prompt', 'prompt'],
  ['container', 'container'],
  ['container.skills', 'container'],
  ['thread', 'thread'],
  ['audio', 'sound'],
])

/** Members that must not stand under another spelling: some upstreams read names without regard to case. */
const READ: ReadonlySet<string> = new Set([
  ...MEMBERS.keys(),
  ...words(`
  model messages input system instructions stream stream_options n tools tool_choice max_tokens max_completion_tokens
  max_output_tokens max_tool_calls thinking reasoning reasoning_effort web_search_options search_parameters mcp_servers plugins
  previous_response_id conversation prompt container thread
`),
])

/**
 * What a request asks for beside its tokens.
 * @throws GatewayError invalid_body for a member that an upstream may read though it is spelled otherwise
 */
export function extrasOf(body: Body): Extra[] {
  const found: Extra[] = []
  for (const name in body.json) {
    checkSpelling(name, READ, name)
    const policy = MEMBERS.get(name)
    if (policy === undefined) continue
    const asks = asked(name, body.get(name))
    if (asks) found.push({ policy, param: name, asks })
  }
  const { providerTools, references, attachments } = body.contents
  for (const tool of providerTools) found.push({ policy: tool.kind, param: tool.param, asks: [], tool })
  for (const { param } of references) found.push({ policy: REFERENCES.get(param) ?? 'files', param, asks: [] })
  if (attachments.some(({ kind }) => kind === 'sound')) found.push({ policy: 'sound', param: 'messages', asks: [] })
  list(body.get('tools')).forEach((tool, index) => {
    for (const name in object(tool)) checkSpelling(name, TYPE, `tools[${index}].${name}`)
  })
  return found
}

const TYPE: ReadonlySet<string> = new Set(['type'])

function checkSpelling(name: string, known: ReadonlySet<string>, param: string): void {
  if (!/[^a-z0-9_]/.test(name)) return
  // Both ways, as some letters have a capital of another alphabet.
  const plain = name.toUpperCase().toLowerCase()
  if (plain === name || !known.has(plain)) return
  const shown = param.slice(0, 64)
  throw new GatewayError('invalid_body', { param: shown, message: `"${shown}" is no member of this format. Did you mean "${plain}"?` })
}

/** What a member asks for; undefined where that is nothing. */
function asked(name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null || value === false || value === '') return undefined
  if (typeof value === 'object' && Object.keys(value).length === 0) return undefined
  if (name === 'modalities') {
    const media = list(value)
      .map(String)
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
  if (/[.[]/.test(param) || param === 'messages') return undefined
  if (policy === 'service_tier') body.set(param, format.standardTier)
  else if (policy === 'store') body.set(param, false)
  else body.remove(param)
  return param
}

/**
 * Takes tools out of a request's list.
 * @returns false where they are all it has, or where it insists on one of them: then nothing is changed
 */
export function dropTools(body: Body, dropped: readonly ProviderTool[]): boolean {
  const tools = list(body.get('tools'))
  const indexes = new Set(dropped.map(({ index }) => index))
  const left = tools.filter((_tool, index) => !indexes.has(index))
  if (left.length === 0) return false
  const choice = object(body.get('tool_choice'))
  const names = dropped.flatMap(({ index, type }) => [type, text(object(tools[index ?? -1])?.['name'])])
  if (choice && [choice['type'], choice['name']].some(name => name !== undefined && names.includes(name as string))) return false
  body.set('tools', left)
  return true
}

/** The models that a member names, as a list of names or of objects with a name; undefined for anything else. */
export function modelsNamed(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value)) return undefined
  const names = value.map(each => text(each) ?? text(object(each)?.['model']))
  return names.every(name => name !== undefined) ? names : undefined
}

/** The value of such a member with other names in it. */
export function withModels(value: unknown, rename: (name: string) => string): unknown {
  return list(value).map(each => (typeof each === 'string' ? rename(each) : withModel(each, rename)))
}

/** A list of tools whose advisors ask models of other names. */
export function withAdvisors(tools: unknown, rename: (name: string) => string): unknown {
  return list(tools).map(tool => (text(object(tool)?.['type'])?.startsWith('advisor') ? withModel(tool, rename) : tool))
}

function withModel(value: unknown, rename: (name: string) => string): Json {
  const json = object(value) ?? {}
  const model = text(json['model'])
  return model === undefined ? json : { ...json, model: rename(model) }
}

/** Tokens of a prediction, counted at two bytes each. */
export function predictedTokens(body: Body): number {
  const prediction = body.get('prediction')
  return prediction === undefined || prediction === null ? 0 : Math.ceil(Buffer.byteLength(JSON.stringify(prediction)) / 2)
}
