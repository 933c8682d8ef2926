/** The servers of a store. */
import type { Cluster, Redis } from 'ioredis'

/** Returns the servers of a store that accept writes. */
export function mastersOf(client: Redis | Cluster): readonly Redis[] {
  return 'nodes' in client ? client.nodes('master') : [client]
}
