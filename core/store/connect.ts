/** Connections to Redis, with settings and time limits that are safe for money. */
import { once } from 'node:events'
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import type { Address } from '../config/store-address.ts'
import { deadline } from '../lib/deadline.ts'
import type { Log } from '../lib/log.ts'

/**
 * How a process uses the store. The gateway keeps a managed server running; a guest (a command or a worker) only uses
 * it.
 */
export type Role = 'gateway' | 'guest'

/** Returns the milliseconds to wait before the n-th reconnection attempt. */
export function delay(tries: number): number {
  return Math.min(50 * 2 ** Math.min(tries, 6), 2000) + Math.floor(Math.random() * 50)
}

/** By default, ioredis waits forever and resends commands. Money needs an answer in time and no silent repetition. */
const SETTINGS: RedisOptions = {
  lazyConnect: true,
  connectTimeout: 1000,
  // Commands in flight fail at once when their connection breaks.
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  keepAlive: 5000,
  protocol: 2,
  reconnectOnError: error => (error.message.startsWith('READONLY') ? 2 : false),
  retryStrategy: delay,
}

/** Creates a client of one Redis server that is not connected yet. */
export function clientFor(commandTimeout: number, log: Log, options: RedisOptions): Redis {
  const redis = limited(new Redis({ ...SETTINGS, ...options } as object), commandTimeout, UNANSWERED)
  redis.on('error', (cause: Error) => log.warn({ reason: cause.message }, 'store connection'))
  return redis
}

/** Creates a client of the store at an address that is not connected yet. */
export function clientOf(
  { kind, nodes, master, tls, username, password, db }: Address,
  { commandTimeoutMs }: StoreConfig,
  log: Log,
  connectionName: string,
): Redis {
  const who: RedisOptions = {
    connectionName,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(tls && { tls: {} }),
  }
  if (kind === 'single') return clientFor(commandTimeoutMs, log, { ...nodes[0], ...who, db })
  // After a first connection, the gateway reconnects forever. Without one, it gives up.
  let known = false
  let redis: Redis
  if (kind === 'sentinel') {
    redis = clientFor(commandTimeoutMs, log, {
      ...who,
      sentinels: [...nodes],
      name: master,
      sentinelRetryStrategy: tries => (known ? delay(tries) : null),
      // A sentinel that hangs is skipped like one that is down.
      sentinelCommandTimeout: commandTimeoutMs,
    })
  } else {
    const cluster = new Cluster([...nodes], {
      lazyConnect: true,
      enableOfflineQueue: false,
      // A command whose node fails is retried on the new master, for about as long as a single Redis is waited for.
      maxRedirections: 6,
      retryDelayOnFailover: commandTimeoutMs / 8,
      retryDelayOnClusterDown: commandTimeoutMs / 8,
      // ioredis asks one random node for the state of the cluster, and that node may be down.
      clusterRetryStrategy: tries => (known || tries < ASKED_NODES ? delay(tries) : null),
      redisOptions: { ...SETTINGS, ...who } as object,
    })
    cluster.on('+node', (node: Redis) => limited(node, commandTimeoutMs))
    cluster.on('error', (cause: Error) => log.warn({ reason: cause.message }, 'store connection'))
    redis = cluster as unknown as Redis
  }
  return redis.once('ready', () => (known = true))
}

/**
 * A server that hangs may already have been replaced, which only a new connection reveals. In a cluster, other nodes
 * announce it.
 */
const UNANSWERED = 3

/** Clients whose server has left a command unanswered and has answered nothing since. */
const silent = new WeakSet<Redis>()

/** Whether a server that answers has got everything that a client was given to send. */
export function hasSent(redis: Redis): boolean {
  return redis.status === 'ready' && redis.stream.writableLength === 0 && !silent.has(redis)
}

/** How often a cluster is asked for its state before giving up. */
const ASKED_NODES = 4

/**
 * Sets a time limit for each command of a client. ioredis' own limit would mistake a pause of this process for a store
 * that does not answer.
 * @param most number of consecutive unanswered commands after which the client reconnects
 */
function limited(redis: Redis, ms: number, most = Infinity): Redis {
  let unanswered = 0
  const send = redis.sendCommand.bind(redis)
  redis.sendCommand = (command, stream) => {
    const late = deadline(ms, () => {
      command.reject(new Error('the store did not answer in time'))
      silent.add(redis)
      if (++unanswered < most) return
      unanswered = 0
      redis.disconnect(true)
    })
    const answered = (): void => {
      unanswered = 0
      silent.delete(redis)
      late.clear()
    }
    command.promise.then(answered, () => late.clear())
    return send(command, stream)
  }
  return redis
}

/**
 * Connects a client. ioredis reports the cause of a failure only to its listeners; `connect` merely says that the
 * connection is closed.
 */
export async function connect(redis: Redis, role: Role, log: Log): Promise<Redis> {
  const gaveUp = new AbortController()
  const waiting = setInterval(() => log.warn('the store is not ready; it may be loading its files'), NOT_READY_MS)
  const patience = role === 'gateway' ? undefined : setTimeout(() => gaveUp.abort(), GUEST_MS)
  const [ready, end] = ['ready', 'end'].map(event => once(redis, event, { signal: gaveUp.signal }))
  try {
    await Promise.race([ready, end, redis.connect()])
    if (redis.status !== 'ready') throw new Error('the cluster is not in order')
    return redis
  } catch (cause) {
    redis.disconnect()
    throw new Error(`the store cannot be reached: ${inWords((cause as Error).message)}`, { cause })
  } finally {
    clearInterval(waiting)
    clearTimeout(patience)
    gaveUp.abort()
  }
}

/** How often a waiting gateway logs that it waits for a store, and how long a command waits for it, in milliseconds. */
const NOT_READY_MS = 5000
const GUEST_MS = 30_000

/** Words an ioredis error for the operator. */
export function inWords(message: string): string {
  if (message.startsWith('Reached the max retries per request')) return 'the connection was interrupted'
  if (message === 'The operation was aborted') return 'it is not ready; it may be loading its files'
  if (message.startsWith('All sentinels are unreachable')) return 'no sentinel names its master'
  return /^(?:Failed to refresh slots cache|None of startup nodes is available)/.test(message)
    ? 'no node of the cluster answers'
    : message
}
