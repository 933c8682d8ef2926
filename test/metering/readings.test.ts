/** Reports whose parts are in the number of their whole or beside it: what solves them. */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { type FormatName, formatOf, type SaidReading } from '../../core/formats/index.ts'
import type { Format } from '../../core/formats/format.ts'
import {
  type CounterName,
  EXCLUSIVE_COUNTERS,
  INCLUSIVE_COUNTERS,
  type Side,
} from '../../core/formats/usage-counters.ts'
import { Exchanges, PLACES, reply } from './exchanges.ts'

type Raw = Readonly<Record<string, unknown>>
/** Fresh input, and what was read from a cache, written to it, and generated. */
type Due = readonly [input: number, cacheRead: number, written: number, output: number]

/** Reports of gateways and providers, with what is due, and what the operator has to say. */
const SHAPES: readonly (readonly [
  from: string,
  FormatName,
  usage: Raw,
  Due,
  more?: { said?: SaidReading; beside?: Raw; searches?: number; marks?: readonly string[] },
])[] = [
  // prettier-ignore
  ['Portkey before Bedrock', 'chat-completions', { prompt_tokens: 4, completion_tokens: 97, total_tokens: 2922, cache_read_input_tokens: 2821, cache_creation_input_tokens: 0 }, [4, 2821, 0, 97]], // prettier-ignore
  ['Gemini through a converter', 'chat-completions', { prompt_tokens: 80, completion_tokens: 233, total_tokens: 550, completion_tokens_details: { reasoning_tokens: 60 } }, [317, 0, 0, 233], { marks: ['total_tokens'] }], // prettier-ignore
  ['Gemini, whose reasoning is only in the total', 'chat-completions', { prompt_tokens: 80, completion_tokens: 233, total_tokens: 550 }, [80, 0, 0, 470], { said: { reasoning: 'rest' } }], // prettier-ignore
  ['new-api before Claude', 'chat-completions', { prompt_tokens: 100, completion_tokens: 300, total_tokens: 400, usage_semantic: 'anthropic', prompt_tokens_details: { cached_tokens: 5000, cached_creation_tokens: 2000 } }, [100, 5000, 2000, 300]], // prettier-ignore
  ['Qwen with an explicit cache', 'chat-completions', { prompt_tokens: 3019, completion_tokens: 104, total_tokens: 3123, prompt_tokens_details: { cached_tokens: 0, cache_creation_input_tokens: 2048, cache_type: 'ephemeral' } }, [971, 0, 2048, 104]], // prettier-ignore
  ['Qwen with a search', 'chat-completions', { prompt_tokens: 1000, completion_tokens: 300, total_tokens: 1300, plugins: { search: { count: 1 } } }, [1000, 0, 0, 300], { searches: 1 }], // prettier-ignore
  ['Cohere', 'chat-completions', { billed_units: { input_tokens: 1000, output_tokens: 300 }, tokens: { input_tokens: 1100, output_tokens: 310 } }, [1000, 0, 0, 300]], // prettier-ignore
  ['Gemini in its own names', 'chat-completions', { promptTokenCount: 1000, candidatesTokenCount: 300, thoughtsTokenCount: 100, totalTokenCount: 1400 }, [1000, 0, 0, 400]], // prettier-ignore
  ['Gemini in its own names, with a cache and a tool', 'chat-completions', { promptTokenCount: 1000, cachedContentTokenCount: 600, toolUsePromptTokenCount: 50, candidatesTokenCount: 300, thoughtsTokenCount: 100, totalTokenCount: 1450 }, [450, 600, 0, 400]], // prettier-ignore
  ['Bedrock in its own names', 'chat-completions', { inputTokens: 100, outputTokens: 30, cacheReadInputTokens: 500, cacheWriteInputTokens: 200, totalTokens: 830 }, [100, 500, 200, 30]], // prettier-ignore
  ['Bedrock in its own names, without a total', 'chat-completions', { inputTokens: 600, outputTokens: 30, cacheReadInputTokens: 500 }, [600, 500, 0, 30]], // prettier-ignore
  ['GLM through a reseller', 'messages', { input_tokens: 6394, output_tokens: 300, cache_read_input_tokens: 6272, cache_creation_input_tokens: 0 }, [122, 6272, 0, 300], { said: { cached: 'inside' } }], // prettier-ignore
  ['llama.cpp', 'chat-completions', { prompt_tokens: 2000, completion_tokens: 300, total_tokens: 2300 }, [464, 1536, 0, 300], { beside: { timings: { cache_n: 1536, prompt_n: 464, predicted_n: 300 } } }], // prettier-ignore
  ['Azure', 'chat-completions', { prompt_tokens: 1000, completion_tokens: 300, total_tokens: 1300, latency_checkpoint: { engine_ttft_ms: 31, service_tbt_ms: 12 } }, [1000, 0, 0, 300]], // prettier-ignore
]

t.test('the reports of converters are charged as their providers mean them, whatever the speed', async t => {
  for (const [from, format, usage, due, { said = {}, beside = {}, searches, marks } = {}] of SHAPES) {
    const { type, path } = PLACES[format]
    const place = await Exchanges.load(file => file.set(`upstreams.${type}.usage`, { ...said }))
    const costs = new Set<string>()
    for (const elapsedMs of [0, 500, 60_000]) {
      const whole = { ...(reply(path) as Raw), usage, ...beside }
      const { notes, cost } = await place.ask(format, {}, { reply: whole, elapsedMs })
      const { input = 0, cacheRead = 0, cacheWrite5m = 0, cacheWrite1h = 0, output = 0 } = notes.usage ?? {}
      t.same([input, cacheRead, cacheWrite5m + cacheWrite1h, output], due, from)
      t.same(notes.unread, marks, `${from}: the marks`)
      t.equal(notes.conditions?.calls?.webSearch, searches, from)
      costs.add(String(cost))
    }
    t.equal(costs.size, 1, `${from}: the same at every speed`)
  }
})

