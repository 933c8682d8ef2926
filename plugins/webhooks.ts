import { createHmac, hash } from 'node:crypto'
import type { FromSchema } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import {
  type BuiltInHost,
  credits,
  defineBuiltIn,
  leastOf,
  nameOf,
  planFrom,
  number,
  setting,
  whole,
} from 'tollgate/plugin/operator'

/** What is told. */
const EVENTS = [
  'key.low',
  'key.exhausted',
  'plan.low',
  'plan.renewed',
  'plan.ending',
  'account.out',
  'account.back',
  'ledger.drift',
  'charge.quarantined',
] as const
type Event = (typeof EVENTS)[number]

/** Interval of the look for notices that are due, and for changes of accounts, in milliseconds. */
const LOOK_EVERY_MS = 1000
/** Notices that are sent in one look. */
const SENT_AT_ONCE = 20
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** The name under which the records have the accounts that were out, and the drift, as they were told last. */
const TOLD = 'webhooks'

const OPTIONS = {
  type: 'object',
  additionalProperties: false,
  required: ['url', 'secret'],
  properties: {
    url: {
      type: 'string',
      pattern: String.raw`^https?://[^\s#@]+$`,
      expected: 'an address such as https://shop.example.com/hooks, without a user',
      description: 'Address that gets the requests.',
    },
    secret: {
      type: 'string',
      pattern: '^whsec_[A-Za-z0-9+/]{24,}={0,2}$',
      expected: 'whsec_ and at least 24 characters of base64',
      description: 'Secret of the signatures, as Standard Webhooks has it.',
    },
    events: {
      type: 'array',
      items: { enum: EVENTS },
      uniqueItems: true,
      default: [...EVENTS],
      description: 'The events that cause a notice.',
    },
    lowCredits: setting(
      number(0),
      1,
      'Credits below which a key causes `key.low`: one notice each time that its balance falls below them.',
    ),
    endingDays: setting(number(0, 365), 3, 'Days before the end of a plan from which on it causes `plan.ending`.'),
    outSeconds: setting(
      number(0),
      30,
      'Seconds after which an account that the gateway does not ask causes `account.out`. A shorter outage causes no notice, and no `account.back`.',
    ),
    timeoutMs: setting(whole(100), 10_000, 'Milliseconds for one request.'),
    tries: setting(
      whole(1, 50),
      15,
      'Maximum tries of one notice. With the default pauses, 15 tries take about a day and a half.',
    ),
    pauseSeconds: setting(
      number(1),
      5,
      'Seconds between the first two tries of a notice; each further pause is twice as long.',
    ),
    maxPauseSeconds: setting(number(1), 21_600, 'Maximum seconds between two tries.'),
    keptDays: setting(number(1), 30, 'Days for which a notice that was delivered or given up is kept in the records.'),
  },
} as const

/** Tells another system what an operator must know, by Standard Webhooks. */
export default defineBuiltIn({
  name: 'webhooks',
  summary:
    'Tells another system by signed HTTP requests: balance or plan low, key exhausted, plan renewed or ending, account out or back, drift, quarantine.',
  on: [],
  options: OPTIONS,
  setup(options, host) {
    const { ledger, log } = host
    const wanted: ReadonlySet<string> = new Set(options.events)
    const low = operator.parseDecimal(options.lowCredits.toFixed(9)) ?? 0n
    const leasts = new Map([...host.config.keyTypes.values()].map(type => [type.name, leastOf(type)]))
    const [firstLeast = 0n, ...otherLeasts] = leasts.values()
    const leastOfAll = otherLeasts.reduce((least, each) => (each < least ? each : least), firstLeast)
    const changes = new Changes(host, options)
    const endings = new Endings(host, options)
    const delivery = new Delivery(host, options)

    /** Does something again and again, in the process that does it for all. The next time waits for the one before. */
    function whileLeading(work: () => Promise<void>, failed: string): NodeJS.Timeout {
      let running = false
      return setInterval(() => {
        if (!ledger.background.leading) changes.forget()
        if (running || !ledger.background.leading) return
        running = true
        work()
          .catch((cause: unknown) => log.warn({ err: cause }, failed))
          .finally(() => (running = false))
      }, LOOK_EVERY_MS).unref()
    }
    const timers = [
      whileLeading(() => changes.tell(), 'the changes of accounts cannot be noted at the moment'),
      whileLeading(() => endings.tell(), 'the ends of plans cannot be noted at the moment'),
      whileLeading(() => delivery.sendDue(), 'notices cannot be sent at the moment'),
    ]
    // A newer configuration sends from now on.
    host.retired.addEventListener('abort', () => timers.forEach(clearInterval))
    return {
      async recorded({ entries, spending, plans }) {
        const notices: operator.Notice[] = []
        const tell = (type: Event, data: object, name?: string): void => {
          if (wanted.has(type)) notices.push(noticeOf(host, type, data, name))
        }
        for (const entry of entries) {
          const { id, account, key = account, notes } = entry
          if (notes.quarantined) {
            const data = { request_id: id, key, model: notes.model, charge: credits(operator.moneyLine(entry).paid) }
            tell('charge.quarantined', data)
          }
        }
        for (const event of plans) tellOfPlan(event, host.now(), tell)
        if (wanted.has('key.low') || wanted.has('key.exhausted'))
          for (const { account, type, name, label, plan: text, before, after } of spending) {
            // A balance that was not made with a key has no type of its own.
            const key = type === '' ? null : account
            const plan = text === undefined ? null : operator.planFacts(planFrom(text), host.now())
            const data = { key, key_type: type, name, label, balance_id: account, balance: credits(after), plan }
            const falls = (below: bigint): boolean => before >= below && after < below
            // A key with a valid plan is served without credits. The notice `plan.low` tells what is left of the plan.
            if (plan?.valid !== true && falls(leasts.get(type) ?? leastOfAll)) tell('key.exhausted', data)
            else if (falls(low)) tell('key.low', data)
          }
        return notices
      },
    }
  },
})

