/**
 * Records in a SQLite file: one connection writes, another one reads, so that a long read never delays a settlement.
 * Several processes of one machine may use the file.
 */
import { mkdirSync, statfsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { Serial } from '../lib/serial.ts'
import {
  type Database,
  type Insertion,
  placeholders,
  RecordsError,
  type Row,
  type SqlValue,
  type Transaction,
} from './database.ts'

/**
 * `synchronous=FULL`: what is committed survives a crash of the machine. The store forgets what is recorded, so less
 * would lose it.
 */
const SETTINGS = [
  'PRAGMA busy_timeout=10000',
  'PRAGMA journal_mode=WAL',
  'PRAGMA synchronous=FULL',
  'PRAGMA foreign_keys=OFF',
] as const

/** Network file systems, by the numbers that Linux gives them. Their locks do not protect a database. */
const NETWORK_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB'],
  [0x517b, 'SMB'],
  [0x65735546, 'FUSE'],
])

/** A statement with its parameters, which runs once for each list of them. */
export type Statement = readonly [text: string, ...runs: (readonly SqlValue[])[]]

/** What a thread is asked. A connection belongs to its number. */
export type SqliteRequest = { readonly n: number; readonly connection: number } & (
  | { readonly kind: 'open'; readonly file: string; readonly settings: readonly string[] }
  | { readonly kind: 'run'; readonly statements: readonly Statement[] }
  | { readonly kind: 'close' }
)

/** What it answers: the rows of each statement up to the first that failed. */
export interface SqliteAnswer {
  readonly n: number
  readonly rows: readonly Row[][]
  readonly error?: string
}

/** A thread of this process. All databases share it. */
class Thread {
  readonly #worker = new Worker(new URL('./sqlite-thread.js', import.meta.url))
  readonly #waiting = new Map<number, (answer: Answer) => void>()
  /** Why the thread has ended, if it has. */
  #dead: string | undefined
  #n = 0
  #connections = 0

  constructor() {
    this.#worker.unref()
    this.#worker.on('message', (answer: SqliteAnswer) => {
      const waiting = this.#waiting.get(answer.n)
      this.#waiting.delete(answer.n)
      if (this.#waiting.size === 0) this.#worker.unref()
      waiting?.(answer)
    })
    this.#worker.on('error', cause => {
      this.#dead = `the thread of SQLite has ended: ${(cause as Error).message}`
      for (const waiting of this.#waiting.values()) waiting({ rows: [], error: this.#dead })
      this.#waiting.clear()
    })
  }

  async open(file: string): Promise<Connection> {
    const connection = ++this.#connections
    const { error } = await this.#ask({ kind: 'open', connection, file, settings: SETTINGS })
    if (error !== undefined) throw new RecordsError(error)
    return {
      run: statements => this.#ask({ kind: 'run', connection, statements }),
      close: async () => {
        await this.#ask({ kind: 'close', connection })
      },
    }
  }

  #ask(request: DistributiveOmit<SqliteRequest, 'n'>): Promise<Answer> {
    if (this.#dead !== undefined) return Promise.resolve({ rows: [], error: this.#dead })
    const answered = Promise.withResolvers<Answer>()
    const n = ++this.#n
    this.#waiting.set(n, answered.resolve)
    // The process stays alive while it waits for an answer.
    this.#worker.ref()
    this.#worker.postMessage({ ...request, n }, [])
    return answered.promise
  }
}

type DistributiveOmit<T, K extends string> = T extends unknown ? Omit<T, K> : never
type Answer = Omit<SqliteAnswer, 'n'>

/** A connection, which runs statements until one fails. */
interface Connection {
  run(statements: readonly Statement[]): Promise<Answer>
  close(): Promise<void>
}

/** The statements of a transaction. Those of one turn of the event loop are one message to the thread. */
class Messages implements Transaction {
  readonly #connection: Connection
  #statements: Statement[] = [['BEGIN IMMEDIATE', []]]
  /** The promises of the statements that the caller awaits, by their places. */
  #awaited = new Map<number, PromiseWithResolvers<Row[]>>()
  #sending: NodeJS.Immediate | undefined
  readonly #order = new Serial()
  /** Why a statement failed, if one did. */
  #failure: string | undefined

  constructor(connection: Connection) {
    this.#connection = connection
  }

