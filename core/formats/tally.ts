/** Usage as a reply reports it, bit by bit. */
import type { CallName, Calls } from '../money/price.ts'
import type { CountedUsage, RawUsage, Reading, SeenCall } from './terms.ts'
import type { Format } from './format.ts'
import type { ProviderTool } from './provider-tools.ts'

export class UsageTally {
  readonly #format: Pick<Format, 'decodeUsage'>
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined
  /** Calls that events told of, by their ids, and those that the last usage counts. */
  readonly #seen = new Map<string, SeenCall>()
  #counts: Calls | undefined

  constructor(format: Pick<Format, 'decodeUsage'>) {
    this.#format = format
  }

  /** Later events lay their counters over earlier ones: vendors report totals so far, never increments. */
  addUsage(usage: RawUsage): void {
    const raw = { ...this.#raw }
    for (const [name, value] of Object.entries(usage)) if (value !== null && value !== undefined) raw[name] = value
    this.#raw = raw
    const counted = this.#format.decodeUsage(raw)
    const before = this.#counted?.usage.output ?? 0
    // What was put out once stays put out. Input may shrink: a prompt that was first told whole is then told in its classes.
    this.#counted =
      counted && before > counted.usage.output ? { ...counted, usage: { ...counted.usage, output: before } } : counted
  }

  /** What the reply calls its model. */
  model: string | undefined

  /** The service tier that the reply told of last, beside its usage. */
  serviceTier: string | undefined

  /** Notes the calls and the tier that an event tells of. */
  observe({ calls, usage, final, serviceTier }: Reading): void {
    if (serviceTier !== undefined) this.serviceTier = serviceTier
    // A list of the whole reply stands for what single events have told, unless it is only a part of it.
    const whole = final === true && this.#seen.size > 0
    if (calls && whole && calls.length >= this.#seen.size) this.#seen.clear()
    else if (whole) return this.#count(usage)
    if (calls) for (const call of calls) if (!this.#seen.has(call.id)) this.#seen.set(call.id, call)
    if (final) this.#count(usage)
  }

  /** What the last usage counts is what is billed: a call that failed is not. */
  #count(usage: RawUsage | undefined): void {
    if (usage) this.#counts = this.#format.decodeUsage(usage)?.conditions?.calls
  }

  /**
   * Calls of tools that the provider ran, by kind; undefined for none. A kind that the last usage counts is known, also when that
   * is zero; of the others, what was seen is at least true.
   * @param asked the tools that the request lets the provider run
   */
  calls(asked: readonly ProviderTool[]): Calls | undefined {
    const told = this.#counted?.conditions?.calls
    if (!told && this.#seen.size === 0) return undefined
    const seen: Partial<Record<CallName, number>> = {}
    for (const { kind, ifAsked } of this.#seen.values()) {
      if (kind !== 'advisor' && (!ifAsked || asked.some(tool => tool.kind === kind))) seen[kind] = (seen[kind] ?? 0) + 1
    }
    const counts: Partial<Record<CallName, number>> = { ...told, ...seen }
    for (const kind of Object.keys(counts) as CallName[])
      counts[kind] = this.#counts?.[kind] ?? Math.max(told?.[kind] ?? 0, seen[kind] ?? 0)
    return counts
  }

  /** How often other models were asked for advice, as far as events told of it. */
  get advice(): number {
    return [...this.#seen.values()].filter(({ kind }) => kind === 'advisor').length
  }

  /** The usage as reported; undefined when none was. `sound` is false when its numbers make no sense. */
  usage(): CountedUsage | undefined {
    return this.#counted
  }
}
