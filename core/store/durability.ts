/** Whether a store is one to trust money to: it keeps what it acknowledged, throws nothing away, and has the replicas asked for. */
import type { Cluster, Redis } from 'ioredis'

/**
 * What is wrong with the masters of a store, in words for the operator; empty when nothing is.
 * @param replicas how many replicas each master is to have online
 */
export async function weaknesses(client: Redis | Cluster, replicas: number): Promise<string[]> {
  const masters = 'nodes' in client ? client.nodes('master') : [client]
  const found = await Promise.all(masters.map(async master => weaknessesOf(await info(master), replicas)))
  return [...new Set(found.flat())]
}

/** INFO is answered where CONFIG is not permitted, as with most hosted stores. */
async function info(redis: Redis): Promise<ReadonlyMap<string, string>> {
  const text = await redis.info()
  const lines = text.split(/\r?\n/).filter(line => line.includes(':'))
  return new Map(lines.map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]))
}

function weaknessesOf(info: ReadonlyMap<string, string>, replicas: number): string[] {
  const found: string[] = []
  if (info.get('aof_enabled') === '0')
    found.push('it keeps no append-only file, so a crash loses what it acknowledged: set appendonly yes')
  const policy = info.get('maxmemory_policy') ?? 'noeviction'
  if (policy !== 'noeviction')
    found.push(`when it is full it throws balances away: set maxmemory-policy noeviction, not ${policy}`)
  if (info.get('maxmemory') === '0') found.push('it has no memory limit, so the system may kill it: set maxmemory')
  const online = [...info].filter(([name, value]) => /^slave\d+$/.test(name) && value.includes('state=online')).length
  if (online < replicas) found.push(`${online} of the ${replicas} replicas that store.replicas asks for are online`)
  // Said only where a least number is set.
  if (replicas > 0 && !info.has('min_slaves_good_slaves')) {
    found.push(
      'a master that is cut off from its replicas goes on taking what will be lost: set min-replicas-to-write 1',
    )
  }
  return found
}
