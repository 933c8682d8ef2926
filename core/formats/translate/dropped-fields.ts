/** What a translation leaves out. */
import type { Json } from '../terms.ts'

/**
 * The names of what does not reach the upstream. The client gets them in a header, so that nothing is dropped silently.
 */
export class DroppedFields {
  readonly #names = new Set<string>()

  /** @param names what is dropped already */
  constructor(names: Iterable<string> = []) {
    for (const name of names) this.#names.add(name)
  }

  /** All names, unchanged. */
  get names(): readonly string[] {
    return [...this.#names]
  }

  add(name: string): void {
    this.#names.add(name)
  }

  /** Adds the names that the body has. */
  have(body: Json, names: readonly string[]): void {
    for (const name of names) if (body[name] !== undefined && body[name] !== null) this.add(name)
  }

  /** Adds all names of the body except known ones. */
  beyond(body: Json, known: readonly string[]): void {
    for (const name of Object.keys(body)) if (!known.includes(name) && body[name] !== null) this.add(name)
  }

  /** The names as the value of a header. */
  toString(): string {
    const all = [...this.#names].map(name => name.replaceAll(/[^\w.:-]/g, '_').slice(0, 64))
    return all.length > NAMED_MAX
      ? `${all.slice(0, NAMED_MAX).join(', ')}, and ${all.length - NAMED_MAX} more`
      : all.join(', ')
  }
}

const NAMED_MAX = 20
