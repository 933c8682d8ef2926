/**
 * Shares the health of accounts among the processes that use a store, and with commands. While the store is away, each
 * process goes on with what it knows.
 */
import { createHash } from 'node:crypto'
import type { Config } from '../config/config.ts'
import type { Scripts } from '../ledger/script/scripts.ts'
import { orUnavailable } from '../records/unavailable.ts'
import type { Log } from '../lib/log.ts'
import { reasonOf } from '../lib/reason.ts'
import { OnceInAWhile } from '../lib/once-in-a-while.ts'
import type { Also } from '../records/database.ts'
import { meta, setMeta } from '../records/migrations.ts'
import type { Records } from '../records/records.ts'
import type { HealthState } from './health-state.ts'
import type { Pool } from './pool.ts'

/** Interval of reading what other processes know, in milliseconds. */
const EVERY_MS = 1000
/** Where the records have the names of disabled accounts, as JSON: a store may lose them. */
const DISABLED = 'disabled accounts'
/** The member of the store's hash that has the same list. No account has such a name. */
const DISABLED_MEMBER = 'disabled'

/** The health of an account with the key that it belongs to. */
interface Shared extends HealthState {
  readonly key: string
}

/** How often an account was asked, and how often that failed, since the store was created. */
export interface Asked {
  readonly requests: number
  readonly failures: number
}

/** Shares one pool. */
export class PoolSharing {
  readonly #pool: Pool
  readonly #scripts: Scripts
  readonly #log: Log
  readonly #reports = new OnceInAWhile()
  /** Counts per upstream account that are already in the shared sums. */
  readonly #added = new Map<string, Asked>()
  /** The accounts that an operator has disabled, as far as is known. */
  #disabled: readonly string[] | undefined
  readonly #ofOperator: boolean
  /** The digests of the keys that the gateways use, which a command takes over. */
  readonly #digests = new Map<string, string>()
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void> | undefined

  /** @param ofOperator whether a command shares it: its environment may have other keys than that of the gateways */
  constructor(pool: Pool, scripts: Scripts, log: Log, ofOperator = false) {
    this.#ofOperator = ofOperator
    this.#pool = pool
    this.#scripts = scripts
    this.#log = log
  }

  /** Learns what is known of the accounts of a configuration. @throws GatewayError unavailable */
  async load({ upstreams }: Config, records: Records): Promise<void> {
    this.#pool.use(upstreams.values())
    await this.#adopt()
    await this.disable(await disabledAccounts(records))
  }

  /** Writes which accounts an operator has disabled. @throws GatewayError unavailable */
  async disable(names: readonly string[]): Promise<void> {
    this.#obey(names)
    await this.#scripts.write('HSET', this.#scripts.keys.shared('pool'), DISABLED_MEMBER, JSON.stringify(names))
  }

  #obey(disabled: readonly string[]): void {
    this.#disabled = disabled
    for (const [name, { health }] of this.#pool.members) health.disabled = disabled.includes(name)
  }

