/** Tools and reasoning in the requests of all formats. */
import { arrayAt, boolean, cacheMark, objectAt, present, refused, textAt, untranslatable } from './decoding.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { CacheMark, ModelTraits, Thinking, Tool, ToolChoice } from './neutral.ts'
import { isProviderTool } from '../provider-tools.ts'
import type { FormatName, Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** The input schema of a freeform tool, where tools take JSON only. */
export const FREEFORM_SCHEMA: Json = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole input of the tool, as plain text.' } },
  required: ['input'],
  additionalProperties: false,
}

const FUNCTION = ['type', 'name', 'description', 'strict', 'cache_control']

/** A tool that takes JSON. @param schema the member that the format has for its schema */
export function functionTool(tool: Json, schema: string, at: string, dropped: DroppedFields): Tool {
  const { name, description, strict } = tool
  dropped.within(tool, at, new Set([...FUNCTION, schema]))
  return present({
    name: textAt(name, `${at}.name`),
    description: text(description),
    schema: object(tool[schema]),
    strict: boolean(strict),
    at: `${at}.${schema}`,
    freeform: false,
  })
}

const FREEFORM = new Set(['type', 'name', 'description', 'format', 'cache_control'])

/** A tool that takes text. */
function freeformTool(tool: Json, at: string, dropped: DroppedFields): Tool {
  dropped.within(tool, at, FREEFORM)
  const format = object(tool['format'])
  const { syntax = 'lark', definition } = object(format?.['grammar']) ?? format ?? {}
  return present({
    name: textAt(tool['name'], `${at}.name`),
    description: text(tool['description']),
    at,
    freeform: true,
    grammar: typeof definition === 'string' ? { syntax: String(syntax), definition } : undefined,
  })
}

/** The description of a tool, with its grammar, for formats whose tools take JSON only. */
export function described({ description, grammar }: Pick<Tool, 'description' | 'grammar'>): string | undefined {
  if (!grammar) return description || undefined
  return `${description ?? ''}\n\nThe input must match this grammar:\n${grammar.definition}`
}

/** The names of the tools whose input is sent as text, for a model that takes such tools. */
export function textTools(tools: readonly Tool[], { textTools: takes }: Pick<ModelTraits, 'textTools'>): Set<string> {
  return new Set(takes ? tools.flatMap(({ freeform, name }) => (freeform ? [name] : [])) : [])
}

/** A tool that only its provider can run, and where the request names it. */
interface SkippedTool {
  readonly type: string
  readonly param: string
}

/**
 * Notes a tool that cannot be translated. One that the client runs, such as a shell, is dropped: what calls it in the
 * history is carried.
 */
function skipTool(tool: Json, param: string, skippedTools: SkippedTool[], dropped: DroppedFields): void {
  const type = text(tool['type']) ?? 'unknown'
  if (isProviderTool(tool)) skippedTools.push({ type, param })
  else dropped.add(`tools.${type}`)
}

/**
 * Refuses a request all of whose tools only a provider could run, and notes them as dropped otherwise.
 * @throws GatewayError invalid_body
 */
function providerTools(skippedTools: readonly SkippedTool[], tools: readonly Tool[], dropped: DroppedFields): void {
  const [first] = skippedTools
  if (first && tools.length === 0) throw untranslatable(first.param, `the provider runs "${first.type}" itself`)
  for (const { type } of skippedTools) dropped.add(`tools.${type}`)
}

/** The tools that a choice allows. @throws GatewayError invalid_body if it allows none of the tools */
function allowed(tools: readonly Tool[], names: readonly string[]): Tool[] {
  const wanted = new Set(names)
  const found = tools.filter(({ name }) => wanted.has(name))
  if (found.length === 0) throw refused('tool_choice', '"tool_choice" allows no tool that can be translated.')
  return found
}

/** Checks that a choice names a tool that exists. @throws GatewayError invalid_body */
export function checkChoice(choice: ToolChoice | undefined, tools: readonly Tool[]): void {
  if (choice?.kind === 'tool' && !tools.some(({ name }) => name === choice.name)) {
    throw refused(
      'tool_choice',
      `"tool_choice" names "${choice.name.slice(0, 100)}", which is not one of the tools that can be translated.`,
    )
  }
}

/** The shapes of tools that clients run, whatever the path, and the format that each is the own one of. The first that fits counts. */
export const TOOL_SHAPES = [
  ['namespace', 'responses', 'type `namespace`', (tool: Json) => tool['type'] === 'namespace'],
  ['nested', 'chat-completions', 'a member `function`', (tool: Json) => isType(tool, 'function') && object(tool['function']) !== undefined], // prettier-ignore
  ['nested text', 'chat-completions', 'a member `custom`', (tool: Json) => tool['type'] === 'custom' && object(tool['custom']) !== undefined], // prettier-ignore
  [
    'schema',
    'messages',
    'a name, and `input_schema` or nothing else',
    (tool: Json) =>
      isType(tool, 'custom') &&
      ('input_schema' in tool || (tool['type'] === undefined && !('parameters' in tool) && 'name' in tool)),
  ],
  [
    'flat',
    'responses',
    'type `function`, or `parameters`',
    (tool: Json) => tool['type'] === 'function' || (isType(tool, 'function') && 'parameters' in tool),
  ],
  ['flat text', 'responses', 'type `custom`', (tool: Json) => tool['type'] === 'custom'],
] as const
/** One of them. */
export type ToolShape = (typeof TOOL_SHAPES)[number][0]

