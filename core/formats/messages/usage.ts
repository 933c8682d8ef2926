/** Usage in the messages format: cached tokens are counted apart from the input. */
import { NO_USAGE, plus, type Usage } from '../../money/usage.ts'
import type { CountedUsage, Pass, RawUsage } from '../terms.ts'
import { callsNamed } from '../provider-tools.ts'
import { object, text, words } from '../json.ts'
import { reportedConditions, Counter, dollarsOf, unknownCounters } from '../usage.ts'

function countOnce(raw: RawUsage, counter: Counter): Usage {
  const split = object(raw['cache_creation'])
  const written = counter.of(raw, 'cache_creation_input_tokens')
  const cacheWrite1h = counter.of(split, 'ephemeral_1h_input_tokens')
  const output = counter.of(raw, 'output_tokens')
  return {
    input: counter.of(raw, 'input_tokens'),
    cacheRead: counter.of(raw, 'cache_read_input_tokens'),
    // The split may come without the sum, and the sum without the split. Tokens that are not named count as
    // short-lived.
    cacheWrite5m: Math.max(counter.of(split, 'ephemeral_5m_input_tokens'), written - cacheWrite1h),
    cacheWrite1h,
    output,
    reasoning: Math.min(counter.of(object(raw['output_tokens_details']), 'thinking_tokens'), output),
  }
}

/** Counters that are classes of tokens, or that are reported elsewhere. */
const KNOWN_COUNTERS: ReadonlySet<string> = new Set(
  words(`
  input_tokens output_tokens total_tokens cache_creation_input_tokens cache_read_input_tokens cache_creation output_tokens_details
  server_tool_use iterations cost cost_details cost_in_usd_ticks
`),
)

/** Usage in normal form; undefined if it counts nothing. */
export function count(raw: RawUsage): CountedUsage | undefined {
  const counter = new Counter()
  // After a compaction the top-level counters are those of the last pass only. All passes are billed.
  const iterations = Array.isArray(raw['iterations'])
    ? raw['iterations'].map(object).filter(pass => pass !== undefined)
    : []
  if (iterations.length === 0 && counter.maybe(raw, 'input_tokens', 'output_tokens') === undefined) return undefined
  // If only passes of other models are listed, the top-level counters are the model's own.
  const counted = iterations.every(pass => otherModel(pass) !== undefined) ? [raw, ...iterations] : iterations
  const passes = counted.map((pass): Pass => ({
    model: otherModel(pass),
    usage: countOnce(pass, counter),
    ...(otherModel(pass) !== undefined && { separate: true }),
  }))
  const used = object(raw['server_tool_use'])
  const conditions = reportedConditions(raw, used && callsNamed(used, name => counter.of(used, name)))
  const unknown = [...counted, raw].flatMap(pass => unknownCounters(pass, KNOWN_COUNTERS))
  const cost = dollarsOf(raw)
  return {
    usage: passes.reduce((sum, { usage }) => plus(sum, usage), NO_USAGE),
    valid: counter.valid,
    complete: counted.every(
      pass => counter.maybe(pass, 'input_tokens') !== undefined && counter.maybe(pass, 'output_tokens') !== undefined,
    ),
    ...(conditions && { conditions }),
    ...(iterations.length > 0 && { passes }),
    ...(unknown.length > 0 && { unknown: [...new Set(unknown)] }),
    ...(cost !== undefined && { cost }),
  }
}

/** The model of a pass, if it is not the one of the request. */
function otherModel(pass: RawUsage): string | undefined {
  const type = text(pass['type']) ?? 'message'
  return type === 'message' || type === 'compaction' ? undefined : text(pass['model'])
}

/** Usage as this format spells it: `count` reads it. */
export function encodeUsage(usage: Usage): RawUsage {
  return {
    input_tokens: usage.input,
    cache_creation_input_tokens: usage.cacheWrite5m + usage.cacheWrite1h,
    cache_read_input_tokens: usage.cacheRead,
    cache_creation: { ephemeral_5m_input_tokens: usage.cacheWrite5m, ephemeral_1h_input_tokens: usage.cacheWrite1h },
    output_tokens: usage.output,
    output_tokens_details: { thinking_tokens: usage.reasoning },
  }
}
