import t from 'tap'
import { Scripts } from '../../core/ledger/scripts.ts'
import { startGateway } from '../gateway.ts'
import { Simulation } from './simulation.ts'

/** `SEED=` repeats a run. `STEPS=` makes it longer. */
const seed = Number(process.env['SEED'] ?? 20_261_121)
const steps = Number(process.env['STEPS'] ?? 3500)
/** Simulations that share one ledger: while one waits for the store, another continues. */
const SIDE_BY_SIDE = 5

t.test(`${steps} random operations with faults keep every sum (SEED=${seed})`, { timeout: 3_600_000 }, async t => {
  const g = await startGateway(t, { edit: file => file.set('ledger.auditEvery', '24h') })
  const { keys, ledger, store, config } = g.gateway
  const connections = [0, 1].map(() => store.redis.duplicate())
  t.teardown(() => connections.forEach(redis => redis.disconnect()))
  await Promise.all(connections.map(redis => redis.connect()))
  const scripts = connections.map(redis => new Scripts({ ...store, redis }, config.store.prefix))
  const account = async (): Promise<string> =>
    (await keys.create({ type: 'famC', name: '', credits: 0n, expiresAt: undefined })).key.id
  const tallies = await Promise.all(
    Array.from({ length: SIDE_BY_SIDE }, async (_, nth) => {
      const accounts = await Promise.all([account(), account(), account()])
      return new Simulation(seed + nth, ledger, scripts).run(accounts, Math.ceil(steps / SIDE_BY_SIDE))
    }),
  )
  for (const name of [
    'grant',
    'hold, held',
    'hold, thin',
    'hold, insufficient',
    'hold, in doubt',
    'extend',
    'renew',
    'settle',
    'void',
    'send again',
    'expire',
    'reap',
    'trim',
    'kill',
    'late',
  ]) {
    // A short run may miss some kinds of events.
    const times = tallies.reduce((sum, tally) => sum + (tally.get(name) ?? 0), 0)
    if (steps >= 3500) t.ok(times > 0, `${name}: ${times}`)
  }
})
