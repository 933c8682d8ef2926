/**
 * The counters of providers' usage objects: a table of the paths at which they stand, and its reader. docs/providers.md
 * has the same table.
 */
import type { Usage } from '../money/usage.ts'
import { object, words } from './json.ts'
import type { Json } from './terms.ts'

/**
 * What a counter counts. `prompt` is all input; `input` is the input that was neither read from a cache nor written to
 * one; `total` is all tokens, and only checks the others.
 */
export type CounterName =
  | 'prompt'
  | 'input'
  | 'cacheRead'
  | 'cacheWrite'
  | 'cacheWrite5m'
  | 'cacheWrite1h'
  | 'audioInput'
  | 'imageInput'
  | 'output'
  | 'reasoning'
  | 'audioOutput'
  | 'imageOutput'
  | 'rejected'
  | 'total'

/** A place of a counter in a usage object. */
interface Place {
  /** The names of the members, with a point between two of them. */
  readonly path: string
  readonly names: readonly string[]
}

/** A counter, with the counter that it is a part of, if any, and the places at which providers have it. */
export interface CounterRow {
  readonly counts: CounterName
  readonly partOf?: CounterName
  readonly places: readonly Place[]
}

/** The counters of a format. */
export interface CounterTable {
  /** Whether cached and written tokens are parts of the prompt, and reasoning may be beside the output. */
  readonly isInclusive: boolean
  readonly rows: readonly CounterRow[]
  /** The paths of all rows. */
  readonly paths: ReadonlySet<string>
}

function tableOf(isInclusive: boolean, rows: readonly CounterRow[]): CounterTable {
  return { isInclusive, rows, paths: new Set(rows.flatMap(({ places }) => places.map(({ path }) => path))) }
}

function row(counts: CounterName, partOf: CounterName | undefined, ...paths: string[]): CounterRow {
  const places = paths.flatMap(words).map(path => ({ path, names: path.split('.') }))
  return { counts, ...(partOf && { partOf }), places }
}

/** The same names in the details of the input, or of the output. */
function details(of: 'input' | 'output', ...names: string[]): string {
  const vendors = of === 'input' ? ['prompt', 'input'] : ['completion', 'output']
  return names.flatMap(name => vendors.map(vendor => `${vendor}_tokens_details.${name}`)).join(' ')
}

const OUTPUT_ROWS: readonly CounterRow[] = [
  row('output', undefined, 'completion_tokens output_tokens'),
  row('reasoning', 'output', details('output', 'reasoning_tokens', 'thinking_tokens'), 'reasoning_tokens'),
  row('audioOutput', 'output', details('output', 'audio_tokens')),
  row('imageOutput', 'output', details('output', 'image_tokens')),
  row('rejected', 'output', details('output', 'rejected_prediction_tokens')),
  row('total', undefined, 'total_tokens'),
]

/** The counters of the chat-completions and responses formats: cached and written tokens are parts of the prompt. */
export const INCLUSIVE_COUNTERS: CounterTable = tableOf(true, [
  row('prompt', undefined, 'prompt_tokens input_tokens'),
  row(
    'cacheRead',
    'prompt',
    details('input', 'cached_tokens'),
    'cached_tokens prompt_cache_hit_tokens cache_read_input_tokens',
  ),
  row(
    'cacheWrite',
    'prompt',
    details('input', 'cache_write_tokens', 'cache_creation_tokens'),
    'cache_creation_input_tokens',
  ),
  row('cacheWrite5m', 'cacheWrite', details('input', 'cache_creation_token_details.ephemeral_5m_input_tokens')),
  row(
    'cacheWrite1h',
    'cacheWrite',
    details(
      'input',
      'cache_write_tokens_details.ttl_12h_tokens',
      'cache_creation_token_details.ephemeral_1h_input_tokens',
    ),
  ),
  row('audioInput', 'prompt', details('input', 'audio_tokens')),
  row('imageInput', 'prompt', details('input', 'image_tokens')),
  ...OUTPUT_ROWS,
])

