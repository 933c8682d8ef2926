/** Schema parts that several sections share. */

import { FORMAT_NAMES } from '../formats/terms.ts'

/** Schema of an object with exactly these members, all optional. */
export const section = <const P>(description: string, properties: P) =>
  ({ type: 'object', description, additionalProperties: false, default: {}, properties }) as const

/** Schema of a setting with a default. */
export const setting = <const S, const D>(schema: S, standard: D, description: string) =>
  ({ ...schema, default: standard, description }) as const

/** Schema of a whole number. @param maximum none if left out */
export const whole = (minimum: number, maximum?: number) =>
  ({ type: 'integer', minimum, ...(maximum !== undefined && { maximum }) }) as const

/** Schema of a number. @param maximum none if left out */
export const number = (minimum: number, maximum?: number) =>
  ({ type: 'number', minimum, ...(maximum !== undefined && { maximum }) }) as const

/** Schema of a switch. */
export const BOOLEAN = { type: 'boolean' } as const

/** Schema of an address or a subnet. */
export const RANGE = {
  type: 'string',
  format: 'range',
  expected: 'an address, or a subnet such as 10.0.0.0/8',
} as const

/** Schema of a list of wire formats. */
export const FORMAT_LIST = {
  type: 'array',
  minItems: 1,
  uniqueItems: true,
  expected: `a list of wire formats: ${FORMAT_NAMES.join(', ')}`,
  items: { type: 'string', enum: FORMAT_NAMES },
} as const
