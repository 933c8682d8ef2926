/**
 * Runs random operations on one quota of an upstream account, on the real scripts, with faults between them: lost
 * requests, lost answers, repetitions, gateways that die, and settlements that come after their holds expired. A model
 * knows what every answer and every sum must be. The same seed gives the same steps.
 */
import type { Quota } from '../../core/config/config.ts'
import { Hold, type HoldRequest } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import {
  extendOperation,
  holdOperation,
  reapOperation,
  renewOperation,
  settleOperation,
} from '../../core/ledger/operations.ts'
import { quotaAccount } from '../../core/ledger/quotas.ts'
import { partMs, ROLLING_PARTS, windowAt } from '../../core/plans/calendar.ts'
import type { Scripts } from '../../core/ledger/script/scripts.ts'
import { FIELDS, type Operation } from '../../core/ledger/script/names.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import { QuotaModel } from './quota-model.ts'
import { Random } from './simulation.ts'

const DAY_MS = 86_400_000
const LEASE_MS = 3_600_000
const NOTES = { endpoint: '/x', model: 'm', stream: true }
const LIMITS = { leaseMs: LEASE_MS, retriesMs: LEASE_MS, waivers: 1000, freeEntries: 1000 }
const KEYS = ['key_a', 'key_b', 'key_c', 'key_d']

/** The fate of a request: it is lost, arrives while its answer is lost, or arrives twice. */
const FAULTS = ['none', 'none', 'none', 'lost', 'dropped', 'twice'] as const

/** One run on a quota of its own. */
export class QuotaSimulation {
  readonly #random: Random
  readonly #ledger: Ledger
  readonly #scripts: Scripts
  readonly #quota: Quota
  readonly #account: string
  readonly #model: QuotaModel
  readonly #live = new Map<string, { readonly hold: Hold; floor: bigint }>()
  /** Ends that the store has not acknowledged, or that are sent again. */
  readonly #ends: { readonly hold: Hold; readonly charge: bigint }[] = []
  readonly #from: number
  #name = ''

