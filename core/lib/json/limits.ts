/** What JSON may hold, and why some is not taken. */

/** How much JSON may hold. */
export interface JsonLimits {
  /** Nesting of objects and lists. */
  readonly depth: number
  /** Values in all, those in objects and lists included. */
  readonly values: number
}

/** For JSON that the gateway itself has made. */
export const UNLIMITED: JsonLimits = { depth: Infinity, values: Infinity }

/** Names that must not stand twice in one object, at most 31 of them. */
export class SingleNames {
  /** By name, a bit of its own. */
  readonly bits: ReadonlyMap<string, number>
  /** Their first letters: most other names are told from them by these. */
  readonly letters: ReadonlySet<number>
  /** Their lengths. */
  readonly lengths: ReadonlySet<number>

  constructor(names: readonly string[]) {
    this.bits = new Map(names.map((name, index) => [name, 1 << index]))
    this.letters = new Set(names.map(name => name.charCodeAt(0)))
    this.lengths = new Set(names.map(({ length }) => length))
  }
}

/** Why bytes are not taken: they are not JSON, or they are too much. */
export type JsonFault =
  | { readonly kind: 'syntax' }
  | { readonly kind: 'depth' | 'values' }
  | { readonly kind: 'member'; readonly name: string }
  | { readonly kind: 'range'; readonly text: string }
  | { readonly kind: 'twice'; readonly name: string; readonly outermost: boolean }

/** Thrown by the scanner. */
export class JsonError extends Error {
  readonly fault: JsonFault

  constructor(fault: JsonFault) {
    super(`not acceptable as JSON: ${fault.kind}`)
    this.fault = fault
  }
}
