/**
 * Solves a report of usage: its parts are in the number of their whole or beside it, and what the report says decides.
 * docs/providers.md has the same rule, with worked reports.
 */
import type { Usage } from '../money/usage.ts'
import { text } from './json.ts'
import type { EndWords, Json } from './terms.ts'
import {
  type CounterName,
  type CounterTable,
  type Counts,
  countsIn,
  type Side,
  type UsageReading,
} from './usage-counters.ts'

/** What an operator says about the reports of a provider. `rest`: reasoning is only in the total. */
export interface SaidReading {
  readonly cached?: Side | undefined
  readonly reasoning?: Side | 'rest' | undefined
  /** Words by which its replies end. */
  readonly ends?: EndWords | undefined
}

/** What a report says about itself: a converter names the vendor whose way of counting it keeps. */
const SEMANTICS: Readonly<Record<string, SaidReading>> = {
  anthropic: { cached: 'beside' },
  openai: { cached: 'inside' },
}

/** What the token counters of a usage object say. */
export interface TokenCounts {
  readonly usage: Usage
  readonly hasInput: boolean
  readonly hasOutput: boolean
  /** All tokens by the upstream's own sum, if that is not the sum of the counters. */
  readonly total: number | undefined
  /** Paths that were not understood. */
  readonly unread: Set<string>
  /** Paths of counters that do not add up. */
  readonly odd: Set<string>
}

/** A part that may be in the number of its whole. */
interface Part {
  readonly name: keyof UsageReading
  readonly count: number
  /** Undefined if it is not reported. */
  readonly whole: number | undefined
}

/** The counters of each part. */
const COUNTERS: Readonly<Record<keyof UsageReading, readonly CounterName[]>> = {
  cached: ['cacheRead', 'cacheWrite'],
  reasoning: ['reasoning'],
  toolPrompt: ['toolPrompt'],
}

/** Reads the token counters of a usage object. */
export function countTokens(raw: Json, table: CounterTable, said: SaidReading = {}): TokenCounts {
  const counts = countsIn(raw, table)
  const { values, places, unread } = counts
  const odd = new Set<string>()
  const of = (name: CounterName): number => values.get(name) ?? 0
  const mark = (name: CounterName, ...others: CounterName[]): void => {
    const found = [name, ...others].find(each => places.has(each)) ?? name
    odd.add(places.get(found) ?? found)
  }
  // The parts may come without their sum, and the sum without its parts. Tokens that are not named count as short-lived.
  const named = of('cacheWrite5m') + of('cacheWrite1h')
  const written = Math.max(of('cacheWrite'), named)
  if (values.has('cacheWrite') && named > of('cacheWrite')) mark('cacheWrite')
  const told = { ...SEMANTICS[text(raw['usage_semantic']) ?? ''], ...said }
  const { reading, rest, doubts } = solved(counts, written, told)
  for (const name of doubts) if (places.has(name)) mark(name)
  const isInside = reading.cached === 'inside'
  const prompt = of('prompt') + (reading.toolPrompt === 'beside' ? of('toolPrompt') : 0)
  const most = isInside ? prompt : Infinity
  const cacheRead = Math.min(of('cacheRead'), most)
  const cacheWrite = Math.min(written, most - cacheRead)
  if (cacheRead < of('cacheRead')) mark('cacheRead')
  if (cacheWrite < written) mark('cacheWrite', 'cacheWrite1h', 'cacheWrite5m')
  const cacheWrite1h = Math.min(of('cacheWrite1h'), cacheWrite)
  const isReasoning = told.reasoning === 'rest'
  const fresh = isInside ? prompt - cacheRead - cacheWrite : prompt
  const input = fresh + (isReasoning ? 0 : rest)
  const part = (name: CounterName, whole: number): number => {
    if (of(name) > whole) mark(name)
    return Math.min(of(name), whole)
  }
  // Media that were read from a cache are not in the fresh input.
  const audioInput = Math.min(part('audioInput', prompt), input)
  const imageInput = Math.min(part('imageInput', prompt - audioInput), input - audioInput)
  const beside = (reading.reasoning === 'beside' ? of('reasoning') : 0) + (isReasoning ? rest : 0)
  const output = of('output') + beside
  const reasoning = Math.min(Math.max(of('reasoning'), beside), output)
  const rejected = part('rejected', output - reasoning)
  const audioOutput = part('audioOutput', output - reasoning - rejected)
  const imageOutput = part('imageOutput', output - reasoning - rejected - audioOutput)
  return {
    usage: {
      input,
      cacheRead,
      cacheWrite5m: cacheWrite - cacheWrite1h,
      cacheWrite1h,
      output,
      reasoning,
      ...(audioInput > 0 && { audioInput }),
      ...(imageInput > 0 && { imageInput }),
      ...(audioOutput > 0 && { audioOutput }),
      ...(imageOutput > 0 && { imageOutput }),
      ...(rejected > 0 && { rejected }),
    },
    hasInput: values.has('prompt'),
    hasOutput: values.has('output'),
    total: doubts.includes('total') ? values.get('total') : undefined,
    unread,
    odd,
  }
}