/** Whether a tool has a type, or none. */
function isType({ type }: Json, name: string): boolean {
  return type === name || type === undefined || type === null
}

function rowOf(tool: Json): (typeof TOOL_SHAPES)[number] | undefined {
  return TOOL_SHAPES.find(([, , , fits]) => fits(tool))
}

/** Returns the shape of a tool. Undefined for one that the provider runs, and for an unknown one. */
export function shapeOfTool(tool: Json): ToolShape | undefined {
  return rowOf(tool)?.[0]
}

/** Whether a tool has the shape of another format. */
export function isForeignTool(value: unknown, own: FormatName): boolean {
  const row = rowOf(object(value) ?? {})
  return row !== undefined && row[1] !== own
}

/** What is noted of tools that cannot be translated, and the namespace that the tools are in. */
interface ToolPlace {
  readonly skippedTools: SkippedTool[]
  readonly dropped: DroppedFields
  readonly space?: string
}

/**
 * Decodes tools of any shape. Tools that only the provider can run are dropped, or refused if there are no others.
 * @param first the index of the first of them
 * @throws GatewayError invalid_body
 */
export function decodeTools(value: readonly unknown[], dropped: DroppedFields, first = 0): Tool[] {
  const skippedTools: SkippedTool[] = []
  const tools = value.flatMap((entry, index) => decodeTool(entry, `tools[${first + index}]`, { skippedTools, dropped }))
  providerTools(skippedTools, tools, dropped)
  return tools
}

const NESTED = new Set(['type', 'function', 'custom', 'cache_control'])

function decodeTool(entry: unknown, at: string, place: ToolPlace): Tool[] {
  const { skippedTools, dropped, space } = place
  const tool = objectAt(entry, at)
  const shape = shapeOfTool(tool)
  switch (shape) {
    case 'namespace': {
      const name = textAt(tool['name'], `${at}.name`)
      // The description of a namespace has no counterpart.
      if (tool['description']) dropped.add('tools.namespace.description')
      return arrayAt(tool['tools'], `${at}.tools`).flatMap((inner, index) =>
        decodeTool(inner, `${at}.tools[${index}]`, { ...place, space: name }),
      )
    }
    case 'nested':
    case 'nested text': {
      dropped.within(tool, at, NESTED)
      const member = shape === 'nested' ? 'function' : 'custom'
      const inner = objectAt(tool[member], `${at}.${member}`)
      const made = shape === 'nested' ? functionTool(inner, 'parameters', `${at}.${member}`, dropped) : freeformTool(inner, `${at}.${member}`, dropped) // prettier-ignore
      return [placed(made, cacheMark(tool, dropped) ?? cacheMark(inner, dropped), space)]
    }
    case 'schema':
      dropped.have(tool, ['cache_control'])
      return [functionTool(tool, 'input_schema', at, dropped)]
    case 'flat':
      return [placed(functionTool(tool, 'parameters', at, dropped), cacheMark(tool, dropped), space)]
    case 'flat text':
      return [placed(freeformTool(tool, at, dropped), cacheMark(tool, dropped), space)]
    case undefined:
      skipTool(tool, at, skippedTools, dropped)
      return []
  }
}

function placed(tool: Tool, cache: CacheMark | undefined, space: string | undefined): Tool {
  const whole = cache ? { ...tool, cache } : tool
  return space === undefined ? whole : { ...whole, name: flatName(space, tool.name), home: { space, name: tool.name } }
}

/** The name of a tool in formats without namespaces. */
export function flatName(space: string | undefined, name: string): string {
  return space === undefined ? name : `${space}__${name}`
}

/** The name and the namespace of a tool, as the client declared them. */
export function homeName(name: string, tool: Pick<Tool, 'home'> | undefined): { name: string; namespace?: string } {
  const home = tool?.home
  return home ? { name: home.name, namespace: home.space } : { name }
}

const CHOICES: Readonly<Record<string, ToolChoice>> = {
  auto: { kind: 'auto' },
  none: { kind: 'none' },
  required: { kind: 'any' },
  any: { kind: 'any' },
}

