/** How much JSON may contain, and why a text is refused. */

/** How much a JSON text may contain. */
export interface JsonLimits {
  /** Levels of nesting. */
  readonly depth: number
  /** Values in all, including those in objects and lists. */
  readonly values: number
}

/** For JSON that the gateway made itself. */
export const UNLIMITED: JsonLimits = { depth: Infinity, values: Infinity }

/** Names that an object may have only once: 31 at most. */
export class SingleNames {
  /** A bit for each name. */
  readonly bits: ReadonlyMap<string, number>
  /** The first letters of the names. Most other names are ruled out by these. */
  readonly letters: ReadonlySet<number>
  /** The lengths of the names. */
  readonly lengths: ReadonlySet<number>

  constructor(names: readonly string[]) {
    this.bits = new Map(names.map((name, index) => [name, 1 << index]))
    this.letters = new Set(names.map(name => name.charCodeAt(0)))
    this.lengths = new Set(names.map(({ length }) => length))
  }
}

/** Why a text is refused: it is not JSON, or it is too much. */
export type JsonFault =
  | { readonly kind: 'syntax' }
  | { readonly kind: 'depth' | 'values' }
  | { readonly kind: 'member'; readonly name: string }
  | { readonly kind: 'range'; readonly text: string }
  | { readonly kind: 'twice'; readonly name: string; readonly outermost: boolean }

/** Thrown by the scanner when it refuses a text. */
export class JsonError extends Error {
  readonly fault: JsonFault

  constructor(fault: JsonFault) {
    super(`not acceptable as JSON: ${fault.kind}`)
    this.fault = fault
  }
}
