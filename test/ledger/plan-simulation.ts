/**
 * Runs random operations on balances with a plan, on the real scripts with a clock that the simulation sets, and with faults
 * between them: lost requests, lost answers, repetitions, gateways that die, and settlements that come late. A model knows what
 * every answer and every sum must be. The same seed gives the same steps.
 */
import { isDeepStrictEqual } from 'node:util'
import { Plans } from '../../core/keys/plans.ts'
import { Balances } from '../../core/keys/balances.ts'
import { Keys } from '../../core/keys/keys.ts'
import { Hold, type HoldBounds, type HoldRequest } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import {
  extendOperation,
  holdOperation,
  reapOperation,
  renewOperation,
  settleOperation,
} from '../../core/ledger/operations.ts'
import { FIELDS, type Operation, readFields } from '../../core/ledger/script/names.ts'
import type { Scripts } from '../../core/ledger/script/scripts.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import { claimsIn } from '../../core/plans/claims.ts'
import { keyWindowsAsked } from '../../core/plans/limits.ts'
import { askedOf, type Plan, planFrom } from '../../core/plans/plan.ts'
import { comparedWindows } from '../../core/ledger/recovery/used-windows.ts'
import { statesIn } from '../../core/plans/state.ts'
import { PlanModel, type Wish, WINDOWS } from './plan-model.ts'
import type { ScriptMutation } from './script-mutations.ts'
import { Random } from './simulation.ts'

const HOUR_MS = 3_600_000
const LEASE_MS = 1000 * HOUR_MS
/** The simulated time begins in the year after this. */
const BEGIN = Date.UTC(2030, 0)
const YEAR_S = 365 * 86_400
const NOTES = { endpoint: '/x', model: 'm', stream: true }
const LIMITS = { leaseMs: LEASE_MS, retriesMs: LEASE_MS, waivers: 1000, freeEntries: 1000 }
const GROUPS = new Map()

/** Returns the mutation by which a script reads the time, in seconds, from a key of the store. */
export function simulatedClock(key: string): ScriptMutation {
  return { rule: 'a simulated clock', text: "redis.call('TIME')", instead: `{ redis.call('GET', '${key}'), '0' }` }
}

/** The fate of a request: it is lost, arrives while its answer is lost, or arrives twice. */
const FAULTS = ['none', 'none', 'none', 'lost', 'dropped', 'twice'] as const

/** A live hold of the simulation. */
interface Live {
  readonly hold: Hold
  readonly model: string
  floor: number
  floorTokens: number
}

/** An end that may be sent. */
interface End {
  readonly live: Live
  readonly charge: number
  readonly tokens: number
  /** Whether its gateway knows what the hold has taken. */
  readonly isKnown: boolean
}

/** One run, on a balance of its own. */
export class PlanSimulation {
  readonly #random: Random
  readonly #ledger: Ledger
  readonly #scripts: Scripts
  readonly #model: PlanModel
  readonly #live = new Map<string, Live>()
  readonly #all = new Map<string, Live>()
  readonly #ends: End[] = []
  readonly #mayUseCredits: boolean
  readonly #clock: string
  #account = ''
  #key = ''
  #plan: Plan | undefined
  #name = ''

  /**
   * @param scripts whose time is the simulated one; they may be mutated
   * @param clock the key of the time
   */
  constructor(
    seed: number,
    { ledger, scripts, clock }: { readonly ledger: Ledger; readonly scripts: Scripts; readonly clock: string },
    mayUseCredits: boolean,
  ) {
    this.#clock = clock
    this.#random = new Random(seed)
    this.#ledger = ledger
    this.#scripts = scripts
    this.#mayUseCredits = mayUseCredits
    this.#model = new PlanModel(BEGIN + this.#random.below(YEAR_S) * 1000, mayUseCredits)
  }

  /** Runs steps and checks every sum after each. @throws Error with the broken rule and the step */
  async run(steps: number): Promise<ReadonlyMap<string, number>> {
    await this.#open()
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
    await this.#checkEntries()
    return tally
  }

