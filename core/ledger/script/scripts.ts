/**
 * Runs the ledger's operations on the store. Operations requested in the same turn of the event loop are sent as one
 * call of one script. While a call runs, settlements and renewals join the next one, or wait a moment for it. Each
 * operation is atomic, the batch is not: a failing operation does not affect the others.
 */
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import type { GatewayError } from '../../errors.ts'
import { orUnavailable, unavailable } from '../../records/unavailable.ts'
import { hasSent } from '../../store/connect.ts'
import { mastersOf } from '../../store/masters.ts'
import type { Store } from '../../store/store.ts'
import { type FieldName, FIELDS, type Operation, type OperationName, readFields, scriptOf } from './names.ts'
import { partField } from './parts.ts'
import { spenderAt, StoreKeys } from './store-keys.ts'

interface Queued extends Operation {
  readonly resolve: (answer: readonly string[]) => void
  readonly reject: (error: GatewayError) => void
}

/** The files of the script, in their order. */
const FILES = [
  'common.lua',
  'windows.lua',
  'purses.lua',
  'quotas.lua',
  'holds.lua',
  'ends.lua',
  'accounts.lua',
  'kept.lua',
  'batch.lua',
] as const

/** Returns the whole script. */
export function scriptSource(): string {
  return scriptOf(FILES.map(name => readFileSync(new URL(name, import.meta.url), 'utf8')).join('\n'))
}

const FIND = readFileSync(new URL('find.lua', import.meta.url), 'utf8')

/** How long settlements and renewals may wait for others, in milliseconds. */
const LAZY_MS = 2
/** Maximum operations per call, since a call blocks the store. */
const BATCH = 64

/** Operations that wait for others. */
const LAZY: ReadonlySet<OperationName> = new Set(['settle', 'renew'])

/**
 * Operations that are refused when the store is out of memory. All others are accepted, also those that write what the
 * records know already.
 */
const GROWING: ReadonlySet<OperationName> = new Set(['hold', 'quota', 'extend', 'claim', 'keep'])

type Find = (pointer: string, ...args: readonly (string | number)[]) => Promise<unknown[]>
type Run = (count: number, keys: readonly string[], args: readonly string[]) => Promise<string[]>

/** The store answers, but refuses an operation for a reason of its own. */
export class RefusedOperation extends Error {}

/** Batches operations and sends them to the store. */
export class Scripts {
  readonly redis: Redis
  readonly keys: StoreKeys
  readonly #find: Find
  readonly #prefix: string
  /** Whether accounts may be on different servers. A call then covers only one shard. */
  readonly scattered: boolean
  readonly #run: Run
  /** The same script with the flag that lets settlements through when the store is out of memory. */
  readonly #runFull: Run
  /** The line with that flag. */
  readonly #evenIfFull: string
  /** Running calls. */
  readonly #calls = new Set<Promise<void>>()
  #queue: Queued[] = []
  #soon: NodeJS.Immediate | undefined
  #later: NodeJS.Timeout | undefined
  #written: PromiseWithResolvers<void> | undefined

  constructor({ redis, kind, scattered }: Pick<Store, 'redis' | 'kind' | 'scattered'>, prefix: string) {
    this.redis = redis
    this.scattered = scattered
    this.keys = new StoreKeys(prefix)
    const source = scriptSource()
    const define = (name: string, lua: string): Run => {
      redis.defineCommand(name, { lua })
      const run = (redis as unknown as Record<string, Run>)[name]?.bind(redis) as Run
      return async (count, keys, args) => {
        try {
          return await run(count, keys, args)
        } catch (cause) {
          // A full server may refuse a script that the client believes it has. Nothing has been done.
          if (!(cause as Error).message.startsWith('NOSCRIPT')) throw cause
          return (await redis.eval(lua, count, ...keys, ...args)) as string[]
        }
      }
    }
    // The embedded store does not support the line of script flags, and never reports that it is out of memory.
    const flags = (line: string): string => (kind === 'embedded' ? '' : `${line}\n`)
    this.#evenIfFull = flags('#!lua flags=allow-oom')
    this.#prefix = prefix
    redis.defineCommand('tollgate_find', { lua: `${flags('#!lua flags=no-writes')}${FIND}`, numberOfKeys: 1 })
    this.#find = (redis as unknown as Record<string, Find>)['tollgate_find']?.bind(redis) as Find
    this.#run = define('tollgate_run', `${flags('#!lua')}${source}`)
    this.#runFull = define('tollgate_run_full', `${this.#evenIfFull}${source}`)
  }

