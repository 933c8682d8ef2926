/** Usage as a reply reports it, bit by bit. */
import type { CallName, Calls } from '../ledger/price.ts'
import type { CountedUsage, Format, RawUsage, Reading } from './format.ts'
import { withCall } from './provider-tools.ts'

export class UsageTally {
  readonly #format: Pick<Format, 'count'>
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined
  /** Calls that single events told of, and those that the reply said were all. */
  #calls: Calls | undefined
  #allCalls: Calls | undefined

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

  /** What the reply calls its model. */
  model: string | undefined

  /** Adds the calls that an event tells of. */
  hear({ calls, allCalls }: Reading): void {
    if (allCalls) this.#allCalls = allCalls
    if (calls) for (const [kind, times] of Object.entries(calls)) this.#calls = withCall(this.#calls ?? {}, kind as CallName, times)
  }

  /** Calls of tools that the provider ran, as far as they are known: those of the usage, or those that were seen; undefined for none. */
  get calls(): Calls | undefined {
    return this.#counted?.conditions?.calls ?? this.#allCalls ?? this.#calls
  }

  /** The usage as reported; undefined when none was. `sound` is false when its numbers make no sense. */
  usage(): CountedUsage | undefined {
    return this.#counted
  }
}
