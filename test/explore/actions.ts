/** The steps of an exploration, and the rules that hold after each of them. */
import { GatewayError } from '../../core/errors.ts'
import { auditAccount } from '../../core/ledger/audit.ts'
import { Hold, type HoldRequest, NO_CLAIMS } from '../../core/ledger/hold.ts'
import { leaseName } from '../../core/ledger/script/store-keys.ts'
import { holdOperation, reapOperation, renewOperation } from '../../core/ledger/operations.ts'
import { recoverRecords } from '../../core/ledger/recovery/records-recovery.ts'
import { recount } from '../../core/ledger/recovery/recount.ts'
import type { Scripts } from '../../core/ledger/script/scripts.ts'
import type { Operation } from '../../core/ledger/script/names.ts'
import { type Settlement, settlementOf } from '../../core/ledger/settlement.ts'
import { Settler } from '../../core/ledger/settler.ts'
import { timedId } from '../../core/lib/ids.ts'
import { StaleEpoch } from '../../core/records/recorder.ts'
import type { Mutation as SimulationMutation } from '../ledger/simulation.ts'
import type { Action, Fate, Fault, Request, Scope, State } from './state.ts'
import type { World } from './world.ts'

/** A rule that an exploration breaks on purpose, to see that it is found. */
export type Mutation = SimulationMutation | 'restores no hold' | 'counts no hold'

const HOUR_MS = 3_600_000
const LEASE_MS = 24 * HOUR_MS
const LIMITS = { leaseMs: LEASE_MS, retriesMs: HOUR_MS, waivers: 1000, freeEntries: 1000 }
const NOTES = { endpoint: '/x', model: 'm', type: 't', stream: true }
/** Nano-credits that a request holds at first, and when it has grown, and what its customer has received then. */
const [HELD, EXTENDED, RECEIVED] = [10n, 15n, 4]

type Next = () => Fate

/** The steps on one world. */
export class Actions {
  readonly #world: World
  readonly #scope: Scope
  readonly #mutation: Mutation | undefined
  readonly #settler: Settler
  /** The state that the running step changes, and the fate of its next message. */
  #state = {} as State
  #next: Next = () => 'arrives'

  constructor(world: World, scope: Scope, mutation?: Mutation) {
    this.#world = world
    this.#scope = scope
    this.#mutation = mutation
    const { ledger } = world
    const view = {
      mayLackOutcomes: () => this.#state.doubtful,
      now: () => world.now + (this.#state.faults.includes('hours pass') ? 4 * HOUR_MS : 0),
      open: true,
    }
    const scripts = { keys: world.scripts.keys, run: (operation: Operation) => this.#send(operation) }
    this.#settler = new Settler(scripts as Scripts, view, LIMITS, {
      entry: (id, account) => world.once(`entry ${id} ${account ?? ''}`, 'both', () => ledger.reads.entry(id, account)),
    })
    const run = ledger.scripts.run.bind(ledger.scripts)
    ledger.scripts.run = async operation => {
      if (operation.name !== 'replay') return run(operation)
      if (mutation === 'replays nothing') return ['ok']
      const args = mutation === 'replays by number' ? operation.args.with(6, '') : operation.args
      return run({ ...operation, args })
    }
  }

