/** The notes of an entry in two short forms: as text in the store, and packed in a row of the records. */
import { Packer, Unpacker } from '../lib/packed.ts'
import type { Usage } from '../money/usage.ts'
import { type HistoryEntry, type Notes, STATUSES } from './entry.ts'

/** The version of both forms. A later version of Tollgate reads all earlier ones. */
const VERSION = 1

/** Classes of tokens, by their place in both forms. New ones are added at the end. */
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
  ]
  return JSON.stringify(values)
}

/** Reads notes that `notesText` wrote. */
export function notesFromText(text: string): Partial<Notes> {
  const values = JSON.parse(text) as (Text | undefined)[]
  const [, endpoint, model, stream, type, upstream, status, httpStatus, errorCode, counts] = values
  const [usageSource, price, priceVersion, cost, durationMs, ttftMs, rare, address] = values.slice(10)
  return present({
    endpoint,
    model,
    stream: stream === 1,
    type,
    upstream,
    status,
    httpStatus,
    errorCode,
    usage: Array.isArray(counts) ? usageOf(counts as readonly number[]) : undefined,
    usageSource,
    price,
    priceVersion,
    cost,
    durationMs,
    ttftMs,
    address,
    ...(rare as Partial<Notes> | null),
  })
}

/** Numbers for names that repeat in many rows, such as models. */
export interface NameNumbers {
  numberOf(name: string): number
  nameOf(number: number): string
}

/** The members that a row has only sometimes, by their bit. */
const HAS = {
  stream: 1,
  upstreamSource: 2,
  estimatedSource: 4,
  usage: 8,
  cost: 16,
  duration: 32,
  firstByte: 64,
  http: 128,
  error: 256,
  price: 512,
  version: 1024,
  waived: 2048,
  rare: 4096,
  type: 8192,
  upstream: 16_384,
  again: 32_768,
  address: 65_536,
} as const

/** The members of an entry that are packed. */
type PackedMembers = Pick<HistoryEntry, 'notes' | 'balance' | 'bucket' | 'waived' | 'againMs'>

/** Packs what a row records besides its columns. */
export function packDetails(
  { notes, balance, bucket, waived, againMs }: PackedMembers,
  names: Pick<NameNumbers, 'numberOf'>,
): Uint8Array {
  const rare = rareOf(notes)
  const { usage, cost, durationMs, ttftMs, httpStatus, errorCode, price, priceVersion, type, upstream, address } = notes
  const has =
    (notes.stream ? HAS.stream : 0) |
    (notes.usageSource === 'upstream' ? HAS.upstreamSource : 0) |
    (notes.usageSource === 'estimated' ? HAS.estimatedSource : 0) |
    (usage ? HAS.usage : 0) |
    (cost === undefined ? 0 : HAS.cost) |
    (durationMs === undefined ? 0 : HAS.duration) |
    (ttftMs === undefined ? 0 : HAS.firstByte) |
    (httpStatus === undefined ? 0 : HAS.http) |
    (errorCode === undefined ? 0 : HAS.error) |
    (price === undefined ? 0 : HAS.price) |
    (priceVersion === undefined ? 0 : HAS.version) |
    (waived === 0n ? 0 : HAS.waived) |
    (rare ? HAS.rare : 0) |
    (type === undefined ? 0 : HAS.type) |
    (upstream === undefined ? 0 : HAS.upstream) |
    (againMs === undefined ? 0 : HAS.again) |
    (address === undefined ? 0 : HAS.address)
  const packed = new Packer().number(VERSION).number(has)
  const [hour = 0, part = 0] = bucket.split('.').map(Number)
  packed.number(hour).number(part)
  packed.number(names.numberOf(notes.endpoint ?? '')).number(names.numberOf(notes.model ?? ''))
  packed.number(notes.status === undefined ? 0 : STATUSES.indexOf(notes.status) + 1).signed(balance)
  if (waived !== 0n) packed.number(waived)
  if (type !== undefined) packed.number(names.numberOf(type))
  if (upstream !== undefined) packed.number(names.numberOf(upstream))
  if (usage) {
    const counts = CLASSES.map(name => usage[name] ?? 0)
    packed.number(counts.reduce((bits, count, at) => (count > 0 ? bits | (1 << at) : bits), 0))
    for (const count of counts) if (count > 0) packed.number(count)
  }
  if (httpStatus !== undefined) packed.number(httpStatus)
  if (errorCode !== undefined) packed.number(names.numberOf(errorCode))
  if (price !== undefined) packed.number(names.numberOf(price))
  if (priceVersion !== undefined) packed.number(names.numberOf(priceVersion))
  if (cost !== undefined) packed.number(BigInt(cost))
  if (durationMs !== undefined) packed.number(Math.max(0, Math.round(durationMs)))
  if (ttftMs !== undefined) packed.number(Math.max(0, Math.round(ttftMs)))
  if (againMs !== undefined) packed.number(againMs)
  if (address !== undefined) packed.text(address)
  if (rare) packed.text(JSON.stringify(rare))
  return packed.bytes()
}

