/** How amounts, numbers and times are written. Times are always of UTC, as the gateway counts days. */

const GROUPED = new Intl.NumberFormat('en-US')

/**
 * Writes an exact decimal with thousands separators, and with at most so many places behind the point.
 * @param {string | number | null | undefined} amount @param {number} [places]
 */
export function amount(amount, places = 4) {
  if (amount === null || amount === undefined || amount === '') return '–'
  const text = typeof amount === 'number' ? decimal(amount) : amount
  const [, sign = '', whole = '0', fraction = ''] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) ?? []
  const cut = fraction.slice(0, places).replace(/0+$/, '')
  const rest = fraction.slice(places).replace(/0+$/, '')
  // What is not shown must not look like nothing.
  const tiny = rest !== '' && cut === '' && whole === '0'
  if (tiny) return `${sign}<0.${'0'.repeat(places - 1)}1`
  return `${sign}${whole.replaceAll(/\B(?=(?:\d{3})+$)/g, ',')}${cut === '' ? '' : `.${cut}`}`
}

const NANO_PLACES = 9

/** Writes an amount in nano-credits as credits. @param {string} nano */
export function ofNano(nano) {
  const digits = nano.replace('-', '').padStart(NANO_PLACES + 1, '0')
  const text = `${digits.slice(0, -NANO_PLACES)}.${digits.slice(-NANO_PLACES)}`
  return amount(nano.startsWith('-') ? `-${text}` : text, NANO_PLACES)
}

/** @param {number} value */
function decimal(value) {
  return value.toFixed(9).replace(/\.?0+$/, '')
}

/** @param {number | null | undefined} value */
export function number(value) {
  return value === null || value === undefined ? '–' : GROUPED.format(value)
}

/** Writes a large number in short: 1.2k, 3.4M. @param {number} value */
export function short(value) {
  for (const [size, unit] of /** @type {const} */ ([
    [1e9, 'B'],
    [1e6, 'M'],
    [1e3, 'k'],
  ]))
    if (value >= size) return `${(value / size).toFixed(value >= 100 * size ? 0 : 1)}${unit}`
  return GROUPED.format(value)
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–'
  if (ms < 1000) return `${Math.round(ms)} ms`
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min`
}

/** Writes a time: `2026-11-26 15:04`. @param {string | null | undefined} iso */
export function time(iso) {
  return iso ? iso.slice(0, 16).replace('T', ' ') : '–'
}

/** Writes a day: `2026-11-26`. @param {string} iso */
export function day(iso) {
  return iso.slice(0, 10)
}

/** Units of time in milliseconds, and below which time each is used. @type {[number, string, number][]} */
const UNITS = [
  [1000, 'second', 90_000],
  [60_000, 'minute', 5_400_000],
  [3_600_000, 'hour', 129_600_000],
]

/** Says how far a time is away: `in 35 days`, `2 hours ago`. @param {string} iso @param {number} [now] */
export function distance(iso, now = Date.now()) {
  const ms = Date.parse(iso) - now
  const size = Math.abs(ms)
  const [each, unit] = UNITS.find(([, , below]) => size < below) ?? [86_400_000, 'day']
  const count = Math.round(size / each)
  const words = `${count} ${unit}${count === 1 ? '' : 's'}`
  return ms < 0 ? `${words} ago` : `in ${words}`
}

/** The last so many UTC days, the oldest first, as `2026-11-26`. @param {number} count */
export function lastDays(count) {
  return Array.from({ length: count }, (_, at) =>
    new Date(Date.now() - (count - 1 - at) * 86_400_000).toISOString().slice(0, 10),
  )
}

/** Returns a part of a whole in words, such as `0.5 %`. @param {number} part from 0 to 1 */
export function percent(part) {
  const hundred = 100 * part
  if (hundred > 0 && hundred < 0.1) return '<0.1 %'
  return `${hundred < 10 ? Math.round(hundred * 10) / 10 : Math.floor(hundred)} %`
}

/** Reads a whole number that a person typed. @param {string} text @param {string} name of its field */
export function wholeNumber(text, name) {
  const trimmed = text.trim()
  if (/^[1-9]\d{0,8}$/.test(trimmed)) return Number(trimmed)
  throw new Error(`“${name}” must be a whole number above zero, such as 10.`)
}
