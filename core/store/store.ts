/**
 * The store: the Redis for balances and counters. It is the configured one, else a managed redis-server with its files
 * in the data folder, else an embedded one without persistence for a first try.
 */
import { Redis } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { describeAddress, type Address } from '../config/store-address.ts'
import { weaknesses } from './durability.ts'
import { joinEmbedded, startEmbedded } from './embedded.ts'
import { clientsOf, findServer, GATEWAY, ManagedServer, type OwnProcess } from './managed.ts'
import { Second } from './second.ts'
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
  /** Returns whether a gateway uses the store, as far as the asked server knows. */
  served(): Promise<boolean>
  /**
   * Opens another connection to the same store, so that its commands do not wait behind those of the first.
   * @returns a function that returns the connection to use at this moment
   */
  second(): Promise<() => Redis>
  /** Closes the connections, and a managed server. Call it when everything has been settled. */
  close(): Promise<void>
}

/**
 * Connects to the store, and starts one if necessary.
 * @throws Error for the operator if no store is available
 */
export async function openStore(
  config: StoreConfig,
  role: Role,
  environment: Pick<Environment, 'env' | 'isAlive' | 'log' | 'now' | 'pid'>,
): Promise<Store> {
  const { log } = environment
  if (config.address) return openGiven(config, config.address, role, log)
  const server = findServer(environment.env)
  if (server) return openManaged(config, environment, role, server)
  return openEmbedded(config, role, log)
}

async function openGiven(config: StoreConfig, address: Address, role: Role, log: Log): Promise<Store> {
  const nameOf = (of: Role): string => `tollgate-${of}-${config.prefix}`
  const redis = await connect(clientOf(address, config, log, nameOf(role)), role, log)
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
  // Some servers do not let their users list connections.
  const served = async (): Promise<boolean> =>
    (await clientsOf(redis).catch(() => [])).some(({ name }) => name === nameOf('gateway'))
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
    served,
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

async function openManaged(
  config: StoreConfig,
  environment: OwnProcess & { readonly log: Log },
  role: Role,
  binary: string,
): Promise<Store> {
  const { log, pid } = environment
  const connectionName = `tollgate-${role}-${pid}`
  const server = new ManagedServer(binary, config.data, environment)
  const client = (name: string): Redis =>
    clientFor(config.commandTimeoutMs, log, {
      path: server.socket,
      connectionName: name,
      // A managed server that died is restarted before the next connection attempt.
      retryStrategy: tries => {
        if (server.released) return null
        server.ensure().catch((cause: unknown) => log.error({ err: cause }, 'cannot start the managed store'))
        return delay(tries)
      },
    })
  const redis = await reached(server, () => connect(client(connectionName), role, log))
  if (role === 'gateway') await server.claim(redis)
  const second = new Second(redis, () => connect(client(LOOKUPS), role, log))
  return {
    redis,
    scattered: false,
    replicated: false,
    kind: 'managed',
    description: `managed ${server.name}, files in ${config.data}`,
    served: async () => (await clientsOf(redis)).some(({ name }) => name.startsWith(GATEWAY)),
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
    const port = await joinEmbedded(config.data)
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
      served: () => Promise.resolve(true),
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
    description: 'EMBEDDED, for a first try only: it is slow; install redis-server or set REDIS_URL',
    served: () => Promise.resolve(true),
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
