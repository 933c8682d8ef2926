/** What each key has of an account that several keys share. */
import { FIELDS } from './names.ts'
import { ownerOf, type Spender } from './store-keys.ts'

/**
 * Prefix of the fields of an account that have what a key was charged, what it holds, the number of its holds, and a number
 * that grows with each end. The key with the name of the account has the field without more.
 */
const PART = FIELDS.part

/** What a key has of an account. Amounts are nano-credits. */
export interface Part {
  readonly charged: bigint
  readonly held: bigint
  readonly holds: number
}

/** Returns the number of a key that grows with each end, from its field. */
export function endsIn(text: string | null): string {
  return text?.split(' ')[3] ?? '0'
}

/** Returns the field of an account that has the part of a key. */
export function partField(spender: Spender): string {
  return `${PART}${ownerOf(spender)}`
}

/**
 * Reads the part of a key from its field. Undefined if no other key spends from the account. A key that has not spent yet has
 * no field.
 */
export function partOf(spender: Spender, text: string | null): Part | undefined {
  if (text !== null) return read(text)
  return ownerOf(spender) === '' ? undefined : read('')
}

function read(text: string): Part {
  const [charged = '0', held = '0', holds = '0'] = text === '' ? [] : text.split(' ')
  return { charged: BigInt(charged), held: BigInt(held), holds: Number(holds) }
}

/** Returns the parts among the fields of an account, by key. There are none if only one key spends from it. */
export function partsIn(account: string, fields: Readonly<Record<string, string>>): Map<string, Part> {
  const parts = Object.entries(fields).filter(([name]) => name.startsWith(PART))
  return new Map(parts.map(([name, text]) => [name.slice(PART.length) || account, read(text)]))
}