  /** @param scripts may be of a mutated script */
  constructor(
    seed: number,
    ledger: Ledger,
    scripts: Scripts,
    { isRolling, isFair }: Record<'isRolling' | 'isFair', boolean>,
  ) {
    this.#random = new Random(seed)
    this.#ledger = ledger
    this.#scripts = scripts
    // Parts so long that none of them passes while the simulation runs.
    const rollingMs = 10_000 * 3_600_000
    const calendar = { per: 'day', zone: 'UTC', weekday: 1, day: 1, hour: 0, minute: 0 } as const
    const amount = 10_000
    this.#quota = {
      name: `${seed}`,
      amount: BigInt(amount),
      window: isRolling ? { rollingMs } : calendar,
      unit: 'credits',
      fairShare: isFair,
    }
    this.#account = quotaAccount('u/1', this.#quota)
    this.#from = windowAt(calendar, Date.now()).from
    const lengthMs = isRolling ? partMs(rollingMs) * ROLLING_PARTS : DAY_MS
    this.#model = new QuotaModel({ amount, isRolling, isFair, lengthMs })
  }

  /** Runs steps and checks every sum after each. @throws Error with the broken rule and the step */
  async run(steps: number): Promise<ReadonlyMap<string, number>> {
    const tally = new Map<string, number>()
    for (let step = 0; step < steps; step++) {
      try {
        await this.#step()
        await this.#check()
      } catch (cause) {
        throw new Error(`step ${step} (${this.#name}): ${(cause as Error).message}`, { cause })
      }
      tally.set(this.#name, (tally.get(this.#name) ?? 0) + 1)
    }
    return tally
  }

  async #step(): Promise<void> {
    const dice = this.#random.below(100)
    if (dice < 40) return this.#hold()
    if (dice < 50) return this.#extend()
    if (dice < 56) return this.#renew()
    if (dice < 82) return this.#settle()
    if (dice < 88) return this.#settleAgain()
    if (dice < 93) return this.#reap()
    return this.#pass()
  }

  /** Returns what the time is, as the windows of the simulation see it. */
  get #now(): number {
    return this.#model.quota.isRolling ? Date.now() : this.#from + this.#model.window * DAY_MS + 1
  }

  /** Returns which share of the window is over by the store's clock, now. */
  #elapsed(): number {
    const { isRolling, lengthMs } = this.#model.quota
    if (isRolling) return (Date.now() % lengthMs) / lengthMs
    return Math.max(0, Math.min(1, (Date.now() - this.#now) / lengthMs))
  }

  /** Runs an operation with a random fault. @returns the answer, and whether its caller gets it */
  async #faulty(operation: Operation): Promise<{ answer: readonly string[] | undefined; isHeard: boolean }> {
    const fault = this.#random.pick(FAULTS)
    if (fault === 'lost') return { answer: undefined, isHeard: false }
    const answer = await this.#scripts.run(operation)
    if (fault === 'twice') await this.#scripts.run(operation)
    return { answer, isHeard: fault !== 'dropped' }
  }

  async #hold(): Promise<void> {
    const key = this.#random.pick(KEYS) as string
    const amount = 1 + this.#random.below(4000)
    const least = this.#random.below(2) === 0 ? amount : 1 + this.#random.below(amount)
    const live = { floor: 0n }
    const request: HoldRequest = {
      account: this.#account,
      id: timedId(Date.now()),
      amount: BigInt(amount),
      least: BigInt(least),
      version: '',
      quota: this.#quota,
      sharer: this.#quota.fairShare ? key : undefined,
      notes: NOTES,
      floor: () => ({ charge: live.floor, notes: {} }),
    }
    const bucket = `~${Math.floor(Date.now() / LEASE_MS)}.0`
    const operation = holdOperation(request, bucket, { leaseMs: LEASE_MS, now: this.#now }, this.#scripts.keys)
    const before = this.#elapsed()
    const { answer, isHeard } = await this.#faulty(operation)
    this.#name = 'hold, lost'
    if (!answer) return
    this.#model.open()
    const { least: low, most: high } = this.#model.allowed(key, [before, this.#elapsed()])
    const [kind, held = '0'] = answer
    this.#name = `hold of ${amount} (${least}), ${answer.join(' ')}`
    const right = [take(low, amount, least), take(high, amount, least)]
    const found = kind === 'held' ? Number(held) : 0
    if (found < Math.min(...right) || found > Math.max(...right))
      throw new Error(`${right.join(' to ')} is right, since ${key} may have ${low} to ${high}`)
    if (kind !== 'held') this.#checkRefusal(kind, least)
    this.#name = kind === 'held' ? 'hold, held' : 'hold, refused'
    if (kind !== 'held') return
    this.#model.hold(request.id, key, found)
    const hold = new Hold(request, bucket, BigInt(found), 0n)
    if (isHeard) this.#live.set(request.id, Object.assign(live, { hold }))
    else await this.#end(hold, 0n)
  }

  /** A refused hold is `busy` if running holds are in its way, and `insufficient` if it would get nothing without them. */
  #checkRefusal(kind: string | undefined, least: number): void {
    const { left, held, quota } = this.#model
    const isOnlyHeld = left + held >= least
    // Without running holds, the share of a key may still be used up.
    if (kind !== (isOnlyHeld ? 'busy' : 'insufficient') && !(quota.isFair && isOnlyHeld && left >= least))
      throw new Error(`${left} is left, ${held} is held, and ${least} was asked for`)
  }

  async #extend(): Promise<void> {
    this.#name = 'extend'
    const [live] = this.#some()
    if (!live) return
    const { id } = live.hold
    const { amount = 0 } = this.#model.holds.get(id) ?? {}
    const wanted = amount + this.#random.below(2000)
    const asked = { amount: BigInt(wanted), leaseMs: LEASE_MS, verdict: '' } as const
    const { left } = this.#model
    const { answer } = await this.#faulty(extendOperation(live.hold, asked, this.#scripts.keys))
    if (!answer) return
    const more = take(left, wanted - amount, 1)
    if (answer[0] !== 'held' || Number(answer[1]) !== amount + more)
      throw new Error(`an extension to ${wanted} is answered with ${answer.join(' ')}, and ${amount + more} is right`)
    this.#model.extend(id, more)
  }

  async #renew(): Promise<void> {
    this.#name = 'renew'
    const [live] = this.#some()
    if (!live) return
    live.floor += BigInt(this.#random.below(300))
    const { answer } = await this.#faulty(renewOperation(live.hold, LEASE_MS, this.#scripts.keys))
    if (answer) this.#model.renew(live.hold.id, Number(live.floor))
  }

  async #settle(): Promise<void> {
    this.#name = 'settle'
    const [live] = this.#some()
    if (!live) return
    this.#live.delete(live.hold.id)
    await this.#end(live.hold, live.floor + BigInt(this.#random.below(this.#random.below(8) === 0 ? 15_000 : 3000)))
  }

  /** An end that was not acknowledged, or one that was, is sent again. */
  async #settleAgain(): Promise<void> {
    this.#name = 'settle again'
    const end = this.#random.pick(this.#ends)
    if (end) await this.#end(end.hold, end.charge)
  }

  async #end(hold: Hold, charge: bigint): Promise<void> {
    if (!this.#ends.some(end => end.hold === hold)) this.#ends.push({ hold, charge })
    const end = { charge, kind: charge === 0n ? 'void' : 'settle', notes: NOTES } as const
    const operation = settleOperation(settlementOf(hold, end, Date.now()), '', this.#scripts.keys, LIMITS)
    const { answer } = await this.#faulty(operation)
    if (answer) this.#model.settle(hold.id, Number(charge))
  }

  /** A gateway dies, and the lease of one of its holds ends. Its end may still come. */
  async #reap(): Promise<void> {
    this.#name = 'reap'
    const [live] = this.#some()
    if (!live) return
    const { hold, floor } = live
    this.#live.delete(hold.id)
    if (this.#random.below(2) === 0) this.#ends.push({ hold, charge: floor + BigInt(this.#random.below(2000)) })
    const lease = `${this.#account} ${hold.id} ${hold.bucket}`
    await this.#scripts.redis.zadd(this.#scripts.keys.of(this.#account).leases, 'XX', 1, lease)
    const answer = await this.#scripts.run(reapOperation(lease, this.#scripts.keys))
    if (answer[0] !== 'reaped') throw new Error(`an expired hold was ${answer[0]}`)
    this.#model.reap(hold.id)
  }

  /** Time passes. What a rolling window has is moved into the past. */
  async #pass(): Promise<void> {
    this.#name = 'time passes'
    const { isRolling, lengthMs } = this.#model.quota
    const parts = this.#random.pick([1, 7, 30, ROLLING_PARTS]) as number
    this.#model.pass(parts)
    if (!isRolling) return
    const { redis, keys } = this.#scripts
    const { account, shares } = keys.of(this.#account)
    const text = await redis.hget(account, FIELDS.windows)
    if (text !== null)
      await redis.hset(
        account,
        FIELDS.windows,
        text.replaceAll(/(\d+)=/g, (_, part) => `${Number(part) - parts}=`),
      )
    if (parts < ROLLING_PARTS) return
    for (const [key, text] of Object.entries(await redis.hgetall(shares)))
      await redis.hset(
        shares,
        key,
        text.replace(/^\d+/, began => String(Number(began) - lengthMs)),
      )
  }

  #some(): { readonly hold: Hold; floor: bigint }[] {
    const live = this.#random.pick([...this.#live.values()])
    return live ? [live] : []
  }

  async #check(): Promise<void> {
    const [count, reserved] = await this.#scripts.redis.hmget(this.#scripts.keys.of(this.#account).account, 'n', 'rsv')
    const model = this.#model
    same('running holds', Number(count ?? 0), model.running)
    same('held', Number(reserved ?? 0), model.held)
    const { used } = await this.#ledger.reads.quotaUsed('u/1', this.#quota, this.#now)
    same('used', Number(used), model.used)
    for (const [key, share] of model.shares) {
      const { used: own } = await this.#ledger.reads.quotaShare('u/1', this.#quota, key, this.#now)
      if (share.window === model.window && share.before === 0)
        same(`the use of ${key}`, Number(own), share.used + share.held)
    }
  }
}

function take(left: number, wanted: number, least: number): number {
  if (left >= wanted) return wanted
  return left > 0 && left >= least ? left : 0
}

function same(what: string, found: number, right: number): void {
  if (found !== right) throw new Error(`${what}: ${found} where ${right} is right`)
}
