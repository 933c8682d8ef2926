/**
 * Runs random operations of two gateways on the real scripts and real records, with faults between them: lost and late
 * requests, lost answers, repetitions, dead gateways, expired leases, late settlements, an archiver that dies between
 * recording and trimming, a database that is away, outcomes that have expired, and either a store that loses its last
 * writes or everything, or a database that falls back. A model of the operations knows what every sum must be. The same seed gives the same steps.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Config } from '../../core/config/config.ts'
import { GatewayError } from '../../core/errors.ts'
import { auditAccount } from '../../core/ledger/audit.ts'
import { type ResendPart, Hold } from '../../core/ledger/hold.ts'
import type { KeyChanges } from '../../core/keys/changes.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { holdOperation, reapOperation, renewOperation } from '../../core/ledger/operations.ts'
import type { Scripts } from '../../core/ledger/script/scripts.ts'
import type { Operation } from '../../core/ledger/script/names.ts'
import { type Settlement, settlementOf } from '../../core/ledger/settlement.ts'
import { Settler } from '../../core/ledger/settler.ts'
import { partsIn } from '../../core/ledger/script/parts.ts'
import { readStream } from '../../core/ledger/script/stream.ts'
import { timedId } from '../../core/lib/ids.ts'
import { NANO } from '../../core/money/credits.ts'
import { importRows } from '../../core/operator/import.ts'
import type { Rows, SqliteRows } from '../records/sqlite-rows.ts'
import { Model, type Sums } from './model.ts'

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

/** A gateway, as far as it matters here. */
interface Gateway {
  readonly settler: Settler
  readonly scripts: Pick<Scripts, 'keys' | 'run'>
  live: { readonly hold: Hold; floor: bigint }[]
  /** Settlements that the store has not acknowledged. They outlive their gateway. */
  outbox: Settlement[]
  /** Settlements that the store has taken and that may not be recorded. */
  recent: Settlement[]
}

/** Numbers of events by name. */
export type Tally = ReadonlyMap<string, number>

/** A rule that a simulation breaks on purpose, to see that it is found. */
export type Mutation =
  | 'trusts expired outcomes'
  | 'records by place'
  | 'trims first'
  | 'replays nothing'
  | 'replays by number'
  | 'repeats nothing'

/** The fate of a request: it is lost, arrives late, arrives while its answer is lost, or arrives twice. */
const FAULTS = ['none', 'none', 'none', 'none', 'lost', 'late', 'dropped', 'twice'] as const

const HOUR_MS = 3_600_000
/** What a key has of an account from which it has not spent. */
const NO_PART = { charged: 0n, held: 0n, holds: 0 }
/** Most keys of one account. */
const KEYS_MAX = 3
const LEASE_MS = HOUR_MS
const NOTES = { endpoint: '/x', model: 'm', type: 't', stream: true }
const LIMITS = { leaseMs: LEASE_MS, retriesMs: HOUR_MS, waivers: 1_000_000, freeEntries: 2 }

/** One run. It has a store and records of its own. */
export class Simulation {
  readonly #random: Random
  readonly #ledger: Ledger
  readonly #mutation: Mutation | undefined
  readonly #gateways: Gateway[]
  readonly #model = new Model()
  readonly #tally = new Map<string, number>()
  /** Requests that will arrive late. */
  #late: (() => Promise<unknown>)[] = []
  #away = false
  /** Accounts that the step has changed. */
  readonly #touched: string[] = []
  #saved:
    | {
        readonly keys: ReadonlyMap<string, { dumped: Buffer; until: number }>
        readonly model: ReturnType<Model['save']>
        /** Whether it was saved a moment ago, as the last writes of a server are that another one takes over from. */
        recent: boolean
      }
    | undefined
  /** The records, and what they fall back to. Undefined if it is the store that loses something. */
  readonly #rows: SqliteRows | undefined
  readonly #changes: KeyChanges
  /** The keys that spend from each account. */
  readonly #keys = new Map<string, string[]>()
  /** The versions of their records in the store. */
  readonly #versions = new Map<string, string>()
  #savedRows: Rows | undefined
  /** Exchanges whose charge the store has acknowledged. */
  readonly #acknowledged = new Set<string>()
  #imports = 0
  #grants = 0
  #holds = 0

