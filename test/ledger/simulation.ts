/**
 * Runs random operations of two gateways on the real scripts, with faults between them and the store: lost and late
 * requests, lost answers, repetitions, dead gateways, expired leases, late settlements. A model of the operations knows
 * what every sum must be. The same seed gives the same steps.
 */
import { isDeepStrictEqual } from 'node:util'
import { historyEntry } from '../../core/ledger/records.ts'
import { audit } from '../../core/ledger/audit.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import type { OperationName, Scripts } from '../../core/ledger/scripts.ts'

/** A stream of random numbers from a seed (mulberry32): integers below a bound, and choices. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  below(bound: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * bound)
  }

  pick<T>(from: readonly T[]): T | undefined {
    return from[this.below(from.length)]
  }
}

type Part = 'lost' | 'retry'

interface Settlement {
  readonly account: string
  readonly id: string
  readonly charge: bigint
  readonly kind: 'settle' | 'void'
  readonly request: string
  readonly part: Part | ''
}

/** A hold, as its gateway knows it. */
interface Held {
  readonly account: string
  readonly id: string
  floor: bigint
}

interface Gateway {
  readonly scripts: Scripts
  live: Held[]
  /** Settlements that the store has not acknowledged. They outlive their gateway. */
  outbox: Settlement[]
}

/** The expected state of an account. */
interface Account {
  granted: bigint
  balance: bigint
  settled: bigint
  readonly holds: Map<string, { amount: bigint; floor: bigint; expired: boolean }>
  /** Requests that have ended. Reaped ones may still be settled. */
  readonly ended: Set<string>
  readonly reaped: Map<string, bigint>
  /** Lost attempts that no retry has used yet. */
  readonly attempts: Map<string, { part: Part; charge: bigint }[]>
  /** The time until which they count, in milliseconds. */
  readonly waits: Map<string, number>
}

/** Numbers of events by name. */
export type Tally = ReadonlyMap<string, number>

/** The fate of a request: it is lost, arrives late, arrives while its answer is lost, or arrives twice. */
const FAULTS = ['none', 'none', 'none', 'none', 'lost', 'late', 'dropped', 'twice'] as const

const REMEMBER = '3600000'
/** Milliseconds for which a complete reply waits for the attempts before it. */
const RETRY_WAITS_MS = 60_000
const NOTES = JSON.stringify({ requestId: 'r', endpoint: '/x', model: 'm', stream: true })

export class Simulation {
  readonly #random: Random
  readonly #ledger: Ledger
  readonly #gateways: Gateway[]
  readonly #accounts = new Map<string, Account>()
  readonly #tally = new Map<string, number>()
  /** Requests that will arrive late. */
  readonly #late: (() => Promise<unknown>)[] = []
  #ids = 0

  /** @param scripts of each gateway, on connections of their own */
  constructor(seed: number, ledger: Ledger, scripts: readonly Scripts[]) {
    this.#random = new Random(seed)
    this.#ledger = ledger
    this.#gateways = scripts.map(own => ({ scripts: own, live: [], outbox: [] }))
  }

