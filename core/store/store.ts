/**
 * The store: the Redis that holds balances and counters. One that is given by URL, else a redis-server of our own with
 * its files in the data folder, else an embedded one that forgets everything and is for a first look only.
 */
import { Redis, type RedisOptions } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import type { Log } from '../log.ts'
import { joinEmbedded, startEmbedded } from './embedded.ts'
import { findServer, ManagedServer } from './managed.ts'

export interface Store {
  readonly redis: Redis
  readonly kind: 'redis' | 'managed' | 'embedded'
  /** What it is, in words for the operator; holds no credential. */
  readonly description: string
  /** Closes the connection, and the server where it is ours. To be called when everything has settled. */
  close(): Promise<void>
}

/** Whose store it is: the gateway keeps its server running and guards it; a guest, a command or a worker, merely uses it. */
export type Role = 'gateway' | 'guest'

/** What the store needs to know of the process it serves. */
export interface Process {
  readonly pid: number
  readonly env: Readonly<Record<string, string | undefined>>
}

/**
 * Connects to the store, starting one where there is none.
 * @throws Error in words for the operator when no store can be had
 */
export async function openStore(config: StoreConfig, role: Role, log: Log, host: Process): Promise<Store> {
  if (config.redis !== 'auto') {
    const redis = await connect(clientFor(config, log, { connectionName: `tollgate-${role}` }, config.redis))
    return { redis, kind: 'redis', description: `redis at ${hostOf(config.redis)}`, close: () => quit(redis) }
  }
  const server = findServer(host.env)
  if (server) return openManaged(config, `tollgate-${role}-${host.pid}`, role, log, server)
  return openEmbedded(config, role, log, host.env)
}

async function openManaged(config: StoreConfig, connectionName: string, role: Role, log: Log, binary: string): Promise<Store> {
  const server = new ManagedServer(binary, config.data)
  await server.ensure()
  const redis = clientFor(config, log, {
    path: server.socket,
    connectionName,
    // A server of ours that died is started again before the next try to reach it.
    retryStrategy: tries => {
      if (server.released) return null
      server.ensure().catch((cause: unknown) => log.error({ err: cause }, 'the managed store cannot be started'))
      return delay(tries)
    },
  })
  await connect(redis)
  if (role === 'gateway') await server.claim(redis)
  return {
    redis,
    kind: 'managed',
    description: `managed ${server.name}, files in ${config.data}`,
    close: () => server.release(redis),
  }
}

async function openEmbedded(config: StoreConfig, role: Role, log: Log, env: Readonly<Record<string, string | undefined>>): Promise<Store> {
  if (role === 'guest') {
    const port = await joinEmbedded(config.data)
    if (port === undefined) throw new Error('no store: the embedded one lives only while the gateway runs; start it, or install redis-server')
    const redis = await connect(clientFor(config, log, { port, host: '127.0.0.1' }))
    return { redis, kind: 'embedded', description: 'embedded', close: () => quit(redis) }
  }
  if (env['NODE_ENV'] === 'production') {
    throw new Error('no redis-server was found and the embedded store is refused in production: set REDIS_URL or install redis-server')
  }
  const embedded = await startEmbedded(config.data)
  const redis = await connect(clientFor(config, log, { port: embedded.port, host: '127.0.0.1', commandTimeout: 5000 }))
  return {
    redis,
    kind: 'embedded',
    description: 'EMBEDDED, for a first look only: slow, and everything is forgotten at exit; install redis-server or set REDIS_URL',
    close: async () => {
      redis.disconnect()
      await embedded.close()
    },
  }
}

/** Milliseconds before the n-th try to reconnect. */
function delay(tries: number): number {
  return Math.min(50 * 2 ** Math.min(tries, 6), 2000) + Math.floor(Math.random() * 50)
}

/** ioredis waits for ever, and resends, by default; money needs an answer in time and never an unasked repetition. */
function clientFor(config: StoreConfig, log: Log, options: RedisOptions, url?: string): Redis {
  const settings: RedisOptions = {
    lazyConnect: true,
    commandTimeout: config.commandTimeout,
    connectTimeout: 1000,
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    keepAlive: 5000,
    protocol: 2,
    reconnectOnError: error => (error.message.startsWith('READONLY') ? 2 : false),
    retryStrategy: delay,
    ...options,
  }
  const redis = url === undefined ? new Redis(settings as object) : new Redis(url, settings as object)
  redis.on('error', (cause: Error) => log.warn({ err: cause }, 'store connection'))
  return redis
}

async function connect(redis: Redis): Promise<Redis> {
  try {
    await redis.connect()
    return redis
  } catch (cause) {
    redis.disconnect()
    throw new Error(`the store cannot be reached: ${(cause as Error).message}`, { cause })
  }
}

async function quit(redis: Redis): Promise<void> {
  await redis.quit().catch(() => redis.disconnect())
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'its address'
}
