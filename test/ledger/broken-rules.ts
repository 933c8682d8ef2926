/** Breaks the rules of the ledger and of its quotas on purpose, one by one: a simulation must find each of them. */
import t, { type Test } from 'tap'
import { RealRedis } from '../redis.ts'
import { PlanSimulation, simulatedClock } from './plan-simulation.ts'
import { QuotaSimulation } from './quota-simulation.ts'
import { openScripts, QUOTA_KINDS, seed, simulate, skip } from './runs.ts'
import { RULES, type ScriptMutation } from './script-mutations.ts'
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

t.test('a simulation finds each rule of shared balances that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  await Promise.all(
    RULES.shared.map(async (mutation, nth) => t.ok(await isFound(t, redis, 40 + nth, mutation), mutation.rule)),
  )
})

t.test('a simulation finds each rule of quotas that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  for (const mutation of RULES.quotas) {
    const { ledger, scripts } = await openScripts(t, redis, mutation)
    const runs = QUOTA_KINDS.map((kind, nth) => new QuotaSimulation(seed + nth, ledger, scripts, kind).run(400))
    const found = (await Promise.allSettled(runs)).flatMap(end => (end.status === 'rejected' ? [end.reason] : []))
    t.ok(found.length > 0 && found.every(isFinding), mutation.rule)
  }
})

/** Whether one of three runs with each kind of plan finds a broken rule. */
async function isFoundOfPlans(t: Test, redis: RealRedis, nth: number, mutation: ScriptMutation): Promise<boolean> {
  for (const more of [0, 100, 200]) {
    const runs = [false, true].map(async mayUseCredits => {
      const clock = `simulated:${nth + more}:${mayUseCredits}`
      const opened = await openScripts(t, redis, mutation, simulatedClock(clock))
      return new PlanSimulation(seed + nth + more, { ...opened, clock }, mayUseCredits).run(2000)
    })
    const found = (await Promise.allSettled(runs)).flatMap(end => (end.status === 'rejected' ? [end.reason] : []))
    for (const thrown of found) if (!isFinding(thrown)) throw thrown
    if (found.length > 0) return true
  }
  return false
}

t.test('a simulation finds each rule of plans that is broken', { skip, timeout: 600_000 }, async t => {
  const redis = await RealRedis.start(t, '--appendonly', 'no')
  for (const [nth, mutation] of RULES.plans.entries())
    t.ok(await isFoundOfPlans(t, redis, nth, mutation), mutation.rule)
})