/** The counters of the messages format: cached and written tokens are counted beside the input. */
export const EXCLUSIVE_COUNTERS: CounterTable = tableOf(false, [
  row('input', undefined, 'input_tokens'),
  row('prompt', undefined, 'prompt_tokens'),
  row('cacheRead', undefined, 'cache_read_input_tokens'),
  row('cacheWrite', undefined, 'cache_creation_input_tokens'),
  row('cacheWrite5m', 'cacheWrite', 'cache_creation.ephemeral_5m_input_tokens'),
  row('cacheWrite1h', 'cacheWrite', 'cache_creation.ephemeral_1h_input_tokens'),
  ...OUTPUT_ROWS,
])

/** Members that count no tokens, or that repeat a counter. The members inside them are not looked at. */
const OTHERS: ReadonlySet<string> = new Set(
  words(`
  service_tier speed inference_geo server_tool_use server_side_tool_usage_details num_sources_used num_search_queries
  num_server_side_tools_used cost cost_details cost_in_usd_ticks is_byok iterations image_gen
  type model prompt_cache_miss_tokens text_tokens accepted_prediction_tokens cached_tokens_details
  queue_time prompt_time completion_time total_time
`),
)

/** How many paths an entry lists. */
const PATHS_MAX = 8
/** How many characters of a path are looked at. */
const PATH_CHARS_MAX = 64

/** What the counters of one usage object say. A counter that was not reported is missing. */
interface Counts {
  readonly values: ReadonlyMap<CounterName, number>
  /** The path at which a counter was found. */
  readonly places: ReadonlyMap<CounterName, string>
  readonly unread: Set<string>
}

/** The value at a path. */
function valueAt(raw: Json, names: readonly string[]): unknown {
  let value: unknown = raw
  for (const name of names) value = object(value)?.[name]
  return value
}

/** Returns a value as a whole number, also if it is written as a text. Undefined for any other value. */
export function countOf(value: unknown): number | undefined {
  const count = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value
  return typeof count === 'number' && Number.isSafeInteger(count) && count >= 0 ? count : undefined
}

/** Like `countOf`. Adds the path to `unread` if the value is present and not written as a number. */
export function countAt(path: string, value: unknown, unread: Set<string>): number | undefined {
  if (value === undefined || value === null) return undefined
  const count = countOf(value)
  if (count === undefined || typeof value === 'string') unread.add(path)
  return count
}

/** Whether a value is null, zero, false or an empty text, or holds only such values. */
function isEmpty(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return !value || value === '0'
  return Object.values(value).every(isEmpty)
}

/** Reads the counters of a table. Of several places of one counter, the greatest counts. */
function countsIn(raw: Json, { rows, paths }: CounterTable): Counts {
  const values = new Map<CounterName, number>()
  const places = new Map<CounterName, string>()
  const unread = new Set<string>()
  for (const row of rows)
    for (const { path, names } of row.places) {
      const { counts } = row
      const count = countAt(path, valueAt(raw, names), unread)
      if (count === undefined || (values.get(counts) ?? -1) >= count) continue
      values.set(counts, count)
      places.set(counts, path)
    }
  addUnread(raw, paths, '', unread)
  return { values, places, unread }
}

/** Adds the paths of members that are neither in a table nor among the others, and that say something. */
function addUnread(raw: Json, known: ReadonlySet<string>, within: string, unread: Set<string>): void {
  for (const name in raw) {
    const path = `${within}${name}`
    const value = raw[name]
    if (known.has(path) || OTHERS.has(name) || isEmpty(value)) continue
    const inner = object(value)
    if (inner && path.length < PATH_CHARS_MAX) addUnread(inner, known, `${path}.`, unread)
    else unread.add(path)
  }
}

/**
 * Returns a function that reads a counter inside a member. A counter that is missing, or that is no number, is 0.
 * @param unread gets the paths of counters that are not written as numbers
 */
