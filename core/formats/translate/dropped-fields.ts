/** What translation leaves out. */
import type { Json } from '../terms.ts'

/** What of a request does not reach the upstream: told to the client in a header, so that nothing vanishes silently. */
export class DroppedFields {
  readonly #names = new Set<string>()

  /** @param names what is known to be left out */
  constructor(names: Iterable<string> = []) {
    for (const name of names) this.#names.add(name)
  }

  /** All names as they are. */
  get names(): readonly string[] {
    return [...this.#names]
  }

  add(name: string): void {
    this.#names.add(name)
  }

  /** Notes the members of `names` that the body has. */
  have(body: Json, names: readonly string[]): void {
    for (const name of names) if (body[name] !== undefined && body[name] !== null) this.add(name)
  }

  /** Notes every member that is not one of `known`. */
  beyond(body: Json, known: readonly string[]): void {
    for (const name of Object.keys(body)) if (!known.includes(name) && body[name] !== null) this.add(name)
  }

  /** The names, fit for a header. */
  toString(): string {
    const all = [...this.#names].map(name => name.replaceAll(/[^\w.:-]/g, '_').slice(0, 64))
    return all.length > MOST_NAMED
      ? `${all.slice(0, MOST_NAMED).join(', ')}, and ${all.length - MOST_NAMED} more`
      : all.join(', ')
  }
}

const MOST_NAMED = 20
