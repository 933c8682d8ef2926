/** Reads JSON that a client or a provider sent. No value is trusted to have the promised type. */
import type { Json } from './terms.ts'

/** The value as a plain object; undefined for anything else. */
export function object(value: unknown): Json | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : undefined
}

/** The member as a string; undefined for anything else. */
export function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

/** The value as a list; an empty one for anything else. */
export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** Parses a text. Undefined if it is not JSON. */
export function jsonFrom(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The words of a text. */
export function words(text: string): readonly string[] {
  return text.trim().split(/\s+/)
}

/** An index; 0 for anything else. Converting any value to a number could throw. */
export function indexOf(value: unknown): number {
  return typeof value === 'number' ? value : 0
}

/** A positive whole number; undefined for anything else. */
export function positive(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : undefined
}