export function countsOf(raw: Json, member: string, unread: Set<string>): (name: string) => number {
  return name => countAt(`${member}.${name}`, object(raw[member])?.[name], unread) ?? 0
}

/** Returns the paths as an entry lists them. A path that could be a customer's text becomes `other`. */
export function listedPaths(unread: Iterable<string>): readonly string[] {
  return [...new Set([...unread].map(path => (/^[\w.-]{1,64}$/.test(path) ? path : 'other')))].slice(0, PATHS_MAX)
}

/** What the token counters of a usage object say. */
export interface TokenCounts {
  readonly usage: Usage
  readonly hasInput: boolean
  readonly hasOutput: boolean
  /** Tokens of the total that no counter explains. */
  readonly unexplained: number
  /** All tokens by the upstream's own sum, if that is not the sum of the counters. */
  readonly total: number | undefined
  /** Paths that were not understood. */
  readonly unread: Set<string>
  /** Paths of counters that do not add up. */
  readonly odd: Set<string>
}

/** Reads the token counters of a usage object. */
export function countTokens(raw: Json, table: CounterTable): TokenCounts {
  const { isInclusive } = table
  const { values, places, unread } = countsIn(raw, table)
  const odd = new Set<string>()
  const of = (name: CounterName): number => values.get(name) ?? 0
  /** A part is at most its whole. One that is larger does not add up. */
  const part = (name: CounterName, whole: number): number => {
    const count = of(name)
    if (count > whole) odd.add(places.get(name) ?? name)
    return Math.min(count, whole)
  }
  const hasPrompt = values.has('prompt') && !values.has('input')
  const prompt = isInclusive || hasPrompt ? of('prompt') : Infinity
  const cacheRead = part('cacheRead', prompt)
  // The parts may come without their sum, and the sum without its parts. Tokens that are not named count as short-lived.
  const named = of('cacheWrite5m') + of('cacheWrite1h')
  const written = Math.max(of('cacheWrite'), named)
  const cacheWrite = Math.min(written, prompt - cacheRead)
  if (written > cacheWrite || (values.has('cacheWrite') && named > of('cacheWrite')))
    odd.add(places.get('cacheWrite') ?? places.get('cacheWrite1h') ?? places.get('cacheWrite5m') ?? 'cacheWrite')
  const cacheWrite1h = Math.min(of('cacheWrite1h'), cacheWrite)
  const input = prompt === Infinity ? of('input') : prompt - cacheRead - cacheWrite
  // Media that were read from a cache are not in the fresh input.
  const mediaMax = prompt === Infinity ? input : prompt
  const audioInput = Math.min(part('audioInput', mediaMax), input)
  const imageInput = Math.min(part('imageInput', mediaMax - audioInput), input - audioInput)
  const total = values.get('total')
  const all = input + cacheRead + cacheWrite
  // One vendor does not count reasoning as output, and the total shows it (prompt 12, completion 2, total 354, reasoning
  // 340). More reasoning than output cannot be a part of it.
  const isApart = isInclusive && of('reasoning') > 0 && total === all + of('output') + of('reasoning')
  const isBeside = of('reasoning') > of('output')
  if (isBeside && !isApart) odd.add(places.get('reasoning') ?? 'reasoning')
  const output = of('output') + (isApart || isBeside ? of('reasoning') : 0)
  const reasoning = Math.min(of('reasoning'), output)
  const rejected = part('rejected', output - reasoning)
  const audioOutput = part('audioOutput', output - reasoning - rejected)
  const imageOutput = part('imageOutput', output - reasoning - rejected - audioOutput)
  const unexplained = total === undefined ? 0 : Math.max(0, total - all - output)
  const isOdd = total !== undefined && total !== 0 && total !== all + output
  if (isOdd) odd.add('total_tokens')
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
    hasInput: values.has('prompt') || values.has('input'),
    hasOutput: values.has('output'),
    unexplained,
    total: isOdd ? total : undefined,
    unread,
    odd,
  }
}
