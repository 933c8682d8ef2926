/** Breaks the rules of the ledger and of its quotas on purpose, one by one: a simulation must find each of them. */
import t, { type Test } from 'tap'
import { RealRedis } from '../redis.ts'
import { QuotaSimulation } from './quota-simulation.ts'
import { openQuotas, QUOTA_KINDS, type ScriptMutation, seed, simulate, skip } from './runs.ts'
import type { Mutation } from './simulation.ts'

/** Steps within which each broken rule is found. */
const MUTATED_STEPS = 4000

/** Whether a simulation ended because it found something, and not by an error of a script or of the store. */
function isFinding(thrown: unknown): boolean {
  // What a step finds is the cause of the error that names the step.
  const found = thrown instanceof Error ? (thrown.cause ?? thrown) : undefined
  return found instanceof Error && found.constructor === Error
}

/** Whether one of three runs finds a broken rule. Their clock is real, so that one run may miss it on a busy machine. */
async function isFound(t: Test, redis: RealRedis, nth: number, mutation: Mutation | ScriptMutation): Promise<boolean> {
  for (const more of [0, 100, 200]) {
    const run = simulate(t, redis, nth + more, MUTATED_STEPS, mutation)
    try {
      await run
    } catch (thrown) {
      if (isFinding(thrown)) return true
      throw thrown
    }
  }
  return false
}

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

/** The rules of balances that several keys share. */
const SHARED: readonly ScriptMutation[] = [
  ['a charge counts to its key', 'added(part.charged, whole(charge)), part', 'part.charged, part'],
  ['what is held counts to its key', 'part.held + held, part', 'part.held, part'],
  ['a cap limits what a key may hold', 'tonumber(cap) - tonumber(elsewhere', '9e15 - tonumber(elsewhere'],
  ['what was used elsewhere counts to a cap', "- tonumber(elsewhere or '0') ", ''],
  ['what a key holds counts to its cap', 'added(part.charged, whole(part.held))', 'part.charged'],
  ['a reaped hold belongs to its key', "owner = owner or ''", "owner = ''"],
]

t.test('a simulation finds each rule of shared balances that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  await Promise.all(SHARED.map(async (mutation, nth) => t.ok(await isFound(t, redis, 40 + nth, mutation), mutation[0])))
})

const MUTATIONS: readonly ScriptMutation[] = [
  ['a key beyond its share leaves what is kept for others', 'balance - kept))', 'balance))'],
  ['a key can always use its share', 'math.max(share - use, balance - kept)', 'balance - kept'],
  ['a share is kept for a new key', '(#uses + 1)', '#uses'],
  ['a rolling window keeps half', 'isRolling and 0.5', 'isRolling and 0'],
  ['a calendar window keeps what is left of it', '0.5 or left', '0.5 or 0'],
  ['what is charged counts to the share', '(used or 0) + charge', '(used or 0)'],
  ['what is no longer held leaves the share', '(held or 0) + more', '(held or 0)'],
  ['what a hold grows by counts to the share', 'noteShare(KEYS[k + 0], KEYS[k + 5], slotOrSharer, 0, more)', ''],
  ['a charge counts in the window that the quota knows', '* length or tonumber(found[1])', '* length or 0'],
  ['holds count in the next window', 'balance = quota - held end', 'balance = quota end'],
  ['a calendar window begins anew', 'found[1] ~= ARGV[a + 5]', 'not found[1]'],
  ['what was used comes back', "balance = balance + tonumber(used or '0')", ''],
  ['a charge counts in its part', 'if partMs > 0 then', 'if partMs < 0 then'],
  ['a quota that is used up is not busy', 'if balance + held < least then return false end', ''],
  ['a quota that only running holds fill is busy', 'if balance + held < least then', 'if balance < least then'],
  ['a quota that is used up holds nothing', 'if balance >= wanted then return wanted end', 'do return wanted end'],
]

t.test('a simulation finds each rule of quotas that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  for (const mutation of MUTATIONS) {
    const { ledger, scripts } = await openQuotas(t, redis, mutation)
    const runs = QUOTA_KINDS.map((kind, nth) => new QuotaSimulation(seed + nth, ledger, scripts, kind).run(400))
    const found = (await Promise.allSettled(runs)).flatMap(end => (end.status === 'rejected' ? [end.reason] : []))
    t.ok(found.length > 0 && found.every(isFinding), mutation[0])
  }
})