/** Tells what has happened to a plan. */
function tellOfPlan(
  { event, account, plan, window, balance = 0n }: operator.PlanEvent,
  now: number,
  tell: (type: Event, data: object, name?: string) => void,
): void {
  const data = { balance_id: account, plan: operator.planFacts(plan, now) }
  if (event === 'renewed') tell('plan.renewed', data)
  // Several processes may note it. Their notices have one name.
  if (window)
    tell(
      'plan.low',
      { ...data, balance: credits(balance), window: operator.planWindowView(window) },
      `${account} ${nameOf(plan, window, now)}`,
    )
}

/** What the stage was set up with. */
type Options = FromSchema<typeof OPTIONS>

/** Makes a notice. @param name two of one type with the same name are the same notice */
function noticeOf({ now, newId }: BuiltInHost, type: Event, data: object, name?: string): operator.Notice {
  const at = now()
  const body = JSON.stringify({ type, timestamp: new Date(at).toISOString(), data })
  const id = name === undefined ? newId() : hash('sha256', `${type} ${name}`).slice(0, 32)
  return { id: `msg_${id}`, type, at, body }
}

/** Tells what changes: accounts that go out or come back, and drifts of the ledger. */
class Changes {
  readonly #host: BuiltInHost
  readonly #options: Options
  readonly #wanted: ReadonlySet<string>
  /** Since when each account that is not asked has been out, in milliseconds since the epoch. */
  readonly #outSince = new Map<string, number>()
  /** What this process knows to have been told; empty if it knows nothing. */
  #told = ''

  constructor(host: BuiltInHost, options: Options) {
    this.#host = host
    this.#options = options
    this.#wanted = new Set(options.events)
  }

  /** Forgets what was told: another process tells now. */
  forget(): void {
    this.#told = ''
  }

