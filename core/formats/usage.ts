/** Reads and writes the usage objects of providers: tokens, conditions, calls and cost. */
import { formatCredits } from '../money/credits.ts'
import type { Calls, Conditions } from '../money/price.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import { object, positive, text } from './json.ts'
import { callsNamed } from './provider-tools.ts'
import type { CountedUsage, Json, Pass, RawUsage } from './terms.ts'
import { countAt, countOf, countsOf, INCLUSIVE_COUNTERS, listedPaths } from './usage-counters.ts'
import { countTokens, type SaidReading, type TokenCounts } from './usage-reading.ts'

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
 * output.
 */
export function countInclusive(raw: RawUsage, said?: SaidReading): CountedUsage | undefined {
  const { usage, ...tokens } = countTokens(raw, INCLUSIVE_COUNTERS, said)
  // The number of tool calls is only useful with their kinds.
  if (!raw['server_side_tool_usage_details'] && (countOf(raw['num_server_side_tools_used']) ?? 0) > 0)
    tokens.unread.add('num_server_side_tools_used')
  const conditions = reportedConditions(raw, reportedCalls(raw, tokens.unread))
  return counted(usage, { raw, ...tokens, conditions })
}

/** What a usage object says beside its tokens. */
interface Said extends Omit<TokenCounts, 'usage'> {
  readonly raw: Json
  readonly conditions: Conditions | undefined
  readonly passes?: readonly Pass[]
}

/** A usage in normal form. Undefined if the object says nothing. */
export function counted(
  usage: Usage,
  { raw, hasInput, hasOutput, total, unread, odd, conditions, passes }: Said,
): CountedUsage | undefined {
  // Counters without all input or all output, such as cached tokens or a total alone, are not a usage; nor are zeros.
  const sum = inputTokens(usage) + usage.output
  const isEmpty = (!hasInput && !hasOutput) || sum === 0
  if (isEmpty) {
    for (const path of odd) unread.add(path)
  }
  if (isEmpty && unread.size === 0 && !hasInput && !hasOutput && sum === 0) return undefined
  const cost = dollarsOf(raw)
  return {
    usage,
    complete: hasInput && hasOutput,
    ...(isEmpty && { empty: true }),
    ...(total !== undefined && { total }),
    ...(unread.size > 0 && { unread: listedPaths(unread) }),
    ...(odd.size > 0 && { odd: [...odd] }),
    ...(conditions && { conditions }),
    ...(passes && { passes }),
    ...(cost !== undefined && { cost }),
  }
}

/** Calls, from the counters that some vendors have for them. */
function reportedCalls(raw: RawUsage, unread: Set<string>): Calls | undefined {
  for (const member of ['server_side_tool_usage_details', 'server_tool_use']) {
    const details = object(raw[member])
    if (details) return callsNamed(details, countsOf(raw, member, unread))
  }
  const searched = countOf(object(object(raw['plugins'])?.['search'])?.['count'])
  if (searched !== undefined) {
    unread.delete('plugins.search.count')
    return { webSearch: searched }
  }
  const name = raw['num_sources_used'] === undefined ? 'num_search_queries' : 'num_sources_used'
  const searches = countAt(name, raw[name], unread)
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
