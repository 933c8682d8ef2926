// @ts-check
/**
 * A thread that runs statements on SQLite files, one at a time, so that the event loop never waits for a disk. It is
 * JavaScript, since a thread that loads TypeScript needs twice the memory.
 */
import { DatabaseSync } from 'node:sqlite'
import { parentPort } from 'node:worker_threads'
import { LRUCache } from 'lru-cache'

/** @import { SQLInputValue, StatementSync } from 'node:sqlite' */
/** @import { Row } from './database.ts' */
/** @import { SqliteAnswer, SqliteRequest, Statement } from './sqlite.ts' */

/** Statements that are kept prepared, for each connection. */
const PREPARED_MAX = 200

/** @type {Map<number, { readonly database: DatabaseSync, readonly statements: LRUCache<string, StatementSync> }>} */
const connections = new Map()

/**
 * Opens or closes a connection.
 * @param {Exclude<SqliteRequest, { kind: 'run' }>} request
 */
function change(request) {
  if (request.kind === 'close') {
    connections.get(request.connection)?.database.close()
    connections.delete(request.connection)
    return
  }
  const database = new DatabaseSync(request.file)
  for (const setting of request.settings) database.exec(setting)
  database.function('LOWER', { deterministic: true }, value => String(value).toLowerCase())
  connections.set(request.connection, { database, statements: new LRUCache({ max: PREPARED_MAX }) })
}

/**
 * Runs a statement. Returns the rows of its last run.
 * @param {number} number of the connection
 * @param {Statement} statement
 * @returns {Row[]}
 */
function run(number, [text, ...runs]) {
  const connection = connections.get(number)
  if (!connection) throw new Error('the database is closed')
  const { database, statements } = connection
  let statement = statements.get(text)
  if (!statement) {
    statement = database.prepare(text)
    statement.setReadBigInts(true)
    statements.set(text, statement)
  }
  /** @type {Row[]} */
  let rows = []
  for (const values of runs) rows = statement.all(.../** @type {SQLInputValue[]} */ (values))
  return rows
}

parentPort?.on('message', (/** @type {SqliteRequest} */ request) => {
  const { n } = request
  /** @type {Row[][]} */
  const rows = []
  /** @type {SqliteAnswer} */
  let answer = { n, rows }
  try {
    if (request.kind !== 'run') change(request)
    else for (const statement of request.statements) rows.push(run(request.connection, statement))
  } catch (cause) {
    answer = { n, rows, error: /** @type {Error} */ (cause).message }
  }
  parentPort?.postMessage(answer, [])
})