  /**
   * Runs an operation.
   * @returns the words of its answer
   * @throws GatewayError unavailable for any failure
   */
  run(operation: Operation): Promise<readonly string[]> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ ...operation, resolve, reject })
      // While no call runs, there are no others to wait for, and a lone client would wait instead.
      if (LAZY.has(operation.name) && this.#calls.size > 0) this.#later ??= setTimeout(this.flush, LAZY_MS)
      else this.#soon ??= setImmediate(this.flush)
    })
  }

  /**
   * Finds a key by the digest of its secret, in one trip to the store, or in two if the store has several servers.
   * @param ofKey fields of its record
   * @param ofAccount fields of its account. `part` is that of the key
   * @returns the account and the key, with the values of the fields. Undefined if no key has the secret
   * @throws GatewayError unavailable
   */
  async find<const K extends FieldName, const A extends FieldName>(
    digest: string,
    ofKey: readonly K[],
    ofAccount: readonly A[],
  ): Promise<
    | {
        spender: { readonly account: string; readonly key: string }
        fields: Readonly<Record<K | A | 'part', string | null>>
      }
    | undefined
  > {
    const { redis, keys } = this
    const pointer = keys.pointer(digest)
    if (this.scattered) {
      const pointed = await orUnavailable(redis.get(pointer))
      if (pointed === null) return undefined
      const spender = spenderAt(pointed)
      const [record, account] = await orUnavailable(Promise.all([
        readFields(redis, keys.record(spender), ofKey),
        readFields(redis, keys.of(spender.account).account, [...ofAccount, 'part'], { part: partField(spender) }),
      ])) // prettier-ignore
      return { spender, fields: { ...record, ...account } as never }
    }
    const names = [...ofKey, ...ofAccount, 'part'] as const
    const [pointed, record, account] = (await orUnavailable(
      this.#find(pointer, this.#prefix, ofKey.length, ...names.map(name => FIELDS[name])),
    )) as [string?, (string | null)[]?, (string | null)[]?]
    if (pointed === undefined) return undefined
    const values = [...(record ?? []), ...(account ?? [])]
    return {
      spender: spenderAt(pointed),
      fields: Object.fromEntries(names.map((name, at) => [name, values[at] ?? null])) as never,
    }
  }

  /**
   * Resolves in the turn after everything that is queued now has been handed to the operating system. Undefined if nothing
   * is queued. It does not resolve if a server does not answer, or takes no more.
   */
  written(): Promise<void> | undefined {
    if (this.#queue.length > 0) this.#written ??= Promise.withResolvers()
    return this.#written?.promise
  }

  /**
   * Runs a small script on one key that the processes share. A store that is out of memory accepts it too.
   * @throws GatewayError unavailable
   */
  evaluate(script: string, key: string, ...args: readonly (string | number)[]): Promise<unknown> {
    return orUnavailable(this.redis.eval(`${this.#evenIfFull}${script}`, 1, key, ...args))
  }

  /** Runs one command on such a key, in the same way. @throws GatewayError unavailable */
  write(
    command: 'SET' | 'SADD' | 'HSET' | 'HINCRBY' | 'EXPIRE',
    key: string,
    ...args: readonly (string | number)[]
  ): Promise<unknown> {
    return this.evaluate('return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))', key, command, ...args)
  }

  /** Sends all queued operations now. */
  readonly flush = (): void => {
    clearImmediate(this.#soon)
    clearTimeout(this.#later)
    this.#soon = undefined
    this.#later = undefined
    const queue = this.#queue
    this.#queue = []
    const shard = ({ account }: Queued): number => this.keys.of(account).shard
    const batches = this.scattered ? Map.groupBy(queue, shard).values() : [queue]
    for (const batch of batches)
      for (let at = 0; at < batch.length; at += BATCH) this.#track(this.#send(this.#run, batch.slice(at, at + BATCH)))
    const written = this.#written
    this.#written = undefined
    if (written)
      setImmediate(() => {
        if (mastersOf(this.redis).every(hasSent)) written.resolve()
      })
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

  async #send(run: Run, operations: readonly Queued[]): Promise<void> {
    if (operations.length === 0) return
    try {
      const keys = operations.flatMap(operation => operation.keys)
      const args = operations.flatMap(operation => [operation.name, ...operation.args])
      deliver(operations, await run(keys.length, keys, args))
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
}

function deliver(operations: readonly Queued[], answers: readonly string[]): void {
  operations.forEach((operation, index) => {
    const answer = answers[index] ?? 'error the script gave no answer'
    if (answer.startsWith('error ')) refuse([operation], new RefusedOperation(answer.slice('error '.length)))
    else operation.resolve(answer.split(' '))
  })
}

function refuse(operations: readonly Queued[], cause: unknown): void {
  for (const { reject } of operations) reject(unavailable(cause))
}