  /** Returns the steps that are possible in a state. */
  enabled(state: State): Action[] {
    const view = this.#world.view(state.store)
    const found: Action[] = []
    const step = (name: string, run: () => Promise<void>, of: Partial<Action> = {}): void => {
      const prepared = (draft: State, next: Next): Promise<void> => {
        this.#state = draft
        this.#next = next
        return run()
      }
      found.push({ name, isFault: false, ...of, run: prepared })
    }
    const fault = (name: Fault, run: () => Promise<void> | void, of: Partial<Action> = {}): void => {
      if (!this.#scope.allows(state, name)) return
      const faulty = async (): Promise<void> => {
        this.#state.faults.push(name)
        await run()
      }
      step(name, faulty, { isFault: true, ...of })
    }
    const compare = (): void => step(`compare the ${state.fallen}`, () => this.#compare())
    // A store that is hours old was restored by an operator, and one with a torn file was restarted: everybody notices.
    if (state.fallen === 'torn store' || (state.fallen === 'store' && state.faults.includes('hours pass'))) {
      compare()
      return found
    }
    state.requests.forEach(({ phase, floor, extended, settlement }, x) => {
      const name = (verb: string): string => `${verb} ${x + 1}`
      if (phase === 'new') step(name('hold'), () => this.#hold(x))
      if (phase === 'in doubt') step(name('cancel'), () => this.#cancel(x))
      if (phase === 'live') {
        if (this.#scope.grows && !extended) step(name('extend'), () => this.#extend(x))
        if (this.#scope.grows && floor === 0) step(name('renew'), () => this.#renew(x))
        step(name('settle'), () => this.#settle(x))
      }
      if (settlement === 'waiting') step(name('send again'), () => this.#sendSettlement(x))
      if (settlement === 'taken') fault('repeat', () => this.#repeat(x))
      const lease = view.leases[x]
      if (lease === 'live' && (phase === 'live' || phase === 'in doubt')) fault('pause', () => this.#world.expire(x))
      if (lease === 'live' && phase !== 'live' && phase !== 'in doubt')
        step(name('expire'), () => this.#world.expire(x))
      if (lease === 'over') step(name('reap'), () => this.#reap(x))
      // A file has nothing from before it was emptied, and what came back is over long before outcomes expire.
      const mayComeBack = !state.faults.includes('the store is emptied') && !state.faults.includes('hours pass')
      if (phase !== 'new' && !view.holds[x] && state.fallen === 'nothing' && mayComeBack)
        fault('a hold comes back', () => this.#comesBack(x))
    })
    state.late.forEach((operation, at) => step(`late ${operation.name}`, () => this.#deliver(at)))
    const isRunning = state.requests.some(({ phase }) => phase === 'live' || phase === 'in doubt')
    if (isRunning || state.requests.some(({ settlement }) => settlement === 'taken')) fault('kill', () => this.#kill())
    if (state.fallen === 'nothing') {
      if (view.entries.length > 0 && state.untrimmed.length === 0) {
        step('record', () => this.#record())
        fault('the database is away', () => this.#recordInVain())
      }
      fault('the store restarts', () => void (this.#state.fallen = 'store'))
      fault('the store falls back', () => this.#storeFalls(state.savedStore))
      fault('the store is emptied', () => this.#storeFalls(undefined))
      fault('the records fall back', () => this.#recordsFall())
      // A lease ends within a minute if its gateway does not renew it.
      const isOver = ({ phase }: Request, x: number): boolean =>
        phase === 'live' || phase === 'in doubt' || (phase !== 'new' && !view.leases[x])
      const mayBeOld =
        state.late.length === 0 && state.requests.every(isOver) && !state.faults.includes('a hold comes back')
      if (mayBeOld && view.entries.length === 0 && state.untrimmed.length === 0)
        fault('hours pass', () => this.#hoursPass())
      if (this.#scope.allows(state, 'the store falls back') && state.savedStore !== state.store)
        step('save the store', () => this.#save(), { isFault: true })
      if (this.#scope.allows(state, 'the records fall back') && state.savedRecords !== state.records)
        step('save the records', async () => void (this.#state.savedRecords = state.records), { isFault: true })
    } else compare()
    if (state.untrimmed.length > 0) {
      step('trim', () => this.#trim())
      fault('the archiver dies', () => void (this.#state.untrimmed = []))
    }
    return found
  }

  #request(x: number): Request {
    return this.#state.requests[x] as Request
  }

  #holdRequest(x: number): HoldRequest {
    const { account, ids } = this.#world
    const { floor } = this.#request(x)
    return {
      account,
      key: this.#world.keyOf(x),
      id: ids[x] ?? '',
      amount: HELD,
      least: HELD,
      version: '1',
      notes: NOTES,
      floor: () => ({ charge: BigInt(floor), notes: {} }),
      bounds: this.#world.bounds,
    }
  }

  #live(x: number): Hold {
    const hold = new Hold(this.#holdRequest(x), this.#world.bucket, BigInt(this.#request(x).amount), 0n)
    hold.claims = this.#request(x).claims
    return hold
  }

  #settlement(x: number, charge: number): Settlement {
    const { account, ids, bucket } = this.#world
    const end = { charge: BigInt(charge), kind: charge === 0 ? 'void' : 'settle', notes: NOTES } as const
    const { claims } = this.#request(x)
    return settlementOf({ account, key: this.#world.keyOf(x), id: ids[x] ?? '', bucket, claims }, end, 0)
  }

  /** Sends a message to the store. */
  async #send(asked: Operation): Promise<readonly string[]> {
    const fate = this.#next()
    const trusts = this.#mutation === 'trusts expired outcomes' && asked.name === 'settle'
    const args = trusts ? asked.args.map((arg, at) => (at === 6 && arg === '?' ? 'N' : arg)) : asked.args
    const operation = { ...asked, args }
    if (fate !== 'arrives') this.#state.faults.push(fate)
    if (fate === 'is late') this.#state.late.push(operation)
    const gone = new GatewayError('unavailable', { cause: new Error('the message is lost') })
    if (fate === 'is lost' || fate === 'is late') throw gone
    const answer = await this.#world.run(operation)
    if (fate === 'is not answered') throw gone
    return answer
  }

  /** Whether something was answered: a store that lacks the account refuses it. */
  async #try<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work
    } catch (cause) {
      if (cause instanceof GatewayError && cause.code === 'unavailable') return undefined
      throw cause
    }
  }

  async #hold(x: number): Promise<void> {
    const { scripts, bucket } = this.#world
    const operation = holdOperation(
      this.#holdRequest(x),
      bucket,
      { leaseMs: LEASE_MS, now: this.#world.now },
      scripts.keys,
    )
    const [kind, held, , , claims = NO_CLAIMS] = (await this.#try(this.#send(operation))) ?? ['in doubt']
    this.#request(x).phase = kind === 'held' ? 'live' : kind === 'in doubt' ? 'in doubt' : 'over'
    this.#request(x).amount = Number(held ?? 0)
    this.#request(x).claims = claims
  }

  async #cancel(x: number): Promise<void> {
    const cancelled = this.#settler.cancel(this.#settlement(x, 0)).then(() => true)
    if (await this.#try(cancelled)) this.#request(x).phase = 'over'
  }

  async #extend(x: number): Promise<void> {
    this.#request(x).extended = true
    const [kind, held, , claims = NO_CLAIMS] = (await this.#try(this.#settler.extend(this.#live(x), EXTENDED))) ?? []
    if (kind !== 'held') return
    this.#request(x).amount = Number(held)
    this.#request(x).claims = claims
  }

  async #renew(x: number): Promise<void> {
    this.#request(x).floor = RECEIVED
    const hold = this.#live(x)
    const [kind] = (await this.#try(this.#send(renewOperation(hold, LEASE_MS, this.#world.scripts.keys)))) ?? []
    if (kind === 'gone') await this.#try(this.#settler.restore(hold))
  }

  async #settle(x: number): Promise<void> {
    this.#request(x).phase = 'ended'
    await this.#sendSettlement(x)
  }

  async #sendSettlement(x: number): Promise<void> {
    const sent = this.#settler.send(this.#settlement(x, this.#scope.charges[x] ?? 0)).then(() => true)
    this.#request(x).settlement = (await this.#try(sent)) ? 'taken' : 'waiting'
  }

  async #repeat(x: number): Promise<void> {
    await this.#try(this.#settler.send(this.#settlement(x, this.#scope.charges[x] ?? 0)))
  }

  async #reap(x: number): Promise<void> {
    const { scripts, account, ids, bucket } = this.#world
    await this.#try(this.#send(reapOperation(leaseName({ account, id: ids[x] ?? '' }, bucket), scripts.keys)))
  }

  async #deliver(at: number): Promise<void> {
    const [operation] = this.#state.late.splice(at, 1)
    await this.#try(this.#world.run(operation as Operation))
  }

  /** The gateway dies. Another one reaps, records, and takes over what is on its disk. */
  #kill(): void {
    const { outcomes } = this.#world.view(this.#state.store)
    const { final } = this.#world.recorded(this.#state.records)
    this.#state.requests.forEach((request, x) => {
      if (request.phase === 'live' || request.phase === 'in doubt') request.phase = 'dead'
      if (request.settlement !== 'taken') return
      request.settlement = 'done'
      // The store had lost it before.
      if (!final.has(x) && outcomes[x]?.startsWith('F') !== true) request.excused = true
    })
  }

  async #record(): Promise<void> {
    const { ledger } = this.#world
    const { entries: waiting } = this.#world.view(this.#state.store)
    await this.#world.once('record', 'both', async () => {
      const entries = await this.#world.entries()
      const named =
        this.#mutation === 'records by place' ? entries.map(each => ({ ...each, id: timedId(each.at) })) : entries
      await ledger.records.recorder.record(named, new Map(), await ledger.records.epoch())
    })
    this.#state.untrimmed = waiting.slice()
  }

  async #recordInVain(): Promise<void> {
    if (this.#mutation === 'trims first') await this.#world.trim(this.#world.view(this.#state.store).entries)
  }

  async #trim(): Promise<void> {
    await this.#world.trim(this.#state.untrimmed)
    this.#state.untrimmed = []
  }

  /** Hours pass after everything was recorded: outcomes expire. */
  async #hoursPass(): Promise<void> {
    await this.#age()
    for (const content of ['savedStore', 'store'] as const) {
      this.#world.to(this.#state[content], this.#world.at.records)
      // Nothing that is not recorded yet expires.
      if (this.#world.view(this.#state[content]).entries.length === 0) await this.#world.forgetOutcomes()
      this.#state[content] = this.#world.at.store
    }
    this.#state.savedComparisons = 0
  }

  /** Lets everything have ended one comparison of the store ago. */
  async #age(): Promise<void> {
    const { store, records } = this.#world.at
    this.#world.to(store, this.#state.savedRecords)
    await this.#world.age()
    this.#state.savedRecords = this.#world.at.records
    this.#world.to(store, records)
    await this.#world.age()
  }

  /** A store that restarts on a torn file has a hold again that its account does not count. */
  async #comesBack(x: number): Promise<void> {
    await this.#world.bringBack(x, HELD)
    this.#state.late = []
    this.#state.fallen = 'torn store'
  }

  /** The store loses what came after a content, or everything. What was on its way is lost with the connections. */
  async #storeFalls(saved: number | undefined): Promise<void> {
    const { final } = this.#world.recorded(this.#state.records)
    if (saved === undefined) await this.#world.empty()
    else this.#world.to(saved, this.#state.records)
    this.#state.requests.forEach((request, x) => {
      if (request.settlement === 'done' && !final.has(x)) request.excused = true
    })
    this.#state.late = []
    this.#state.comparisons = saved === undefined ? 0 : this.#state.savedComparisons
    this.#state.fallen = saved === undefined ? 'empty store' : 'store'
  }

  async #save(): Promise<void> {
    this.#state.savedStore = this.#state.store
    this.#state.savedComparisons = this.#state.comparisons
  }

  #recordsFall(): void {
    this.#world.to(this.#state.store, this.#state.savedRecords)
    this.#state.fallen = 'records'
  }

  /** Compares what fell back with the other side, and repeats what this side knows. */
  async #compare(): Promise<void> {
    const { fallen, comparisons } = this.#state
    this.#state.fallen = fallen === 'torn store' ? 'uncounted store' : 'nothing'
    if (fallen === 'uncounted store') return this.#recount()
    if (fallen === 'records') {
      await this.#world.once('recover', 'both', () => this.#recover())
      return
    }
    const since = fallen === 'empty store' ? undefined : this.#world.comparedMs(comparisons)
    await this.#world.once(`restore since ${since ?? 'ever'}`, 'both', () => this.#restoreStore(since))
    await this.#age()
    this.#state.comparisons = 0
    this.#state.savedComparisons++
    this.#state.doubtful = true
    for (const [x, request] of this.#state.requests.entries()) {
      if (request.settlement === 'taken') request.settlement = this.#mutation === 'repeats nothing' ? 'done' : 'waiting'
      if (request.phase === 'live' && this.#mutation !== 'restores no hold') await this.#restoreHold(x)
    }
    const { holds } = this.#world.view(this.#world.at.store)
    this.#state.requests.forEach(({ phase }, x) => {
      if (phase === 'live' && !holds[x]) throw new Error(`request ${x + 1} runs without a hold`)
    })
  }

  /** Requests go on between the restart of the store and this. */
  async #recount(): Promise<void> {
    const { scripts } = this.#world
    if (this.#mutation === 'counts no hold') return
    await this.#world.once('recount', 'store', () => recount(scripts, LEASE_MS, { corrected: () => {} }))
  }

  async #recover(): Promise<void> {
    const { scripts, ledger, now } = this.#world
    const epoch = await ledger.records.nextEpoch()
    await recoverRecords(scripts, ledger.records, { at: now, newId: () => timedId(now), epoch })
  }

  /** Fills the store from the records. What was read from it before must not be recorded after that. */
  async #restoreStore(since: number | undefined): Promise<void> {
    const { ledger, account } = this.#world
    const { records, restorer } = ledger
    const before = await records.epoch()
    const read = await this.#world.entries()
    await records.nextEpoch()
    const key = await records.keys.get(account)
    if (!key) throw new Error('the records lack the key')
    await restorer.restore(key, since)
    const second = this.#world.second === undefined ? undefined : await records.keys.get(this.#world.second)
    if (second) await restorer.restoreKey(second)
    await this.#mustBeStale(records.recorder.record(read, new Map(), before))
  }

  async #restoreHold(x: number): Promise<void> {
    const next = this.#next
    this.#next = () => 'arrives'
    await this.#settler.restore(this.#live(x))
    this.#next = next
  }

  async #mustBeStale(recording: Promise<void>): Promise<void> {
    const cause = await recording.then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    if (!(cause instanceof StaleEpoch)) throw new Error('what was read before the loss was recorded after it')
  }

  /** Checks what is true in every state. @throws Error with the broken rule */
  async check(state: State): Promise<void> {
    if (state.fallen !== 'nothing') return
    const { held, count, holds } = this.#world.view(state.store)
    const all = Object.values(holds)
    equal(
      'held = the sum of all holds',
      held,
      all.reduce((sum, { amount }) => sum + amount, 0n),
    )
    equal('the number of holds', count, all.length)
    this.#world.to(state.store, state.records)
    const findings = await this.#world.once('audit', 'both', () =>
      auditAccount(this.#world.ledger, this.#world.account, 'sums'),
    )
    if (findings.length > 0) throw new Error(findings.join('; '))
  }

  /** Checks what is true when everything has ended. @throws Error with the broken rule */
  checkEnd(state: State): void {
    const { held, settled, holds, requests } = this.#world.view(state.store)
    const recorded = this.#world.recorded(state.records)
    equal('nothing is held in the end', held, 0n)
    equal('no hold is left', Object.keys(holds).length, 0)
    // The store does not know which exchanges a plan has paid for that a database has lost. Its windows count them.
    if (!this.#world.bounds || !state.faults.includes('the records fall back'))
      equal('everything is recorded', recorded.settled, settled)
    if (this.#world.bounds) equal('the plan counts each request that it has paid for', requests, settled > 0n ? 1n : 0n)
    if (state.requests.some(({ phase }) => phase === 'live' || phase === 'in doubt' || phase === 'new'))
      throw new Error('a request cannot go on')
    const sums = state.requests.reduce<readonly number[]>(
      (all, request, x) => all.flatMap(sum => this.#owed(request, x).map(charge => sum + charge)),
      [0],
    )
    if (!sums.includes(Number(settled)))
      throw new Error(`${settled} was charged where one of ${sums.join(', ')} is owed`)
  }

  /** Returns what a request may have been charged. */
  #owed({ phase, settlement, floor, excused }: Request, x: number): readonly number[] {
    const charge = this.#scope.charges[x] ?? 0
    if (excused) return [0, floor, charge]
    if (settlement !== 'none') return [charge]
    return phase === 'dead' ? [0, floor] : [0]
  }
}

function equal(rule: string, found: unknown, right: unknown): void {
  if (String(found) !== String(right)) throw new Error(`${rule}: ${String(found)} is not ${String(right)}`)
}
