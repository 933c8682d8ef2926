/**
 * The store: the Redis that holds balances and counters. One that is given by URL, else a redis-server of our own with
 * its files in the data folder, else an embedded one that forgets everything and is for a first look only.
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

export interface Store {
  /** A cluster's client has the same commands, as long as each touches one slot. */
  readonly redis: Redis
  /** Accounts may be on different servers. */
  readonly scattered: boolean
  /** Another server may take over from one that fails, without the last moments before. */
  readonly replicated: boolean
  readonly kind: 'redis' | 'managed' | 'embedded'
  /** What it is, in words for the operator; holds no credential. */
  readonly description: string
  /** Whether a gateway uses it, as far as the server that is asked knows. */
  served(): Promise<boolean>
  /** Opens another connection to the same store: what is asked there waits behind nothing that is asked here. @returns the one to use at a moment */
  second(): Promise<() => Redis>
  /** Closes the connections, and the server where it is ours. To be called when everything has settled. */
  close(): Promise<void>
}

/**
 * Connects to the store, starting one where there is none.
 * @throws Error in words for the operator when no store can be had
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
  // Not every server lets its users see who else is there.
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

/** Says what is wrong with a store; in production it is not used. @throws Error naming everything that is wrong */
async function judge(redis: Redis, config: StoreConfig, log: Log): Promise<void> {
  const found = await weaknesses(redis, config.replicas)
  if (found.length === 0) return
  if (config.production) throw new Error(`the store is refused in production:\n  ${found.join('\n  ')}`)
  for (const weakness of found) log.warn(`the store: ${weakness}`)
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
    clientFor(config.commandTimeout, log, {
      path: server.socket,
      connectionName: name,
      // A server of ours that died is started again before the next try to reach it.
      retryStrategy: tries => {
        if (server.released) return null
        server.ensure().catch((cause: unknown) => log.error({ err: cause }, 'the managed store cannot be started'))
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

/** A server that its last user stops may be found for the last time: then there has to be a new one. */
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
      throw new Error('no store: the embedded one lives only while the gateway runs; start it, or install redis-server')
    const redis = await connect(clientFor(config.commandTimeout, log, { port, host: '127.0.0.1' }), role, log)
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
      'no redis-server was found and the embedded store is refused in production: set REDIS_URL or install redis-server',
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
      'EMBEDDED, for a first look only: slow, and everything is forgotten at exit; install redis-server or set REDIS_URL',
    served: () => Promise.resolve(true),
    // It is this process itself that answers.
    second: () => Promise.resolve(() => redis),
    close: async () => {
      redis.disconnect()
      await embedded.close()
    },
  }
}

/** What a connection for look-ups is called: no server counts it among its users. */
const LOOKUPS = 'lookups'

async function quit(redis: Redis): Promise<void> {
  await redis.quit().catch(() => {})
  // Also what listens to the sentinels.
  redis.disconnect()
}
