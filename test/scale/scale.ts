/**
 * A ledger with many keys and many exchanges: what it occupies, and how long each operation on all of it takes while
 * requests go on.
 *
 * npm run scale                                  a million keys and ten million exchanges; it takes about half an hour
 * KEYS=10000 EXCHANGES=100000 npm run scale      fewer
 * DATABASE_URL=postgres://… npm run scale        in an empty PostgreSQL instead of SQLite
 */
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { parseAddress } from '../../core/config/store-address.ts'
import { audit } from '../../core/ledger/audit.ts'
import { type Key, Keys } from '../../core/keys/keys.ts'
import { Ledger } from '../../core/ledger/ledger.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import { allowance, balanceOf } from '../../core/account/views.ts'
import type { EndedEntry } from '../../core/records/entry.ts'
import { Records } from '../../core/records/records.ts'
import { usageBy } from '../../core/records/usage.ts'
import { findServer } from '../../core/store/managed.ts'
import { openStore } from '../../core/store/store.ts'
import { testEnvironment } from '../environment.ts'
import { config } from '../plugins/facts.ts'
import { freePort } from '../ports.ts'
import { NOTES_AT_END as NOTES } from '../sample-notes.ts'

const KEYS = Number(process.env['KEYS'] ?? 1_000_000)
const EXCHANGES = Number(process.env['EXCHANGES'] ?? 10_000_000)
const RATE = Number(process.env['RATE'] ?? 2000)
/** Requests whose memory in the store is measured. */
const RECORDED = Math.min(10_000, EXCHANGES)
const EXPIRED = Math.min(100_000, KEYS)
const WAITING = Math.min(500_000, EXCHANGES)
const DAYS = 60
const DAY_MS = 86_400_000

const folder = mkdtempSync(join(tmpdir(), 'tollgate-scale-'))
const port = await freePort()
const server = spawn(
  findServer(process.env) as string,
  // Redis' own rewriting of its file would take one of two processors now and then.
  ['--port', String(port), '--dir', folder, '--appendonly', 'yes', '--appendfsync', 'everysec', '--save', '', '--auto-aof-rewrite-percentage', '0'], // prettier-ignore
  { stdio: 'ignore' },
)
process.on('exit', () => {
  server.kill()
  rmSync(folder, { recursive: true, force: true })
})
const place = {
  ...config.store,
  address: parseAddress(`redis://127.0.0.1:${port}`),
  data: folder,
  records: process.env['DATABASE_URL'],
  commandTimeoutMs: 30_000,
  recordsTimeoutMs: 600_000,
}
const environment = testEnvironment()
const settings = { ...config, store: place, ledger: { ...config.ledger, auditEveryMs: DAY_MS, reapEveryMs: DAY_MS } }

async function opened(): Promise<Ledger> {
  const store = await openStore(place, 'guest', environment)
  const records = await Records.open(place, environment)
  const ledger = new Ledger({ store, records, config: settings, environment, outboxFolder: join(folder, 'outbox') })
  const close = ledger.close.bind(ledger)
  ledger.close = async () => {
    await close()
    await Promise.all([store.close(), records.close()])
  }
  return ledger
}

