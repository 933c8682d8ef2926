/** Tools and reasoning in the requests of all formats. */
import { boolean, present, textAt } from './decoding.ts'
import type { Thinking, Tool } from './neutral.ts'
import type { Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** The input schema of a freeform tool, where tools take JSON only. */
export const FREEFORM_SCHEMA: Json = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole input of the tool, as plain text.' } },
  required: ['input'],
  additionalProperties: false,
}

/** A tool that takes JSON. @param schema the member that the format has for it */
export function functionTool(tool: Json, schema: unknown, at: string): Tool {
  const { name, description, strict } = tool
  return present({
    name: textAt(name, `${at}.name`),
    description: text(description),
    schema: object(schema),
    strict: boolean(strict),
    freeform: false,
  })
}

/** A tool that takes text. Its grammar becomes a part of its description. */
export function freeformTool(tool: Json, at: string): Tool {
  const grammar = object(tool['format'])
  const definition = text(grammar?.['definition']) ?? text(object(grammar?.['grammar'])?.['definition'])
  const rule = definition === undefined ? '' : `\n\nThe input must match this grammar:\n${definition}`
  const description = (text(tool['description']) ?? '') + rule
  return present({
    name: textAt(tool['name'], `${at}.name`),
    description: description === '' ? undefined : description,
    freeform: true,
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

/** The effort that was asked for, or the one of three that a budget corresponds to. */
export function effortOf(thinking: Thinking | undefined): string | undefined {
  if (thinking?.effort !== undefined || thinking?.budget === undefined) return thinking?.effort
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
