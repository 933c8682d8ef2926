/**
 * The counters of providers' usage objects: a table of the paths at which they stand, and its reader. docs/providers.md
 * has the same table.
 */
import { object, words } from './json.ts'
import type { Json } from './terms.ts'

/**
 * What a counter counts. `prompt` is the input, with or without its cached part; `toolPrompt` is the input that tools of the
 * provider have added; `total` is all tokens, and shows how the others are meant.
 */
export type CounterName =
  | 'prompt'
  | 'toolPrompt'
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

/** Whether a part is in the number of its whole, or beside it. */
export type Side = 'inside' | 'beside'

/** How a report is meant: where its cached and written tokens are, its reasoning, and the prompt of tools. */
export interface UsageReading {
  readonly cached: Side
  readonly reasoning: Side
  readonly toolPrompt: Side
}

/** The counters of a format. */
export interface CounterTable {
  /** How the format means them. */
  readonly reading: UsageReading
  readonly rows: readonly CounterRow[]
  /** The paths of all rows. */
  readonly paths: ReadonlySet<string>
}

function tableOf(cached: Side, rows: readonly CounterRow[]): CounterTable {
  const reading = { cached, reasoning: 'inside', toolPrompt: 'beside' } as const
  return { reading, rows, paths: new Set(rows.flatMap(({ places }) => places.map(({ path }) => path))) }
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
  row(
    'output',
    undefined,
    'completion_tokens output_tokens candidatesTokenCount outputTokens billed_units.output_tokens',
  ),
  row(
    'reasoning',
    'output',
    details('output', 'reasoning_tokens', 'thinking_tokens'),
    'reasoning_tokens thoughtsTokenCount',
  ),
  row('audioOutput', 'output', details('output', 'audio_tokens')),
  row('imageOutput', 'output', details('output', 'image_tokens')),
  row('rejected', 'output', details('output', 'rejected_prediction_tokens')),
  row('total', undefined, 'total_tokens totalTokenCount totalTokens'),
]

/** The counters of the chat-completions and responses formats: cached and written tokens are parts of the prompt. */
export const INCLUSIVE_COUNTERS: CounterTable = tableOf('inside', [
  row('prompt', undefined, 'prompt_tokens input_tokens promptTokenCount inputTokens billed_units.input_tokens'),
  row('toolPrompt', 'prompt', 'toolUsePromptTokenCount'),
  row(
    'cacheRead',
    'prompt',
    details('input', 'cached_tokens'),
    'cached_tokens prompt_cache_hit_tokens cache_read_input_tokens cachedContentTokenCount cacheReadInputTokens',
    'timings.cache_n',
  ),
  row(
    'cacheWrite',
    'prompt',
    details(
      'input',
      'cache_write_tokens',
      'cache_creation_tokens',
      'cached_creation_tokens',
      'cache_creation_input_tokens',
    ),
    'cache_creation_input_tokens cacheWriteInputTokens',
  ),
  row(
    'cacheWrite5m',
    'cacheWrite',
    details('input', 'cache_creation_token_details.ephemeral_5m_input_tokens'),
    'claude_cache_creation_5_m_tokens',
  ),
  row(
    'cacheWrite1h',
    'cacheWrite',
    details(
      'input',
      'cache_write_tokens_details.ttl_12h_tokens',
      'cache_creation_token_details.ephemeral_1h_input_tokens',
    ),
    'claude_cache_creation_1_h_tokens',
  ),
  row('audioInput', 'prompt', details('input', 'audio_tokens')),
  row('imageInput', 'prompt', details('input', 'image_tokens')),
  ...OUTPUT_ROWS,
])

/** The counters of the messages format: cached and written tokens are counted beside the input. */
export const EXCLUSIVE_COUNTERS: CounterTable = tableOf('beside', [
  row('prompt', undefined, 'input_tokens prompt_tokens'),
  row('cacheRead', 'prompt', 'cache_read_input_tokens'),
  row('cacheWrite', 'prompt', 'cache_creation_input_tokens'),
  row('cacheWrite5m', 'cacheWrite', 'cache_creation.ephemeral_5m_input_tokens'),
  row('cacheWrite1h', 'cacheWrite', 'cache_creation.ephemeral_1h_input_tokens'),
  ...OUTPUT_ROWS,
])

/** How vendors mean a counter of theirs, whatever the format that they use it in. */
const OF_VENDORS: Readonly<Record<string, Partial<UsageReading>>> = {
  // In messages, a vendor who reports the whole prompt calls it so.
  prompt_tokens: { cached: 'inside' },
  inputTokens: { cached: 'beside' },
  thoughtsTokenCount: { reasoning: 'beside' },
}

/** Members that count no tokens, or that repeat a counter. The members inside them are not looked at. */
const OTHERS: ReadonlySet<string> = new Set(
  words(`
  service_tier speed inference_geo server_tool_use server_side_tool_usage_details num_sources_used num_search_queries
  num_server_side_tools_used cost cost_details cost_in_usd_ticks is_byok iterations image_gen
  type model prompt_cache_miss_tokens text_tokens accepted_prediction_tokens cached_tokens_details
  queue_time prompt_time completion_time total_time latency_checkpoint tokens cache_type usage_semantic usage_source
`),
)

/** How many paths an entry lists. */
const PATHS_MAX = 8
/** How many characters of a path are looked at. */
const PATH_CHARS_MAX = 64

/** What the counters of one usage object say. A counter that was not reported is missing. */
export interface Counts {
  readonly values: ReadonlyMap<CounterName, number>
  /** The path at which a counter was found. */
  readonly places: ReadonlyMap<CounterName, string>
  /** How the format, and the vendors of these names, mean them. */
  readonly reading: UsageReading
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
export function countsIn(raw: Json, { rows, paths, reading }: CounterTable): Counts {
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
  const vendors = [...places.values()].map(path => OF_VENDORS[path])
  return { values, places, unread, reading: Object.assign({}, reading, ...vendors) as UsageReading }
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
