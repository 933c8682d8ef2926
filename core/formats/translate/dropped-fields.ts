/** What a translation leaves out. */
import type { Json } from '../terms.ts'

/**
 * The names of what does not reach the upstream. The client gets them in a header, so that nothing is dropped silently.
 */
export class DroppedFields {
  readonly #names = new Set<string>()

  /** @param names what is dropped already */
  constructor(names: Iterable<string> = []) {
    for (const name of names) this.add(name)
  }

  /** All names, unchanged. */
  get names(): readonly string[] {
    return [...this.#names]
  }

  add(name: string): void {
    if (this.#names.size < KEPT_MAX) this.#names.add(name)
  }

  /** Adds the names that the body has. */
  have(body: Json, names: readonly string[]): void {
    for (const name of names) if (body[name] !== undefined && body[name] !== null) this.add(name)
  }

  /** Adds all names of the body except known ones. */
  beyond(body: Json, known: readonly string[]): void {
    for (const name of Object.keys(body)) if (!known.includes(name) && body[name] !== null) this.add(name)
  }

  /**
   * Adds the paths of all members within a value that ask for something, except known ones.
   * @param at the path of the value, such as `tools[2]`
   */
  within(value: Json | undefined, at: string, known: ReadonlySet<string>): void {
    for (const name in value) if (!known.has(name) && asks(value[name])) this.add(`${pathOf(at)}.${name}`)
  }

  /** The names as the value of a header. */
  toString(): string {
    const all = [...this.#names].map(name => shortened(name.replaceAll(/[^\w.:[\]-]/g, '_')))
    return all.length > NAMED_MAX
      ? `${all.slice(0, NAMED_MAX).join(', ')}, and ${all.length - NAMED_MAX} more`
      : all.join(', ')
  }
}

const NAMED_MAX = 20
/** Most names that are kept. */
const KEPT_MAX = 1000
/** Most characters of a name. */
const NAME_MAX = 64

/** A name, or the end of a path, which tells more than its beginning. */
function shortened(name: string): string {
  return name.includes('.') ? name.slice(-NAME_MAX) : name.slice(0, NAME_MAX)
}

/** The path without its indexes: what is lost in every element is one loss. */
export function pathOf(at: string): string {
  return at.replaceAll(/\[\d+\]/g, '[]')
}

/** Null, false, and empty lists and objects ask for nothing. */
function asks(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return false
  return typeof value !== 'object' || Object.keys(value).length > 0
}
