/** What operators and customers send: its schemas, and rules of several members. */
import { PLAIN_TEXT } from '../lib/printable.ts'

/** An amount that a caller sends: a decimal as text, or a number. */
export const GIVEN_AMOUNT = {
  type: ['string', 'number'],
  pattern: String.raw`^\d{1,9}(?:\.\d{1,9})?$`,
  exclusiveMinimum: 0,
  expected: 'an amount of credits above zero, such as "25" or "0.5"',
  description: 'Credits: a plain decimal with at most nine decimal places.',
} as const

/** Names and labels that a caller sends. */
export const GIVEN_NAME = {
  type: 'string',
  maxLength: 200,
  pattern: PLAIN_TEXT,
  expected: 'a text of at most 200 characters, none of which is invisible or changes the writing direction',
} as const

/** A reason that a caller must send. */
export const GIVEN_REASON = { ...GIVEN_NAME, minLength: 1, expected: 'a reason of 1 to 200 characters' } as const

/** A duration that a caller sends. */
export const GIVEN_DURATION = {
  type: 'string',
  pattern: String.raw`^[1-9]\d{0,5}[smhd]$`,
  expected: 'a duration such as 30d or 12h',
} as const

/**
 * Whether it is clear what new keys spend from: credits of a balance of their own, or a balance that exists. A key with a plan of its
 * own needs neither.
 */
export function isFunded(
  { credits, balance }: { readonly credits?: unknown; readonly balance?: unknown },
  hasPlan: boolean,
): boolean {
  if (credits !== undefined) return balance === undefined
  return balance !== undefined || hasPlan
}