  put(text: string, values: readonly SqlValue[] = []): void {
    this.#statements.push([text, values])
  }

  putRows({ before, rows, after }: Insertion): void {
    // A statement for one row stays prepared, whatever the number of rows.
    if (rows[0]) this.#statements.push([`${before} VALUES ${placeholders(1, rows[0].length)} ${after}`, ...rows])
  }

  all(text: string, values: readonly SqlValue[] = []): Promise<Row[]> {
    const rows = Promise.withResolvers<Row[]>()
    this.#awaited.set(this.#statements.length, rows)
    this.put(text, values)
    this.#sending ??= setImmediate(() => void this.#send())
    return rows.promise
  }

  /** Sends what waits, and commits. @throws RecordsError if a statement fails */
  async commit(): Promise<void> {
    this.put('COMMIT')
    const { error } = await this.#send()
    if (error !== undefined) throw new RecordsError(error)
  }

  /** Lets no further statement run, and waits for those that do. @param cause why the transaction is undone */
  async end(cause: unknown): Promise<void> {
    this.#failure ??= (cause as Error).message
    await this.#send()
  }

  /** Sends what waits when the message before has been answered. */
  #send(): Promise<Answer> {
    clearImmediate(this.#sending)
    this.#sending = undefined
    return this.#order.run(async () => {
      const [statements, awaited] = [this.#statements, this.#awaited]
      this.#statements = []
      this.#awaited = new Map()
      const answer =
        this.#failure === undefined ? await this.#connection.run(statements) : { rows: [], error: this.#failure }
      this.#failure ??= answer.error
      for (const [place, { resolve, reject }] of awaited) {
        const rows = answer.rows[place]
        if (rows) resolve(rows)
        else reject(new RecordsError(answer.error))
      }
      return answer
    })
  }
}

let writer: Thread | undefined
let reader: Thread | undefined
/** The transactions of this process by file. One that waited for another in the same thread would wait forever. */
const queues = new Map<string, Serial>()

/**
 * Returns a function that says what is wrong with an open file: SQLite would go on to write into one that was deleted or
 * replaced, and what it writes would be lost.
 */
function failureOf(file: string): () => string | undefined {
  const placeOf = (): string | undefined => {
    try {
      const { dev, ino } = statSync(file)
      return `${dev} ${ino}`
    } catch {
      return undefined
    }
  }
  const place = placeOf()
  return () =>
    placeOf() === place
      ? undefined
      : `${file} was deleted or replaced while it was open; put it back, or stop the gateway and restore it`
}

/**
 * Opens a SQLite file and creates it if it is missing.
 * @throws Error for the operator
 */
export async function openSqlite(file: string): Promise<Database> {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const network = NETWORK_FILE_SYSTEMS.get(statfsSync(dirname(file)).type)
  if (network !== undefined)
    throw new Error(
      `${dirname(file)} is on a network file system (${network}), where SQLite cannot protect its file; set store.data to a local folder, or store.records to a PostgreSQL`,
    )
  writer ??= new Thread()
  reader ??= new Thread()
  let writing: Connection | undefined
  let reading: Connection
  try {
    writing = await writer.open(file)
    reading = await reader.open(file)
  } catch (cause) {
    await writing?.close()
    throw new Error(`${file} cannot be opened: ${(cause as Error).message}`, { cause })
  }
  let turns = queues.get(file)
  if (!turns) queues.set(file, (turns = new Serial()))
  const failure = failureOf(file)
  const check = (): void => {
    const reason = failure()
    if (reason !== undefined) throw new RecordsError(reason)
  }
  return {
    dialect: 'sqlite',
    description: `SQLite in ${file}`,
    get failure() {
      return failure()
    },
    all: async (text, values = []) => {
      check()
      const { rows, error } = await reading.run([[text, values]])
      if (error !== undefined) throw new RecordsError(error)
      return rows[0] ?? []
    },
    transaction: use =>
      turns.run(async () => {
        check()
        const messages = new Messages(writing)
        try {
          const result = await use(messages)
          check()
          await messages.commit()
          return result
        } catch (cause) {
          await messages.end(cause)
          await writing.run([['ROLLBACK', []]])
          throw cause
        }
      }),
    close: async () => {
      await turns.run(() => writing.close())
      await reading.close()
    },
  }
}
