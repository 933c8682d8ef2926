import t from 'tap'
import { RealRedis } from '../redis.ts'
import { QuotaSimulation } from './quota-simulation.ts'
import { isLong, openScripts, QUOTA_KINDS, seed, skip, steps } from './runs.ts'

/** What must come to pass in a long run. The first does in any. */
const OUTCOMES = ['hold, held', 'hold, refused', 'extend', 'settle', 'settle again', 'reap', 'time passes']

t.test(
  `${steps} random operations keep every quota and every share (SEED=${seed})`,
  { skip, timeout: 3_600_000 },
  async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const { ledger, scripts } = await openScripts(t, redis)
    await Promise.all(
      QUOTA_KINDS.map(async (kind, nth) => {
        const tally = await new QuotaSimulation(seed + nth, ledger, scripts, kind).run(
          Math.ceil(steps / QUOTA_KINDS.length),
        )
        for (const name of isLong ? OUTCOMES : OUTCOMES.slice(0, 1))
          t.ok((tally.get(name) ?? 0) > 0, `${JSON.stringify(kind)} ${name}: ${tally.get(name)}`)
      }),
    )
  },
)
