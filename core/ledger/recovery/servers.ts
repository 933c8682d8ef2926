/** Tells the servers of a store apart. */
import type { Cluster, Redis } from 'ioredis'
import { mastersOf } from '../../store/masters.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** The servers of a store that answer. */
export interface Servers {
  /** What changes when a server starts again or another one takes over. */
  readonly identities: readonly string[]
  /** Whether all of them have answered. */
  readonly complete: boolean
}

/** Asks the servers of a store who they are. @throws GatewayError unavailable if none of them answers */
export async function serversOf(client: Redis | Cluster): Promise<Servers> {
  const masters = mastersOf(client)
  const found = await Promise.allSettled(masters.map(identityOf))
  const identities = found.flatMap(result => (result.status === 'fulfilled' ? [result.value] : []))
  if (identities.length === 0) return orUnavailable(Promise.reject(new Error('no server of the store answers')))
  return { identities, complete: identities.length === masters.length }
}

/**
 * Lets the servers of a store write their append-only files anew, so that nothing of a torn file is left.
 * @throws Error of the server that refuses
 */
export async function rewriteFiles(client: Redis | Cluster): Promise<void> {
  for (const redis of mastersOf(client)) {
    if (!/^aof_enabled:1/m.test(await redis.info('persistence'))) continue
    try {
      await redis.bgrewriteaof()
    } catch (cause) {
      // It is being done already.
      if (!/in progress/.test((cause as Error).message)) throw cause
    }
  }
}

async function identityOf(redis: Redis): Promise<string> {
  const text = (await Promise.all([redis.info('server'), redis.info('replication')])).join('\n')
  const of = (name: string): string => new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? ''
  return `${of('run_id')}:${of('master_replid')}`
}

/** Servers that are remembered. */
const SERVERS_MAX = 50

/** Returns the field of the identities that a store remembers: the latest ones. */
export function serversText(identities: readonly string[]): string {
  return identities.filter(Boolean).slice(-SERVERS_MAX).join(' ')
}