  /** Runs steps and checks every account that a step touched. @throws Error with the broken rule and the step */
  async run(accounts: readonly string[], steps: number): Promise<Tally> {
    for (const account of accounts) {
      this.#accounts.set(account, {
        granted: 0n,
        balance: 0n,
        settled: 0n,
        holds: new Map(),
        ended: new Set(),
        reaped: new Map(),
        attempts: new Map(),
        waits: new Map(),
      })
    }
    for (let step = 0; step < steps; step++) {
      const account = this.#random.pick(accounts) as string
      const name = await this.#step(account)
      this.#tally.set(name, (this.#tally.get(name) ?? 0) + 1)
      try {
        await this.#check(account)
      } catch (cause) {
        throw new Error(`step ${step} (${name}): ${(cause as Error).message}`, { cause })
      }
    }
    await this.#drain()
    for (const account of accounts) await this.#check(account)
    return this.#tally
  }

  async #step(account: string): Promise<string> {
    const gateway = this.#random.pick(this.#gateways) as Gateway
    const dice = this.#random.below(100)
    if (this.#late.length > 0 && this.#random.below(10) === 0) return this.#deliver()
    if (dice < 8) return this.#grant(gateway, account)
    if (dice < 38) return this.#hold(gateway, account)
    if (dice < 50) return this.#extend(gateway)
    if (dice < 60) return this.#renew(gateway)
    if (dice < 78) return this.#settle(gateway)
    if (dice < 86) return this.#resend(gateway)
    if (dice < 91) return this.#expire(account)
    if (dice < 95) return this.#reap(gateway, account)
    if (dice < 96) return this.#trim(gateway, account)
    if (dice < 97) return this.#credit(gateway, account)
    if (dice < 98) return this.#abandon(gateway)
    return this.#kill(gateway)
  }

  /** Runs an operation with a random fault. Returns undefined if its caller gets no answer. */
  async #run(
    gateway: Gateway,
    name: OperationName,
    account: string,
    id: string,
    args: string[],
    apply: (answer: string[]) => void,
    request = '',
  ): Promise<string[] | undefined> {
    const fault = this.#random.pick(FAULTS)
    const deliver = async (): Promise<string[]> => {
      const answer = (await gateway.scripts.run(name, account, id, args, request)) as string[]
      apply(answer)
      return answer
    }
    if (fault === 'late') this.#late.push(deliver)
    if (fault === 'late' || fault === 'lost') return undefined
    const answer = await deliver()
    // A repetition gets another answer, but changes nothing, as the check verifies.
    if (fault === 'twice') await gateway.scripts.run(name, account, id, args, request)
    return fault === 'dropped' ? undefined : answer
  }

  async #grant(gateway: Gateway, account: string): Promise<string> {
    const amount = BigInt(1 + this.#random.below(5000))
    const id = `grant-${++this.#ids}`
    await this.#run(gateway, 'grant', account, id, [id, String(amount), NOTES], () => {
      const own = this.#of(account)
      own.granted += amount
      own.balance += amount
    })
    return 'grant'
  }

  async #hold(gateway: Gateway, account: string): Promise<string> {
    const id = `hold-${++this.#ids}`
    const amount = BigInt(this.#random.below(2000))
    const least = this.#random.below(2) === 0 ? amount : BigInt(this.#random.below(Number(amount) / 8 + 1))
    const half = this.#random.below(3) === 0
    const args = [id, String(amount), String(least), '3600000', '1', '0', NOTES, '', '0', half ? '1' : '']
    // A hold ends the expired holds of its account before it reads the balance.
    let took = 0n
    const answer = await this.#run(gateway, 'hold', account, id, args, ([kind, held = '0']) => {
      const own = this.#of(account)
      if (!own.ended.has(id)) this.#reaped(account)
      if (own.ended.has(id)) {
        if (kind !== 'done') throw new Error(`a hold that was taken back before it came was answered with ${kind}`)
        return
      }
      const share = own.balance / 2n > least ? own.balance / 2n : least
      const wanted = half && own.balance >= 0n && amount > share ? share : amount
      const expected =
        own.balance >= wanted ? wanted : own.balance > 0n && own.balance >= least ? own.balance : undefined
      if ((kind === 'held') !== (expected !== undefined))
        throw new Error(`a hold of ${amount} (${least}) on ${own.balance} was answered with ${kind}`)
      if (expected === undefined) return
      if (BigInt(held) !== expected) throw new Error(`held ${held} where ${expected} was right`)
      took = expected
      own.balance -= took
      own.holds.set(id, { amount: took, floor: 0n, expired: false })
    })
    // A gateway without an answer voids the hold once. If that is lost too, the lease ends the hold.
    if (!answer) await this.#send(gateway, { account, id, charge: 0n, kind: 'void', request: '', part: '' })
    else if (answer[0] === 'held') gateway.live.push({ account, id, floor: 0n })
    return answer?.[0] === 'held' && took < amount ? 'hold, thin' : `hold, ${answer?.[0] ?? 'in doubt'}`
  }

  async #extend(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to extend'
    const own = this.#of(live.account)
    const to = (own.holds.get(live.id)?.amount ?? 0n) + BigInt(this.#random.below(1500))
    const { floor } = live
    await this.#run(
      gateway,
      'extend',
      live.account,
      live.id,
      [live.id, String(to), '3600000', NOTES, '', String(floor)],
      ([kind, held = '0']) => {
        const before = own.holds.get(live.id)
        if ((kind === 'held') !== (before !== undefined || !own.ended.has(live.id)))
          throw new Error(`an extension was answered with ${kind}`)
        if (!before) {
          const revived = own.ended.has(live.id) || own.balance <= 0n ? 0n : own.balance < to ? own.balance : to
          if (kind === 'held' && BigInt(held) !== revived)
            throw new Error(`revived with ${held} where ${revived} was right`)
          own.balance -= revived
          const reaped = own.reaped.get(live.id) ?? 0n
          if (revived > 0n)
            own.holds.set(live.id, { amount: revived, floor: floor > reaped ? floor : reaped, expired: false })
          return
        }
        const more = to > before.amount ? to - before.amount : 0n
        const taken = own.balance >= more ? more : own.balance > 0n ? own.balance : 0n
        if (BigInt(held) !== before.amount + taken)
          throw new Error(`extended to ${held} where ${before.amount + taken} was right`)
        own.balance -= taken
        before.amount += taken
      },
    )
    return 'extend'
  }

  async #renew(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to renew'
    live.floor += BigInt(this.#random.below(300))
    // A later renewal may overtake this one.
    const floor = this.#random.below(3) === 0 ? live.floor / 2n : live.floor
    await this.#run(
      gateway,
      'renew',
      live.account,
      live.id,
      [live.id, String(floor), '3600000', '', '', NOTES],
      ([kind]) => {
        const hold = this.#of(live.account).holds.get(live.id)
        if ((kind === 'ok') !== (hold !== undefined)) throw new Error(`a renewal was answered with ${kind}`)
        if (hold) Object.assign(hold, { floor: floor > hold.floor ? floor : hold.floor, expired: false })
      },
    )
    return 'renew'
  }

  async #settle(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to settle'
    gateway.live = gateway.live.filter(other => other !== live)
    const void_ = this.#random.below(4) === 0
    const charge = void_ ? 0n : live.floor + BigInt(this.#random.below(2500))
    const part = void_ ? '' : ((['', '', 'lost', 'retry'] as const)[this.#random.below(4)] as Part | '')
    const settlement: Settlement = {
      ...live,
      charge,
      kind: void_ ? 'void' : 'settle',
      part,
      request: part === '' ? '' : `request-${this.#random.below(5)}`,
    }
    if (!(await this.#send(gateway, settlement))) gateway.outbox.push(settlement)
    return void_ ? 'void' : 'settle'
  }

  async #resend(gateway: Gateway): Promise<string> {
    const settlement = this.#random.pick(gateway.outbox)
    if (!settlement) return 'nothing to send again'
    if (await this.#send(gateway, settlement)) gateway.outbox = gateway.outbox.filter(other => other !== settlement)
    return 'send again'
  }

  async #send(gateway: Gateway, { account, id, charge, kind, request, part }: Settlement): Promise<boolean> {
    const args = [id, String(charge), kind, NOTES, REMEMBER, 'm', '1', '1', '0', part, REMEMBER, '1000000', '2']
    const answer = await this.#run(
      gateway,
      'settle',
      account,
      id,
      args,
      () => this.#settled({ account, id, charge, kind, request, part }),
      request,
    )
    return answer !== undefined
  }

  #settled({ account, id, charge: asked, request, part }: Settlement): void {
    const own = this.#of(account)
    if (own.ended.has(id)) return
    own.ended.add(id)
    const charge = part === '' || asked === 0n ? asked : asked - this.#waived(own, request, part, asked)
    const hold = own.holds.get(id)
    const floor = own.reaped.get(id)
    // The settlement charges the difference to the reaped charge, whether or not the hold was revived since.
    own.balance += (hold?.amount ?? 0n) + (floor ?? 0n) - charge
    own.settled += charge - (floor ?? 0n)
    own.holds.delete(id)
    own.reaped.delete(id)
  }

  #waived(own: Account, request: string, part: Part, charge: bigint): bigint {
    const attempts = own.attempts.get(request) ?? []
    own.attempts.set(request, attempts)
    // Only this depends on real time: on a slow machine the time is over before the last step.
    if ((own.waits.get(request) ?? Infinity) < Date.now()) attempts.splice(0)
    const [other] = attempts
    if (other && other.part !== part) {
      attempts.shift()
      return other.charge < charge ? other.charge : charge
    }
    attempts.unshift({ part, charge })
    own.waits.set(request, part === 'retry' ? Date.now() + RETRY_WAITS_MS : Infinity)
    attempts.splice(128)
    return 0n
  }

  /** Time passes for some holds whose gateway does not renew them. */
  async #expire(account: string): Promise<string> {
    const { scripts } = this.#ledger
    for (const [id, hold] of this.#of(account).holds) {
      if (this.#random.below(3) > 0) continue
      hold.expired = true
      await scripts.redis.zadd(scripts.key(account, 'h'), 'XX', 1, id)
    }
    return 'expire'
  }

  async #reap(gateway: Gateway, account: string): Promise<string> {
    await this.#run(gateway, 'reap', account, '', ['1000'], () => this.#reaped(account))
    return 'reap'
  }

  #reaped(account: string): void {
    const own = this.#of(account)
    for (const [id, hold] of [...own.holds].filter(([, { expired }]) => expired)) {
      const earlier = own.reaped.get(id) ?? 0n
      own.balance += hold.amount - hold.floor + earlier
      own.settled += hold.floor - earlier
      own.holds.delete(id)
      own.reaped.set(id, hold.floor)
    }
  }

  async #trim(gateway: Gateway, account: string): Promise<string> {
    await this.#run(gateway, 'trim', account, '', [String(Date.now() + 60_000), '1000', REMEMBER], () => {})
    return 'trim'
  }

  /** An operator refunds an entry, which may have been refunded before. */
  async #credit(gateway: Gateway, account: string): Promise<string> {
    const { scripts } = this.#ledger
    const entry = this.#random.pick(await scripts.redis.xrange(scripts.key(account, 'x'), '-', '+', 'COUNT', 50))
    if (!entry) return 'nothing to credit'
    const { kind, charge, before } = historyEntry(...entry)
    const name = `credit:${entry[0]}`
    await this.#run(gateway, 'credit', account, name, [name, entry[0], NOTES, 'm'], ([answer, given = '0']) => {
      const own = this.#of(account)
      if (answer !== 'ok') return
      if (kind === 'credit' || BigInt(given) !== charge - before)
        throw new Error(`a ${kind} of ${charge - before} was given back as ${given}`)
      own.balance += BigInt(given)
      own.settled -= BigInt(given)
    })
    return 'credit'
  }

  /** A client leaves a reply that is read on. */
  async #abandon(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to abandon'
    const { scripts } = this.#ledger
    await this.#run(
      gateway,
      'abandon',
      live.account,
      live.id,
      [live.id, '2', this.#random.below(3) === 0 ? '1' : ''],
      () => {},
    )
    const places = await scripts.redis.zrange(scripts.key(live.account, 'b'), '0', '-1')
    if (places.length > 2) throw new Error(`${places.length} places are taken where there are 2`)
    for (const id of places) if (!this.#of(live.account).holds.has(id)) throw new Error(`${id} has a place and no hold`)
    return 'abandon'
  }

  /** A gateway dies. Its holds stay without an owner; another gateway takes over its outbox from the disk. */
  #kill(gateway: Gateway): string {
    gateway.live = []
    const heir = this.#gateways.find(other => other !== gateway) as Gateway
    heir.outbox.push(...gateway.outbox)
    gateway.outbox = []
    return 'kill'
  }

  /** Late requests arrive in any order. */
  async #deliver(): Promise<string> {
    const [late] = this.#late.splice(this.#random.below(this.#late.length), 1)
    await late?.()
    return 'late'
  }

  /** In the end, everything is delivered. */
  async #drain(): Promise<void> {
    while (this.#late.length > 0) await this.#deliver()
    for (const gateway of this.#gateways) {
      while (gateway.outbox.length > 0) await this.#resend(gateway)
    }
  }

  async #check(account: string): Promise<void> {
    const own = this.#of(account)
    const held = [...own.holds.values()].reduce((sum, { amount }) => sum + amount, 0n)
    const expected = { granted: own.granted, balance: own.balance, held, settled: own.settled }
    const found = await this.#ledger.balance(account)
    if (!isDeepStrictEqual(found, expected))
      throw new Error(`the store says ${show(found)}, the model ${show(expected)}`)
    const { drifts } = await audit(this.#ledger, [account])
    // Expired holds are expected here. Every other finding is a defect.
    const findings = drifts.flatMap(drift => drift.findings).filter(finding => !finding.includes('has expired'))
    if (findings.length > 0) throw new Error(findings.join('; '))
  }

  #of(account: string): Account {
    return this.#accounts.get(account) as Account
  }
}

function show(sums: object): string {
  return Object.entries(sums)
    .map(([name, sum]) => `${name} ${String(sum)}`)
    .join(', ')
}
