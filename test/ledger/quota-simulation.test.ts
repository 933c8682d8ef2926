import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { Scripts } from '../../core/ledger/scripts.ts'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import { openLedger } from './open.ts'
import { QuotaSimulation } from './quota-simulation.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** `SEED=` repeats a run. `STEPS=` makes it longer. */
const seed = Number(process.env['SEED'] ?? 20_261_126)
const steps = Number(process.env['STEPS'] ?? 3500)

const KINDS = [false, true].flatMap(isRolling => [false, true].map(isFair => ({ isRolling, isFair })))

/** A part of the scripts, and what a mutation puts in its place. */
type Mutation = readonly [rule: string, part: string, instead: string]

/** Opens a ledger, and the scripts that a simulation runs. */
async function open(t: Test, redis: RealRedis, mutation?: Mutation): Promise<{ ledger: Ledger; scripts: Scripts }> {
  const prefix = `q${randomUUID()}`
  const { ledger, store } = await openLedger(t, redis, prefix)
  const connection = store.redis.duplicate()
  t.teardown(() => connection.disconnect())
  await connection.connect()
  const define = connection.defineCommand.bind(connection)
  connection.defineCommand = (name, { lua, ...how }) => {
    const [rule = '', part = '', instead = ''] = mutation ?? []
    if (mutation && !lua.includes(part)) throw new Error(`the scripts have no "${part}" any more: ${rule}`)
    define(name, { ...how, lua: mutation ? lua.replaceAll(part, instead) : lua })
  }
  return { ledger, scripts: new Scripts({ ...store, redis: connection }, prefix) }
}

t.test(
  `${steps} random operations keep every quota and every share (SEED=${seed})`,
  { skip, timeout: 3_600_000 },
  async t => {
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const { ledger, scripts } = await open(t, redis)
    await Promise.all(
      KINDS.map(async (kind, nth) => {
        const tally = await new QuotaSimulation(seed + nth, ledger, scripts, kind).run(Math.ceil(steps / KINDS.length))
        for (const name of [
          'hold, held',
          'hold, insufficient',
          'extend',
          'settle',
          'settle again',
          'reap',
          'time passes',
        ])
          t.ok((tally.get(name) ?? 0) > 0, `${JSON.stringify(kind)} ${name}: ${tally.get(name)}`)
      }),
    )
  },
)

const MUTATIONS: readonly Mutation[] = [
  ['a key beyond its share leaves what is kept for others', 'balance - kept))', 'balance))'],
  ['a key can always use its share', 'math.max(share - use, balance - kept)', 'balance - kept'],
  ['a share is kept for a new key', '(#uses + 1)', '#uses'],
  ['a rolling window keeps half', 'rolling and 0.5', 'rolling and 0'],
  ['a calendar window keeps what is left of it', 'or 1 - elapsed', 'or 0'],
  ['what is charged counts to the share', '(used or 0) + charge', '(used or 0)'],
  ['what is no longer held leaves the share', '(held or 0) + more', '(held or 0)'],
  ['what a hold grows by counts to the share', 'noteShare(KEYS[k], KEYS[k + 4], placed, 0, more)', ''],
  ['a charge counts in the window that the quota knows', 'or tonumber(known[1])', 'or 0'],
  ['holds count in the next window', 'balance = quota - held end', 'balance = quota end'],
  ['a calendar window begins anew', 'if found[1] ~= ARGV[a + 5] then', 'if not found[1] then'],
  ['what was used comes back', "balance = balance + tonumber(used or '0')", ''],
  ['a charge counts in its part', 'if length > 0 then', 'if length < 0 then'],
  ['a quota that is used up holds nothing', 'if balance >= wanted then return wanted end', 'do return wanted end'],
]

t.test('a simulation finds each rule of quotas that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  for (const mutation of MUTATIONS) {
    const { ledger, scripts } = await open(t, redis, mutation)
    const runs = KINDS.map((kind, nth) => new QuotaSimulation(seed + nth, ledger, scripts, kind).run(400))
    const found = (await Promise.allSettled(runs)).filter(({ status }) => status === 'rejected')
    t.ok(found.length > 0, mutation[0])
  }
})
