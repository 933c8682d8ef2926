/**
 * Runs the ledger's operations on the store. Operations requested in the same turn of the event loop are sent as one
 * call of one script. Settlements, which have no waiting caller, join the next call or wait a moment for one. Each
 * operation is atomic, the batch is not: a failing operation does not affect the others.
 */
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import { LRUCache } from 'lru-cache'
import { GatewayError, soonMs } from '../errors.ts'
import type { Store } from '../store/store.ts'

/** The operations of the ledger's script. */
export type OperationName =
  | 'hold'
  | 'extend'
  | 'renew'
  | 'abandon'
  | 'rejoin'
  | 'settle'
  | 'grant'
  | 'credit'
  | 'claim'
  | 'release'
  | 'reap'
  | 'trim'
  | 'snapshot'

interface Operation {
  readonly name: OperationName
  readonly account: string
  readonly id: string
  /** Identifies the request among its retries. Empty if that does not matter. */
  readonly request: string
  readonly args: readonly string[]
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: GatewayError) => void
}

/** An account's keys, in the order that the script expects. */
const PARTS = ['a', 'h', 'd', 'x', 'g', 't', 'u', 'b'] as const

/** The files that are concatenated into one script, in order. */
const PARTS_OF_THE_SCRIPT = ['common.lua', 'holds.lua', 'accounts.lua', 'batch.lua'] as const

/** How long an operation without a waiting caller may wait for others, in milliseconds. */
const LAZY_MS = 2
/** Maximum operations per call, since a call blocks the store. */
const BATCH = 64

/** Operations that are refused when the store is out of memory. All others are accepted. */
const GROWING: ReadonlySet<OperationName> = new Set(['hold', 'extend', 'grant', 'claim'])

type Run = (count: number, keys: readonly string[], lines: readonly string[]) => Promise<unknown[]>

/** An operation was done but is not yet safe from a failover. The message is for the operator. */
export class Unconfirmed extends Error {}

/** Batches operations and sends them to the store. */
export class Scripts {
  readonly redis: Redis
  readonly #prefix: string
  /** Whether accounts may be on different servers. A call then covers only one account. */
  readonly #scattered: boolean
  readonly #run: Run
  /** The same script with the flag that lets settlements through when the store is out of memory. */
  readonly #runFull: Run
  /** The keys of recently used accounts. */
  readonly #keys = new LRUCache<string, readonly string[]>({ max: 10_000 })
  /** Running calls. */
  readonly #calls = new Set<Promise<void>>()
  #queue: Operation[] = []
  #soon: NodeJS.Immediate | undefined
  #later: NodeJS.Timeout | undefined

  constructor({ redis, kind, scattered }: Pick<Store, 'redis' | 'kind' | 'scattered'>, prefix: string) {
    this.redis = redis
    this.#scattered = scattered
    this.#prefix = prefix
    const source = PARTS_OF_THE_SCRIPT.map(name => readFileSync(new URL(name, import.meta.url), 'utf8')).join('\n')
    const define = (name: string, lua: string): Run => {
      redis.defineCommand(name, { lua })
      return (redis as unknown as Record<string, Run>)[name]?.bind(redis) as Run
    }
    // The embedded store does not support the line of script flags, and never reports that it is out of memory.
    const flagged = (flags: string): string => (kind === 'embedded' ? source : `#!lua${flags}\n${source}`)
    this.#run = define('tollgate_run', flagged(''))
    this.#runFull = define('tollgate_run_full', flagged(' flags=allow-oom'))
  }

  /** Returns a key of one account. All keys of an account are in one cluster slot. */
  key(account: string, part: string): string {
    return `${this.#prefix}:{${account}}:${part}`
  }

  /** Returns a key that belongs to no account. */
  shared(name: string): string {
    return `${this.#prefix}:${name}`
  }

