/** The rows of exchanges: their columns, how an entry is written to them and read from them, and the view with their names. */
import { bytesOfId, idFromBytes } from '../lib/ids.ts'
import type { Usage } from '../money/usage.ts'
import { bigintOf, type Row, type SqlValue } from './database.ts'
import { type EndedEntry, type HistoryEntry, KINDS, type Notes, planPartFrom, planPartText, STATUSES } from './entry.ts'
import type { NameNumbers } from './names.ts'
import { present, rareOf, usageOf } from './notes.ts'

/** What a row is written from. */
interface Written {
  readonly entry: EndedEntry
  readonly notes: Partial<Notes>
  /** The numbers of its account and of its key. */
  readonly account: number
  readonly key: number
  /** Returns the number of a name; null for none. */
  readonly no: (name: string | undefined) => number | null
}

interface Column {
  readonly name: string
  readonly type: string
  readonly write: (from: Written) => SqlValue
}

/** The classes of tokens that have columns. Others are in `rest`. */
const TOKENS = [
  ['input', 'input'],
  ['cache_read', 'cacheRead'],
  ['cache_write_5m', 'cacheWrite5m'],
  ['cache_write_1h', 'cacheWrite1h'],
  ['output', 'output'],
  ['reasoning', 'reasoning'],
] as const satisfies readonly (readonly [string, keyof Usage])[]
const COLUMN_OF: ReadonlyMap<string, string> = new Map(TOKENS.map(([column, of]) => [of, column]))

const SOURCES = ['upstream', 'estimated'] as const
/** The largest number that PostgreSQL takes for an INTEGER. */
const MOST = 2 ** 31 - 1

/** The columns that number a name, with the name in the notes. The view shows the name. */
const NAMED: readonly (readonly [column: string, of: (notes: Partial<Notes>) => string | undefined])[] = [
  ['model', ({ model }) => model],
  ['key_type', ({ type }) => type],
  ['upstream', upstreamOf],
  ['upstream_account', ({ upstream }) => upstream],
  ['format', ({ format }) => format],
  ['endpoint', ({ endpoint }) => endpoint],
  ['error', ({ errorCode }) => errorCode],
  ['price', ({ price }) => price],
  ['price_version', ({ priceVersion }) => priceVersion],
]

/**
 * The columns, in the order of their sizes: PostgreSQL aligns those of eight and of four bytes. Nothing is NULL where zero
 * says the same, except for tokens and names, of which PostgreSQL then stores nothing.
 */
const COLUMNS: readonly Column[] = [
  { name: 'ordinal', type: 'BIGINT NOT NULL', write: ({ entry }) => entry.ordinal },
  { name: 'ended', type: 'BIGINT NOT NULL', write: ({ entry }) => entry.at },
  { name: 'charge', type: 'BIGINT NOT NULL', write: ({ entry }) => entry.charge },
  { name: 'balance', type: 'BIGINT NOT NULL', write: ({ entry }) => entry.balance },
  { name: 'cost', type: 'BIGINT', write: ({ notes }) => (notes.cost === undefined ? null : BigInt(notes.cost)) },
  { name: 'id', type: '{ID} NOT NULL PRIMARY KEY', write: ({ entry }) => bytesOfId(entry.id) },
  { name: 'account', type: 'INTEGER NOT NULL', write: ({ account }) => account },
  { name: 'key', type: 'INTEGER NOT NULL', write: ({ key }) => key },
  ...NAMED.map(([name, of]) => ({
    name,
    type: 'INTEGER',
    write: ({ notes, no }: Written) => no(of(notes)),
  })),
  ...TOKENS.map(([name, of]) => ({
    name,
    type: 'INTEGER',
    write: ({ notes: { usage } }: Written) => (usage?.[of] ? Math.min(usage[of], MOST) : null),
  })),
  { name: 'duration_ms', type: 'INTEGER', write: ({ notes }) => whole(notes.durationMs) },
  { name: 'first_byte_ms', type: 'INTEGER', write: ({ notes }) => whole(notes.ttftMs) },
  // The number is negative where ordinals are not in the order of bookings. A partial index finds these rows.
  { name: 'booking', type: 'INTEGER', write: ({ entry }) => bookingOf(entry) },
  { name: 'booked_ms', type: 'INTEGER', write: ({ entry }) => whole(entry.booking && entry.booking.at - entry.at) },
  { name: 'bucket_hour', type: 'INTEGER NOT NULL', write: ({ entry }) => bucketOf(entry)[0] },
  { name: 'bucket_part', type: 'INTEGER NOT NULL', write: ({ entry }) => bucketOf(entry)[1] },
  { name: 'kind', type: 'SMALLINT NOT NULL', write: ({ entry }) => KINDS.indexOf(entry.kind) },
  { name: 'stream', type: 'SMALLINT NOT NULL', write: ({ notes }) => (notes.stream ? 1 : 0) },
  { name: 'status', type: 'SMALLINT', write: ({ notes }) => whole(notes.httpStatus) },
  { name: 'outcome', type: 'SMALLINT', write: ({ notes }) => indexIn(STATUSES, notes.status) },
  { name: 'usage_source', type: 'SMALLINT', write: ({ notes }) => indexIn(SOURCES, notes.usageSource) },
  { name: 'address', type: 'TEXT', write: ({ notes }) => notes.address ?? null },
  { name: 'rest', type: 'TEXT', write: restOf },
]

