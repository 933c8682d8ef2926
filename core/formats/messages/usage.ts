/** Usage in the messages format: cached tokens are counted apart from the input. */
import { inputTokens, NO_USAGE, plus, type Usage } from '../../money/usage.ts'
import type { CountedUsage, Pass, RawUsage } from '../terms.ts'
import { callsNamed } from '../provider-tools.ts'
import { list, object, text } from '../json.ts'
import { counted, reportedConditions } from '../usage.ts'
import { countsOf, EXCLUSIVE_COUNTERS } from '../usage-counters.ts'
import { countTokens, type SaidReading } from '../usage-reading.ts'

/** Usage in normal form; undefined if it counts nothing. */
export function count(raw: RawUsage, said?: SaidReading): CountedUsage | undefined {
  // After a compaction the top-level counters are those of the last pass only. All passes are billed.
  const iterations = list(raw['iterations'])
    .map(object)
    .filter(pass => pass !== undefined)
  const own = countTokens(raw, EXCLUSIVE_COUNTERS, said)
  // If only passes of other models are listed, the top-level counters are the model's own.
  const isOwn = iterations.every(pass => otherModel(pass) !== undefined)
  const listed = iterations.map(pass => ({ model: otherModel(pass), ...countTokens(pass, EXCLUSIVE_COUNTERS, said) }))
  const all = isOwn ? [{ model: undefined, ...own }, ...listed] : listed
  const passes = all.map(({ model, usage }): Pass => ({ model, usage, ...(model !== undefined && { separate: true }) }))
  const unread = new Set([own, ...listed].flatMap(each => [...each.unread]))
  // The passes together are at least the last one, which the top-level counters repeat.
  const listedTokens = listed.reduce((sum, { usage }) => sum + inputTokens(usage) + usage.output, 0)
  const passesAreLess = !isOwn && inputTokens(own.usage) + own.usage.output > listedTokens
  const used = object(raw['server_tool_use'])
  return counted(
    passes.reduce((sum, { usage }) => plus(sum, usage), NO_USAGE),
    {
      raw,
      hasInput: all.every(({ hasInput }) => hasInput),
      hasOutput: all.every(({ hasOutput }) => hasOutput),
      total: own.total,
      unread,
      odd: new Set([own, ...listed].flatMap(each => [...each.odd]).concat(passesAreLess ? ['iterations'] : [])),
      conditions: reportedConditions(raw, used && callsNamed(used, countsOf(raw, 'server_tool_use', unread))),
      ...(iterations.length > 0 && { passes }),
    },
  )
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
