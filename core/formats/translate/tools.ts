/** Tools and reasoning as the formats' requests speak of them. */
import { boolean, present, textAt } from './decoding.ts'
import type { Thinking, Tool } from './neutral.ts'
import type { Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** What a freeform tool takes where tools take JSON only. */
export const FREEFORM_SCHEMA: Json = {
  type: 'object',
  properties: { input: { type: 'string', description: 'The whole input of the tool, as plain text.' } },
  required: ['input'],
  additionalProperties: false,
}

/** A tool that takes JSON, as every format declares one but for what it calls the schema. */
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

/** A tool that takes text; its grammar, if it has one, becomes part of what the model is told. */
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

/** Tokens of reasoning for those who count them. */
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

/** The least that a budget of reasoning may be. */
export const LEAST_BUDGET = 1024

/** The effort that was asked for, or of the three that every model knows the one a budget comes to. */
export function effortOf(thinking: Thinking | undefined): string | undefined {
  if (thinking?.effort !== undefined || thinking?.budget === undefined) return thinking?.effort
  return thinking.budget < MEDIUM ? 'low' : thinking.budget < HIGH ? 'medium' : 'high'
}

/** The budget of an effort, and at most half the output limit it is part of: the rest is for the answer; undefined when that leaves none. */
export function budgetOf(thinking: Thinking, maxOutput: number): number | undefined {
  const wanted = thinking.budget ?? BUDGETS.get(thinking.effort ?? '') ?? MEDIUM
  const budget = Math.min(wanted, Math.floor(maxOutput / 2))
  return budget < LEAST_BUDGET ? undefined : budget
}