function show(name: string, value: string): void {
  console.log(`${name.padEnd(58)} ${value}`)
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 0)} s`

/** Times of requests in milliseconds, while something else runs. */
class Load {
  #times: number[] = []
  readonly #ledger: Ledger
  readonly #ids: readonly string[]
  readonly #over = new AbortController()
  readonly #done: Promise<void>

  constructor(ledger: Ledger, ids: readonly string[]) {
    this.#ledger = ledger
    this.#ids = ids
    this.#done = this.#run()
  }

  async #run(): Promise<void> {
    const began = performance.now()
    for (let sent = 0; !this.#over.signal.aborted;) {
      for (const due = ((performance.now() - began) / 1000) * RATE; sent < due; sent++) void this.#request(sent)
      await sleep(1)
    }
  }

  async #request(nth: number): Promise<void> {
    const began = performance.now()
    const account = this.#ids[(nth * 7919) % this.#ids.length] as string
    const answer = await this.#ledger.hold({
      account,
      id: timedId(Date.now()),
      amount: 1_000_000n,
      least: 1_000_000n,
      version: '1',
      concurrency: 20,
      notes: NOTES,
      floor: () => ({ charge: 0n, notes: {} }),
    })
    this.#times.push(performance.now() - began)
    if (answer.kind === 'held') this.#ledger.settle(answer.hold, { charge: 900_000n, kind: 'settle', notes: NOTES })
  }

  /** Returns the 99th percentile of the times since the last call, in milliseconds. */
  p99(): number {
    const times = this.#times.sort((a, b) => a - b)
    this.#times = []
    return times[Math.floor(times.length * 0.99)] ?? 0
  }

  async stop(): Promise<void> {
    this.#over.abort()
    await this.#done
  }
}

/** A short operation is repeated for so long, with pauses, in milliseconds. */
const REPEATED_MS = 5000
const PAUSE_MS = 100

/** Waits. @returns how long it was, in milliseconds */
async function paused(ms: number): Promise<number> {
  const began = performance.now()
  await sleep(ms)
  return performance.now() - began
}

/** Runs an operation beside the requests, and prints how long it took and what it did to them. */
async function beside(load: Load, name: string, work: () => Promise<unknown>, repeat?: 'repeat'): Promise<void> {
  load.p99()
  const began = performance.now()
  let result: unknown
  let [times, pauses] = [0, 0]
  for (; times === 0 || (repeat && performance.now() - began < REPEATED_MS); times++) {
    result = await work()
    if (repeat) pauses += await paused(PAUSE_MS)
  }
  const ms = (performance.now() - began - pauses) / times
  const told = typeof result === 'string' ? `, ${result}` : ''
  show(name, `${ms < 1000 ? `${ms.toFixed(1)} ms` : seconds(ms)}${told}; p99 of a hold ${load.p99().toFixed(1)} ms`)
}

/** Look-ups of which the mean is taken. */
const LOOK_UPS = 200

/** Prints the CPU time of a look-up, in all threads of this process. */
async function lookUp(name: string, look: (nth: number) => Promise<unknown>): Promise<void> {
  const before = process.cpuUsage()
  for (let nth = 0; nth < LOOK_UPS; nth++) await look(nth)
  const { user, system } = process.cpuUsage(before)
  show(name, `${((user + system) / 1000 / LOOK_UPS).toFixed(2)} ms of CPU`)
}

await sleep(500)
const redis = new Redis(port)
const used = async (): Promise<number> => Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1])
console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model.trim()}`)
const ledger = await opened()
await ledger.start({ mayRebuild: false, alone: true })
show('records', ledger.records.description.replace(folder, '…'))
const keys = new Keys(ledger, 10_000, Date.now)
const empty = await used()
let began = performance.now()
const ids: string[] = []
while (ids.length < KEYS) {
  const made = await keys.changes.createMany(
    { type: 'famC', name: 'customer', credits: 1_000_000_000_000n, expiresAt: undefined },
    Math.min(1000, KEYS - ids.length),
  )
  ids.push(...made.map(({ key }) => key.id))
}
show(`creating ${KEYS} keys`, seconds(performance.now() - began))
show('memory of an unused key in the store', `${(((await used()) - empty) / KEYS) | 0} bytes`)

began = performance.now()
const start = Date.now() - DAYS * DAY_MS
const ordinals = new Map<string, number>()
for (let done = 0; done < EXCHANGES;) {
  const entries: EndedEntry[] = []
  for (; entries.length < 5000 && done < EXCHANGES; done++) {
    const account = ids[(done * 7919) % KEYS] as string
    const ordinal = (ordinals.get(account) ?? 0) + 1
    ordinals.set(account, ordinal)
    const at = start + Math.floor((done / EXCHANGES) * DAYS * DAY_MS)
    entries.push({ id: timedId(at), account, ordinal, at, kind: 'settle', charge: 900_000n, balance: 1_000_000_000_000n - BigInt(ordinal) * 900_000n, bucket: '0.0', waived: 0n, notes: NOTES }) // prettier-ignore
  }
  await ledger.records.recorder.record(entries, new Map())
}
const recordingMs = performance.now() - began
show(
  `recording ${EXCHANGES} exchanges`,
  `${seconds(recordingMs)}, ${Math.round(EXCHANGES / (recordingMs / 1000))} a second`,
)
show('bytes of a row with its indexes', await bytesOfRow(ledger.records))
// The store is told what the records know of it, as after a loss.
began = performance.now()
await redis.flushall()
await ledger.continuity.rebuildAll()
show(`rebuilding the store: ${KEYS} keys with ${EXCHANGES} exchanges`, seconds(performance.now() - began))
ledger.continuity.recheck()
while (!ledger.continuity.open) await sleep(10)
show('memory of a used key in the store', `${(((await used()) - empty) / KEYS) | 0} bytes`)

const key = (nth: number): Key => {
  const account = ids[(nth * 7919) % KEYS] as string
  return { id: account, type: 'famC', label: '', spender: { account, key: account }, whose: { account } } as Key
}
const balance = async (of: Key): Promise<unknown> =>
  balanceOf(ledger, of, await allowance(ledger, of, config, Date.now()), Date.now())
await lookUp('balance of a key', nth => balance(key(nth)))
await lookUp('key-info of a key', nth =>
  Promise.all([balance(key(nth)), ledger.reads.summary({ account: key(nth).id }, Date.now())]),
)