/** The shapes of choices, whatever the path, and the formats that have them. The first that fits counts. */
export const CHOICE_SHAPES: readonly (readonly [
  readonly FormatName[],
  words: string,
  fits: (choice: unknown) => boolean,
])[] = [
  [['chat-completions', 'responses'], 'a word', choice => typeof choice === 'string' && Object.hasOwn(CHOICES, choice)],
  [['chat-completions'], 'a member `function` or `custom`', choice => (object(choice)?.['function'] ?? object(choice)?.['custom']) !== undefined], // prettier-ignore
  [['messages'], 'type `auto`, `any`, `none` or `tool`', choice => /^(?:auto|any|none|tool)$/.test(text(object(choice)?.['type']) ?? '')], // prettier-ignore
  [['responses'], 'type `function` or `custom`', choice => /^(?:function|custom)$/.test(text(object(choice)?.['type']) ?? '')], // prettier-ignore
]

/** Whether a choice has the shape of another format. */
export function isForeignChoice(choice: unknown, own: FormatName): boolean {
  return CHOICE_SHAPES.find(([, , fits]) => fits(choice))?.[0].includes(own) === false
}

/** Decodes which tool a request insists on, and which tools that leaves, in any shape. @throws GatewayError invalid_body */
export function decodeChoice(value: unknown, tools: Tool[]): { choice: ToolChoice | undefined; tools: Tool[] } {
  const json = object(value)
  const type = text(json?.['type'])
  const word = text(value) ?? (type !== undefined && Object.hasOwn(CHOICES, type) ? type : undefined)
  if (word !== undefined || !json) return { choice: Object.hasOwn(CHOICES, word ?? '') ? CHOICES[word ?? ''] : undefined, tools } // prettier-ignore
  const some = object(json['allowed_tools']) ?? (type === 'allowed_tools' ? json : undefined)
  if (some) {
    const names = arrayAt(some['tools'], 'tool_choice.allowed_tools.tools').map(tool => nameOf(object(tool) ?? {}))
    const choice: ToolChoice = { kind: some['mode'] === 'required' ? 'any' : 'auto' }
    return { choice, tools: allowed(tools, names) }
  }
  // A tool of the provider has no name, only a type.
  const name = nameOf(json) || (type ?? '')
  return { choice: { kind: 'tool', name }, tools }
}

/** The name of a tool, or of the one that a choice names. */
export function nameOf(json: Json): string {
  const named = object(json['function']) ?? object(json['custom']) ?? json
  return flatName(text(json['namespace']), text(named['name']) ?? '')
}

/** Tools with distinct names: the first of each name. */
export function distinct(tools: readonly Tool[], dropped: DroppedFields): Tool[] {
  const seen = new Set<string>()
  return tools.filter(({ name }) => {
    const first = !seen.has(name)
    if (!first) dropped.add(`tools.${name}`)
    seen.add(name)
    return first
  })
}

/** Reasoning tokens for each effort. */
const MEDIUM = 8192
const HIGH = 24_576
const BUDGETS = new Map([
  ['minimal', 1024],
  ['low', 4096],
  ['medium', MEDIUM],
  ['high', HIGH],
  ['xhigh', 32_768],
  ['max', 49_152],
])

/** The smallest budget of reasoning tokens. */
export const BUDGET_MIN = 1024

/** The effort for a model whose reasoning cannot be turned off, if the client turns it off. */
export const LEAST_EFFORT = 'low'

/**
 * The effort for a model of chat completions or responses, where `none` turns reasoning off. A model with
 * `reasoning: none` gets no effort.
 */
export function effortFor(
  thinking: Thinking | undefined,
  { thinkingOff = true, reasoning }: ModelTraits,
  dropped: DroppedFields,
): string | undefined {
  if (!thinking) return undefined
  if (reasoning !== 'none') {
    if (thinking.on) return effortOf(thinking)
    if (thinkingOff) return 'none'
    dropped.add('reasoning_effort')
    return LEAST_EFFORT
  }
  if (thinking.on) dropped.add('reasoning_effort')
  return undefined
}

/** Whether the model reasons, as far as the request decides it. */
export function reasons(
  thinking: Thinking | undefined,
  { thinkingOff = true, reasoning }: Pick<ModelTraits, 'thinkingOff' | 'reasoning'>,
): boolean {
  return reasoning !== 'none' && thinking !== undefined && (thinking.on || !thinkingOff)
}

/** The effort that was asked for, or the one of three that a budget corresponds to. */
export function effortOf(thinking: Thinking): string | undefined {
  if (thinking.effort !== undefined || thinking.budget === undefined) return thinking.effort
  if (thinking.budget < MEDIUM) return 'low'
  return thinking.budget < HIGH ? 'medium' : 'high'
}

/**
 * The budget for an effort: at most half of the output limit that it is part of, so that an answer fits; undefined if
 * that is too small.
 */
export function budgetOf(thinking: Thinking, maxOutput: number): number | undefined {
  const wanted = thinking.budget ?? BUDGETS.get(thinking.effort ?? '') ?? MEDIUM
  const budget = Math.min(wanted, Math.floor(maxOutput / 2))
  return budget < BUDGET_MIN ? undefined : budget
}
