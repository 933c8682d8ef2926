/** Usage as a reply reports it, bit by bit. */
import type { Calls } from '../ledger/price.ts'
import type { CountedUsage, Format, RawUsage, Reading } from './format.ts'
import { mostCalls, withCall } from './provider-tools.ts'

export class UsageTally {
  readonly #format: Pick<Format, 'count'>
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined
  /** Calls that single events told of, by their ids, and those that the reply said were all. */
  readonly #seen = new Set<string>()
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

  /** The service tier that the reply told of last, beside its usage. */
  serviceTier: string | undefined

  /** Notes the calls and the tier that an event tells of. */
  hear({ call, allCalls, usage, final, serviceTier }: Reading): void {
    if (serviceTier !== undefined) this.serviceTier = serviceTier
    if (call && !this.#seen.has(call.id)) {
      this.#seen.add(call.id)
      this.#calls = withCall(this.#calls ?? {}, call.kind)
    }
    // What the last usage counts is what is billed: a call that failed is not.
    const counted = final && usage ? this.#format.count(usage)?.conditions?.calls : undefined
    if (counted ?? allCalls) this.#allCalls = counted ?? allCalls
  }

  /** Calls of tools that the provider ran: all of them, once that was told, and until then those that are known of; undefined for none. */
  get calls(): Calls | undefined {
    return this.#allCalls ?? mostCalls(this.#counted?.conditions?.calls, this.#calls)
  }

  /** The usage as reported; undefined when none was. `sound` is false when its numbers make no sense. */
  usage(): CountedUsage | undefined {
    return this.#counted
  }
}
