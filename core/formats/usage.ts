/** Reads the usage objects of providers into the normal form that prices are for. */
import { formatCredits } from '../money/credits.ts'
import type { Calls, Conditions } from '../money/price.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import { object, positive, text, words } from './json.ts'
import { callsNamed } from './provider-tools.ts'
import type { CountedUsage, Json, RawUsage } from './terms.ts'

/** Reads token counts of a usage object, and notes whether all of them are whole numbers. */
export class Counter {
  valid = true

  /** The first of the members that is present; 0 if none is. Null counts as absent. */
  of(raw: Json | undefined, ...names: string[]): number {
    return this.maybe(raw, ...names) ?? 0
  }

  /** As `of`, but undefined if no member is present. */
  maybe(raw: Json | undefined, ...names: string[]): number | undefined {
    for (const name of names) {
      const value = raw?.[name]
      if (value === undefined || value === null) continue
      if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
      this.valid = false
      return 0
    }
    return undefined
  }
}

/** Names of counters for things that a provider bills. */
const COUNTER = /(?:tokens|requests|calls|used|seconds|minutes|images|characters|pages|queries|searches|sessions)$/

/** Names of the counters above zero that are not known. Counters inside objects are named by their path. */
export function unknownCounters(raw: Json, known: ReadonlySet<string>, at = '', found: string[] = []): string[] {
  for (const name in raw) {
    if (known.has(name)) continue
    const value = raw[name]
    const inner = object(value)
    if (inner) unknownCounters(inner, known, `${at}${name}.`, found)
    else if (typeof value === 'number' && value > 0 && COUNTER.test(name)) found.push(`${at}${name}`)
  }
  return found
}

/** Dollars as a plain decimal with nine places, rounded up: from a number, or from whole ten-billionths. */
export function dollarsOf(raw: Json): string | undefined {
  const ticks = positive(raw['cost_in_usd_ticks'])
  if (ticks !== undefined) return formatCredits(BigInt(Math.ceil(ticks / 10)))
  const cost = raw['cost']
  if (typeof cost !== 'number' || cost < 0 || cost >= 1e6) return undefined
  return formatCredits(BigInt(Math.ceil(cost * 1e9 - 1e-6)))
}

/** The names of the usage members in a format that counts inclusively. */
export interface InclusiveNames {
  readonly input: string
  readonly output: string
  readonly inputDetails: string
  readonly outputDetails: string
}

/** A usage as `countInclusive` reads it. */
export function encodeInclusive(usage: Usage, names: InclusiveNames): RawUsage {
  const input = inputTokens(usage)
  const written = usage.cacheWrite5m + usage.cacheWrite1h
  return {
    [names.input]: input,
    [names.inputDetails]: {
      cached_tokens: usage.cacheRead,
      ...(written > 0 && {
        cache_write_tokens: written,
        cache_write_tokens_details: { ttl_12h_tokens: usage.cacheWrite1h },
      }),
    },
    [names.output]: usage.output,
    [names.outputDetails]: { reasoning_tokens: usage.reasoning },
    total_tokens: input + usage.output,
  }
}

/**
 * Reads usage of a format in which cached and written tokens are part of the input, and reasoning is part of the
 * output. A part larger than its whole is reduced to it, so that no class is negative.
 */