/** How a report is meant, the tokens that only its total has, and the counters that leave a doubt. */
interface Solved {
  readonly reading: UsageReading
  readonly rest: number
  readonly doubts: readonly CounterName[]
}

/**
 * Solves a report. What is said decides; then a part that is larger than its whole is beside it; then the total decides; then
 * the format and its vendors.
 */
function solved({ values, reading: own }: Counts, written: number, told: SaidReading): Solved {
  const of = (name: CounterName): number => values.get(name) ?? 0
  const parts: readonly Part[] = [
    { name: 'reasoning', count: of('reasoning'), whole: values.get('output') },
    { name: 'cached', count: of('cacheRead') + written, whole: values.get('prompt') },
    { name: 'toolPrompt', count: of('toolPrompt'), whole: values.get('prompt') },
  ]
  const readings = parts.reduce(
    (all, part) =>
      sidesOf(part, own[part.name], told).flatMap(side => all.map(each => ({ ...each, [part.name]: side }))),
    [own],
  )
  const named = of('prompt') + of('output')
  const sumOf = (reading: UsageReading): number =>
    parts.reduce((sum, { name, count }) => sum + (reading[name] === 'beside' ? count : 0), named)
  const [first = own] = readings
  const total = of('total')
  if (total === 0) {
    // Nothing confirms that a part is on the other side.
    const moved = parts.filter(({ name }) => first[name] !== own[name] && !(name in told))
    return { reading: first, rest: 0, doubts: moved.flatMap(({ name }) => COUNTERS[name]) }
  }
  const exact = readings.filter(reading => sumOf(reading) === total)
  const isClear = exact.length < 2 || exact[0] === first
  if (exact[0]) return { reading: exact[0], rest: 0, doubts: isClear ? [] : ['total'] }
  // A converter that counts parts beside the prompt may leave them out of its total.
  if (told.cached === 'beside' && total === named) return { reading: first, rest: 0, doubts: [] }
  const below = readings.find(reading => sumOf(reading) < total)
  if (below) return { reading: below, rest: total - sumOf(below), doubts: told.reasoning === 'rest' ? [] : ['total'] }
  const least = { cached: told.cached ?? 'inside', reasoning: 'inside', toolPrompt: 'inside' } as const
  return { reading: least, rest: 0, doubts: ['total'] }
}

/** The sides on which a part may be, the likelier one first. */
function sidesOf({ name, count, whole = Infinity }: Part, own: Side, told: SaidReading): readonly Side[] {
  const said = name === 'toolPrompt' ? undefined : told[name]
  if (said !== undefined) return [said === 'rest' ? 'inside' : said]
  if (count > whole) return ['beside']
  return count === 0 ? [own] : [own, own === 'inside' ? 'beside' : 'inside']
}
