/**
 * Notices when the store has lost what it acknowledged: after a restart of its server, or when another server took
 * over. Then nothing is held or settled until the store knows again what the records know.
 */
import type { Cluster, Redis } from 'ioredis'
import type { Log } from '../lib/log.ts'
import { Serial } from '../lib/serial.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import type { Records } from '../records/records.ts'
import type { Store } from '../store/store.ts'
import { Restorer } from './restore.ts'
import { type Scripts, stored } from './scripts.ts'
import { isBefore, positionOf } from './stream.ts'
import { SHARDS } from './store-keys.ts'

/** The layout of the store's keys. */
const LAYOUT = '2'
/** Milliseconds between two attempts to check a store. */
const RETRY_MS = 250
/** How long one process has to restore a store, before another one takes over, in milliseconds. */
const RESTORING_MS = 60_000
/** Accounts that are read at once, and that are restored at the same time. */
const PAGE = 500
const SIDE_BY_SIDE = 32
/** Identities of servers that are remembered. */
const SERVERS_MAX = 50
/** What clocks may differ and writes may be late by, in milliseconds. A replica may lack more than a server that was restarted. */
const SLACK_MS = { single: 5000, replicated: 300_000 } as const

/** The message about a store that is empty although the records are not. */
export const EMPTY_STORE =
  'the store is empty, but the records have keys: run `npx tollgate rebuild`, which restores it from the records'

/** The state of a store, as its processes share it. */
export interface SharedState {
  /** Everything that the store acknowledged up to here is recorded, in milliseconds of the store's clock. */
  readonly recordedUntil: number
  /** Bytes of ended exchanges that wait to be recorded. */
  readonly backlogBytes: number
}

/** Watches one store. */
export class Continuity {
  readonly #scripts: Scripts
  readonly #records: Records
  readonly #store: Pick<Store, 'redis' | 'kind' | 'replicated'>
  readonly #log: Log
  readonly #now: () => number
  readonly #restorer: Restorer
  readonly #checks = new Serial()
  #watching = false
  #open = false
  #closed = false
  #retry: NodeJS.Timeout | undefined
  #lostAt = 0
  #generation = 0
  /** The generation in which this process has repeated what it knows. */
  #repeated = 0
  #offsetMs = 0
  /** Called after the store was restored, by this process or by another one. */
  onRestored: () => void = () => {}

  constructor(
    scripts: Scripts,
    records: Records,
    store: Pick<Store, 'redis' | 'kind' | 'replicated'>,
    { log, now }: { readonly log: Log; readonly now: () => number },
  ) {
    this.#scripts = scripts
    this.#records = records
    this.#store = store
    this.#log = log
    this.#now = now
    this.#restorer = new Restorer(scripts, records)
  }

  /** Whether this process checks the store. The host of workers leaves that to them. */
  get watching(): boolean {
    return this.#watching
  }

  /** Whether the store is known to have everything that it acknowledged. */
  get open(): boolean {
    return this.#open
  }