  /**
   * @param changes makes keys
   * @param scripts of each gateway, on connections of their own
   * @param rows what falls back, if it is not the store
   */
  constructor(
    seed: number,
    { ledger, changes, scripts }: { ledger: Ledger; changes: KeyChanges; scripts: readonly Scripts[] },
    rows?: SqliteRows,
    mutation?: Mutation,
  ) {
    this.#rows = rows
    this.#changes = changes
    this.#random = new Random(seed)
    this.#ledger = ledger
    this.#mutation = mutation
    // Other processes may not have noticed yet that a store is being restored.
    const { continuity } = ledger
    const view = {
      mayLackOutcomes: (ms: number) => continuity.mayLackOutcomes(ms),
      now: () => continuity.now(),
      open: true,
    }
    this.#gateways = scripts.map(own => {
      const faulty = { keys: own.keys, run: (operation: Operation) => this.#faulty(own, operation) }
      const settler = new Settler(faulty as Scripts, view, LIMITS, ledger.reads)
      return { settler, scripts: faulty, live: [], outbox: [], recent: [] }
    })
    const { database } = ledger.records
    const all = database.all.bind(database)
    const transaction = database.transaction.bind(database)
    const present = (): void => {
      if (this.#away) throw new Error('the database is away')
    }
    database.all = async (...args) => (present(), all(...args))
    database.transaction = async use => (present(), transaction(use))
    const run = ledger.scripts.run.bind(ledger.scripts)
    ledger.scripts.run = async operation => {
      if (operation.name !== 'replay') return run(operation)
      const { args } = operation
      const byNumber = mutation === 'replays by number'
      const replay = byNumber ? { ...operation, args: args.with(6, '') } : operation
      const answer = mutation === 'replays nothing' ? ['ok'] : await run(replay)
      if (answer[0] === 'ok') this.#model.replayed(args[1] ?? '', Number(args[2]))
      return answer
    }
  }

