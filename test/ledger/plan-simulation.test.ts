import t from 'tap'
import { RealRedis } from '../redis.ts'
import { PlanSimulation, simulatedClock } from './plan-simulation.ts'
import { isLong, openScripts, seed, skip, steps } from './runs.ts'

/** What must come to pass in a long run. The first does in any. */
const OUTCOMES = ['hold, held', 'hold, used', 'hold, filled', 'extend, extended', 'extend, used up', 'settle', 'reap', 'late end'] // prettier-ignore

t.test(`${steps} random operations keep every window (SEED=${seed})`, { skip, timeout: 3_600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  await Promise.all(
    [false, true].map(async (mayUseCredits, nth) => {
      const clock = `simulated:${nth}`
      const opened = await openScripts(t, redis, simulatedClock(clock))
      const tally = await new PlanSimulation(seed + nth, { ...opened, clock }, mayUseCredits).run(Math.ceil(steps / 2))
      for (const name of isLong ? OUTCOMES : OUTCOMES.slice(0, 1))
        t.ok((tally.get(name) ?? 0) > 0, `${mayUseCredits} ${name}: ${tally.get(name)}`)
    }),
  )
})
