/** Tools and reasoning in the requests of all formats. */
import { boolean, present, refused, textAt, untranslatable } from './decoding.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { ModelTraits, Thinking, Tool, ToolChoice } from './neutral.ts'
import { isProviderTool } from '../provider-tools.ts'
import type { Json } from '../terms.ts'
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

/** A tool that takes text. Its grammar becomes a part of its description. */
export function freeformTool(tool: Json, at: string, dropped: DroppedFields): Tool {
  dropped.within(tool, at, FREEFORM)
  const grammar = object(tool['format'])
  const definition = text(grammar?.['definition']) ?? text(object(grammar?.['grammar'])?.['definition'])
  const rule = definition === undefined ? '' : `\n\nThe input must match this grammar:\n${definition}`
  const description = (text(tool['description']) ?? '') + rule
  return present({
    name: textAt(tool['name'], `${at}.name`),
    description: description === '' ? undefined : description,
    at,
    freeform: true,
  })
}

/** A tool that only its provider can run, and where the request names it. */
export interface SkippedTool {
  readonly type: string
  readonly param: string
}

/**
 * Notes a tool that cannot be translated. One that the client runs, such as a shell, is dropped: what calls it in the
 * history is carried.
 */
export function skipTool(tool: Json, param: string, skippedTools: SkippedTool[], dropped: DroppedFields): void {
  const type = text(tool['type']) ?? 'unknown'
  if (isProviderTool(tool)) skippedTools.push({ type, param })
  else dropped.add(`tools.${type}`)
}

/**
 * Refuses a request all of whose tools only a provider could run, and notes them as dropped otherwise.
 * @throws GatewayError invalid_body
 */
export function providerTools(
  skippedTools: readonly SkippedTool[],
  tools: readonly Tool[],
  dropped: DroppedFields,
): void {
  const [first] = skippedTools
  if (first && tools.length === 0) throw untranslatable(first.param, `the provider runs "${first.type}" itself`)
  for (const { type } of skippedTools) dropped.add(`tools.${type}`)
}

/** The tools that a choice allows. @throws GatewayError invalid_body if it allows none of the tools */
export function allowed(tools: readonly Tool[], names: readonly string[]): Tool[] {
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
