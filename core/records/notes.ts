/** The notes of an entry as a short text, which the store keeps until they are recorded. */
import type { Usage } from '../money/usage.ts'
import type { Notes } from './entry.ts'

/** The version of the text. A later version of Tollgate reads all earlier ones. */
const VERSION = 1

/** Classes of tokens, by their place in the text. New ones are added at the end. */
const CLASSES = [
  'input',
  'cacheRead',
  'cacheWrite5m',
  'cacheWrite1h',
  'output',
  'reasoning',
  'audioInput',
  'imageInput',
  'audioOutput',
  'imageOutput',
  'rejected',
] as const satisfies readonly (keyof Usage)[]
/** The classes that every usage has. */
const ALWAYS = 6

/** The notes that are rare. They are kept by name. */
const RARE = [
  'requestedModel',
  'served',
  'silentMs',
  'compaction',
  'quarantined',
  'conditions',
  'parts',
  'unpriced',
  'unread',
  'reported',
  'entry',
  'endedAt',
  'reason',
  'attempts',
] as const satisfies readonly (keyof Notes)[]

type Text = string | number | null | readonly number[] | Partial<Notes>

/** Writes notes as a text without line breaks. */
export function notesText(notes: Notes): string {
  const { usage } = notes
  const values: Text[] = [
    VERSION,
    notes.endpoint,
    notes.model,
    notes.stream ? 1 : 0,
    notes.type ?? null,
    notes.upstream ?? null,
    notes.status ?? null,
    notes.httpStatus ?? null,
    notes.errorCode ?? null,
    usage ? CLASSES.map(name => usage[name] ?? 0) : null,
    notes.usageSource ?? null,
    notes.price ?? null,
    notes.priceVersion ?? null,
    notes.cost ?? null,
    notes.durationMs ?? null,
    notes.ttftMs ?? null,
    rareOf(notes) ?? null,
    notes.address ?? null,
    notes.format ?? null,
  ]
  return JSON.stringify(values)
}

/** Reads notes that `notesText` wrote. */
export function notesFromText(text: string): Partial<Notes> {
  const values = JSON.parse(text) as (Text | undefined)[]
  const [, endpoint, model, stream, type, upstream, status, httpStatus, errorCode, counts] = values
  const [usageSource, price, priceVersion, cost, durationMs, ttftMs, rare, address, format] = values.slice(10)
  return present({
    endpoint,
    model,
    stream: stream === 1,
    type,
    upstream,
    status,
    httpStatus,
    errorCode,
    usage: Array.isArray(counts) ? usageOf((_, at) => (counts as readonly number[])[at]) : undefined,
    usageSource,
    price,
    priceVersion,
    cost,
    durationMs,
    ttftMs,
    address,
    format,
    ...(rare as Partial<Notes> | null),
  })
}

/** Returns a usage with all classes that every usage has, and the others that have tokens. */
export function usageOf(countOf: (name: keyof Usage, place: number) => number | undefined): Usage {
  const usage: Partial<Record<keyof Usage, number>> = {}
  for (const [at, name] of CLASSES.entries()) {
    const count = countOf(name, at) ?? 0
    if (at < ALWAYS || count > 0) usage[name] = count
  }
  return usage as Usage
}

/** Returns the notes that are rare. Undefined if there are none. */
export function rareOf(notes: Partial<Notes>): Partial<Notes> | undefined {
  let rare: Record<string, unknown> | undefined
  for (const name of RARE) if (notes[name] !== undefined) (rare ??= {})[name] = notes[name]
  return rare
}

/** Omits the members that are not known. */
export function present(members: Readonly<Record<string, unknown>>): Partial<Notes> {
  const known: Record<string, unknown> = {}
  for (const name in members) if (members[name] !== undefined && members[name] !== null) known[name] = members[name]
  return known
}