  /** Waits for a check that runs. @returns whether the store may be used then */
  async whenOpen(): Promise<boolean> {
    if (!this.#open && this.#store.redis.status === 'ready') await this.#checks.run(() => Promise.resolve())
    return this.#open
  }

  /** The number of times that the store was restored from the records. */
  get generation(): number {
    return this.#generation
  }

  /** The time by the store's clock, in milliseconds since the epoch. */
  now(): number {
    return this.#now() + this.#offsetMs
  }

  /** Whether outcomes since a time may be missing, because the store lost some, in milliseconds since the epoch. */
  isDoubtful(ms: number): boolean {
    return ms <= this.#lostAt
  }

  /**
   * Checks the store, and from now on whenever its connection was interrupted.
   * @param mayRebuild whether an empty store is filled from the records
   * @throws Error for the operator if the store cannot be used with these records
   */
  async start(mayRebuild: boolean): Promise<void> {
    await this.#checks.run(() => this.#check(mayRebuild))
    this.#open = true
    if (this.#watching) return
    this.#repeated = this.#generation
    this.#watching = true
    const { redis } = this.#store
    for (const event of ['close', 'end', '-node']) redis.on(event as 'close', () => (this.#open = false))
    for (const event of ['ready', '+node', '-node']) redis.on(event as 'ready', () => this.recheck())
  }

  /** Checks again whether the store still has everything. */
  recheck(): void {
    void this.#checks.run(async () => {
      if (this.#closed) return
      try {
        await this.#check(false)
        this.#open = true
        // Each process repeats what it knows, whichever of them has restored the store.
        if (this.#generation !== this.#repeated) this.onRestored()
        this.#repeated = this.#generation
      } catch (cause) {
        this.#open = false
        this.#log.warn({ err: cause }, 'the store cannot be used yet')
        clearTimeout(this.#retry)
        this.#retry = setTimeout(() => this.recheck(), RETRY_MS).unref()
      }
    })
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#retry)
  }

  /** Reads what the processes share, and compares the servers with the known ones. */
  async state(): Promise<SharedState> {
    const [owner, generation, until, backlog] = await this.#meta('records', 'generation', 'recordedUntil', 'backlog')
    // Somebody has emptied the store, or restored it.
    const changed = owner === null || Number(generation) !== this.#generation
    if (changed) this.#open = false
    // A proxy may keep the connection while the server behind it is another one.
    this.recheck()
    return { recordedUntil: Number(until ?? 0), backlogBytes: Number(backlog ?? 0) }
  }

  /** Shares how far the store is recorded. */
  async share(state: Partial<SharedState>): Promise<void> {
    const { recordedUntil, backlogBytes } = state
    const fields = {
      beat: String(this.now()),
      ...(recordedUntil !== undefined && { recordedUntil: String(recordedUntil) }),
      ...(backlogBytes !== undefined && { backlog: String(backlogBytes) }),
    }
    await stored(this.#scripts.redis.hset(this.#metaKey, fields))
  }

  get #metaKey(): string {
    return this.#scripts.keys.shared('meta')
  }

  #meta(...names: string[]): Promise<(string | null)[]> {
    return stored(this.#scripts.redis.hmget(this.#metaKey, ...names))
  }

  async #check(mayRebuild: boolean): Promise<void> {
    const { redis, keys } = this.#scripts
    const [seconds = 0, micros = 0] = (await stored(redis.time())).map(Number)
    this.#offsetMs = seconds * 1000 + Math.floor(micros / 1000) - this.#now()
    const servers = await serversOf(this.#store.redis)
    const [owner, shards, layout, known, lostAt, generation] = await this.#meta(
      'records',
      'shards',
      'layout',
      'servers',
      'lostAt',
      'generation',
    )
    if (owner === null || owner === undefined) {
      if ((await stored(redis.exists(keys.shared('accounts')))) > 0)
        throw new Error('the store was made by an earlier version: stop all gateways and run `npx tollgate migrate`')
      const lost = await stored(this.#records.keys.any())
      if (lost && !mayRebuild) throw new Error(EMPTY_STORE)
      if (lost) await this.rebuild()
      else this.#generation = await stored(this.#records.generation())
      await this.#introduce(servers, lost)
      return
    }
    if (layout !== LAYOUT || Number(shards) !== SHARDS)
      throw new Error(
        `the store has layout ${layout} with ${shards} shards; this version of Tollgate knows layout ${LAYOUT} with ${SHARDS}`,
      )
    if (owner !== this.#records.id)
      throw new Error(
        `the store belongs to other records than ${this.#records.description}: set store.records (or store.data, if it is SQLite) to those that were used with it`,
      )
    this.#lostAt = Number(lostAt ?? 0)
    const seen = (known ?? '').split(' ')
    if (servers.some(server => !seen.includes(server))) await this.#restoreLost(servers, seen)
    else this.#generation = Number(generation)
  }

  /** Fills an empty store with every key that the records have. @returns the number of keys */
  async rebuild(): Promise<number> {
    this.#generation = await stored(this.#records.nextGeneration())
    let count = 0
    for await (const page of this.#records.keys.pages(PAGE)) {
      await sideBySide(page, SIDE_BY_SIDE, key => this.#restorer.restore(key))
      count += page.length
    }
    return count
  }

  /** Makes an empty store the store of these records. */
  async #introduce(servers: readonly string[], lost: boolean): Promise<void> {
    const { redis, keys } = this.#scripts
    if (lost) this.#lostAt = this.now()
    await stored(
      redis.hset(this.#metaKey, {
        records: this.#records.id,
        shards: String(SHARDS),
        layout: LAYOUT,
        servers: servers.join(' '),
        lostAt: String(this.#lostAt),
        generation: String(this.#generation),
        beat: String(this.now()),
      }),
    )
    // Versions before the records refuse a store that has this key.
    await stored(redis.set(keys.shared('rebuilding'), '1'))
  }

  /** Fills an empty store for `tollgate rebuild`. @returns the number of keys */
  async rebuildAll(): Promise<number> {
    const [owner] = await this.#meta('records')
    if (owner !== null) throw new Error('the store is not empty; a rebuild needs an empty store')
    const count = await this.rebuild()
    await this.#introduce(await serversOf(this.#store.redis), true)
    return count
  }

  /** Restores what a store lost that was restarted, or whose place another server took. One process does it. */
  async #restoreLost(servers: readonly string[], seen: readonly string[]): Promise<void> {
    const { redis, keys } = this.#scripts
    const lock = keys.shared('restoring')
    const mine = await stored(redis.set(lock, '1', 'PX', RESTORING_MS, 'NX'))
    if (mine === null) throw new Error('another process restores the store')
    try {
      const since = await this.#lostSince()
      this.#generation = await stored(this.#records.nextGeneration())
      let restored = 0
      for await (const page of this.#records.keys.changedSince(since, PAGE)) {
        await sideBySide(page, SIDE_BY_SIDE, key => this.#restorer.restore(key))
        restored += page.length
      }
      this.#lostAt = this.now()
      const all = [...new Set([...seen, ...servers])].filter(Boolean).slice(-SERVERS_MAX)
      await stored(
        redis.hset(this.#metaKey, {
          servers: all.join(' '),
          lostAt: String(this.#lostAt),
          generation: String(this.#generation),
        }),
      )
      this.#log.info({ accounts: restored }, 'the server of the store has changed; compared it with the records')
    } finally {
      await redis.del(lock).catch(() => {})
    }
  }

  /** Returns the time since when the store may have lost something, in milliseconds since the epoch. */
  async #lostSince(): Promise<number> {
    const [beat] = await this.#meta('beat')
    let since = Number(beat ?? 0)
    const recorded = await stored(this.#records.history.positions())
    for (const [shard, position] of recorded) {
      const survived = await lastIn(this.#scripts, shard)
      if (isBefore(survived, position)) since = Math.min(since, survived.ms)
    }
    return since - (this.#store.replicated ? SLACK_MS.replicated : SLACK_MS.single)
  }
}

/** Returns the position of the last entry that was ever added to a shard's stream. */
async function lastIn(scripts: Scripts, shard: number): Promise<{ ms: number; seq: number }> {
  try {
    const info = (await scripts.redis.xinfo('STREAM', scripts.keys.inShard(shard, 'x'))) as unknown[]
    return positionOf(String(info[info.indexOf('last-generated-id') + 1]))
  } catch (cause) {
    if (/no such key/i.test((cause as Error).message)) return { ms: 0, seq: 0 }
    return stored(Promise.reject(cause as Error))
  }
}

/** Returns what changes when a server of the store starts again or takes over. Servers that do not answer are left out. */
async function serversOf(client: Redis | Cluster): Promise<string[]> {
  const masters = 'nodes' in client ? client.nodes('master') : [client]
  const found = await Promise.allSettled(masters.map(identityOf))
  const answered = found.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []))
  if (answered.length === 0) return stored(Promise.reject(new Error('no server of the store answers')))
  return answered
}

async function identityOf(redis: Redis): Promise<string> {
  const text = `${await redis.info('server')}\n${await redis.info('replication')}`
  const of = (name: string): string => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? ''
  return `${of('run_id')}:${of('master_replid')}`
}