  /** Learns what is known, and shares every change from now on. @throws GatewayError unavailable */
  async start(config: Config, records: Records): Promise<void> {
    await this.load(config, records)
    const failed = (cause: unknown): void => {
      if (this.#reports.due('sharing', reasonOf(cause), performance.now()))
        this.#log.warn({ err: cause }, 'the health of accounts cannot be shared')
    }
    this.#pool.onChange = name => void this.write(name).catch(failed)
    this.#timer = setInterval(() => {
      this.#running ??= this.#sync()
        .catch(failed)
        .finally(() => (this.#running = undefined))
    }, EVERY_MS).unref()
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#pool.onChange = () => {}
    await this.#running
  }

  /** Writes the health of an account. @throws GatewayError unavailable */
  async write(name: string): Promise<void> {
    const member = this.#pool.members.get(name)
    if (!member) return
    const shared: Shared = { ...member.health.state, key: this.#digest(name, member.key) }
    await this.#scripts.write('HSET', this.#scripts.keys.shared('pool'), name, JSON.stringify(shared))
  }

  /** Returns how often the accounts were asked by all processes, by name. @throws GatewayError unavailable */
  async asked(): Promise<(name: string) => Asked> {
    const { redis, keys } = this.#scripts
    const sums = await orUnavailable(redis.hgetall(keys.shared('asked')))
    const sum = (name: string, kind: keyof Asked): number => Number(sums[`${name} ${kind}`] ?? 0)
    return name => ({ requests: sum(name, 'requests'), failures: sum(name, 'failures') })
  }

  async #sync(): Promise<void> {
    const states = await this.#adopt()
    for (const [name, { health }] of this.#pool.members) {
      // The store has never had it, has lost it, or another process has written over it.
      const [known, { at, refused, backAt, models, lastFailure }] = [states.get(name), health.state]
      const hasModels = Object.entries(models).every(([model, limit]) => (known?.models?.[model]?.at ?? 0) >= limit.at)
      const isKnown =
        known && known.at >= at && known.refused?.at === refused?.at && known.backAt === backAt && hasModels
      const isLast = (known?.lastFailure?.at ?? 0) >= (lastFailure?.at ?? 0)
      if ((!isKnown && at > 0) || !isLast) await this.write(name)
      await this.#add(name, health.counts)
    }
  }

  /** Adopts what other processes know that is newer. @returns what the store has, by account */
  async #adopt(): Promise<Map<string, Shared>> {
    const { redis, keys } = this.#scripts
    const texts = await orUnavailable(redis.hgetall(keys.shared('pool')))
    const states = new Map<string, Shared>()
    const disabled = parsed(texts[DISABLED_MEMBER]) as readonly string[] | undefined
    if (disabled) this.#obey(disabled)
    else if (this.#disabled) await this.disable(this.#disabled)
    for (const [name, { health, key }] of this.#pool.members) {
      const shared = parsed(texts[name]) as Shared | undefined
      if (this.#ofOperator && shared) this.#digests.set(name, shared.key)
      // What is known of an earlier or a later key says nothing about this one. An older gateway wrote other members.
      if (!shared || shared.key !== this.#digest(name, key) || !('models' in shared)) continue
      states.set(name, shared)
      health.adopt(shared)
    }
    return states
  }

  #digest(name: string, key: string): string {
    return this.#digests.get(name) ?? accountKeyDigest(key)
  }

  /** Adds what was counted since the last time to the sums of all processes. */
  async #add(name: string, counts: Asked): Promise<void> {
    const added = this.#added.get(name) ?? { requests: 0, failures: 0 }
    const { requests, failures } = counts
    for (const [kind, more] of [
      ['requests', requests - added.requests],
      ['failures', failures - added.failures],
    ] as const)
      if (more > 0) await this.#scripts.write('HINCRBY', this.#scripts.keys.shared('asked'), `${name} ${kind}`, more)
    this.#added.set(name, { requests, failures })
  }
}

function accountKeyDigest(key: string): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 16)
}

/** Reads what this or another process wrote. */
function parsed(text: string | undefined): unknown {
  if (text === undefined) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns the names of the accounts that an operator has disabled. @throws GatewayError unavailable */
export async function disabledAccounts({ database }: Records): Promise<readonly string[]> {
  return namesIn(await orUnavailable(meta(database, DISABLED)))
}

/**
 * Records that an account is disabled, or no longer.
 * @returns the names of all disabled accounts @throws GatewayError unavailable
 */
export async function recordDisabled(
  { database }: Records,
  name: string,
  disabled: boolean,
  also?: Also,
): Promise<readonly string[]> {
  const change = database.transaction(async sql => {
    const others = namesIn(await meta(sql, DISABLED)).filter(each => each !== name)
    const names = disabled ? [...others, name] : others
    await setMeta(sql, DISABLED, JSON.stringify(names))
    await also?.(sql)
    return names
  })
  return orUnavailable(change)
}

function namesIn(text: string | undefined): string[] {
  return text === undefined ? [] : (JSON.parse(text) as string[])
}