  /** Runs steps and checks every account that a step touched. @throws Error with the broken rule and the step */
  async run(accounts: readonly string[], steps: number): Promise<Tally> {
    for (const account of accounts) {
      this.#model.add(account)
      this.#keys.set(account, [account])
    }
    for (let step = 0; step < steps; step++) {
      const account = this.#random.pick(accounts) as string
      let name = ''
      try {
        name = await this.#step(account)
        for (const touched of new Set([account, ...this.#touched.splice(0)])) await this.#check(touched)
      } catch (cause) {
        throw new Error(`step ${step} (${name}): ${(cause as Error).message}`, { cause })
      }
      this.#tally.set(name, (this.#tally.get(name) ?? 0) + 1)
    }
    this.#away = false
    await this.#drain()
    await this.#archive()
    for (const account of accounts) await this.#check(account)
    for (const id of this.#acknowledged)
      if (!this.#model.isRecorded(id)) throw new Error(`${id} was acknowledged and is not recorded`)
    return this.#tally
  }

  async #step(account: string): Promise<string> {
    const gateway = this.#random.pick(this.#gateways) as Gateway
    const dice = this.#random.below(124)
    if (this.#late.length > 0 && this.#random.below(10) === 0) return this.#deliver()
    if (dice < 8) return this.#grant(account)
    if (dice < 38) return this.#hold(gateway, account)
    if (dice < 48) return this.#extend(gateway)
    if (dice < 58) return this.#renew(gateway)
    if (dice < 76) return this.#settle(gateway)
    if (dice < 84) return this.#resend(gateway)
    if (dice < 89) return this.#expire(account)
    if (dice < 93) return this.#reap(gateway, account)
    if (dice < 95) return this.#credit(account)
    if (dice < 96) return this.#abandon(gateway)
    if (dice < 97) return this.#kill(gateway)
    if (dice < 103) return this.#archive()
    if (dice < 106) return this.#archiveAndDie()
    if (dice < 109) return this.#forget()
    if (dice < 111) return this.#leave()
    if (dice < 116) return this.#rows ? this.#saveRecords(this.#rows) : this.#save()
    if (dice < 118) return this.#rows ? this.#fallBack(this.#rows) : this.#lose()
    if (dice < 120) return this.#again(gateway)
    if (dice < 122) return this.#join(account)
    return this.#move(account)
  }

  /** Runs an operation with a random fault. */
  async #faulty(scripts: Scripts, asked: Operation): Promise<readonly string[]> {
    const fault = this.#random.pick(FAULTS)
    const operation =
      this.#mutation === 'trusts expired outcomes' && asked.name === 'settle'
        ? { ...asked, args: asked.args.map((arg, at) => (at === 6 && arg === '?' ? 'N' : arg)) }
        : asked
    const deliver = async (): Promise<readonly string[]> => {
      const isLimited = operation.name === 'hold' || operation.name === 'extend'
      const elsewhere = isLimited ? await scripts.redis.hget(operation.keys[1] ?? '', 'ew') : null
      const answer = await scripts.run(operation)
      this.#model.apply(operation, answer, BigInt(elsewhere || 0))
      this.#touched.push(operation.account)
      return answer
    }
    const gone = (): GatewayError => new GatewayError('unavailable', { cause: new Error('lost') })
    if (fault === 'late') this.#late.push(deliver)
    if (fault === 'late' || fault === 'lost') throw gone()
    const answer = await deliver()
    // A repetition gets another answer, but changes nothing, as the check verifies.
    if (fault === 'twice') await scripts.run(operation)
    if (fault === 'dropped') throw gone()
    return answer
  }

  /** Runs something that a fault may prevent. @returns undefined if it did */
  async #try<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work
    } catch (cause) {
      if (cause instanceof GatewayError && cause.code === 'unavailable' && isFault(cause)) return undefined
      throw cause
    }
  }

  async #grant(account: string): Promise<string> {
    const amount = BigInt(1 + this.#random.below(5000))
    const id = `grant-${++this.#grants}`
    const done = await this.#try(this.#ledger.accounts.grant(account, { id, amount, notes: {} }))
    if (done === undefined) return 'grant, refused'
    if (this.#random.below(3) === 0) await this.#ledger.accounts.grant(account, { id, amount, notes: {} })
    this.#model.grant(account, amount)
    return 'grant'
  }

  /** Another key may spend from an account. */
  async #join(account: string): Promise<string> {
    const keys = this.#keys.get(account) ?? []
    if (this.#away || keys.length >= KEYS_MAX) return 'join, not now'
    const cap = this.#random.below(2) === 0 ? BigInt(1000 + this.#random.below(10_000)) : undefined
    const id = await (this.#random.below(2) === 0 ? this.#created(account, cap) : this.#imported(account, cap))
    keys.push(id)
    if (cap !== undefined) this.#model.caps.set(id, cap)
    await this.#readRecords()
    return 'join'
  }

  async #created(account: string, cap: bigint | undefined): Promise<string> {
    const wish = { type: 't', name: '', credits: 0n, expiresAt: undefined, account, cap }
    const [created] = await this.#changes.createMany(wish, 1)
    if (created?.reached !== 'store') throw new Error(`the new key is in the ${created?.reached}`)
    return created.key.id
  }

  /** Imports a key. A second time changes nothing. */
  async #imported(account: string, cap: bigint | undefined): Promise<string> {
    const row = { secret: `sk-${'i'.repeat(30)}${++this.#imports}`, type: 't', balance: account }
    const rows = [{ ...row, ...(cap !== undefined && { cap: String(cap) }) }]
    const keyTypes = new Map([['t', {}]]) as unknown as Config['keyTypes']
    const config = { keyTypes, keys: { prefixes: [], importSuffix: undefined } }
    // Amounts of the model are in nano-credits.
    const wish = { config, now: Date.now(), firstLine: 1, type: undefined, perCredit: NANO * NANO, isTrial: false }
    const { result, inForce } = await importRows(this.#ledger, rows, wish)
    const again = await importRows(this.#ledger, rows, wish)
    const [id] = result?.ids ?? []
    if (id === undefined || !inForce || again.result?.ids.length !== 0) throw new Error('the key was not imported once')
    return id
  }

  /** A key spends from another account from now on. What it holds stays where it is. */
  async #move(account: string): Promise<string> {
    const to = this.#random.pick([...this.#keys.keys()]) as string
    const key = this.#random.pick(this.#keys.get(account) ?? [])
    if (this.#away || key === undefined || to === account) return 'move, not now'
    const reached = await this.#changes.move(key, to)
    if (reached !== 'store') throw new Error(`the moved key is in the ${reached}`)
    await this.#readRecords()
    this.#keys.set(
      account,
      (this.#keys.get(account) ?? []).filter(other => other !== key),
    )
    this.#keys.get(to)?.push(key)
    this.#touched.push(to)
    return 'move'
  }

  /** Reads the versions of the records of keys. */
  async #readRecords(): Promise<void> {
    const { redis, keys } = this.#ledger.scripts
    for (const [account, all] of this.#keys)
      for (const key of all) {
        this.#versions.set(key, (await redis.hget(keys.record({ account, key }), 've')) ?? '1')
      }
  }

  async #hold(gateway: Gateway, account: string): Promise<string> {
    const key = this.#random.pick(this.#keys.get(account) ?? [])
    if (key === undefined) return 'no key to hold for'
    const amount = BigInt(this.#random.below(2000))
    const least = this.#random.below(2) === 0 ? amount : BigInt(this.#random.below(Number(amount) / 8 + 1))
    // Exchanges of this hour, of one whose outcomes may expire soon, and of one whose outcomes may have expired.
    const began = Date.now() - (this.#random.pick([0, 0, 1, 2, 4]) as number) * HOUR_MS
    const bucket = `${Math.floor(began / HOUR_MS)}.${this.#holds++ % 2}`
    const live = { floor: 0n }
    const request = {
      account,
      key,
      id: timedId(began),
      amount,
      least,
      version: this.#versions.get(key) ?? '1',
      rotation: '0',
      half: this.#random.below(3) === 0,
      notes: NOTES,
      floor: () => ({ charge: live.floor, notes: {} }),
    }
    const operation = holdOperation(request, bucket, { leaseMs: LEASE_MS, now: Date.now() }, gateway.scripts.keys)
    const answer = await this.#try(gateway.scripts.run(operation))
    if (!answer) {
      // A gateway without an answer voids the hold. If that is lost too, the lease ends the hold.
      const end = { charge: 0n, kind: 'void', notes: NOTES } as const
      await this.#try(gateway.settler.cancel(settlementOf({ ...request, bucket }, end, Date.now())))
      return 'hold, in doubt'
    }
    const [kind, held = '0'] = answer
    if (kind === 'held') gateway.live.push(Object.assign(live, { hold: new Hold(request, bucket, BigInt(held), 0n) }))
    return kind === 'held' && BigInt(held) < amount ? 'hold, thin' : `hold, ${kind}`
  }

  async #extend(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to extend'
    const to = (this.#model.held(live.hold) ?? 0n) + BigInt(this.#random.below(1500))
    await this.#try(gateway.settler.extend(live.hold, to))
    return 'extend'
  }

  async #renew(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to renew'
    live.floor += BigInt(this.#random.below(300))
    await this.#try(gateway.scripts.run(renewOperation(live.hold, LEASE_MS, gateway.scripts.keys)))
    return 'renew'
  }

  async #settle(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to settle'
    gateway.live = gateway.live.filter(other => other !== live)
    const isVoid = this.#random.below(4) === 0
    const charge = isVoid ? 0n : live.floor + BigInt(this.#random.below(2500))
    const part = isVoid ? '' : (this.#random.pick(['', '', 'lost', 'retry'] as const) as ResendPart['part'] | '')
    const attempt = part === '' ? undefined : { part, request: `request-${this.#random.below(5)}` }
    const end = { charge, kind: isVoid ? 'void' : 'settle', notes: NOTES, attempt } as const
    await this.#send(gateway, settlementOf(live.hold, end, Date.now()))
    return isVoid ? 'void' : 'settle'
  }

  /** Sends a settlement. If that fails, it waits. */
  async #send(gateway: Gateway, settlement: Settlement): Promise<void> {
    gateway.outbox = gateway.outbox.filter(other => other !== settlement)
    const sent = await this.#try(gateway.settler.send(settlement).then(() => true))
    if (sent) {
      gateway.recent.push(settlement)
      if (settlement.charge !== '0') this.#acknowledged.add(settlement.id)
    } else gateway.outbox.push(settlement)
  }

  async #resend(gateway: Gateway): Promise<string> {
    const settlement = this.#random.pick(gateway.outbox)
    if (!settlement) return 'nothing to send again'
    await this.#send(gateway, settlement)
    return 'send again'
  }

  /** An acknowledged settlement is sent once more, as a new process does with the outbox of a dead one. */
  async #again(gateway: Gateway): Promise<string> {
    const settlement = this.#random.pick(gateway.recent)
    if (!settlement) return 'nothing to repeat'
    await this.#try(gateway.settler.send(settlement))
    return 'repeat'
  }

  /** Time passes for some holds whose gateway does not renew them. */
  async #expire(account: string): Promise<string> {
    const { redis, keys } = this.#ledger.scripts
    const { leases } = keys.of(account)
    for (const lease of await redis.zrange(leases, '0', '-1')) {
      const [of, id = ''] = lease.split(' ')
      if (of !== account || this.#random.below(3) > 0) continue
      await redis.zadd(leases, 'XX', 1, lease)
      this.#model.expire(id)
    }
    return 'expire'
  }

  async #reap(gateway: Gateway, account: string): Promise<string> {
    const { redis, keys } = this.#ledger.scripts
    for (const lease of await redis.zrangebyscore(keys.of(account).leases, 0, 1))
      await this.#try(gateway.scripts.run(reapOperation(lease, keys)))
    return 'reap'
  }

  /** An operator refunds an entry, which may have been refunded before. */
  async #credit(account: string): Promise<string> {
    const entries = await this.#try(this.#ledger.reads.history({ account: account }, { count: 30 }))
    const entry = this.#random.pick(entries?.filter(({ kind, charge }) => kind !== 'credit' && charge > 0n) ?? [])
    // A reaped exchange may still be settled, which would change what was refunded.
    if (!entry || entry.kind === 'reaped') return 'nothing to refund'
    const { credits: given } = (await this.#try(this.#ledger.credit(account, entry, 'x'))) ?? {}
    if (given === undefined) return 'refund, refused'
    if (given > 0n) this.#model.credit(account, entry.key ?? account, given)
    // The command records the refund before it reports success.
    await this.#archive()
    return given > 0n ? 'refund' : 'refund, again'
  }

  async #abandon(gateway: Gateway): Promise<string> {
    const live = this.#random.pick(gateway.live)
    if (!live) return 'nothing to abandon'
    const { keys } = this.#ledger.scripts
    const { account, id } = live.hold
    const slots = keys.slots(live.hold)
    await this.#ledger.scripts.run({
      name: 'abandon',
      account,
      keys: [keys.hold(account, id), slots],
      args: [id, '2', this.#random.below(2) === 0 ? '1' : ''],
    })
    const places = await this.#ledger.scripts.redis.zrange(slots, '0', '-1')
    if (places.length > 2) throw new Error(`${places.length} places are taken where there are 2`)
    for (const place of places)
      if (this.#model.held({ account, id: place }) === undefined) throw new Error(`${place} has a place and no hold`)
    return 'abandon'
  }

  /** A gateway dies. Its holds stay without an owner; another gateway takes over its outbox from the disk. */
  async #kill(gateway: Gateway): Promise<string> {
    // What only it knew is recorded: a store that loses its last writes at the same time is not survived.
    if ((await this.#archive()) === 'archive, refused') return 'kill, not now'
    gateway.live = []
    const heir = this.#gateways.find(other => other !== gateway) as Gateway
    heir.outbox.push(...gateway.outbox)
    gateway.outbox = []
    gateway.recent = []
    return 'kill'
  }

  async #archive(): Promise<string> {
    if (this.#mutation === 'trims first' && this.#away) await this.#trim()
    const done = await this.#ledger.background.archiver.runAll().then(
      () => true,
      (cause: unknown) => {
        if (!this.#away) throw cause
        return false
      },
    )
    if (!done) return 'archive, refused'
    this.#recorded()
    return 'archive'
  }

  /** The archiver dies when it has recorded and has not trimmed. */
  async #archiveAndDie(): Promise<string> {
    if (this.#away) return 'archive, refused'
    const { scripts, records } = this.#ledger
    for (const shard of this.#shards()) {
      const entries = await readStream(scripts, shard, { count: 10_000 })
      const last = entries.at(-1)
      if (!last) continue
      const named =
        this.#mutation === 'records by place' ? entries.map(entry => ({ ...entry, id: timedId(entry.at) })) : entries
      await records.recorder.record(named, new Map([[shard, last.position]]))
    }
    this.#recorded()
    return 'archive and die'
  }

  async #trim(): Promise<void> {
    const { redis, keys } = this.#ledger.scripts
    for (const shard of this.#shards()) await redis.xtrim(keys.stream(shard), 'MAXLEN', 0)
  }

  #recorded(): void {
    this.#model.record()
    for (const gateway of this.#gateways)
      gateway.recent = gateway.recent.filter(({ id }) => !this.#model.isRecorded(id))
  }

  #shards(): Set<number> {
    return new Set(this.#model.accounts.map(account => this.#ledger.scripts.keys.of(account).shard))
  }

  /** Hours pass: old outcomes expire once everything is recorded. */
  async #forget(): Promise<string> {
    // The store is the only one that knows how the exchanges ended that the records lost.
    if (this.#rows || this.#away || (await this.#archive()) === 'archive, refused') return 'forget, not now'
    const { redis, keys } = this.#ledger.scripts
    const { database } = this.#ledger.records
    await database.transaction(async sql => {
      for (const table of ['exchanges', 'replaced'])
        await sql.all(`UPDATE ${table} SET ended = ended - ?`, [4 * HOUR_MS])
    })
    if (this.#saved) this.#saved.recent = false
    const old = [3, 4].map(hours => Math.floor(Date.now() / HOUR_MS - hours))
    for (const shard of this.#shards())
      for (const hour of old) for (const half of [0, 1]) await redis.del(keys.inShard(shard, `o:${hour}.${half}`))
    return 'forget'
  }

  async #leave(): Promise<string> {
    this.#away = !this.#away
    return this.#away ? 'database away' : 'database back'
  }

  /** Everything that the store has now survives its next loss. */
  async #save(): Promise<string> {
    const { redis } = this.#ledger.scripts
    const keys = new Map<string, { dumped: Buffer; until: number }>()
    for (const key of await redis.keys(`${this.#ledger.scripts.keys.shared('')}*`)) {
      const dumped = await redis.dumpBuffer(key)
      const ms = await redis.pttl(key)
      if (dumped) keys.set(key, { dumped, until: ms < 0 ? Infinity : Date.now() + ms })
    }
    this.#saved = { keys, model: this.#model.save(), recent: true }
    return 'save'
  }

  /** The store loses what it acknowledged since the last save, or everything. */
  async #lose(): Promise<string> {
    if (this.#away) return 'lose, not now'
    const saved = this.#random.below(3) > 0 ? this.#saved : undefined
    const { scripts, continuity } = this.#ledger
    const { redis, keys } = scripts
    // An archiver has read the streams and is slow to record.
    const { epoch } = continuity
    const read = await Promise.all([...this.#shards()].map(shard => readStream(scripts, shard, { count: 10_000 })))
    // What was on its way is lost with the connections.
    this.#late = []
    const all = await redis.keys(`${keys.shared('')}*`)
    if (all.length > 0) await redis.del(...all)
    for (const [key, { dumped, until }] of saved?.keys ?? []) {
      const ms = until === Infinity ? 0 : until - Date.now()
      if (ms >= 0) await redis.restore(key, ms, dumped, 'REPLACE')
    }
    this.#model.lose(saved?.model)
    if (saved) {
      await redis.hset(keys.shared('meta'), 'servers', 'another')
      // Until the loss is noticed, exchanges end on the server that took over.
      const early = async (): Promise<void> => {
        for (let count = saved.recent ? this.#random.below(4) : 0; count > 0; count--)
          await this.#settle(this.#random.pick(this.#gateways) as Gateway)
      }
      await early()
      const { history } = this.#ledger.records
      const entriesAfter = history.entriesAfter.bind(history)
      history.entriesAfter = async (...args) => {
        // Once, between reading the account and writing to the store.
        history.entriesAfter = entriesAfter
        await early()
        return entriesAfter(...args)
      }
      await continuity.start(false)
      history.entriesAfter = entriesAfter
    } else {
      await continuity.rebuildAll()
      await continuity.start(false)
    }
    this.#model.restore()
    await this.#readRecords()
    const late = await this.#ledger.records.recorder.record(read.flat(), new Map(), epoch).then(
      () => true,
      () => false,
    )
    if (late) throw new Error('what was read before the loss was recorded after it')
    this.#saved = undefined
    if (this.#mutation !== 'repeats nothing')
      for (const gateway of this.#gateways)
        for (const settlement of gateway.recent.splice(0)) await this.#send(gateway, settlement)
    else for (const gateway of this.#gateways) gateway.recent = []
    return saved ? 'lose the last writes' : 'lose everything'
  }

  async #saveRecords(rows: SqliteRows): Promise<string> {
    this.#savedRows = rows.read()
    return 'save the records'
  }

  /** The database loses what it committed since it was saved. */
  async #fallBack(rows: SqliteRows): Promise<string> {
    const commits = rows.read().get('commits')
    if (this.#away || !this.#savedRows || isDeepStrictEqual(commits, this.#savedRows.get('commits')))
      return 'fall back, not now'
    rows.putBack(this.#savedRows)
    const { continuity } = this.#ledger
    const { epoch } = continuity
    continuity.suspectOutdated()
    await continuity.start(false)
    if (continuity.epoch === epoch) throw new Error('no comparison has noticed that the records fell back')
    await this.#readRecords()
    return 'the records fall back'
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
    const { redis, keys } = this.#ledger.scripts
    const [granted, balance, held] = await redis.hmget(keys.of(account).account, 'gra', 'bal', 'rsv')
    const found: Sums = { granted: BigInt(granted ?? 0), balance: BigInt(balance ?? 0), held: BigInt(held ?? 0) }
    const expected = this.#model.sums(account)
    if (!isDeepStrictEqual(found, expected))
      throw new Error(`${account}: the store says ${show(found)}, the model ${show(expected)}`)
    const parts = partsIn(account, await redis.hgetall(keys.of(account).account))
    for (const key of new Set(parts.size > 0 ? [...parts.keys(), ...(this.#keys.get(account) ?? [])] : [])) {
      const [part, own] = [parts.get(key) ?? NO_PART, this.#model.part(account, key)]
      if (!isDeepStrictEqual(part, own)) throw new Error(`${key}: the store says ${show(part)}, the model ${show(own)}`)
    }
    if (this.#away) return
    const findings = await auditAccount(this.#ledger, account, this.#random.below(10) === 0 ? 'whole' : 'sums')
    if (findings.length > 0) throw new Error(findings.join('; '))
  }
}

/** Whether an error is one of the simulation's own faults. */
function isFault(error: GatewayError): boolean {
  const { cause } = error.details
  return cause instanceof Error && /^(?:lost|the database is away)$/.test(cause.message)
}

function show(sums: object): string {
  return Object.entries(sums)
    .map(([name, sum]) => `${name} ${String(sum)}`)
    .join(', ')
}