/** The columns of the table of exchanges, as it is created. */
export const EXCHANGE_COLUMNS = COLUMNS.map(({ name, type }) => `${name} ${type}`).join(', ')

/** The columns that are written, in the order of `rowOf`, and that `entryOf` reads. */
export const ENTRY_COLUMNS = COLUMNS.map(({ name }) => name)

/**
 * Returns the statement that creates the view `history`, in which numbers are names, and absent tokens are zero.
 * @param money columns
 */
const viewOf = (
  money: string,
): string => `CREATE VIEW history AS SELECT {TEXT_ID} AS id, {TIME} AS ended_at, e.ended, k.id AS key,
  k.name AS key_name, a.id AS account, ${NAMED.map(([name]) => `${name}_.name AS ${name}`).join(', ')}, e.stream, e.status, ${inWords('outcome', STATUSES)}, ${inWords('kind', KINDS)},
  ${TOKENS.map(([name]) => `COALESCE(e.${name}, 0) AS ${name}`).join(', ')}, ${inWords('usage_source', SOURCES)},
  ${money}, e.balance, ABS(e.booking) AS booking,
  e.ended + e.booked_ms AS booked, e.duration_ms, e.first_byte_ms, e.address, e.ordinal, e.rest
  FROM exchanges e JOIN accounts a ON a.no = e.account JOIN keys k ON k.no = e.key
  ${NAMED.map(([name]) => `LEFT JOIN names ${name}_ ON ${name}_.no = e.${name}`).join(' ')}`

/** The first view. */
export const FIRST_VIEW = viewOf('e.charge, e.cost')

/** The view whose charge is what the customer pays, from credits or from a plan, as `moneyLine` says it. */
export const MONEY_VIEW =
  viewOf(`e.charge + {COVERED} AS charge, e.charge AS credits, {COVERED} AS plan, {WAIVED} AS waived,
  e.cost, e.charge + {COVERED} - e.cost AS margin`)

/** Returns a column with the words that its numbers stand for. */
function inWords(column: string, words: readonly string[]): string {
  const cases = words.map((word, at) => `WHEN ${at} THEN '${word}'`).join(' ')
  return `CASE e.${column} ${cases} END AS ${column}`
}

/** Returns every name that a row needs the number of. */
export function namesIn(notes: Partial<Notes>): readonly string[] {
  return [...NAMED.flatMap(([, of]) => of(notes) ?? []), ...(notes.served === undefined ? [] : [notes.served])]
}

/**
 * Returns the values of a row. Notes that cannot be written are left out: one entry must not keep all others from being
 * recorded.
 */
export function rowOf(
  entry: EndedEntry,
  numbers: { account(id: string): number; key(of: EndedEntry): number },
  names: Pick<NameNumbers, 'numberOf'>,
): SqlValue[] {
  const [account, key] = [numbers.account(entry.account), numbers.key(entry)]
  const no = (name: string | undefined): number | null => (name === undefined ? null : names.numberOf(name))
  const row = (notes: Partial<Notes>): SqlValue[] =>
    COLUMNS.map(({ write }) => write({ entry, notes, account, key, no }))
  try {
    return row(entry.notes)
  } catch {
    const { endpoint, model, status } = entry.notes
    return row(present({ endpoint, model, status }))
  }
}

