/**
 * Checks whether a store is safe for money: it persists what it acknowledged, evicts nothing, and has the required
 * replicas.
 */
import type { Cluster, Redis } from 'ioredis'

/**
 * Returns the weaknesses of a store's masters, for the operator. Empty if there are none.
 * @param replicas number of replicas that each master must have online
 */
export async function weaknesses(client: Redis | Cluster, replicas: number): Promise<string[]> {
  const masters = 'nodes' in client ? client.nodes('master') : [client]
  const found = await Promise.all(masters.map(async master => weaknessesOf(await info(master), replicas)))
  return [...new Set(found.flat())]
}

/** INFO works where CONFIG is not permitted, as with most hosted stores. */
async function info(redis: Redis): Promise<ReadonlyMap<string, string>> {
  const text = await redis.info()
  const lines = text.split(/\r?\n/).filter(line => line.includes(':'))
  return new Map(lines.map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

function weaknessesOf(info: ReadonlyMap<string, string>, replicas: number): string[] {
  const found: string[] = []
  if (info.get('aof_enabled') === '0')
    found.push('it has no append-only file, so a crash loses acknowledged data: set appendonly yes')
  const policy = info.get('maxmemory_policy') ?? 'noeviction'
  if (policy !== 'noeviction')
    found.push(`it evicts balances when it is full: set maxmemory-policy noeviction, not ${policy}`)
  if (info.get('maxmemory') === '0') found.push('it has no memory limit, so the system may kill it: set maxmemory')
  const online = [...info].filter(([name, value]) => /^slave\d+$/.test(name) && value.includes('state=online')).length
  if (online < replicas) found.push(`${online} of the ${replicas} replicas that store.replicas asks for are online`)
  // Present only if a minimum is configured.
  if (replicas > 0 && !info.has('min_slaves_good_slaves')) {
    found.push('a master without its replicas accepts writes that will be lost: set min-replicas-to-write 1')
  }
  return found
}
