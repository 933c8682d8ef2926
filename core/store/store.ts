/**
 * The store: the Redis that holds balances and counters. One that is given by URL, else a redis-server of our own with
 * its files in the data folder, else an embedded one that forgets everything and is for a first look only.
 */
import { once } from 'node:events'
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import type { StoreConfig } from '../config/config.ts'
import { deadline } from '../lib/deadline.ts'
import type { Log } from '../lib/log.ts'
import { describeAddress, type Address } from '../config/store-address.ts'
import { weaknesses } from './durability.ts'
import { joinEmbedded, startEmbedded } from './embedded.ts'
import { clientsOf, findServer, GATEWAY, ManagedServer, type OwnProcess } from './managed.ts'
import { Second } from './second.ts'
import type { Environment } from '../lib/environment.ts'

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

/** Whose store it is: the gateway keeps its server running and guards it; a guest, a command or a worker, merely uses it. */
export type Role = 'gateway' | 'guest'

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

/** Milliseconds before the n-th try to reconnect. */
function delay(tries: number): number {
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

function clientFor(commandTimeout: number, log: Log, options: RedisOptions): Redis {
  const redis = limited(new Redis({ ...SETTINGS, ...options } as object), commandTimeout, UNANSWERED)
  redis.on('error', (cause: Error) => log.warn({ reason: cause.message }, 'store connection'))
  return redis
}

function clientOf(
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
async function connect(redis: Redis, role: Role, log: Log): Promise<Redis> {
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

async function quit(redis: Redis): Promise<void> {
  await redis.quit().catch(() => {})
  // Also what listens to the sentinels.
  redis.disconnect()
}