  /** Returns the accounts that are out: why, and whether for long enough to tell. */
  #accountsOut(): Map<string, { reason: string; long: boolean }> {
    const out = new Map<string, { reason: string; long: boolean }>()
    for (const { account } of operator.accountsOf(this.#host.config)) {
      const health = this.#host.pool.health(account)
      if (!health.isOut(this.#host.now())) {
        this.#outSince.delete(account.name)
        continue
      }
      const since = this.#outSince.get(account.name) ?? this.#host.now()
      this.#outSince.set(account.name, since)
      const long = this.#host.now() - since >= this.#options.outSeconds * 1000
      out.set(account.name, { reason: health.state.lastFailure?.reason ?? 'disabled', long })
    }
    return out
  }

  /** Tells which accounts went out or came back since the last time, and a new drift. */
  async tell(): Promise<void> {
    const out = this.#accountsOut()
    const { drifted } = this.#host.ledger
    const state = JSON.stringify([...[...out].map(([name, { long }]) => [name, long]), drifted])
    if (state === this.#told) return
    await operator.changeTold(this.#host.ledger.records, TOLD, async (sql, last) => {
      const before = (last ?? { out: [], drifted: 0 }) as { out: string[]; drifted: number }
      const notices: operator.Notice[] = []
      const tell = (type: Event, data: object): void => {
        if (this.#wanted.has(type)) notices.push(noticeOf(this.#host, type, data))
      }
      const isTold = new Set(before.out.filter(name => out.has(name)))
      for (const [account, { reason, long }] of out)
        if (long && !isTold.has(account)) {
          isTold.add(account)
          tell('account.out', { account, reason })
        }
      for (const account of before.out) if (!isTold.has(account)) tell('account.back', { account })
      if (drifted > before.drifted) tell('ledger.drift', { accounts: drifted })
      operator.addNotices(sql, notices)
      return { out: [...isTold], drifted }
    })
    this.#told = state
  }
}

/** How often the ends of plans are looked for, in milliseconds. */
const ENDINGS_EVERY_MS = HOUR_MS
/** The name under which the records have until which end plans were told. */
const ENDINGS_TOLD = 'webhooks plans'

/** Tells which plans end soon. */
class Endings {
  readonly #host: BuiltInHost
  readonly #options: Options
  #lookedAt = 0

  constructor(host: BuiltInHost, options: Options) {
    this.#host = host
    this.#options = options
  }

  /** Tells the plans whose end has come near since the last time. */
  async tell(): Promise<void> {
    const now = this.#host.now()
    if (!this.#options.events.includes('plan.ending') || now - this.#lookedAt < ENDINGS_EVERY_MS) return
    const until = now + this.#options.endingDays * DAY_MS
    await operator.changeTold(this.#host.ledger.records, ENDINGS_TOLD, async (sql, last) => {
      const after = Math.max((last as { until?: number } | undefined)?.until ?? now, now)
      const ending = await operator.plansEnding(sql, { after, until })
      const notices = ending.map(({ account, plan, balance }) => {
        const data = { balance_id: account, balance: credits(balance), plan: operator.planFacts(planFrom(plan), now) }
        return noticeOf(this.#host, 'plan.ending', data)
      })
      operator.addNotices(sql, notices)
      return { until: Math.max(after, until) }
    })
    this.#lookedAt = now
  }
}

/** Delivers notices. */
class Delivery {
  readonly #host: BuiltInHost
  readonly #options: Options
  readonly #key: Buffer
  /** When this process may send a notice again whose last try it could not record, by id. */
  readonly #unrecorded = new Map<string, number>()
  #forgotten = 0

  constructor(host: BuiltInHost, options: Options) {
    this.#host = host
    this.#options = options
    this.#key = Buffer.from(options.secret.slice('whsec_'.length), 'base64')
  }

  /** Sends the notices whose time has come. */
  async sendDue(): Promise<void> {
    const due = await this.#host.ledger.records.notices.due(this.#host.now(), SENT_AT_ONCE + this.#unrecorded.size)
    await Promise.all(
      due.filter(({ id }) => (this.#unrecorded.get(id) ?? 0) <= this.#host.now()).map(notice => this.#deliver(notice)),
    )
    if (this.#host.now() - this.#forgotten > HOUR_MS) {
      this.#forgotten = this.#host.now()
      await this.#host.ledger.records.notices.forgetBefore(this.#host.now() - this.#options.keptDays * DAY_MS)
    }
  }

  async #deliver(notice: operator.WaitingNotice): Promise<void> {
    const failure = await this.#send(notice)
    const tries = notice.tries + 1
    const pauseMs = Math.min(this.#options.pauseSeconds * 2 ** notice.tries, this.#options.maxPauseSeconds) * 1000
    const next = failure === undefined || tries >= this.#options.tries ? undefined : this.#host.now() + pauseMs
    this.#unrecorded.set(notice.id, this.#host.now() + pauseMs)
    const delivered = failure === undefined
    await this.#host.ledger.records.notices.tried(notice.id, { delivered, last: failure ?? 'delivered', next })
    this.#unrecorded.delete(notice.id)
    if (delivered) return
    const words = next === undefined ? 'a notice was given up' : 'a notice was not delivered'
    this.#host.log.warn({ notice: notice.id, type: notice.type, tries, reason: failure }, words)
  }

  /** @returns why it was not delivered; undefined if it was */
  async #send({ id, body }: operator.Notice): Promise<string | undefined> {
    const timestamp = String(Math.floor(this.#host.now() / 1000))
    const signature = createHmac('sha256', this.#key).update(`${id}.${timestamp}.${body}`).digest('base64')
    try {
      const response = await fetch(this.#options.url, {
        method: 'POST',
        redirect: 'manual',
        signal: AbortSignal.timeout(this.#options.timeoutMs),
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': timestamp,
          'webhook-signature': `v1,${signature}`,
        },
        body,
      })
      await response.body?.cancel()
      return response.status >= 200 && response.status < 300 ? undefined : `status ${response.status}`
    } catch (cause) {
      return causeOf(cause)
    }
  }
}

/** Says why a request failed, without the address, which may have a secret. */
function causeOf(thrown: unknown): string {
  const { name, cause } = thrown as Error & { cause?: { code?: string } }
  if (name === 'TimeoutError') return 'no answer in time'
  return cause?.code ?? 'the connection failed'
}
