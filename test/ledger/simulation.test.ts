import t from 'tap'
import { RealRedis } from '../redis.ts'
import { isLong, seed, SIDE_BY_SIDE, simulate, skip, steps } from './runs.ts'

t.test(
  `${steps} random operations with faults keep every sum (SEED=${seed})`,
  { skip, timeout: 3_600_000 },
  async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const tallies = await Promise.all(
      Array.from({ length: SIDE_BY_SIDE }, (_, nth) => simulate(t, redis, nth, Math.ceil(steps / SIDE_BY_SIDE))),
    )
    t.equal(tallies.length, SIDE_BY_SIDE)
    for (const name of [
      'grant',
      'grant, refused',
      'join',
      'move',
      'hold, capped',
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
      'save the records',
      'the records fall back',
    ]) {
      // A short run may miss some kinds of events.
      const times = tallies.reduce((sum, tally) => sum + (tally.get(name) ?? 0), 0)
      if (isLong) t.ok(times > 0, `${name}: ${times}`)
    }
  },
)
