/** Durations, sizes and token counts in the notation of the configuration file. */
import { duration, UNITS_MS } from '../lib/duration.ts'

/** More tokens than any model reads or writes. A larger number is a mistake. */
export const TOKENS_MAX = 100_000_000

const BYTES: Readonly<Record<string, number>> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 }

/** Timers count milliseconds in 31 bits. A longer one would fire at once. */
const LONGEST_MS = 24 * 86_400_000

const DURATION_TEXT = '^\\d{1,9}(ms|s|m|h|d)$'

/** Schema of a duration. */
export const DURATION = {
  type: 'string',
  pattern: DURATION_TEXT,
  format: 'duration',
  expected: 'a duration such as 500ms, 15s, 10m or 24h, from 1ms to 24d',
} as const

/** Schema of a duration that may be zero. */
export const PAUSE = {
  type: 'string',
  pattern: DURATION_TEXT,
  format: 'pause',
  expected: 'a duration such as 500ms, 15s, 10m or 24h, from 0s to 24d',
} as const

/**
 * Schema of a retention time. It may exceed the limit of timers. A settlement may be days late, and must find what was
 * recorded before.
 */
export const AGE = {
  type: 'string',
  pattern: DURATION_TEXT,
  format: 'age',
  expected: 'a duration such as 30d or 365d, from 7d to 9999d',
} as const

/** Checks for the `format` keywords of the schemas above. */
export const FORMATS_OF_UNITS = {
  duration: (text: string): boolean => !readable(text) || (duration(text) > 0 && duration(text) <= LONGEST_MS),
  pause: (text: string): boolean => !readable(text) || duration(text) <= LONGEST_MS,
  age: (text: string): boolean =>
    !readable(text) || (duration(text) >= 7 * 86_400_000 && duration(text) <= 9999 * 86_400_000),
} as const

/** Returns whether a text is a duration at all. If not, the pattern reports it. */
function readable(text: string): boolean {
  return new RegExp(DURATION_TEXT).test(text)
}

/** Schema of a size in bytes. */
export const SIZE = {
  type: 'string',
  pattern: '^[1-9]\\d{0,8}(B|KiB|MiB|GiB)$',
  expected: 'a size such as 512B, 16KiB or 32MiB',
} as const

/** Schema of a size, or `auto`. */
export const SIZE_OR_AUTO = {
  ...SIZE,
  pattern: `^auto$|${SIZE.pattern}`,
  expected: 'a size such as 512MiB, or `auto`',
} as const

/** Units by the pattern of the schema that they belong to. */
const SCALES: ReadonlyMap<string, Readonly<Record<string, number>>> = new Map([
  [DURATION_TEXT, UNITS_MS],
  [SIZE.pattern, BYTES],
  [SIZE_OR_AUTO.pattern, BYTES],
])

/** Other spellings of the units. */
const SPELLINGS: Readonly<Record<string, readonly string[]>> = {
  ms: ['msec', 'msecs', 'millis', 'milliseconds'],
  s: ['sec', 'secs', 'second', 'seconds'],
  m: ['min', 'mins', 'minute', 'minutes'],
  h: ['hr', 'hrs', 'hour', 'hours'],
  d: ['day', 'days'],
  B: ['b', 'byte', 'bytes'],
  KiB: ['k', 'kb', 'kib'],
  MiB: ['m', 'mb', 'mib'],
  GiB: ['g', 'gb', 'gib'],
}

/**
 * Rewrites a duration or a size that spells its unit differently, has no unit, several units, or a fraction.
 * @param pattern the schema's pattern that the text does not match
 * @param missing the unit to assume if the text has none
 */
export function respelled(text: string, pattern: string | undefined, missing = ''): string | undefined {
  const scales = SCALES.get(pattern ?? '') ?? {}
  // A number without a unit has the default's unit, or the smallest one if it is large.
  const unit = /^\d{4}$/.test(text) && !'hd'.includes(missing) ? Object.keys(scales)[0] : missing
  const whole = /^\d{1,4}$/.test(text) ? text + unit : text
  if (
    pattern === undefined ||
    new RegExp(pattern).test(text) ||
    !/^(?:\d{1,4}(?:\.\d{1,3})? ?[A-Za-z]+ ?)+$/.test(whole)
  )
    return undefined
  const parts = [...whole.matchAll(/([\d.]+) ?([A-Za-z]+)/g)].map(([, number, name = '']) => ({
    number: Number(number),
    name: unitOf(name, scales),
  }))
  const sum = parts.reduce((before, { number, name }) => before + number * (scales[name] ?? Number.NaN), 0)
  // The smallest unit that was written, else the largest that gives a whole number.
  const units = [parts.at(-1)?.name ?? '', ...Object.keys(scales).reverse()]
  const found = units.find(name => sum % (scales[name] ?? Number.NaN) === 0)
  return found && sum > 0 ? sum / (scales[found] as number) + found : undefined
}

/** Returns the standard name of a unit. */
function unitOf(written: string, scales: Readonly<Record<string, number>>): string {
  const unit = written.toLowerCase()
  return Object.keys(scales).find(name => name.toLowerCase() === unit || SPELLINGS[name]?.includes(unit)) ?? ''
}

/** Converts a text that matches DURATION to milliseconds. Any other text, which the shape check has reported, gives NaN. */
export { duration } from '../lib/duration.ts'

/** Converts a text that matches SIZE to bytes. Returns NaN for any other text. */
export function size(text: string): number {
  const [, digits = '0', unit = ''] = /^(\d+)([A-Za-z]+)$/.exec(text) ?? []
  return Number(digits) * (BYTES[unit] ?? Number.NaN)
}