export function countInclusive(raw: RawUsage, names: InclusiveNames): CountedUsage | undefined {
  const counter = new Counter()
  const input = counter.maybe(raw, names.input)
  const reported = counter.maybe(raw, names.output)
  if (input === undefined && reported === undefined) return undefined
  const all = input ?? 0
  const inputDetails = object(raw[names.inputDetails])
  const reasoning = counter.of(object(raw[names.outputDetails]), 'reasoning_tokens')
  const cacheRead = Math.min(
    counter.maybe(inputDetails, 'cached_tokens') ?? counter.of(raw, 'prompt_cache_hit_tokens'),
    all,
  )
  const written = Math.min(counter.of(inputDetails, 'cache_write_tokens'), all - cacheRead)
  const cacheWrite1h = Math.min(
    counter.of(object(inputDetails?.['cache_write_tokens_details']), 'ttl_12h_tokens'),
    written,
  )
  // One vendor does not count reasoning as output, and only the total shows it (prompt 12, completion 2, total 354,
  // reasoning 340).
  const total = counter.maybe(raw, 'total_tokens')
  const apart = total === all + (reported ?? 0) + reasoning && reasoning > 0
  const cost = dollarsOf(raw)
  const output = apart ? (reported ?? 0) + reasoning : (reported ?? 0)
  const fresh = all - cacheRead - written
  const media = (details: Json | undefined, whole: number): { audio: number; image: number } => {
    const audio = Math.min(counter.of(details, 'audio_tokens'), whole)
    return { audio, image: Math.min(counter.of(details, 'image_tokens'), whole - audio) }
  }
  const heard = media(inputDetails, fresh)
  const outputDetails = object(raw[names.outputDetails])
  const thought = Math.min(reasoning, output)
  const rejected = Math.min(counter.of(outputDetails, 'rejected_prediction_tokens'), output - thought)
  const made = media(outputDetails, output - thought - rejected)
  const conditions = reportedConditions(raw, reportedCalls(raw, counter))
  const unknown = unknownCounters(raw, KNOWN_COUNTERS)
  // The number of tool calls is only useful with their kinds.
  if (!raw['server_side_tool_usage_details'] && counter.of(raw, 'num_server_side_tools_used') > 0)
    unknown.push('num_server_side_tools_used')
  return {
    usage: {
      input: fresh,
      cacheRead,
      cacheWrite5m: written - cacheWrite1h,
      cacheWrite1h,
      output,
      reasoning: thought,
      ...(heard.audio > 0 && { audioInput: heard.audio }),
      ...(heard.image > 0 && { imageInput: heard.image }),
      ...(made.audio > 0 && { audioOutput: made.audio }),
      ...(made.image > 0 && { imageOutput: made.image }),
      ...(rejected > 0 && { rejected }),
    },
    valid: counter.valid,
    complete: input !== undefined && reported !== undefined,
    ...(conditions && { conditions }),
    ...(unknown.length > 0 && { unknown }),
    ...(cost !== undefined && { cost }),
  }
}

/** Counters that are classes of tokens, or that are reported elsewhere. */
const KNOWN_COUNTERS: ReadonlySet<string> = new Set(
  words(`
  prompt_tokens completion_tokens input_tokens output_tokens total_tokens text_tokens cached_tokens audio_tokens image_tokens
  reasoning_tokens accepted_prediction_tokens rejected_prediction_tokens cache_write_tokens cache_write_tokens_details
  prompt_cache_hit_tokens prompt_cache_miss_tokens num_sources_used num_search_queries num_server_side_tools_used
  server_side_tool_usage_details cost cost_details cost_in_usd_ticks cached_tokens_details server_tool_use
`),
)

/** Calls, from the counters that some vendors have for them. */
function reportedCalls(raw: RawUsage, counter: Counter): Calls | undefined {
  const details = object(raw['server_side_tool_usage_details']) ?? object(raw['server_tool_use'])
  if (details) return callsNamed(details, name => counter.of(details, name))
  const searches = counter.maybe(raw, 'num_sources_used', 'num_search_queries')
  return searches === undefined ? undefined : { webSearch: searches }
}

/** The conditions of a usage, and its calls; undefined for none. */
export function reportedConditions(raw: RawUsage, calls: Calls | undefined): Conditions | undefined {
  const [serviceTier, speed, inferenceGeo] = [
    conditionNamed(raw['service_tier']),
    conditionNamed(raw['speed']),
    conditionNamed(raw['inference_geo']),
  ]
  if (serviceTier === undefined && speed === undefined && inferenceGeo === undefined && !calls) return undefined
  return {
    ...(serviceTier !== undefined && { serviceTier }),
    ...(speed !== undefined && { speed }),
    ...(inferenceGeo !== undefined && { inferenceGeo }),
    ...(calls && { calls }),
  }
}

/** The condition that a reply was served under; undefined if it only repeats that it is not known yet. */
export function conditionNamed(value: unknown): string | undefined {
  const name = text(value)?.toLowerCase()
  return name === '' || name === 'auto' ? undefined : name
}
