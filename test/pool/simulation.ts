/**
 * Runs random requests of two gateways on the real pool, with a clock of its own: accounts that fail, ask to wait, are
 * refused, taken out, brought back, and get other keys, while each gateway learns now and then what the other one knows.
 * After each step it checks the rules that operators and customers rely on. The same seed gives the same steps.
 */
import { Writable } from 'node:stream'
import type { UpstreamAccount, Upstream } from '../../core/config/config.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { Pool, type PooledAccount } from '../../core/pool/pool.ts'
import { Random } from '../ledger/simulation.ts'

/** A rule that a simulation breaks on purpose, to see that it is found. */
export type Mutation =
  | 'refuses nobody'
  | 'limits all models'
  | 'believes one key'
  | 'ignores waits'
  | 'tries with many requests'
  | 'is out no longer each time'
  | 'ignores a new key'
  | 'asks accounts that are out first'
  | 'moves all conversations'
  | 'asks disabled accounts'
  | 'learns nothing of the other gateway'
  | 'is never well again'

const FAILURES = 3
const COOLDOWN_MS = 1000
const COOLDOWN_MAX_MS = 8000
const NAMES = ['a', 'b', 'c', 'd', 'e']
const MODELS = ['large', 'small']
const KEYS = ['one key', 'another key']
const REFUSED_MS = 60_000
const REFUSED_MS_MAX = 3_600_000
const CONFIRMED_MS_MIN = 10_000
const CONFIRMED_MS_MAX = 600_000
/** The farthest that a provider asks to wait, in milliseconds. */
const WAIT_MAX_MS = 20_000

/** What one gateway is known to know of an account. */
interface Knowledge {
  /** How often in a row it was refused, and until when it is out for that. */
  refusals: number
  refusedUntil: number
  /** When it was brought back last, as the pool has it. */
  backAt: number
  /** The first key that met a suspected refusal, and when. */
  suspect: { readonly key: string; readonly at: number } | undefined
  /** Until when each model waits. */
  limits: ReadonlyMap<string, number>
  waitUntil: number
  coolUntil: number
  /** How often in a row it was taken out. */
  outs: number
  inARow: number
  /** The request that tries it. */
  trial: PooledAccount | undefined
  /** The request whose reply has begun and brought it back. */
  back: PooledAccount | undefined
  /** Requests that were sent since it was taken out. */
  since: ReadonlySet<PooledAccount>
}

interface Gateway {
  readonly pool: Pool
  readonly known: Map<string, Knowledge>
  /** Requests that have not ended. */
  running: { readonly asked: PooledAccount; readonly key: string }[]
}

const NOTHING: Knowledge = {
  refusals: 0,
  refusedUntil: 0,
  backAt: 0,
  suspect: undefined,
  limits: new Map(),
  waitUntil: 0,
  coolUntil: 0,
  outs: 0,
  inARow: 0,
  trial: undefined,
  back: undefined,
  since: new Set(),
}

/** What a reply ends. */
const FORGOTTEN = { inARow: 0, trial: undefined, back: undefined, suspect: undefined } as const
const ACCEPTED = { refusals: 0, refusedUntil: 0 } as const

/** Whether an account was taken out, and no reply has ended that. */
function isOut({ outs, refusals }: Knowledge): boolean {
  return outs > 0 || refusals > 0
}

/** One run. */
export class PoolSimulation {
  readonly #random: Random
  readonly #mutation: Mutation | undefined
  readonly #gateways: readonly Gateway[]
  readonly #tally = new Map<string, number>()
  readonly #disabled = new Set<string>()
  #upstream: Upstream
  #now = 1_000_000
  #keys = 0

  constructor(seed: number, mutation?: Mutation) {
    this.#random = new Random(seed)
    this.#mutation = mutation
    this.#upstream = this.#upstreamOf(NAMES.map(name => this.#accountOf(name)))
    const log = createLog(new Scrubber(), 'silent', new Writable({ write: (_piece, _, done) => done() }))
    this.#gateways = [0, 1].map(() => {
      const pool = new Pool({ log, now: () => this.#now })
      pool.use([this.#upstream])
      return { pool, known: new Map(NAMES.map(name => [name, { ...NOTHING }])), running: [] }
    })
  }

  #accountOf(name: string): UpstreamAccount {
    const key = `key-${name}-${this.#keys++}`
    const rest = { header: 'authorization', url: undefined, proxy: undefined, weight: 1, models: undefined } as const
    return { name, key, quotas: [], ...rest }
  }

  #upstreamOf(accounts: readonly UpstreamAccount[]): Upstream {
    const cooldownMaxMs = this.#mutation === 'is out no longer each time' ? COOLDOWN_MS : COOLDOWN_MAX_MS
    const times = { windowMs: 60_000, cooldownMs: COOLDOWN_MS, cooldownMaxMs }
    return {
      name: 'u',
      accounts,
      health: { failures: FAILURES, rate: 1, least: Infinity, ...times },
    } as unknown as Upstream
  }