/** Returns every name that `packDetails` will ask the number of. */
export function namesIn({ endpoint = '', model = '', type, upstream, errorCode, price, priceVersion }: Partial<Notes>) {
  return [endpoint, model, type, upstream, errorCode, price, priceVersion].filter(name => name !== undefined)
}

/** Reads what `packDetails` packed. @throws RangeError if the bytes are damaged */
export function unpackDetails(bytes: Uint8Array, names: Pick<NameNumbers, 'nameOf'>): PackedMembers {
  const packed = new Unpacker(bytes)
  const version = packed.number()
  if (version !== VERSION) throw new RangeError(`a row has version ${version}; this Tollgate knows ${VERSION}`)
  const has = packed.number()
  const name = (): string => names.nameOf(packed.number())
  const when = <T>(bit: number, read: () => T): T | undefined => ((has & bit) === 0 ? undefined : read())
  const bucket = `${packed.number()}.${packed.number()}`
  const endpoint = name()
  const model = name()
  const status = STATUSES[packed.number() - 1]
  const balance = packed.signed()
  const waived = BigInt(when(HAS.waived, () => packed.number()) ?? 0)
  // The members are read in the order in which they were packed.
  const type = when(HAS.type, name)
  const upstream = when(HAS.upstream, name)
  const usage = when(HAS.usage, () => {
    const bits = packed.number()
    return usageOf(CLASSES.map((_, at) => ((bits & (1 << at)) === 0 ? 0 : packed.number())))
  })
  const httpStatus = when(HAS.http, () => packed.number())
  const errorCode = when(HAS.error, name)
  const price = when(HAS.price, name)
  const priceVersion = when(HAS.version, name)
  const cost = when(HAS.cost, () => String(packed.number()))
  const durationMs = when(HAS.duration, () => packed.number())
  const ttftMs = when(HAS.firstByte, () => packed.number())
  const againMs = when(HAS.again, () => packed.number())
  const address = when(HAS.address, () => packed.text())
  const rare = when(HAS.rare, () => JSON.parse(packed.text()) as Partial<Notes>)
  const source = when<Notes['usageSource'] & string>(HAS.upstreamSource, () => 'upstream')
  const notes = present({
    endpoint,
    model,
    stream: (has & HAS.stream) !== 0,
    type,
    upstream,
    status,
    httpStatus,
    errorCode,
    usage,
    address,
    usageSource: source ?? when(HAS.estimatedSource, () => 'estimated' as const),
    price,
    priceVersion,
    cost,
    durationMs,
    ttftMs,
    ...rare,
  })
  return { notes, balance, bucket, waived, ...(againMs !== undefined && { againMs }) }
}

function usageOf(counts: readonly number[]): Usage {
  const entries = CLASSES.map((name, at) => [name, counts[at] ?? 0] as const)
  return Object.fromEntries(entries.filter(([, count], at) => at < ALWAYS || count > 0)) as unknown as Usage
}

function rareOf(notes: Partial<Notes>): Partial<Notes> | undefined {
  const rare = RARE.filter(name => notes[name] !== undefined)
  return rare.length === 0 ? undefined : Object.fromEntries(rare.map(name => [name, notes[name]]))
}

/** Omits the members that are not known. */
function present(members: Readonly<Record<string, unknown>>): Partial<Notes> {
  const known = Object.entries(members).filter(([, value]) => value !== undefined && value !== null)
  return Object.fromEntries(known)
}
