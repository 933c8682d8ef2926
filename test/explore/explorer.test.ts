import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import type { Mutation } from './actions.ts'
import { type Explored, explore } from './explorer.ts'
import { SHORT } from './scopes.ts'
import { type Fault, Scope } from './state.ts'
import { World } from './world.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

let worlds = 0
async function explored(t: Test, redis: RealRedis, scope: Scope, mutation?: Mutation): Promise<Explored> {
  return explore(await World.open(t, redis, `e${worlds++}`, scope), scope, mutation)
}

for (const scope of SHORT)
  t.test(
    `in every state of ${scope.name}, all sums agree, and in each end everything is charged once`,
    { skip },
    async t => {
      const redis = await RealRedis.start(t, '--appendonly', 'no')
      const { states, ends } = await explored(t, redis, scope)
      t.ok(ends > 4, `${states} states, ${ends} ends`)
    },
  )

/** The rules that are broken on purpose, with the scope in which that is found. */
const BROKEN: readonly (readonly [Mutation, RegExp, readonly Fault[], charges?: readonly number[]])[] = [
  ['trusts expired outcomes', /14 is not 7|is owed/, ['is not answered', 'hours pass']],
  ['records by place', /is not/, ['the archiver dies']],
  ['trims first', /is not/, ['the database is away']],
  ['replays nothing', /is not/, ['the store falls back']],
  ['replays by number', /is not/, ['the store falls back'], [7, 9]],
  ['repeats nothing', /0 was charged where one of 7 is owed/, ['the store falls back']],
  ['restores no hold', /runs without a hold/, ['the store falls back']],
  ['counts no hold', /is not/, ['a hold comes back']],
]

t.test('an exploration finds each rule that is broken', { skip }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  for (const [mutation, words, faults, charges = [7]] of BROKEN) {
    const scope = new Scope(mutation, charges, faults, { grows: false })
    await t.rejects(explored(t, redis, scope, mutation), { message: words }, mutation)
  }
})
