/** A gateway that stays, and a place for others that a test kills, on one Redis of the test's own and the same records. */
import type { Test } from 'tap'
import type { Edit } from './gateway-file.ts'
import { beside, recordsEnv, startGateway, type TestGateway, upstreamEnv } from './gateway.ts'
import { Place } from './process.ts'
import { ownPrefix, RealRedis } from './redis.ts'
import type { ScriptedUpstream } from './upstream.ts'

/** Starts the Redis and the gateway that stays. @param more changes the file of all of them */
export async function withVictims(
  t: Test,
  upstream: ScriptedUpstream,
  more: Edit = file => file,
): Promise<{ readonly redis: RealRedis; readonly survivor: TestGateway; readonly place: Place }> {
  const redis = await RealRedis.start(t)
  const edit: Edit = file => more(ownPrefix(file))
  const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
  const survivor = await startGateway(t, { edit, env })
  return { redis, survivor, place: new Place(t, beside(survivor, edit), env) }
}
