/** What the explorations share. */
import type { Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import type { Mutation } from './actions.ts'
import { type Explored, explore } from './explorer.ts'
import type { Scope } from './state.ts'
import { World } from './world.ts'

export const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

let worlds = 0

/** Explores a scope in a world of its own. */
export async function explored(t: Test, redis: RealRedis, scope: Scope, mutation?: Mutation): Promise<Explored> {
  return explore(await World.open(t, redis, `e${worlds++}`, scope), scope, mutation)
}

/** Explores a scope. Fails if a sum does not agree in any state, or if an end is not charged once. */
export async function visitsAll(t: Test, scope: Scope): Promise<void> {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  const { states, ends } = await explored(t, redis, scope)
  t.ok(ends > 4, `${states} states, ${ends} ends`)
}
