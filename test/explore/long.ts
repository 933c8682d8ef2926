/**
 * Explores the long scopes, one after the other, and prints how many states each has. SCOPE names the scopes instead, also
 * shorter ones, by a part of their names.
 */
import t from 'tap'
import { RealRedis } from '../redis.ts'
import { explore } from './explorer.ts'
import { LONG, SHORT, SMALL } from './scopes.ts'
import { World } from './world.ts'

const asked = process.env['SCOPE']
const scopes = asked === undefined ? LONG : [...SMALL, ...SHORT, ...LONG].filter(({ name }) => name.includes(asked))

t.setTimeout(0)
for (const [nth, scope] of scopes.entries())
  t.test(scope.name, { timeout: 0 }, async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const { states, transitions, ends } = await explore(await World.open(t, redis, `l${nth}`, scope), scope)
    t.pass(`${states} states, ${transitions} steps, ${ends} ends`)
  })