const load = new Load(ledger, ids)
await sleep(5000)
load.p99()
await sleep(10_000)
show(`${RATE} requests a second`, `p99 of a hold ${load.p99().toFixed(1)} ms`)
const quick = (name: string, work: () => Promise<unknown>): Promise<void> => beside(load, name, work, 'repeat')
await quick('start of another gateway', async () => {
  const other = await opened()
  await other.start({ mayRebuild: false, alone: false })
  await other.close()
})
const { keys: list, database } = ledger.records
await quick('history page of a key', () => ledger.reads.history({ account: ids[7] as string }, { count: 50 }))
await quick('keys list, a page of 200', () => list.list({ count: 200, now: Date.now() }))
await quick('keys list, search by a part of an id', () =>
  list.list({ text: ids[KEYS - 1]?.slice(4), count: 50, now: Date.now() }),
)
const today = Math.floor(Date.now() / DAY_MS)
const yesterday = { from: today - 1, to: today - 1, count: 1000 }
await quick('usage of a day by key, the first 1000', () => usageBy(database, 'key', yesterday))
const allDays = { from: today - DAYS, to: today, count: 1000 }
await quick(`usage of ${DAYS} days by model`, () => usageBy(database, 'model', allDays))
await expire(ledger, ids)
await beside(load, `reaping ${EXPIRED} expired holds`, async () => `${await ledger.background.reap()} ended`)
await ledger.background.archiveAll()
await beside(load, 'deleting the exchanges of the oldest days', async () => {
  return `${await ledger.records.deleteBefore(start + 5 * DAY_MS)} deleted`
})
await ledger.background.archiveAll()
await beside(load, `audit of ${KEYS} keys`, async () => {
  const { drifts } = await audit(ledger, undefined, 'sums')
  return `${drifts.length} with drift`
})
await load.stop()
await ledger.close()
const before = await used()
const third = await opened()
await third.start({ mayRebuild: false, alone: true })
const single = new Load(third, ids)
await sleep(Math.ceil((RECORDED / RATE) * 1000))
await single.stop()
await sleep(500)
await third.background.archiveAll()
show(
  `store memory that ${RECORDED.toLocaleString('en')} recorded requests leave`,
  `${(Math.max(0, (await used()) - before) / RECORDED) | 0} bytes each`,
)
await third.close()

leaveWaiting(ids)
began = performance.now()
const fourth = await opened()
await fourth.start({ mayRebuild: false, alone: true })
show(`start with ${WAITING} waiting settlements`, seconds(performance.now() - began))
const during = new Load(fourth, ids)
await beside(during, 'sending them', async () => {
  // They are counted as their files are read, and the first round may not have begun.
  for (let idle = 0; idle < 5; idle = fourth.waiting === 0 ? idle + 1 : 0) await sleep(1000)
})
await during.stop()
await fourth.background.archiveAll()
const { drifts } = await audit(fourth, undefined, 'sums')
show('accounts with drift in the end', String(drifts.length))
await fourth.close()
redis.disconnect()
process.exit(0)

/** Writes the outbox of a process that died. */
function leaveWaiting(ids: readonly string[]): void {
  const outbox = join(folder, 'outbox')
  mkdirSync(outbox, { recursive: true })
  for (let at = 0; at < WAITING; at += 10_000) {
    const lines = Array.from({ length: Math.min(10_000, WAITING - at) }, (_, index) => {
      const account = ids[((at + index) * 7919) % ids.length] as string
      const end = { charge: 900_000n, kind: 'settle', notes: NOTES } as const
      return `${JSON.stringify(settlementOf({ account, id: timedId(Date.now()) }, end, Date.now()))}\n`
    })
    writeFileSync(join(outbox, `dead.w.${at / 10_000}.jsonl`), lines.join(''))
  }
}

/** Makes holds whose leases are over. */
async function expire(ledger: Ledger, ids: readonly string[]): Promise<void> {
  const { redis, keys } = ledger.scripts
  for (let at = 0; at < EXPIRED; at += 500) {
    const part = ids.slice(at, Math.min(at + 500, EXPIRED))
    const pipeline = redis.pipeline()
    for (const account of part) {
      const id = timedId(Date.now())
      const bucket = `${Math.floor(Date.now() / 3_600_000)}.9`
      pipeline.set(keys.hold(account, id), `1000 500 ${bucket} - 0 - ["1","/x","m",1]`)
      pipeline.zadd(keys.of(account).leases, 1, `${account} ${id} ${bucket}`)
      pipeline.hincrby(keys.of(account).account, 'bal', -1000)
      pipeline.hincrby(keys.of(account).account, 'rsv', 1000)
      pipeline.hincrby(keys.of(account).account, 'n', 1)
    }
    await pipeline.exec()
    for (let shard = 0; shard < 1024; shard += 512) ledger.background.noteHold(part[0] as string)
  }
  for (const account of ids.slice(0, 5000)) ledger.background.noteHold(account)
}

async function bytesOfRow(records: Records): Promise<string> {
  if (records.database.dialect === 'postgres') {
    const [row] = await records.database.all(
      "SELECT CAST(SUM(pg_total_relation_size(inhrelid)) AS BIGINT) AS bytes FROM pg_inherits WHERE inhparent = 'exchanges'::regclass",
    )
    return String(Math.round(Number(row?.['bytes']) / EXCHANGES))
  }
  const rows = await records.database
    .all("SELECT SUM(pgsize) AS bytes FROM dbstat WHERE name LIKE 'exchanges%'")
    .catch(() => [])
  const bytes = Number(rows[0]?.['bytes'] ?? 0)
  if (bytes > 0) return String(Math.round(bytes / EXCHANGES))
  const size = readdirSync(folder).filter(name => name.startsWith('records')).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0) // prettier-ignore
  return `${Math.round(size / EXCHANGES)}, with everything else`
}
