/** Collects the usage of a reply, event by event. */
import type { CallName, Calls } from '../money/price.ts'
import { fitted, inputTokens } from '../money/usage.ts'
import { object } from './json.ts'
import { listedPaths } from './usage-counters.ts'
import type { SaidReading } from './usage-reading.ts'
import type { CountedUsage, RawUsage, Reading, SeenCall, SeenRound } from './terms.ts'
import type { Format } from './format.ts'
import type { ProviderTool } from './provider-tools.ts'

/** A round with the number of the pass that called it. Calls that run side by side share one. */
export interface TalliedRound extends SeenRound {
  readonly pass: number
}

const NO_ROUNDS: readonly TalliedRound[] = []

/** What one reply has reported so far. */
export class UsageTally {
  #format: Pick<Format, 'decodeUsage'>
  #said: SaidReading | undefined
  #raw: RawUsage | undefined
  #counted: CountedUsage | undefined
  /** The usage that was decoded last. */
  #last: { readonly usage: RawUsage; readonly report: CountedUsage | undefined } | undefined
  /** All input, as far as it is known. */
  #prompt = 0
  readonly #unread = new Set<string>()
  /** The rounds of tools, the places of the latest ones by id, and how many the input that was reported last contains. */
  #rounds: TalliedRound[] = []
  readonly #placeOf = new Map<string, number>()
  #roundsReported = 0
  /** The pass that calls now, and whether one of its calls has ended. */
  #pass = 0
  #hasEnded = false
  /** The calls that events reported, by id, and those that the last usage counts. */
  readonly #seen = new Map<string, SeenCall>()
  #counts: Calls | undefined

  /** @param said what the operator says of the provider's counters */
  constructor(format: Pick<Format, 'decodeUsage'>, said?: SaidReading) {
    this.#format = format
    this.#said = said
  }

  /** Forgets everything: the request goes to another account. @param format which that account speaks */
  restart(format: Pick<Format, 'decodeUsage'>, said?: SaidReading): void {
    this.#format = format
    this.#said = said
    this.#raw = this.#counted = this.#counts = this.#last = undefined
    this.#prompt = this.#roundsReported = this.#pass = 0
    this.#hasEnded = this.hasUnknownEnd = false
    this.#unread.clear()
    this.#seen.clear()
    this.#rounds = []
    this.#placeOf.clear()
    this.model = this.serviceTier = undefined
  }

