import t from 'tap'
import { type Mutation, PoolSimulation } from './simulation.ts'

/** `SEED=` repeats a run. `STEPS=` makes it longer. */
const seed = Number(process.env['SEED'] ?? 20_261_126)
const steps = Number(process.env['STEPS'] ?? 50_000)

t.test(`${steps} random requests keep the rules of a pool (SEED=${seed})`, t => {
  const tally = new PoolSimulation(seed).run(steps)
  for (const name of [
    'ask',
    'ask the last resort',
    'try',
    'nobody to ask',
    'success',
    'failure',
    'refused',
    'suspected',
    'limited',
    'asked to wait',
    'client left',
    'share',
    'change a key',
    'reset',
    'disable or enable',
  ])
    t.ok((tally.get(name) ?? 0) > 0, `${name}: ${tally.get(name)}`)
  t.end()
})

t.test('a simulation finds each rule of a pool that is broken', t => {
  const mutations: readonly Mutation[] = [
    'refuses nobody',
    'limits all models',
    'believes one key',
    'ignores waits',
    'tries with many requests',
    'is out no longer each time',
    'ignores a new key',
    'asks accounts that are out first',
    'moves all conversations',
    'asks disabled accounts',
    'learns nothing of the other gateway',
    'is never well again',
  ]
  for (const mutation of mutations) t.throws(() => new PoolSimulation(seed, mutation).run(200_000), mutation)
  t.end()
})