  async #open(): Promise<void> {
    const { scripts } = this.#ledger
    await scripts.redis.set(this.#clock, this.#model.now / 1000)
    const keys = new Keys(this.#ledger, 0, () => this.#model.now)
    this.#account = await new Balances(this.#ledger, () => this.#model.now).create({
      name: '',
      externalId: '',
      metadata: {},
      credits: 6000n,
    })
    const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: this.#account }
    this.#key = (await keys.changes.create(wish)).key.id
    const plans = new Plans(this.#ledger)
    await plans.set(
      { account: this.#account, id: 'plan' },
      {
        then: this.#mayUseCredits ? 'credits' : 'refuse',
        windows: [
          { credits: '0.00002', per: 'day' },
          { credits: '0.000015', per: '5h' },
          { requests: 25, per: 'week', anchor: 'purchase', models: ['a'] },
          { tokens: 6_000, per: '6h', anchor: 'first use', models: ['b'] },
        ],
      },
    )
    const plan = await plans.of(this.#account)
    // The purchase is at the time of the model.
    this.#plan = { ...(plan as Plan), at: this.#model.now }
    this.#model.balance = 6000
  }

  async #step(): Promise<void> {
    const dice = this.#random.below(100)
    if (dice < 36) return this.#hold()
    if (dice < 48) return this.#extend()
    if (dice < 58) return this.#renew()
    if (dice < 74) return this.#settle()
    if (dice < 81) return this.#settleAgain()
    if (dice < 92) return this.#reap()
    return this.#pass()
  }

  /** Runs an operation with a random fault. @returns the answer, and whether its caller gets it */
  async #faulty(operation: Operation): Promise<{ answer: readonly string[] | undefined; isHeard: boolean }> {
    const fault = this.#random.pick(FAULTS)
    if (fault === 'lost') return { answer: undefined, isHeard: false }
    const answer = await this.#scripts.run(operation)
    if (fault === 'twice') await this.#scripts.run(operation)
    return { answer, isHeard: fault !== 'dropped' }
  }

  #boundsOf({ model, tokens, leastTokens }: Pick<Wish, 'model' | 'tokens' | 'leastTokens'>): HoldBounds {
    return {
      plan: this.#plan,
      credits: this.#mayUseCredits,
      cap: undefined,
      windows: now => askedOf(this.#plan as Plan, [model], GROUPS, now),
      keyWindows: now => keyWindowsAsked({ creditsPerDay: 22_000n }, now),
      rates: '',
      tokens,
      leastTokens,
    }
  }

  async #hold(): Promise<void> {
    const wanted = 1 + this.#random.below(4000)
    const least = this.#random.below(3) === 0 ? wanted : 1 + this.#random.below(wanted)
    const tokens = 2 + this.#random.below(6000)
    const leastTokens = least === wanted ? tokens : 1 + this.#random.below(tokens)
    const model = this.#random.pick(['a', 'b', 'c']) as string
    const wish: Wish = { model, wanted, least, tokens, leastTokens, half: this.#random.below(3) === 0 }
    let live: Live | undefined
    const request: HoldRequest = {
      account: this.#account,
      key: this.#key,
      id: timedId(Date.now()),
      amount: BigInt(wanted),
      least: BigInt(least),
      half: wish.half,
      rotation: '0',
      version: '1',
      bounds: this.#boundsOf(wish),
      notes: NOTES,
      floor: () => ({ charge: BigInt(live?.floor ?? 0), tokens: live?.floorTokens ?? 0, notes: {} }),
    }
    const bucket = `${Math.floor(Date.now() / HOUR_MS)}.0`
    const asked = holdOperation(request, bucket, { leaseMs: LEASE_MS, now: this.#model.now }, this.#scripts.keys)
    const { answer, isHeard } = await this.#faulty(asked)
    this.#name = 'hold, lost'
    if (!answer) return
    const right = this.#model.hold(request.id, wish)
    const [kind, held = '', , , claims] = answer
    this.#name = `hold ${JSON.stringify(wish)}: ${answer.join(' ')}`
    const found = kind === 'held' ? Number(held) : undefined
    if (found !== right) throw new Error(`${right ?? 'a refusal'} is right`)
    this.#name = kind === 'held' ? 'hold, held' : `hold, ${kind}`
    if (found === undefined) return
    const hold = new Hold(request, bucket, BigInt(found), 0n)
    hold.claims = claims ?? hold.claims
    live = { hold, model, floor: 0, floorTokens: 0 }
    this.#all.set(request.id, live)
    if (isHeard) this.#live.set(request.id, live)
    else await this.#end({ live, charge: 0, tokens: 0, isKnown: false })
  }

  async #extend(): Promise<void> {
    this.#name = 'extend'
    const live = this.#some()
    if (!live) return
    const { hold, model } = live
    const known = this.#model.holds.get(hold.id)
    const all = (known?.credits ?? 0) + (known?.plan ?? 0)
    const wanted = all + this.#random.below(2500)
    hold.tokens += this.#random.below(4000)
    const asked = { amount: BigInt(wanted), leaseMs: LEASE_MS, verdict: '', now: this.#model.now } as const
    const { answer, isHeard } = await this.#faulty(extendOperation(hold, asked, this.#scripts.keys))
    if (!answer) return
    const right = this.#model.extend(hold.id, { model, wanted, tokens: hold.tokens })
    if (answer[0] !== 'held' || Number(answer[1]) !== right)
      throw new Error(`an extension to ${wanted} is answered with ${answer.join(' ')}, and ${right} is right`)
    if (isHeard) hold.claims = answer[3] ?? hold.claims
    this.#name = right === wanted ? 'extend, extended' : 'extend, used up'
  }

  async #renew(): Promise<void> {
    this.#name = 'renew'
    const live = this.#some()
    if (!live) return
    live.floor += this.#random.below(800)
    live.floorTokens += this.#random.below(800)
    const { answer } = await this.#faulty(renewOperation(live.hold, LEASE_MS, this.#scripts.keys))
    if (answer) this.#model.renew(live.hold.id, live.floor, live.floorTokens)
  }

  async #settle(): Promise<void> {
    this.#name = 'settle'
    const live = this.#some()
    if (!live) return
    this.#live.delete(live.hold.id)
    const isFree = this.#random.below(6) === 0
    const charge = isFree ? 0 : live.floor + this.#random.below(3500)
    await this.#end({ live, charge, tokens: this.#random.below(7000), isKnown: true })
  }