const TABLES = { 'chat-completions': INCLUSIVE_COUNTERS, responses: INCLUSIVE_COUNTERS, messages: EXCLUSIVE_COUNTERS }
/** The parts, with their wholes. */
const PARTS = { cacheRead: 'prompt', cacheWrite: 'prompt', reasoning: 'output' } as const
const SIDES = fc.constantFrom<Side>('inside', 'beside')

/** A report as some provider may write it: any names of a table, any sides, with a total or without. */
const REPORT = fc.record({
  format: fc.constantFrom<FormatName>('chat-completions', 'responses', 'messages'),
  fresh: fc.nat(4000),
  cacheRead: fc.oneof(fc.constant(0), fc.nat(9000)),
  cacheWrite: fc.oneof(fc.constant(0), fc.nat(900)),
  text: fc.integer({ min: 1, max: 3000 }),
  reasoning: fc.oneof(fc.constant(0), fc.nat(2000)),
  cached: SIDES,
  thought: SIDES,
  hasTotal: fc.boolean(),
  /** What chooses among the names of a counter. */
  nth: fc.nat(100),
})
type Report = typeof REPORT extends fc.Arbitrary<infer R> ? R : never

const PLAIN_NAMES = /^(?!.*(?:Token|billed|timings|claude|_details\.cache_creation_token_details))/

/** Writes a report. */
function written(report: Report): { raw: Raw; counts: ReadonlyMap<CounterName, number> } {
  const { fresh, cacheRead, cacheWrite, text, reasoning, cached, thought, hasTotal } = report
  const counts = new Map<CounterName, number>([
    ['prompt', fresh + (cached === 'inside' ? cacheRead + cacheWrite : 0)],
    ['cacheRead', cacheRead],
    ['cacheWrite', cacheWrite],
    ['output', text + (thought === 'inside' ? reasoning : 0)],
    ['reasoning', reasoning],
  ])
  if (hasTotal) counts.set('total', fresh + cacheRead + cacheWrite + text + reasoning)
  const raw: Record<string, any> = {}
  for (const [name, count] of counts) {
    const places = TABLES[report.format].rows.find(({ counts: each }) => each === name)?.places ?? []
    const named = places.filter(({ path }) => PLAIN_NAMES.test(path) && path !== 'prompt_tokens')
    const { names = [] } = named[report.nth % named.length] ?? {}
    let at = raw
    for (const inner of names.slice(0, -1)) at = at[inner] ??= {}
    at[names.at(-1) ?? ''] = count
  }
  return { raw, counts }
}

/** Returns what a report may mean: the sides on which each part fits, and the total agrees. */
function meanings({ format, hasTotal }: Report, counts: ReadonlyMap<CounterName, number>): Due[] {
  const of = (name: CounterName): number => counts.get(name) ?? 0
  const [read, wrote, thought] = (Object.keys(PARTS) as (keyof typeof PARTS)[]).map(of) as [number, number, number]
  const found = (['inside', 'beside'] as const).flatMap(cached =>
    (['inside', 'beside'] as const).flatMap((reasoning): Due[] => {
      const fresh = of('prompt') - (cached === 'inside' ? read + wrote : 0)
      const output = of('output') + (reasoning === 'beside' ? thought : 0)
      if (fresh < 0 || thought > output) return []
      if (hasTotal) return of('total') === fresh + read + wrote + output ? [[fresh, read, wrote, output]] : []
      const own = format === 'messages' ? 'beside' : 'inside'
      return cached === own && reasoning === 'inside' ? [[fresh, read, wrote, output]] : []
    }),
  )
  return found.filter((each, nth) => found.findIndex(other => isDeepStrictEqual(each, other)) === nth)
}

t.test('a report with one meaning is charged as it means, and without a mark; any other one has a mark', t => {
  const seen = { one: 0, several: 0, none: 0 }
  const numRuns = Number(process.env['CASES'] ?? 5000)
  fc.assert(
    fc.property(REPORT, drawn => {
      // Parts of the same size may stand on either side.
      const isSame = drawn.nth % 10 === 0
      const report = isSame ? { ...drawn, reasoning: drawn.cacheRead + drawn.cacheWrite } : drawn
      const { raw, counts } = written(report)
      const counted = (formatOf(PLACES[report.format].path) as Format).decodeUsage(raw)
      const { input = 0, cacheRead = 0, cacheWrite5m = 0, cacheWrite1h = 0, output = 0 } = counted?.usage ?? {}
      const found: Due = [input, cacheRead, cacheWrite5m + cacheWrite1h, output]
      const possible = meanings(report, counts)
      const isMarked = counted?.odd !== undefined || counted?.unread !== undefined
      if (possible.length === 1) {
        seen.one++
        return isDeepStrictEqual(found, possible[0]) && !isMarked
      }
      seen[possible.length === 0 ? 'none' : 'several']++
      // The format's own meaning needs no mark, where it is one of several.
      return isMarked || possible.some(each => isDeepStrictEqual(found, each))
    }),
    { numRuns, seed: Number(process.env['SEED'] ?? 20_261_130) },
  )
  t.ok(Object.values(seen).every(count => count > 0), JSON.stringify(seen)) // prettier-ignore
  t.end()
})
