import t from 'tap'
import { RealRedis } from '../redis.ts'
import type { Mutation } from './actions.ts'
import { explored, skip, visitsAll } from './explored.ts'
import { SMALL } from './scopes.ts'
import { type Fault, Scope } from './state.ts'

for (const scope of SMALL)
  t.test(
    `in every state of ${scope.name}, all sums agree, and in each end everything is charged once`,
    { skip },
    async t => visitsAll(t, scope),
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
