/** Records in PostgreSQL, which several machines may share. */
import pg from 'pg'
import type { Log } from '../lib/log.ts'
import { Serial } from '../lib/serial.ts'
import {
  CommitInDoubt,
  type Database,
  type Insertion,
  insertions,
  RecordsError,
  type Row,
  type SqlValue,
  type Transaction,
} from './database.ts'

/** Identifies the lock that serializes the transactions of all gateways in one database. */
const LOCK = 7_261_044
/** How long a connection may take, in milliseconds. */
const CONNECT_MS = 5000

/** Integers of 64 bits do not fit in a number. */
const INT8 = 20
/** Ids are bytes, as in SQLite. */
const UUID = 2950
const TYPES: pg.CustomTypesConfig = {
  getTypeParser: (type: number, format: 'text' | 'binary' = 'text') => {
    if (type === INT8) return BigInt
    if (type === UUID) return (text: string) => Buffer.from(text.replaceAll('-', ''), 'hex')
    return pg.types.getTypeParser(type, format)
  },
}

/**
 * Connects to a PostgreSQL.
 * @param url `postgres://user:password@host:5432/database`
 * @throws Error for the operator
 */
export async function openPostgres(
  url: string,
  { connections, timeoutMs, log }: { connections: number; timeoutMs: number; log: Log },
): Promise<Database> {
  const pool = new pg.Pool({
    connectionString: url,
    max: connections,
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: timeoutMs,
    query_timeout: timeoutMs + 1000,
    // A machine that vanishes in the middle of a transaction must not keep the lock of all others.
    idle_in_transaction_session_timeout: timeoutMs,
    keepAlive: true,
    idleTimeoutMillis: 30_000,
    allowExitOnIdle: true,
    types: TYPES,
    application_name: 'tollgate',
  })
  pool.on('error', cause => log.warn({ reason: cause.message }, 'connection to the records'))
  const { host, port, database } = new pg.Client({ connectionString: url })
  const described = `PostgreSQL at ${host}:${port}, database ${database}`
  try {
    await pool.query('SELECT 1')
  } catch (cause) {
    await pool.end()
    throw new RecordsError(`${described} cannot be reached: ${wordsOf(cause)}`, { cause })
  }
  // Transactions of one process wait here for each other, so that they leave connections for reads.
  const turns = new Serial()
  return {
    dialect: 'postgres',
    failure: undefined,
    description: described,
    all: (text, values) => rowsOf(pool, text, values),
    transaction: use => turns.run(() => transaction(pool, use)),
    close: () => pool.end(),
  }
}

async function transaction<T>(pool: pg.Pool, use: (sql: Transaction) => Promise<T>): Promise<T> {
  const client = await failing(pool.connect())
  let broken: Error | undefined
  // Without a listener, a connection that is lost between two queries would end the process.
  const lost = (cause: Error): void => void (broken = cause)
  client.on('error', lost)
  const order = new Serial()
  let failed: unknown
  try {
    // Each statement must see what was committed before the lock was granted.
    await failing(client.query('BEGIN ISOLATION LEVEL READ COMMITTED'))
    await failing(client.query('SELECT pg_advisory_xact_lock($1)', [LOCK]))
    const all = (text: string, values?: readonly SqlValue[]): Promise<Row[]> =>
      order.run(async () => {
        // A statement after one that fails would only be told that.
        if (failed) throw failed
        return rowsOf(client, text, values).catch((cause: unknown) => {
          failed = cause
          throw cause
        })
      })
    const put = (text: string, values?: readonly SqlValue[]): void => void all(text, values).catch(() => {})
    const putRows = (insertion: Insertion): void => {
      for (const [text, values] of insertions(insertion)) put(text, values)
    }
    const result = await use({ all, put, putRows })
    await order.run(() => Promise.resolve())
    if (failed) throw failed
    await client.query('COMMIT').catch((cause: unknown) => {
      throw new CommitInDoubt(wordsOf(cause), { cause })
    })
    return result
  } catch (cause) {
    // Statements that were given and have not run must not run behind the transaction.
    failed ??= cause
    await order.run(() => Promise.resolve())
    // A connection on which even this fails is not used again.
    await client.query('ROLLBACK').catch(lost)
    throw cause
  } finally {
    client.off('error', lost)
    client.release(broken)
  }
}

async function rowsOf(client: pg.Pool | pg.PoolClient, text: string, values: readonly SqlValue[] = []): Promise<Row[]> {
  const { rows } = await failing(client.query<Row>(numbered(text), values.map(sent)))
  return rows
}

/** Awaits an answer of the database. @throws RecordsError if it fails */
async function failing<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (cause) {
    throw new RecordsError(wordsOf(cause), { cause })
  }
}

/** A refused connection has an empty message and several causes. */
function wordsOf(cause: unknown): string {
  if (!(cause instanceof AggregateError)) return (cause as Error).message
  return cause.errors.map((each: Error) => each.message).join('; ')
}

const texts = new Map<string, string>()

/** Replaces `?` by `$1`, `$2` and so on. */
function numbered(text: string): string {
  let known = texts.get(text)
  if (known === undefined) {
    let n = 0
    known = text.replaceAll('?', () => `$${++n}`)
    if (texts.size > 500) texts.clear()
    texts.set(text, known)
  }
  return known
}

function sent(value: SqlValue): unknown {
  if (typeof value === 'bigint') return String(value)
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}
