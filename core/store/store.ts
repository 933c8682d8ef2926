/**
 * The store: the Redis for balances and counters. It is the configured one, else a managed redis-server with its files
 * in the data folder, else an embedded one without persistence for a first try.
 */
import { Redis } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { describeAddress, type Address } from '../config/store-address.ts'
import { weaknesses } from './durability.ts'
import { portOfEmbedded, startEmbedded } from './embedded.ts'
import { findServer, ManagedServer, USER } from './managed.ts'
import { Second } from './second.ts'
import { claimFolder, isTaken } from './serving.ts'
import type { Environment } from '../lib/environment.ts'
import { clientFor, clientOf, connect, delay, type Role } from './connect.ts'

/** An open store. */
export interface Store {
  /** A cluster client has the same commands, but each command may touch only one slot. */
  readonly redis: Redis
  /** Whether accounts may be on different servers. */
  readonly scattered: boolean
  /** Whether another server may take over from a failed one without its latest writes. */
  readonly replicated: boolean
  readonly kind: 'redis' | 'managed' | 'embedded'
  /** A description for the operator, without credentials. */
  readonly description: string
  /**
   * Opens another connection to the same store, so that its commands do not wait behind those of the first.
   * @returns a function that returns the connection to use at this moment
   */
  second(): Promise<() => Redis>
  /** Closes the connections, and a managed server. Call it when everything has been settled. */
  close(): Promise<void>
}

/**
 * Connects to the store, and starts one if necessary. A gateway takes the lock of its data folder until the store is
 * closed.
 * @throws Error for the operator if no store is available, or if it belongs to another gateway
 */
export async function openStore(
  config: StoreConfig,
  role: Role,
  environment: Pick<Environment, 'env' | 'log'>,
): Promise<Store> {
  const lock = role === 'gateway' ? claimFolder(config, environment) : undefined
  try {
    const store = await openUnlocked(config, role, environment)
    const close = async (): Promise<void> => {
      await store.close()
      lock?.release()
    }
    return { ...store, close }
  } catch (thrown) {
    lock?.release()
    throw thrown
  }
}

function openUnlocked(config: StoreConfig, role: Role, { env, log }: Pick<Environment, 'env' | 'log'>): Promise<Store> {
  if (config.address) return openGiven(config, config.address, role, log)
  const server = findServer(env)
  return server === undefined ? openEmbedded(config, role, log) : openManaged(config, role, server, log)
}

async function openGiven(config: StoreConfig, address: Address, role: Role, log: Log): Promise<Store> {
  const redis = await connect(clientOf(address, config, log, `${USER}${role}-${config.prefix}`), role, log)
  if (role === 'gateway') {
    try {
      await judge(redis, config, log)
    } catch (cause) {
      await quit(redis)
      throw cause
    }
  }
  const scattered = address.kind === 'cluster'
  const replicated = config.replicas > 0 || address.kind !== 'single'
  const second = new Second(redis, () => connect(clientOf(address, config, log, LOOKUPS), role, log))
  const close = async (): Promise<void> => {
    second.close()
    await quit(redis)
  }
  return {
    redis,
    scattered,
    replicated,
    kind: 'redis',
    description: describeAddress(address),
    second: second.open,
    close,
  }
}

/** Logs the weaknesses of a store. In production mode a weak store is refused. @throws Error with all weaknesses */
async function judge(redis: Redis, config: StoreConfig, log: Log): Promise<void> {
  const found = await weaknesses(redis, config.replicas)
  if (found.length === 0) return
  if (config.production) throw new Error(`the store is not safe for production:\n  ${found.join('\n  ')}`)
  for (const weakness of found) log.warn(`weakness of the store: ${weakness}`)
}

async function openManaged(config: StoreConfig, role: Role, binary: string, log: Log): Promise<Store> {
  const server = new ManagedServer(binary, config.data, () => role === 'gateway' || !isTaken(config.data))
  const client = (connectionName: string, onRetry?: () => void): Redis =>
    clientFor(config.commandTimeoutMs, log, {
      path: server.socket,
      connectionName,
      retryStrategy: tries => {
        if (server.released) return null
        onRetry?.()
        return delay(tries)
      },
    })
  // A managed server that died is restarted before the next connection attempt.
  const restart = (): void => {
    server.ensure().catch((cause: unknown) => log.error({ err: cause }, 'cannot start the managed store'))
  }
  const redis = await reached(server, () => connect(client(`${USER}${role}`, restart), role, log))
  // While the first connection stands, the server is there.
  const second = new Second(redis, () => connect(client(LOOKUPS), role, log))
  return {
    redis,
    scattered: false,
    replicated: false,
    kind: 'managed',
    description: `managed ${server.name}, files in ${config.data}`,
    second: second.open,
    close: () => {
      second.close()
      return server.release(redis)
    },
  }
}

/** A server may be stopped by its last user just after it was found. Then a new one must be started. */
async function reached(server: ManagedServer, connected: () => Promise<Redis>): Promise<Redis> {
  for (let tries = 1; ; tries++) {
    await server.ensure()
    try {
      return await connected()
    } catch (cause) {
      if (tries === 3) throw cause
    }
  }
}

async function openEmbedded(config: StoreConfig, role: Role, log: Log): Promise<Store> {
  if (role === 'guest') {
    const port = portOfEmbedded(config.data)
    if (port === undefined)
      throw new Error(
        'there is no store: the embedded one exists only while the gateway runs; start the gateway, or install redis-server',
      )
    const redis = await connect(clientFor(config.commandTimeoutMs, log, { port, host: '127.0.0.1' }), role, log)
    return {
      redis,
      scattered: false,
      replicated: false,
      kind: 'embedded',
      description: 'embedded',
      second: () => Promise.resolve(() => redis),
      close: () => quit(redis),
    }
  }
  if (config.production) {
    throw new Error(
      'no redis-server was found, and production does not allow the embedded store: set REDIS_URL or install redis-server',
    )
  }
  const embedded = await startEmbedded(config.data)
  const redis = await connect(clientFor(5000, log, { port: embedded.port, host: '127.0.0.1' }), role, log)
  return {
    redis,
    scattered: false,
    replicated: false,
    kind: 'embedded',
    description:
      'EMBEDDED, for a look: slow, for one process, and requests that run are not charged if it is killed; `apt install redis-server`',
    // This process itself is the server.
    second: () => Promise.resolve(() => redis),
    close: async () => {
      redis.disconnect()
      await embedded.close()
    },
  }
}

/** Connection name for look-ups. It does not count as a user of the server. */
const LOOKUPS = 'lookups'

async function quit(redis: Redis): Promise<void> {
  await redis.quit().catch(() => {})
  // This also disconnects from the sentinels.
  redis.disconnect()
}