/** Reads an entry from its row. @throws RangeError if it has the number of a name that is not known */
export function entryOf(row: Row, names: Pick<NameNumbers, 'nameOf'>): HistoryEntry {
  const number = (column: string): number | undefined =>
    (row[column] ?? null) === null ? undefined : Number(row[column])
  const name = (column: string): string | undefined => {
    const no = number(column)
    return no === undefined ? undefined : names.nameOf(no)
  }
  const { waived, plan, againMs, tokens, ...rare } = readRest(row['rest'])
  const source = SOURCES[number('usage_source') ?? -1]
  const notes = present({
    endpoint: name('endpoint') ?? '',
    model: name('model') ?? '',
    stream: number('stream') === 1,
    type: name('key_type'),
    upstream: name('upstream_account'),
    format: name('format'),
    status: STATUSES[number('outcome') ?? -1],
    httpStatus: number('status'),
    errorCode: name('error'),
    usage: source && usageOf(of => tokens?.[of] ?? number(COLUMN_OF.get(of) ?? '')),
    address: row['address'],
    usageSource: source,
    price: name('price'),
    priceVersion: name('price_version'),
    cost: row['cost'] === null ? undefined : String(row['cost']),
    durationMs: number('duration_ms'),
    ttftMs: number('first_byte_ms'),
    ...rare,
  })
  return {
    id: idFromBytes(row['id'] as Uint8Array),
    ordinal: Number(row['ordinal']),
    at: Number(row['ended']),
    kind: KINDS[Number(row['kind'])] ?? 'settle',
    charge: bigintOf(row, 'charge'),
    balance: bigintOf(row, 'balance'),
    bucket: `${Number(row['bucket_hour'])}.${Number(row['bucket_part'])}`,
    waived: BigInt(waived ?? 0),
    ...(plan !== undefined && { plan: planPartFrom(plan) }),
    ...(number('booking') !== undefined &&
      bookedAs(number('booking') ?? 0, Number(row['ended']) + (number('booked_ms') ?? 0))),
    ...(againMs !== undefined && { againMs }),
    notes,
  }
}

/** What only few rows have. */
interface Rest extends Partial<Notes> {
  /** Nano-credits. */
  readonly waived?: string
  readonly plan?: string
  readonly againMs?: number
  /** Classes of tokens without a column, and numbers that are too large for theirs. */
  readonly tokens?: Partial<Usage>
}

function restOf({ entry, notes }: Written): string | null {
  const counts: readonly (readonly [string, number])[] = Object.entries(notes.usage ?? {})
  const tokens = Object.fromEntries(counts.filter(([name, count]) => (COLUMN_OF.has(name) ? count > MOST : count > 0)))
  const rest: Rest = {
    ...rareOf(notes),
    ...(entry.waived !== 0n && { waived: String(entry.waived) }),
    ...(entry.plan && { plan: planPartText(entry.plan) }),
    ...(entry.againMs !== undefined && { againMs: entry.againMs }),
    ...(Object.keys(tokens).length > 0 && { tokens }),
  }
  return Object.keys(rest).length === 0 ? null : JSON.stringify(rest)
}

function readRest(text: SqlValue | undefined): Rest {
  return typeof text === 'string' ? (JSON.parse(text) as Rest) : {}
}

/** Returns the name of the upstream of the account that served a request. */
function upstreamOf({ upstream }: Partial<Notes>): string | undefined {
  return upstream?.split('/', 1)[0]
}

function bookingOf({ booking, bookedLate }: EndedEntry): number | null {
  if (!booking) return null
  return bookedLate ? -booking.number : booking.number
}

function bookedAs(number: number, at: number): Pick<HistoryEntry, 'booking' | 'bookedLate'> {
  return { booking: { number: Math.abs(number), at }, ...(number < 0 && { bookedLate: true }) }
}

function bucketOf({ bucket }: EndedEntry): readonly [number, number] {
  const [hour = 0, part = 0] = bucket.split('.').map(Number)
  return [hour, part]
}

function whole(value: number | undefined): number | null {
  return value === undefined || Number.isNaN(value) ? null : Math.min(Math.max(0, Math.round(value)), MOST)
}

function indexIn(words: readonly string[], word: string | undefined): number | null {
  const at = word === undefined ? -1 : words.indexOf(word)
  return at === -1 ? null : at
}
