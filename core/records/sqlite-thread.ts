/** A thread that runs statements on SQLite files, one at a time, so that the event loop never waits for a disk. */
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { parentPort } from 'node:worker_threads'
import { LRUCache } from 'lru-cache'
import type { Row, SqlValue } from './database.ts'

/** What the thread is asked. A connection belongs to its number. */
export type SqliteRequest = { readonly n: number; readonly connection: number } & (
  | { readonly kind: 'open'; readonly file: string; readonly settings: readonly string[] }
  | { readonly kind: 'run'; readonly text: string; readonly values: readonly SqlValue[] }
  | { readonly kind: 'close' }
)

/** What it answers. */
export type SqliteAnswer = { readonly n: number } & ({ readonly rows: Row[] } | { readonly error: string })

/** Statements that are kept prepared, for each connection. */
const PREPARED_MAX = 200

interface Connection {
  readonly database: DatabaseSync
  readonly statements: LRUCache<string, StatementSync>
}

const connections = new Map<number, Connection>()

function answer(request: SqliteRequest): Row[] {
  if (request.kind === 'open') {
    const database = new DatabaseSync(request.file)
    for (const setting of request.settings) database.exec(setting)
    database.function('LOWER', { deterministic: true }, value => String(value).toLowerCase())
    connections.set(request.connection, { database, statements: new LRUCache({ max: PREPARED_MAX }) })
    return []
  }
  const connection = connections.get(request.connection)
  if (!connection) throw new Error('the database is closed')
  const { database, statements } = connection
  if (request.kind === 'close') {
    connections.delete(request.connection)
    database.close()
    return []
  }
  let statement = statements.get(request.text)
  if (!statement) {
    statement = database.prepare(request.text)
    statement.setReadBigInts(true)
    statements.set(request.text, statement)
  }
  const values = request.values as SQLInputValue[]
  return statement.all(...values)
}

parentPort?.on('message', (request: SqliteRequest) => {
  let said: SqliteAnswer
  try {
    said = { n: request.n, rows: answer(request) }
  } catch (cause) {
    said = { n: request.n, error: (cause as Error).message }
  }
  parentPort?.postMessage(said, [])
})