  /** An end that was not acknowledged, or one that was, is sent again. */
  async #settleAgain(): Promise<void> {
    this.#name = 'settle again'
    const end = this.#random.pick(this.#ends.slice(-8))
    if (end) await this.#end(end)
  }

  async #end(end: End): Promise<void> {
    const { live, charge, tokens, isKnown } = end
    if (!this.#ends.includes(end)) this.#ends.push(end)
    const { account, key, id, bucket, claims } = live.hold
    // The hold was reaped, and its gateway has not heard of all its claims. The model has, so it would charge other windows.
    const isLate = isKnown && this.#reaped.has(id)
    if (isLate && this.#hasUnheard(live.hold)) return
    if (isLate) this.#name = 'late end'
    const kind = charge === 0 ? 'void' : 'settle'
    const name = { account, key, id, bucket, ...(isKnown && { claims }) }
    const settlement = settlementOf(name, { charge: BigInt(charge), tokens, kind, notes: NOTES }, Date.now())
    const lost = this.#model.holds.get(id) ?? this.#reaped.get(id)
    // A gateway that does not know them cannot correct what windows have.
    const known = isKnown || !lost ? lost : { ...lost, claims: [], isOfPlan: false }
    const { answer } = await this.#faulty(settleOperation(settlement, '', this.#scripts.keys, LIMITS))
    if (answer) this.#model.settle(id, known, charge, isKnown ? tokens : 0)
  }

  /** Holds that were reaped, whose gateways still know what they have taken. */
  readonly #reaped = new Map<string, NonNullable<ReturnType<PlanModel['holds']['get']>>>()

  /** A gateway dies, and the lease of one of its holds ends. Its end may still come. */
  async #reap(): Promise<void> {
    this.#name = 'reap'
    // Also one whose gateway never heard that it got it.
    const live = this.#all.get(this.#random.pick([...this.#model.holds.keys()]) ?? '')
    if (!live) return
    const { hold } = live
    this.#live.delete(hold.id)
    const known = this.#model.holds.get(hold.id)
    if (known) this.#reaped.set(hold.id, known)
    // A gateway that did not hear of an extension knows less.
    const isLate = known !== undefined && this.#random.below(2) === 0 && !this.#hasUnheard(hold)
    const late = {
      live,
      charge: live.floor + this.#random.below(2500),
      tokens: this.#random.below(5000),
      isKnown: true,
    }
    if (isLate) this.#ends.push(late)
    const lease = `${this.#account} ${hold.id} ${hold.bucket}`
    await this.#scripts.redis.zadd(this.#scripts.keys.of(this.#account).leases, 'XX', 1, lease)
    const answer = await this.#scripts.run(reapOperation(lease, this.#scripts.keys))
    if (answer[0] !== 'reaped') throw new Error(`an expired hold was ${answer[0]}`)
    this.#model.reap(hold.id)
    // It may come at once.
    if (isLate && this.#random.below(2) === 0) await this.#end(late)
  }

  #hasUnheard({ id, claims }: Hold): boolean {
    const known = this.#model.holds.get(id) ?? this.#reaped.get(id)
    const taken = claimsIn(claims).windows.reduce((sum, claim) => sum + Number(claim.taken), 0)
    return taken !== known?.claims.reduce((sum, claim) => sum + claim.taken, 0)
  }

  async #pass(): Promise<void> {
    this.#name = 'time passes'
    const hours = this.#random.pick([0.02, 0.5, 1, 3, 6, 24, 200]) as number
    this.#model.now += Math.round(hours * 3600) * 1000
    await this.#scripts.redis.set(this.#clock, this.#model.now / 1000)
    // A customer buys more.
    if (hours !== 24) return
    this.#model.balance += 2000
    await this.#ledger.accounts.grant(this.#account, { id: `more-${this.#model.now}`, amount: 2000n, notes: {} })
  }

  #some(): Live | undefined {
    return this.#random.pick([...this.#live.values()])
  }

  async #check(): Promise<void> {
    const { redis, keys } = this.#scripts
    const spender = { account: this.#account, key: this.#key }
    const [balance, held, holds, windows] = await redis.hmget(
      keys.of(this.#account).account,
      FIELDS.balance,
      FIELDS.held,
      FIELDS.holds,
      FIELDS.windows,
    )
    const ofKey = await redis.hget(keys.record(spender), FIELDS.keyWindows)
    const model = this.#model
    const sums = [Number(balance), Number(held), Number(holds)]
    if (!isDeepStrictEqual(sums, [model.balance, model.held, model.holds.size]))
      throw new Error(
        `the store has ${sums.join(', ')}, and the model ${model.balance}, ${model.held}, ${model.holds.size}`,
      )
    const states = [...[0, 1, 2, 3].map(place => statesIn(windows).byPlace.get(place)), statesIn(ofKey).byPlace.get(0)]
    for (const [place, window] of model.windows.entries()) {
      const state = states[place]
      const found = state ? [Number(state.used), Number(state.held)] : [0, 0]
      const right = [window.sum(place), window.held]
      if (!isDeepStrictEqual(found, right))
        throw new Error(
          `"${WINDOWS[place]?.name}": used and held are ${found.join(', ')}, and ${right.join(', ')} is right`,
        )
    }
  }

  async #windows(): Promise<[Plan, string | null, { now: number; since: number; last: number }]> {
    const { redis, keys } = this.#scripts
    const { account } = keys.of(this.#account)
    const { plan, windows, ordinal } = await readFields(redis, account, ['plan', 'windows', 'ordinal'])
    return [planFrom(plan ?? ''), windows, { now: this.#model.now, since: 0, last: Number(ordinal) }]
  }

  /** Compares the entries of the stream with the model, and the windows with the entries. */
  async #checkEntries(): Promise<void> {
    const entries = await this.#ledger.reads.history({ account: this.#account }, { count: 100_000 })
    for (const { id, charge, plan } of entries) {
      const parts = this.#model.ends.get(id)?.parts
      const found = [Number(charge), Number(plan?.covered ?? 0)]
      if (!isDeepStrictEqual(found, [parts?.charge ?? 0, parts?.covered ?? 0]))
        throw new Error(
          `the entry ${id} has ${found.join(' and ')}, and the model ${parts?.charge} and ${parts?.covered}`,
        )
    }
    // Entries have the server's time, and not the simulated one.
    const { findings } = await comparedWindows(
      ({ before, count }) => this.#ledger.reads.history({ account: this.#account }, { before, count }),
      ...(await this.#windows()),
    )
    if (findings.length > 0) throw new Error(findings.join('; '))
  }
}
