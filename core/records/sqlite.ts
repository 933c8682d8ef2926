/**
 * Records in a SQLite file: one connection writes, another one reads, so that a long read never delays a settlement.
 * Several processes of one machine may use the file.
 */
import { mkdirSync, statfsSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { Serial } from '../lib/serial.ts'
import { type Database, RecordsError, type Row, type Sql } from './database.ts'
import type { SqliteAnswer, SqliteRequest } from './sqlite-thread.ts'

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

/** A thread of this process. All databases share it. */
class Thread {
  readonly #worker = new Worker(new URL('./sqlite-thread.ts', import.meta.url))
  readonly #waiting = new Map<number, PromiseWithResolvers<Row[]>>()
  /** Why the thread has ended, if it has. */
  #dead: Error | undefined
  #n = 0
  #connections = 0

  constructor() {
    this.#worker.unref()
    this.#worker.on('message', (answer: SqliteAnswer) => {
      const waiting = this.#waiting.get(answer.n)
      this.#waiting.delete(answer.n)
      if (this.#waiting.size === 0) this.#worker.unref()
      if ('rows' in answer) waiting?.resolve(answer.rows)
      else waiting?.reject(new RecordsError(answer.error))
    })
    this.#worker.on('error', cause => {
      this.#dead = new RecordsError(`the thread of SQLite has ended: ${(cause as Error).message}`, { cause })
      for (const waiting of this.#waiting.values()) waiting.reject(this.#dead)
      this.#waiting.clear()
    })
  }

  async open(file: string): Promise<Connection> {
    const connection = ++this.#connections
    await this.#ask({ kind: 'open', connection, file, settings: SETTINGS })
    return {
      all: (text, values = []) => this.#ask({ kind: 'run', connection, text, values }),
      close: async () => {
        await this.#ask({ kind: 'close', connection })
      },
    }
  }

  #ask(request: DistributiveOmit<SqliteRequest, 'n'>): Promise<Row[]> {
    if (this.#dead) return Promise.reject(this.#dead)
    const answered = Promise.withResolvers<Row[]>()
    const n = ++this.#n
    this.#waiting.set(n, answered)
    // The process stays alive while it waits for an answer.
    this.#worker.ref()
    this.#worker.postMessage({ ...request, n }, [])
    return answered.promise
  }
}

type DistributiveOmit<T, K extends string> = T extends unknown ? Omit<T, K> : never

interface Connection extends Sql {
  close(): Promise<void>
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
    all: async (text, values) => {
      check()
      return reading.all(text, values)
    },
    transaction: use =>
      turns.run(async () => {
        check()
        await writing.all('BEGIN IMMEDIATE')
        try {
          const result = await use(writing)
          check()
          await writing.all('COMMIT')
          return result
        } catch (cause) {
          await writing.all('ROLLBACK').catch(() => {})
          throw cause
        }
      }),
    close: async () => {
      await turns.run(() => writing.close())
      await reading.close()
    },
  }
}
