/** Usage as a reply reports it, bit by bit. */
import type { CountedUsage, Format, RawUsage } from './format.ts'

export class UsageTally {
  readonly #format: Pick<Format, 'count'>
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined

  constructor(format: Pick<Format, 'count'>) {
    this.#format = format
  }

  /** Later events lay their counters over earlier ones: vendors report totals so far, never increments. */
  learn(usage: RawUsage): void {
    const raw = { ...this.#raw }
    for (const [name, value] of Object.entries(usage)) if (value !== null && value !== undefined) raw[name] = value
    this.#raw = raw
    const counted = this.#format.count(raw)
    const before = this.#counted?.usage.output ?? 0
    // What was put out once stays put out. Input may shrink: a prompt that was first told whole is then told in its classes.
    this.#counted = counted && before > counted.usage.output ? { ...counted, usage: { ...counted.usage, output: before } } : counted
  }

  /** The usage as reported; undefined when none was. `sound` is false when its numbers make no sense. */
  usage(): CountedUsage | undefined {
    return this.#counted
  }
}
