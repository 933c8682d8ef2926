import t, { type Test } from 'tap'
import { Keys } from '../../core/ledger/keys.ts'
import { Scripts } from '../../core/ledger/scripts.ts'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import { newDatabase } from '../records/engines.ts'
import { openLedger } from './open.ts'
import { type Mutation, Simulation, type Tally } from './simulation.ts'

/** A simulation empties its store again and again. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** `SEED=` repeats a run. `STEPS=` makes it longer. */
const seed = Number(process.env['SEED'] ?? 20_261_125)
const steps = Number(process.env['STEPS'] ?? 3500)
/** Simulations that run at the same time: while one waits for the store, another continues. The last uses PostgreSQL. */
const SIDE_BY_SIDE = 5
/** Steps within which each broken rule is found. */
const MUTATED_STEPS = 4000

/** Runs one simulation on a store and records of its own. */
async function simulate(t: Test, redis: RealRedis, nth: number, steps: number, mutation?: Mutation): Promise<Tally> {
  const prefix = `s${nth}`
  const { ledger, store } = await openLedger(t, redis, prefix, {
    commandTimeoutMs: 10_000,
    records: nth === SIDE_BY_SIDE - 1 ? await newDatabase() : undefined,
  })
  const connections = [0, 1].map(() => store.redis.duplicate())
  t.teardown(() => connections.forEach(connection => connection.disconnect()))
  await Promise.all(connections.map(connection => connection.connect()))
  const scripts = connections.map(connection => new Scripts({ ...store, redis: connection }, prefix))
  const keys = new Keys(ledger, 0, Date.now)
  const created = await keys.createMany({ type: 'famC', name: '', credits: 0n, expiresAt: undefined }, 3)
  const accounts = created.map(({ key }) => key.id)
  return new Simulation(seed + nth, ledger, scripts, mutation).run(accounts, steps)
}

/** Whether one of three runs finds a broken rule. Their clock is real, so that one run may miss it on a busy machine. */
async function isFound(t: Test, redis: RealRedis, nth: number, mutation: Mutation): Promise<boolean> {
  for (const more of [0, 100, 200]) {
    const run = simulate(t, redis, nth + more, MUTATED_STEPS, mutation)
    const isClean = await run.then(
      () => true,
      () => false,
    )
    if (!isClean) return true
  }
  return false
}

t.test(
  `${steps} random operations with faults keep every sum (SEED=${seed})`,
  { skip, timeout: 3_600_000 },
  async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const tallies = await Promise.all(
      Array.from({ length: SIDE_BY_SIDE }, (_, nth) => simulate(t, redis, nth, Math.ceil(steps / SIDE_BY_SIDE))),
    )
    for (const name of [
      'grant',
      'grant, refused',
      'hold, held',
      'hold, thin',
      'hold, insufficient',
      'hold, in doubt',
      'extend',
      'renew',
      'settle',
      'void',
      'send again',
      'repeat',
      'expire',
      'reap',
      'refund',
      'kill',
      'late',
      'archive',
      'archive, refused',
      'archive and die',
      'forget',
      'save',
      'lose the last writes',
      'lose everything',
    ]) {
      // A short run may miss some kinds of events.
      const times = tallies.reduce((sum, tally) => sum + (tally.get(name) ?? 0), 0)
      if (steps >= 3500) t.ok(times > 0, `${name}: ${times}`)
    }
  },
)

t.test('a simulation finds each rule that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  const mutations: readonly Mutation[] = [
    'trusts expired outcomes',
    'records by place',
    'trims first',
    'replays nothing',
    'replays by number',
    'repeats nothing',
  ]
  await Promise.all(mutations.map(async (mutation, nth) => t.ok(await isFound(t, redis, 10 + nth, mutation), mutation)))
})
