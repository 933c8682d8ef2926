/** The ledger's Lua scripts and the names of the keys they work on: one place, so that all of an account is in one slot. */
import { readFileSync } from 'node:fs'
import type { Redis } from 'ioredis'
import { GatewayError } from '../errors.ts'

const NAMES = ['hold', 'renew', 'settle', 'grant', 'reap', 'snapshot'] as const
type ScriptName = (typeof NAMES)[number]

/** Keys that every script takes, in the prelude's order; the last one is the outcome of the operation's id. */
const KEYS = 7

const text = (name: string): string => readFileSync(new URL(`${name}.lua`, import.meta.url), 'utf8')

type Call = (...args: string[]) => Promise<unknown>

/** Milliseconds after which a caller may try again when the store is away, jittered so that they do not all come at once. */
export function storeRetryMs(): number {
  return 1000 + Math.floor(Math.random() * 2000)
}

/** Runs scripts on a store. */
export class Scripts {
  readonly redis: Redis
  readonly #prefix: string
  readonly #calls: Readonly<Record<ScriptName, Call>>

  constructor(redis: Redis, prefix: string) {
    this.redis = redis
    this.#prefix = prefix
    const prelude = text('prelude')
    this.#calls = Object.fromEntries(
      NAMES.map(name => {
        const command = `tollgate_${name}`
        redis.defineCommand(command, { numberOfKeys: KEYS, lua: prelude + text(name) })
        return [name, ((...args) => (redis as unknown as Record<string, Call>)[command]?.(...args)) as Call]
      }),
    ) as Record<ScriptName, Call>
  }

  /** A key of one account; `part` is a for the account itself, h, d, x, t, u as the scripts name them, g for its grants. */
  key(account: string, part: string): string {
    return `${this.#prefix}:{${account}}:${part}`
  }

  /** A key that belongs to no account. */
  shared(name: string): string {
    return `${this.#prefix}:${name}`
  }

  /** Runs a script; grants and the snapshot see the account's grants where the others see its history or tombstones. */
  async run(name: ScriptName, account: string, id: string, args: readonly string[]): Promise<unknown> {
    const key = (part: string): string => this.key(account, part)
    const history = name === 'grant' ? key('g') : key('x')
    const tombs = name === 'snapshot' ? key('g') : key('t')
    const call = this.#calls[name]
    return stored(call(key('a'), key('h'), key('d'), history, tombs, key('u'), key(`i:${id}`), ...args))
  }
}

/**
 * What a store's command answers.
 * @throws GatewayError unavailable whatever it fails with: the caller can do nothing but come back later
 */
export async function stored<T>(command: Promise<T>): Promise<T> {
  try {
    return await command
  } catch (cause) {
    throw new GatewayError('unavailable', { cause, retryAfterMs: storeRetryMs() })
  }
}
