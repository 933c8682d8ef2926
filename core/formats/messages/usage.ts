/** Usage as the messages format counts it: cached tokens apart from the input. */
import type { Usage } from '../../ledger/money.ts'
import type { CountedUsage, RawUsage } from '../format.ts'
import { Counter, object } from '../reading.ts'

function countOnce(raw: RawUsage, counter: Counter): CountedUsage['usage'] {
  const split = object(raw['cache_creation'])
  const written = counter.of(raw, 'cache_creation_input_tokens')
  const cacheWrite1h = counter.of(split, 'ephemeral_1h_input_tokens')
  const output = counter.of(raw, 'output_tokens')
  return {
    input: counter.of(raw, 'input_tokens'),
    cacheRead: counter.of(raw, 'cache_read_input_tokens'),
    // The split may come without the sum, or the sum without the split: the short-lived class takes what is not named.
    cacheWrite5m: Math.max(counter.of(split, 'ephemeral_5m_input_tokens'), written - cacheWrite1h),
    cacheWrite1h,
    output,
    reasoning: Math.min(counter.of(object(raw['output_tokens_details']), 'thinking_tokens'), output),
  }
}

/** Raw usage in normal form; undefined when it counts nothing. */
export function count(raw: RawUsage): CountedUsage | undefined {
  const counter = new Counter()
  // After a compaction the top-level counters tell only of the last pass: the passes are billed together.
  const passes = Array.isArray(raw['iterations']) ? raw['iterations'].map(object).filter(pass => pass !== undefined) : []
  if (passes.length === 0 && counter.maybe(raw, 'input_tokens', 'output_tokens') === undefined) return undefined
  const told = passes.length > 0 ? passes : [raw]
  const parts = told.map(pass => countOnce(pass, counter))
  const sum = (part: keyof CountedUsage['usage']) => parts.reduce((all, usage) => all + usage[part], 0)
  return {
    usage: {
      input: sum('input'),
      cacheRead: sum('cacheRead'),
      cacheWrite5m: sum('cacheWrite5m'),
      cacheWrite1h: sum('cacheWrite1h'),
      output: sum('output'),
      reasoning: sum('reasoning'),
    },
    sound: counter.sound,
    whole: told.every(pass => counter.maybe(pass, 'input_tokens') !== undefined && counter.maybe(pass, 'output_tokens') !== undefined),
  }
}

/** Usage as `count` reads it. */
export function tell(usage: Usage): RawUsage {
  return {
    input_tokens: usage.input,
    cache_creation_input_tokens: usage.cacheWrite5m + usage.cacheWrite1h,
    cache_read_input_tokens: usage.cacheRead,
    cache_creation: { ephemeral_5m_input_tokens: usage.cacheWrite5m, ephemeral_1h_input_tokens: usage.cacheWrite1h },
    output_tokens: usage.output,
    output_tokens_details: { thinking_tokens: usage.reasoning },
  }
}
