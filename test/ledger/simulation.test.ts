import t from 'tap'
import { Scripts } from '../../core/ledger/scripts.ts'
import { startGateway } from '../gateway.ts'
import { Simulation } from './simulation.ts'

/** `SEED=` takes the same steps again; `STEPS=` takes more of them. */
const seed = Number(process.env['SEED'] ?? 20_261_121)
const steps = Number(process.env['STEPS'] ?? 3500)

t.test(`${steps} random operations with faults keep every sum (SEED=${seed})`, { timeout: 3_600_000 }, async t => {
  const g = await startGateway(t, { edit: yaml => yaml.replace('auditEvery: 1h', 'auditEvery: 24h') })
  const { ledger, store, config } = g.gateway
  const connections = [0, 1].map(() => store.redis.duplicate())
  t.teardown(() => connections.forEach(redis => redis.disconnect()))
  await Promise.all(connections.map(redis => redis.connect()))
  const scripts = connections.map(redis => new Scripts({ ...store, redis }, config.store.prefix))
  const accounts = await Promise.all(
    [1, 2, 3].map(async () => (await g.gateway.keys.create({ type: 'famC', name: '', credits: 0n, expiresAt: undefined })).key.id),
  )
  const tally = await new Simulation(seed, ledger, scripts).run(accounts, steps)
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
    // A short run need not come by everything.
    if (steps >= 3500) t.ok((tally.get(name) ?? 0) > 0, `${name}: ${tally.get(name)}`)
  }
})
