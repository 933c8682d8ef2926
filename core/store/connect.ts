/** Connections to Redis, with the settings and time limits that money needs. */
import { once } from 'node:events'
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import type { Address } from '../config/store-address.ts'
import { deadline } from '../lib/deadline.ts'
import type { Log } from '../lib/log.ts'

/** Whose store it is: the gateway keeps its server running and guards it; a guest, a command or a worker, merely uses it. */
export type Role = 'gateway' | 'guest'

/** Milliseconds before the n-th try to reconnect. */
export function delay(tries: number): number {
  return Math.min(50 * 2 ** Math.min(tries, 6), 2000) + Math.floor(Math.random() * 50)
}

/** ioredis waits for ever, and resends, by default; money needs an answer in time and never an unasked repetition. */
const SETTINGS: RedisOptions = {
  lazyConnect: true,
  connectTimeout: 1000,
  // What was under way on a connection that breaks fails at once.
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  keepAlive: 5000,
  protocol: 2,
  reconnectOnError: error => (error.message.startsWith('READONLY') ? 2 : false),
  retryStrategy: delay,
}

export function clientFor(commandTimeout: number, log: Log, options: RedisOptions): Redis {
  const redis = limited(new Redis({ ...SETTINGS, ...options } as object), commandTimeout, UNANSWERED)
  redis.on('error', (cause: Error) => log.warn({ reason: cause.message }, 'store connection'))
  return redis
}

export function clientOf(
  { kind, nodes, master, tls, username, password, db }: Address,
  { commandTimeout }: StoreConfig,
  log: Log,
  connectionName: string,
): Redis {
  const who: RedisOptions = {
    connectionName,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(tls && { tls: {} }),
  }
  if (kind === 'single') return clientFor(commandTimeout, log, { ...nodes[0], ...who, db })
  // A store that was reached is looked for as long as it takes; one that never was is given up.
  let known = false
  let redis: Redis
  if (kind === 'sentinel') {
    redis = clientFor(commandTimeout, log, {
      ...who,
      sentinels: [...nodes],
      name: master,
      sentinelRetryStrategy: tries => (known ? delay(tries) : null),
      // A sentinel that hangs is passed over as one that is gone is.
      sentinelCommandTimeout: commandTimeout,
    })
  } else {
    const cluster = new Cluster([...nodes], {
      lazyConnect: true,
      enableOfflineQueue: false,
      // A command whose node fails is tried again, on whoever has taken over by then, for about as long as a single Redis is waited for.
      maxRedirections: 6,
      retryDelayOnFailover: commandTimeout / 8,
      retryDelayOnClusterDown: commandTimeout / 8,
      // One node in a random order is asked how the cluster is, and may be the one that is gone.
      clusterRetryStrategy: tries => (known || tries < ASKED_NODES ? delay(tries) : null),
      redisOptions: { ...SETTINGS, ...who } as object,
    })
    cluster.on('+node', (node: Redis) => limited(node, commandTimeout))
    cluster.on('error', (cause: Error) => log.warn({ reason: cause.message }, 'store connection'))
    redis = cluster as unknown as Redis
  }
  return redis.once('ready', () => (known = true))
}

/** A server that hangs may have been replaced long ago, and only who connects anew is told so. In a cluster the other nodes tell. */
const UNANSWERED = 3

/** How often a cluster is asked whether it is in order before it is given up. */
const ASKED_NODES = 4

/**
 * Sets a limit to the time of each of a client's commands. ioredis' own would take a pause of this process for a store
 * that does not answer.
 * @param most commands in a row without an answer after which the connection is made anew
 */
function limited(redis: Redis, ms: number, most = Infinity): Redis {
  let unanswered = 0
  const send = redis.sendCommand.bind(redis)
  redis.sendCommand = (command, stream) => {
    const late = deadline(ms, () => {
      command.reject(new Error('the store did not answer in time'))
      if (++unanswered < most) return
      unanswered = 0
      redis.disconnect(true)
    })
    const answered = (): void => {
      unanswered = 0
      late.clear()
    }
    command.promise.then(answered, () => late.clear())
    return send(command, stream)
  }
  return redis
}

/** Calls back whenever another server may have taken over. */
export function onTakeover(redis: Redis, callback: () => void): void {
  for (const event of ['ready', '-node']) redis.on(event as 'ready', callback)
}

/** ioredis tells its listeners why it failed, and who called `connect` merely that the connection is closed, or nothing. */
export async function connect(redis: Redis, role: Role, log: Log): Promise<Redis> {
  const told = new AbortController()
  const waiting = setInterval(
    () => log.warn('the store is there, and not ready yet: it may be loading its files'),
    NOT_READY_MS,
  )
  const patience = role === 'gateway' ? undefined : setTimeout(() => told.abort(), GUEST_MS)
  const [ready, end] = ['ready', 'end'].map(event => once(redis, event, { signal: told.signal }))
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
    told.abort()
  }
}

/** How often a gateway that waits for a store says so, and how long a command waits for it, in millisecond. */
const NOT_READY_MS = 5000
const GUEST_MS = 30_000

/** What ioredis says, in words for the operator. */
export function inWords(message: string): string {
  if (message.startsWith('Reached the max retries per request')) return 'the connection broke off'
  if (message === 'The operation was aborted') return 'it is not ready; it may be loading its files'
  if (message.startsWith('All sentinels are unreachable')) return 'no sentinel names its master'
  return /^(?:Failed to refresh slots cache|None of startup nodes is available)/.test(message)
    ? 'no node of the cluster answers'
    : message
}
