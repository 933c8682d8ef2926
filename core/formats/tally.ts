/** Collects the usage of a reply, event by event. */
import type { CallName, Calls } from '../money/price.ts'
import type { CountedUsage, RawUsage, Reading, SeenCall } from './terms.ts'
import type { Format } from './format.ts'
import type { ProviderTool } from './provider-tools.ts'

/** What one reply has reported so far. */
export class UsageTally {
  #format: Pick<Format, 'decodeUsage'>
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined
  /** The calls that events reported, by id, and those that the last usage counts. */
  readonly #seen = new Map<string, SeenCall>()
  #counts: Calls | undefined

  constructor(format: Pick<Format, 'decodeUsage'>) {
    this.#format = format
  }

  /** Forgets everything: the request goes to another account. @param format which that account speaks */
  restart(format: Pick<Format, 'decodeUsage'>): void {
    this.#format = format
    this.#raw = this.#counted = this.#counts = undefined
    this.#seen.clear()
    this.model = this.serviceTier = undefined
  }

  /** Adds the counters of an event. They replace earlier ones: vendors report totals, and not increments. */
  addUsage(usage: RawUsage): void {
    const raw = { ...this.#raw }
    for (const [name, value] of Object.entries(usage)) if (value !== null && value !== undefined) raw[name] = value
    this.#raw = raw
    const counted = this.#format.decodeUsage(raw)
    const before = this.#counted?.usage.output ?? 0
    // Output never shrinks. Input may: a prompt may be reported as one number first, and by class later.
    this.#counted =
      counted && before > counted.usage.output ? { ...counted, usage: { ...counted.usage, output: before } } : counted
  }

  /** The name of the model in the reply. */
  model: string | undefined

  /** The service tier that the reply reported last, outside its usage. */
  serviceTier: string | undefined

  /** Notes the calls and the service tier of an event. */
  observe({ calls, usage, final, serviceTier }: Reading): void {
    if (serviceTier !== undefined) this.serviceTier = serviceTier
    // A list of the whole reply replaces what single events have reported, unless it is incomplete.
    const whole = final === true && this.#seen.size > 0
    if (calls && whole && calls.length >= this.#seen.size) this.#seen.clear()
    else if (whole) return this.#count(usage)
    if (calls) for (const call of calls) if (!this.#seen.has(call.id)) this.#seen.set(call.id, call)
    if (final) this.#count(usage)
  }

  /** Notes the calls that the last usage counts. They are billed: a failed call is not counted. */
  #count(usage: RawUsage | undefined): void {
    if (usage) this.#counts = this.#format.decodeUsage(usage)?.conditions?.calls
  }

  /**
   * The provider's tool calls by kind; undefined for none. Kinds that the last usage counts are certain, zero included.
   * For other kinds, the reported calls are a lower bound.
   * @param asked the tools that the request lets the provider run
   */
  calls(asked: readonly ProviderTool[]): Calls | undefined {
    const reported = this.#counted?.conditions?.calls
    if (!reported && this.#seen.size === 0) return undefined
    const seen: Partial<Record<CallName, number>> = {}
    for (const { kind, ifAsked } of this.#seen.values()) {
      if (kind !== 'advisor' && (!ifAsked || asked.some(tool => tool.kind === kind))) seen[kind] = (seen[kind] ?? 0) + 1
    }
    const counts: Partial<Record<CallName, number>> = { ...reported, ...seen }
    for (const kind of Object.keys(counts) as CallName[])
      counts[kind] = this.#counts?.[kind] ?? Math.max(reported?.[kind] ?? 0, seen[kind] ?? 0)
    return counts
  }

  /** How often other models were asked for advice, as reported so far. */
  get advice(): number {
    return [...this.#seen.values()].filter(({ kind }) => kind === 'advisor').length
  }

  /** The usage as reported so far; undefined if there is none. `valid` is false if its numbers make no sense. */
  usage(): CountedUsage | undefined {
    return this.#counted
  }
}