  /** Runs an operation. @throws GatewayError unavailable for any failure */
  run(name: OperationName, account: string, id: string, args: readonly string[], request = ''): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ name, account, id, request, args, resolve, reject })
      if (name === 'settle' || name === 'renew') this.#later ??= setTimeout(this.flush, LAZY_MS)
      else this.#soon ??= setImmediate(this.flush)
    })
  }

  /**
   * Waits until a number of replicas has what was written beside a key. The command takes the same connection as the
   * write, as only that connection can wait for it.
   * @throws Unconfirmed if they do not confirm in time
   */
  async confirm(key: string, replicas: number, ms: number): Promise<void> {
    if (replicas === 0) return
    const [, answer] = (await stored(this.redis.pipeline().exists(key).wait(replicas, ms).exec())) ?? []
    const [failure, have] = answer ?? [new Error('no answer'), 0]
    if (failure) throw unavailable(failure)
    if (Number(have) < replicas)
      throw new Unconfirmed(
        `the change is done, but only ${Number(have)} of ${replicas} replicas confirmed it; do not repeat it, and check the replicas`,
      )
  }

  /** Sends all waiting operations. A read after this call is ordered behind them. */
  readonly flush = (): void => {
    if (this.#soon) clearImmediate(this.#soon)
    clearTimeout(this.#later)
    this.#soon = undefined
    this.#later = undefined
    const queue = this.#queue
    this.#queue = []
    const batches = this.#scattered ? Map.groupBy(queue, ({ account }) => account).values() : [queue]
    for (const batch of batches)
      for (let at = 0; at < batch.length; at += BATCH) this.#track(this.#send(this.#run, batch.slice(at, at + BATCH)))
  }

  #track(call: Promise<void>): void {
    this.#calls.add(call)
    void call.finally(() => this.#calls.delete(call))
  }

  /**
   * Waits until the store has answered all operations requested so far. A read after that, on any connection, sees
   * them.
   */
  async answered(): Promise<void> {
    this.flush()
    await Promise.all(this.#calls)
  }

  async #send(run: Run, operations: readonly Operation[]): Promise<void> {
    if (operations.length === 0) return
    try {
      deliver(operations, await this.#call(run, operations))
    } catch (cause) {
      const full = run === this.#run && (cause as Error).message.startsWith('OOM')
      const again = full ? operations.filter(({ name }) => !GROWING.has(name)) : []
      refuse(
        operations.filter(operation => !again.includes(operation)),
        cause,
      )
      await this.#send(this.#runFull, again)
    }
  }

  #call(run: Run, operations: readonly Operation[]): Promise<unknown[]> {
    const places = new Map<string, number>()
    for (const { account } of operations) if (!places.has(account)) places.set(account, places.size)
    const keys = [...places.keys()].flatMap(account => this.#keysOf(account))
    for (const { account, id, request } of operations)
      keys.push(this.key(account, `i:${id}`), this.key(account, `r:${request}`))
    // No argument contains a line break: arguments are ids, numbers, fixed words and JSON.
    const lines = operations.map(({ account, name, args }) => `${places.get(account)}\n${name}\n${args.join('\n')}`)
    return run(keys.length, keys, lines)
  }

  #keysOf(account: string): readonly string[] {
    let keys = this.#keys.get(account)
    if (!keys) this.#keys.set(account, (keys = PARTS.map(part => this.key(account, part))))
    return keys
  }
}

function deliver(operations: readonly Operation[], answers: readonly unknown[]): void {
  operations.forEach((operation, index) => {
    const answer = answers[index]
    if (Array.isArray(answer) && answer[0] === 'error') refuse([operation], new Error(String(answer[1])))
    else operation.resolve(typeof answer === 'string' ? answer.split(' ') : answer)
  })
}

function refuse(operations: readonly Operation[], cause: unknown): void {
  for (const { reject } of operations) reject(unavailable(cause))
}

function unavailable(cause: unknown): GatewayError {
  return new GatewayError('unavailable', { cause, retryAfterMs: soonMs() })
}

/**
 * Awaits a command of the store.
 * @throws GatewayError unavailable for any failure, since the caller can only try again later
 */
export async function stored<T>(command: Promise<T>): Promise<T> {
  try {
    return await command
  } catch (cause) {
    throw unavailable(cause)
  }
}