  /**
   * Adds the counters of an event. No counter shrinks: vendors report totals, and not increments. A prompt may be reported
   * as one number first, and by class later. So it is the greatest sum of the fresh input of one report and of the cached
   * and written tokens that are known by then.
   */
  addUsage(usage: RawUsage): void {
    const report = this.#decoded(usage)
    if (!report) return
    for (const path of report.unread ?? []) this.#unread.add(path)
    const isFirst = this.#raw === undefined
    this.#raw = merged(this.#raw, usage)
    const counted = isFirst ? report : this.#format.decodeUsage(this.#raw, this.#said)
    if (!counted) return
    const { input, ...classes } = counted.usage
    const apart = inputTokens({ ...classes, input: 0 })
    if (report.usage.input + apart > this.#prompt) {
      this.#prompt = report.usage.input + apart
      this.#roundsReported = this.#rounds.length
    }
    const fresh = Math.max(0, Math.min(input, this.#prompt - apart))
    this.#counted =
      counted.passes || fresh === input ? counted : { ...counted, usage: fitted({ ...classes, input: fresh }) }
  }

  /** Paths in the usage that were not understood, or that do not add up. */
  get unread(): readonly string[] {
    const isEmpty = this.#counted?.empty === true && this.#unread.size === 0
    return listedPaths([...this.#unread, ...(this.#counted?.odd ?? []), ...(isEmpty ? ['usage'] : [])])
  }

  /** Whether the reply has ended with an unknown word. */
  hasUnknownEnd = false

  /** The name of the model in the reply. */
  model: string | undefined

  /** The service tier that the reply reported last, outside its usage. */
  serviceTier: string | undefined

  /** Notes the calls and the service tier of an event. */
  observe({ calls, rounds, usage, usageIsFinal = false, serviceTier, unknownEnd }: Reading): void {
    if (unknownEnd !== undefined) {
      this.#unread.add(`end.${unknownEnd}`)
      this.hasUnknownEnd = true
    }
    if (serviceTier !== undefined) this.serviceTier = serviceTier
    if (rounds) this.#noteRounds(rounds, usageIsFinal)
    // A list of the whole reply replaces what single events have reported, unless it is incomplete.
    const whole = usageIsFinal && this.#seen.size > 0
    if (calls && whole && calls.length >= this.#seen.size) this.#seen.clear()
    else if (whole) return this.#count(usage)
    if (calls) for (const call of calls) if (!this.#seen.has(call.id)) this.#seen.set(call.id, call)
    if (usageIsFinal) this.#count(usage)
  }

  #noteRounds(rounds: readonly SeenRound[], isFinal: boolean): void {
    // The last event of a stream lists all of them again, and may name them in another way.
    if (isFinal && this.#rounds.length > 0) return
    for (const round of rounds) {
      const place = this.#placeOf.get(round.id) ?? -1
      const known = this.#rounds[place]
      if (known && !round.begins && !known.ends) {
        const { isOpen: _begun, ...begun } = known
        this.#rounds[place] = { ...begun, ...round }
      } else {
        // What follows a result is called by the pass that has read it.
        if (this.#hasEnded) this.#pass++
        this.#hasEnded = false
        this.#placeOf.set(round.id, this.#rounds.push({ ...round, pass: this.#pass }) - 1)
      }
      if (round.ends) this.#hasEnded = true
    }
  }

  /** Calls that have begun, and of which only the end shows whether they are billed. */
  get openCalls(): Calls | undefined {
    const open: Partial<Record<CallName, number>> = {}
    const hasContainer = [...this.#seen.values()].some(({ kind }) => kind === 'codeExecution')
    for (const { kind, isOpen } of this.#rounds) {
      if (!isOpen || kind === 'advisor' || kind === 'reread') continue
      // Everything that runs in one container is billed once.
      if (kind === 'codeExecution') open[kind] = hasContainer ? 0 : 1
      else open[kind] = (open[kind] ?? 0) + 1
    }
    return Object.keys(open).length === 0 ? undefined : open
  }

  /** The rounds of tools that the reported input does not contain. */
  get rounds(): readonly TalliedRound[] {
    return this.#rounds.length === 0 ? NO_ROUNDS : this.#rounds.slice(this.#roundsReported)
  }

  /** How often the model has read its input, as far as the reply has shown: once, and again after calls of tools. */
  get passes(): number {
    return this.#rounds.length === 0 ? 1 : this.#pass + 2
  }

  /** Notes the calls that the last usage counts. They are billed: a failed call is not counted. */
  #count(usage: RawUsage | undefined): void {
    if (usage) this.#counts = this.#decoded(usage)?.conditions?.calls
  }

  /** Decodes the usage of an event, once. */
  #decoded(usage: RawUsage): CountedUsage | undefined {
    if (this.#last?.usage !== usage) this.#last = { usage, report: this.#format.decodeUsage(usage, this.#said) }
    return this.#last.report
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

  /** Returns the usage reported so far. Undefined if it is empty. */
  usage(): CountedUsage | undefined {
    return this.#counted?.empty ? undefined : this.#counted
  }
}

/** Two usage objects as one: the greater of two counters, and otherwise the later of two values. */
function merged(before: RawUsage | undefined, usage: RawUsage): RawUsage {
  const all: Record<string, unknown> = { ...before }
  for (const [name, value] of Object.entries(usage)) {
    if (value === null || value === undefined) continue
    const [old, inner] = [all[name], object(value)]
    const isSmaller = typeof old !== 'object' && Number(old) >= Number(value)
    if (!isSmaller) all[name] = inner ? merged(object(old), inner) : value
  }
  return all
}
