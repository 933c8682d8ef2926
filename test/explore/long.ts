/** Explores the long scopes, one after the other, and prints how many states each has. */
import t from 'tap'
import { RealRedis } from '../redis.ts'
import { explore } from './explorer.ts'
import { LONG } from './scopes.ts'
import { World } from './world.ts'

t.setTimeout(0)
for (const [nth, scope] of LONG.entries())
  t.test(scope.name, { timeout: 0 }, async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const { states, transitions, ends } = await explore(await World.open(t, redis, `l${nth}`, scope), scope)
    t.pass(`${states} states, ${transitions} steps, ${ends} ends`)
  })