  /** Runs steps. @throws Error with the broken rule and the step */
  run(steps: number): ReadonlyMap<string, number> {
    for (let step = 0; step < steps; step++) {
      let name = ''
      try {
        name = this.#step()
      } catch (cause) {
        throw new Error(`step ${step}: ${(cause as Error).message}`, { cause })
      }
      this.#tally.set(name, (this.#tally.get(name) ?? 0) + 1)
    }
    this.#recover()
    return this.#tally
  }

  #step(): string {
    const gateway = this.#random.pick(this.#gateways) as Gateway
    const dice = this.#random.below(100)
    // Two changes of one account are never in the same millisecond, in which their order would be unknown.
    this.#now += 10
    if (dice < 34) return this.#ask(gateway)
    if (dice < 80) return this.#end(gateway)
    if (dice < 90) return this.#pass()
    if (dice < 93) return this.#share()
    if (dice < 95) return this.#changeKey()
    if (dice < 97) return this.#reset(gateway)
    return this.#disable()
  }

  /** Whether a gateway may send a request to an account, as far as it can know. */
  #isReady({ known }: Gateway, { name }: UpstreamAccount, model: string): boolean {
    const own = known.get(name) as Knowledge
    if (this.#disabled.has(name) || this.#mustWait(own, model) || this.#now < own.coolUntil) return false
    return !isOut(own) || own.back !== undefined || own.trial === undefined
  }

  #mustWait({ waitUntil, refusedUntil, limits }: Knowledge, model: string): boolean {
    return this.#now < Math.max(waitUntil, refusedUntil, limits.get(model) ?? 0)
  }

  #candidates({ pool }: Gateway, conversation: string, model: string): PooledAccount[] {
    const all = pool.candidates([this.#upstream], model, () =>
      this.#mutation === 'moves all conversations' ? `${conversation} ${this.#now}` : conversation,
    )
    return this.#mutation === 'asks accounts that are out first' ? all.reverse() : all
  }

  #ask(gateway: Gateway): string {
    const conversation = `c${this.#random.below(50)}`
    const model = this.#random.pick(MODELS) as string
    const candidates = this.#candidates(gateway, conversation, model)
    const [asked] = candidates
    const ready = this.#upstream.accounts.filter(account => this.#isReady(gateway, account, model))
    this.#checkAffinity(conversation, candidates)
    if (!asked) {
      if (ready.length > 0) throw new Error(`no account is asked, and ${ready[0]?.name} is well`)
      return 'nobody to ask'
    }
    const { name } = asked.account
    const own = gateway.known.get(name) as Knowledge
    if (this.#disabled.has(name)) throw new Error(`${name} is asked, and an operator has disabled it`)
    if (this.#mustWait(own, model)) throw new Error(`${name} is asked for ${model}, and must wait`)
    if (ready.length > 0 && !ready.includes(asked.account))
      throw new Error(`${name} is asked, and ${ready[0]?.name} is well`)
    if (!gateway.pool.begin(asked, candidates.length === 1)) throw new Error(`${name} was chosen and is not asked`)
    if (isOut(own)) own.since = new Set([...own.since, asked])
    if (isOut(own) && !own.back) own.trial ??= asked
    if (this.#mutation === 'tries with many requests') gateway.pool.ended(asked)
    gateway.running.push({ asked, key: asked.account.key })
    return asked.lastResort ? 'ask the last resort' : isOut(own) ? 'try' : 'ask'
  }

  /** A conversation goes where it always goes while the same accounts are well. */
  #checkAffinity(conversation: string, candidates: readonly PooledAccount[]): void {
    const well = candidates.filter(({ lastResort }) => !lastResort).map(({ account }) => account.name)
    const name = `${conversation} ${[...well].sort().join()}`
    const before = this.#places.get(name)
    const [first] = well
    if (first !== undefined && before !== undefined && first !== before)
      throw new Error(`${conversation} moved from ${before} to ${first}`)
    if (first !== undefined) this.#places.set(name, first)
  }

  readonly #places = new Map<string, string>()

  #end(gateway: Gateway): string {
    const { pool, known } = gateway
    const at = this.#random.below(gateway.running.length)
    const isBeginning = this.#random.below(8) === 0
    const [request] = isBeginning ? gateway.running.slice(at, at + 1) : gateway.running.splice(at, 1)
    if (!request) return 'nothing runs'
    const { asked, key } = request
    const own = known.get(asked.account.name) as Knowledge
    const isOfThisKey = this.#upstream.accounts.some(account => account.key === key)
    if (isBeginning) {
      pool.answers(asked)
      if (isOut(own) && own.since.has(asked) && !own.back)
        Object.assign(own, { back: own.outs > 0 ? asked : undefined, inARow: 0, trial: undefined, coolUntil: 0, ...ACCEPTED }) // prettier-ignore
      if (isOfThisKey) own.backAt = pool.health(asked.account).state.backAt
      return 'begin'
    }
    const wasTrial = own.trial === asked
    if (wasTrial) own.trial = undefined
    const dice = this.#random.below(20)
    if (dice < 9) {
      if (this.#mutation === 'is never well again') return 'success'
      pool.succeeded(asked)
      if (!isOfThisKey) return 'success'
      // What was under way when it was refused tells nothing about that.
      const isOld = own.refusals > 0 && !own.since.has(asked)
      Object.assign(own, { outs: 0, inARow: 0, coolUntil: 0, suspect: undefined })
      if (!isOld) Object.assign(own, { trial: undefined, back: undefined, ...ACCEPTED })
      own.backAt = pool.health(asked.account).state.backAt
      return 'success'
    }
    if (dice < 11) {
      pool.ended(asked)
      return 'client left'
    }
    if (dice < 12) {
      if (this.#mutation === 'refuses nobody') pool.failed(asked, 'x')
      else pool.refused(asked, 401, 'x')
      if (isOfThisKey) this.#refused(own, asked)
      return 'refused'
    }
    if (dice < 13) {
      const customer = this.#random.pick(KEYS) as string
      pool.suspected(asked, this.#mutation === 'believes one key' ? String(this.#now) : customer, 400, 'x')
      if (!isOfThisKey) return 'suspected'
      // Requests that were under way tell nothing new.
      if (own.refusals > 0 && !own.since.has(asked)) return 'suspected'
      const { suspect, refusals } = own
      const sinceMs = suspect ? this.#now - suspect.at : Infinity
      if (suspect && suspect.key !== customer && sinceMs >= CONFIRMED_MS_MIN && sinceMs < CONFIRMED_MS_MAX) {
        this.#refused(own, asked)
        if (refusals > 0) Object.assign(own, { refusals, refusedUntil: this.#now + REFUSED_MS })
      } else if (sinceMs >= CONFIRMED_MS_MAX) own.suspect = { key: customer, at: this.#now }
      return 'suspected'
    }
    if (dice < 14) {
      const waitMs = 1 + this.#random.below(WAIT_MAX_MS)
      if (this.#mutation === 'limits all models') pool.failed(asked, 'x', waitMs)
      else pool.limited(asked, 'x', waitMs)
      const until = Math.max(own.limits.get(asked.model) ?? 0, this.#now + waitMs)
      if (isOfThisKey) own.limits = new Map([...own.limits, [asked.model, until]])
      return 'limited'
    }
    if (dice < 15) {
      const waitMs = 1 + this.#random.below(WAIT_MAX_MS)
      pool.failed(asked, 'x', this.#mutation === 'ignores waits' ? 0 : waitMs)
      if (isOfThisKey) {
        own.waitUntil = Math.max(own.waitUntil, this.#now + waitMs)
        if (!isOut(own) || own.since.has(asked)) own.inARow++
      }
      return 'asked to wait'
    }
    pool.failed(asked, 'x')
    if (!isOfThisKey) return 'failure'
    this.#failed(own, asked, wasTrial || own.back === asked)
    const { coolUntil } = pool.health(asked.account).state
    if (coolUntil !== own.coolUntil)
      throw new Error(`${asked.account.name} is out until ${coolUntil}, and ${own.coolUntil} is right`)
    return 'failure'
  }

  #refused(own: Knowledge, asked: PooledAccount): void {
    if (own.refusals > 0 && !own.since.has(asked)) return
    own.refusedUntil = this.#now + Math.min(REFUSED_MS * 2 ** own.refusals, REFUSED_MS_MAX)
    own.refusals++
    Object.assign(own, { trial: undefined, back: undefined, suspect: undefined, since: new Set() })
  }

  #failed(own: Knowledge, asked: PooledAccount, wasTrial: boolean): void {
    // What was under way when it was taken out tells nothing new.
    if (isOut(own) && !own.since.has(asked)) return
    own.inARow++
    if ((own.inARow < FAILURES && !wasTrial) || this.#now < own.coolUntil) return
    own.outs++
    own.coolUntil = this.#now + Math.min(COOLDOWN_MS * 2 ** (own.outs - 1), COOLDOWN_MAX_MS)
    Object.assign(own, { inARow: 0, trial: undefined, back: undefined, since: new Set() })
  }

  #pass(): string {
    this.#now += 1 + this.#random.below(this.#random.pick([100, 1000, WAIT_MAX_MS]) as number)
    return 'time passes'
  }

  /** Each gateway learns what the other one knows. */
  #share(): string {
    const [one, other] = this.#gateways as readonly [Gateway, Gateway]
    if (this.#mutation !== 'learns nothing of the other gateway') {
      for (const [from, to] of [
        [one, other],
        [other, one],
      ] as const)
        for (const [name, { health }] of from.pool.members) to.pool.members.get(name)?.health.adopt(health.state)
    }
    for (const name of NAMES) {
      // Each gateway's limits before, of which the latest change counts.
      const limits = this.#gateways.map(({ known }) => known.get(name)?.limits)
      for (const gateway of this.#gateways) {
        const { state } = gateway.pool.members.get(name)?.health ?? {}
        // Of times and levels, the latest change counts. The model takes them over and checks that both agree.
        const own = gateway.known.get(name) as Knowledge
        if (!state) continue
        const { times: refusals = 0, until: refusedUntil = 0 } = state.refused ?? {}
        if (own.coolUntil !== state.coolUntil || own.outs !== state.level || own.refusedUntil !== refusedUntil)
          Object.assign(own, { back: undefined, since: new Set() })
        Object.assign(own, { refusals, refusedUntil })
        // A reply or a reset elsewhere ends failures in a row.
        if (own.backAt < state.backAt) Object.assign(own, FORGOTTEN)
        own.backAt = state.backAt
        const limited = new Map(MODELS.map(model => [model, state.models[model]?.until ?? 0]))
        const isKnown = (model: string): boolean => {
          const left = (each?: ReadonlyMap<string, number>): number => Math.max(this.#now, each?.get(model) ?? 0)
          return limits.some(each => Math.abs(left(each) - left(limited)) <= 1000)
        }
        if (!MODELS.every(isKnown)) throw new Error(`${name} has a limit of a model that nobody set`)
        own.limits = limited
        own.waitUntil = state.waitUntil
        own.coolUntil = state.coolUntil
        own.outs = state.level
      }
      const [first, second] = this.#gateways.map(({ pool }) => pool.members.get(name)?.health.state)
      // A wait that is hardly longer is not shared.
      const apartMs = Math.abs((first?.waitUntil ?? 0) - (second?.waitUntil ?? 0))
      if (first?.coolUntil !== second?.coolUntil || apartMs > 1000 || first?.refused?.until !== second?.refused?.until)
        throw new Error(`the gateways do not agree on ${name}`)
    }
    return 'share'
  }

  /** An account gets another key, which every gateway loads. */
  #changeKey(): string {
    const name = this.#random.pick(NAMES) as string
    this.#upstream = this.#upstreamOf(
      this.#upstream.accounts.map(account => (account.name === name ? this.#accountOf(name) : account)),
    )
    for (const { pool, known } of this.#gateways) {
      if (this.#mutation !== 'ignores a new key') pool.use([this.#upstream])
      known.set(name, { ...NOTHING, backAt: pool.members.get(name)?.health.state.backAt ?? 0 })
    }
    return 'change a key'
  }

  #reset({ pool, known }: Gateway): string {
    const name = this.#random.pick(NAMES) as string
    this.#share()
    pool.reset(name)
    known.set(name, { ...NOTHING, backAt: pool.members.get(name)?.health.state.backAt ?? 0 })
    this.#share()
    for (const each of this.#gateways)
      if (each.pool.members.get(name)?.health.state.refused) throw new Error(`${name} stays refused`)
    return 'reset'
  }

  #disable(): string {
    const name = this.#random.pick(NAMES) as string
    if (!this.#disabled.delete(name)) this.#disabled.add(name)
    for (const { pool } of this.#gateways) {
      const health = pool.members.get(name)?.health
      if (health && this.#mutation !== 'asks disabled accounts') health.disabled = this.#disabled.has(name)
    }
    return 'disable or enable'
  }

  /** When everything is well again, every account is asked again. */
  #recover(): void {
    for (const gateway of this.#gateways) for (const { asked } of gateway.running.splice(0)) gateway.pool.ended(asked)
    this.#disabled.clear()
    for (const name of NAMES) {
      for (const { pool, known } of this.#gateways) {
        const health = pool.members.get(name)?.health
        if (health) health.disabled = false
        pool.reset(name)
        known.set(name, { ...NOTHING, backAt: pool.members.get(name)?.health.state.backAt ?? 0 })
      }
    }
    this.#now += WAIT_MAX_MS
    for (const gateway of this.#gateways)
      if (this.#candidates(gateway, 'c', 'large').filter(({ lastResort }) => !lastResort).length < NAMES.length)
        throw new Error('an account does not come back')
  }
}
