import { createHmac } from 'node:crypto'
import * as operator from 'tollgate/plugin/operator'
import { credits, defineBuiltIn, leastCharge } from 'tollgate/plugin/operator'

/** What is told. */
const EVENTS = [
  'key.low',
  'key.exhausted',
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

/** Tells another system what an operator must know, by Standard Webhooks. */
export default defineBuiltIn({
  name: 'webhooks',
  summary:
    'Tells another system by signed HTTP requests: balance low, key exhausted, account out or back, drift, quarantine.',
  on: [],
  options: {
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
      lowCredits: {
        type: 'number',
        minimum: 0,
        default: 1,
        description:
          'Credits below which a key causes `key.low`: one notice each time that its balance falls below them.',
      },
      outSeconds: {
        type: 'number',
        minimum: 0,
        default: 30,
        description:
          'Seconds after which an account that the gateway does not ask causes `account.out`. A shorter outage causes no notice, and no `account.back`.',
      },
      timeoutMs: { type: 'integer', minimum: 100, default: 10_000, description: 'Milliseconds for one request.' },
      tries: {
        type: 'integer',
        minimum: 1,
        maximum: 50,
        default: 15,
        description: 'Maximum tries of one notice. With the default pauses, 15 tries take about a day and a half.',
      },
      pauseSeconds: {
        type: 'number',
        minimum: 1,
        default: 5,
        description: 'Seconds between the first two tries of a notice; each further pause is twice as long.',
      },
      maxPauseSeconds: {
        type: 'number',
        minimum: 1,
        default: 21_600,
        description: 'Maximum seconds between two tries.',
      },
      keptDays: {
        type: 'number',
        minimum: 1,
        default: 30,
        description: 'Days for which a notice that was delivered or given up is kept in the records.',
      },
    },
  },
  setup(options, host) {
    const { ledger, log, now } = host
    const { records } = ledger
    const wanted: ReadonlySet<string> = new Set(options.events)
    const low = operator.parseDecimal(options.lowCredits.toFixed(9)) ?? 0n
    const key = Buffer.from(options.secret.slice('whsec_'.length), 'base64')
    const leasts = new Map(
      [...host.config.keyTypes.values()].map(type => [
        type.name,
        leastCharge([...type.models.values()].map(({ price }) => price)),
      ]),
    )

    function noticeOf(type: Event, data: object): operator.Notice {
      const at = now()
      const body = JSON.stringify({ type, timestamp: new Date(at).toISOString(), data })
      return { id: `msg_${host.newId()}`, type, at, body }
    }

    /** Since when each account that is not asked has been out, in milliseconds since the epoch. */
    const outSince = new Map<string, number>()

    /** Returns the accounts that are out: why, and whether for long enough to tell. */
    function accountsOut(): Map<string, { reason: string; long: boolean }> {
      const out = new Map<string, { reason: string; long: boolean }>()
      for (const { account } of operator.accountsOf(host.config)) {
        const health = host.pool.health(account)
        if (!health.isOut(now())) {
          outSince.delete(account.name)
          continue
        }
        const since = outSince.get(account.name) ?? now()
        outSince.set(account.name, since)
        const long = now() - since >= options.outSeconds * 1000
        out.set(account.name, { reason: health.state.lastFailure?.reason ?? 'disabled', long })
      }
      return out
    }

    /** What this process knows to have been told; empty if it knows nothing. */
    let told = ''
    /** Tells which accounts went out or came back since the last time, and a new drift. */
    async function tellChanges(): Promise<void> {
      const out = accountsOut()
      const { drifted } = ledger
      const state = JSON.stringify([...[...out].map(([name, { long }]) => [name, long]), drifted])
      if (state === told) return
      await operator.changeTold(records, TOLD, async (sql, last) => {
        const before = (last ?? { out: [], drifted: 0 }) as { out: string[]; drifted: number }
        const notices: operator.Notice[] = []
        const tell = (type: Event, data: object): void => {
          if (wanted.has(type)) notices.push(noticeOf(type, data))
        }
        const isTold = new Set(before.out.filter(name => out.has(name)))
        for (const [account, { reason, long }] of out)
          if (long && !isTold.has(account)) {
            isTold.add(account)
            tell('account.out', { account, reason })
          }
        for (const account of before.out) if (!isTold.has(account)) tell('account.back', { account })
        if (drifted > before.drifted) tell('ledger.drift', { accounts: drifted })
        await operator.addNotices(sql, notices)
        return { out: [...isTold], drifted }
      })
      told = state
    }

    /** When this process may send a notice again whose last try it could not record, by id. */
    const unrecorded = new Map<string, number>()
    let forgotten = 0
    async function sendDue(): Promise<void> {
      const due = await records.notices.due(now(), SENT_AT_ONCE + unrecorded.size)
      await Promise.all(due.filter(({ id }) => (unrecorded.get(id) ?? 0) <= now()).map(deliver))
      if (now() - forgotten > HOUR_MS) {
        forgotten = now()
        await records.notices.forgetBefore(now() - options.keptDays * DAY_MS)
      }
    }

    async function deliver(notice: operator.WaitingNotice): Promise<void> {
      const failure = await send(notice)
      const tries = notice.tries + 1
      const pauseMs = Math.min(options.pauseSeconds * 2 ** notice.tries, options.maxPauseSeconds) * 1000
      const next = failure === undefined || tries >= options.tries ? undefined : now() + pauseMs
      unrecorded.set(notice.id, now() + pauseMs)
      const delivered = failure === undefined
      await records.notices.tried(notice.id, { delivered, last: failure ?? 'delivered', next })
      unrecorded.delete(notice.id)
      if (delivered) return
      const words = next === undefined ? 'a notice was given up' : 'a notice was not delivered'
      log.warn({ notice: notice.id, type: notice.type, tries, reason: failure }, words)
    }

    /** @returns why it was not delivered; undefined if it was */
    async function send({ id, body }: operator.Notice): Promise<string | undefined> {
      const timestamp = String(Math.floor(now() / 1000))
      const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')
      try {
        const response = await fetch(options.url, {
          method: 'POST',
          redirect: 'manual',
          signal: AbortSignal.timeout(options.timeoutMs),
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

    /** Does something again and again, in the process that does it for all. The next time waits for the one before. */
    function whileLeading(work: () => Promise<void>, failed: string): NodeJS.Timeout {
      let running = false
      return setInterval(() => {
        if (!ledger.background.leading) told = ''
        if (running || !ledger.background.leading) return
        running = true
        work()
          .catch((cause: unknown) => log.warn({ err: cause }, failed))
          .finally(() => (running = false))
      }, LOOK_EVERY_MS).unref()
    }
    const timers = [
      whileLeading(tellChanges, 'the changes of accounts cannot be noted at the moment'),
      whileLeading(sendDue, 'notices cannot be sent at the moment'),
    ]
    // A newer configuration sends from now on.
    host.retired.addEventListener('abort', () => timers.forEach(clearInterval))
    return {
      async recorded(sql, { entries, charges }) {
        const notices: operator.Notice[] = []
        const tell = (type: Event, data: object): void => {
          if (wanted.has(type)) notices.push(noticeOf(type, data))
        }
        for (const { id, account, notes, charge } of entries)
          if (notes.quarantined) {
            const data = { request_id: id, key: account, model: notes.model, charge: credits(charge) }
            tell('charge.quarantined', data)
          }
        if (wanted.has('key.low') || wanted.has('key.exhausted'))
          for (const { account, type, name, label, before, after } of await operator.spendingOf(sql, charges)) {
            const data = { key: account, key_type: type, name, label, balance: credits(after) }
            const falls = (below: bigint): boolean => before >= below && after < below
            if (falls(leasts.get(type) ?? 0n)) tell('key.exhausted', data)
            else if (falls(low)) tell('key.low', data)
          }
        await operator.addNotices(sql, notices)
      },
    }
  },
})

/** Says why a request failed, without the address, which may have a secret. */
function causeOf(thrown: unknown): string {
  const { name, cause } = thrown as Error & { cause?: { code?: string } }
  if (name === 'TimeoutError') return 'no answer in time'
  return cause?.code ?? 'the connection failed'
}
