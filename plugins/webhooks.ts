import { createHmac } from 'node:crypto'
import { credits, definePlugin, leastCharge, operator } from 'tollgate/plugin'

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
/** The first pause between two tries; each further one is twice as long, up to a maximum. In milliseconds. */
const FIRST_PAUSE_MS = 5000
const MAX_PAUSE_MS = 6 * 3_600_000
const KEPT_MS = 30 * 86_400_000
const HOUR_MS = 3_600_000

/** The name under which the records have the accounts that were out, and the drift, as they were told last. */
const TOLD = 'webhooks'

/** Tells another system what an operator must know, by Standard Webhooks. */
export default definePlugin({
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
        pattern: '^whsec_[A-Za-z0-9+/=]{24,}$',
        expected: 'whsec_ and at least 24 characters of base64',
        description: 'Secret of the signatures, as Standard Webhooks has it.',
      },
      events: {
        type: 'array',
        items: { enum: EVENTS },
        uniqueItems: true,
        default: [...EVENTS],
        description: 'What is told.',
      },
      lowCredits: {
        type: 'number',
        minimum: 0,
        default: 1,
        description: 'Credits of a key below which `key.low` is told, once each time that it falls below them.',
      },
      timeoutMs: { type: 'integer', minimum: 100, default: 10_000, description: 'Milliseconds for one request.' },
      tries: {
        type: 'integer',
        minimum: 1,
        maximum: 50,
        default: 15,
        description:
          'Maximum tries of one notice, with pauses from 5 seconds to 6 hours; 15 tries take about a day and a half.',
      },
    },
  },
  setup(options, host) {
    const { ledger, log, now } = host
    const { records } = ledger
    const wanted: ReadonlySet<string> = new Set(options.events)
    const low = operator.parseDecimal(String(options.lowCredits)) ?? 0n
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

    /** Tells which accounts went out or came back since the last time, and a new drift. */
    async function tellChanges(): Promise<void> {
      const out = operator.accountsOf(host.config).flatMap(({ account }) => {
        const { state } = host.pool.health(account)
        return host.pool.health(account).outMs(now()) > 0
          ? [[account.name, state.lastFailure?.reason ?? 'disabled'] as const]
          : []
      })
      await operator.changeTold(records, TOLD, async (sql, told) => {
        const before = (told ?? { out: [], drifted: 0 }) as { out: string[]; drifted: number }
        const names = out.map(([name]) => name)
        for (const [name, reason] of out)
          if (!before.out.includes(name) && wanted.has('account.out'))
            await operator.addNotice(sql, noticeOf('account.out', { account: name, reason }))
        for (const name of before.out)
          if (!names.includes(name) && wanted.has('account.back'))
            await operator.addNotice(sql, noticeOf('account.back', { account: name }))
        if (ledger.drifted > before.drifted && wanted.has('ledger.drift'))
          await operator.addNotice(sql, noticeOf('ledger.drift', { accounts: ledger.drifted }))
        return { out: names, drifted: ledger.drifted }
      })
    }

    let told = ''
    let forgotten = 0
    async function look(): Promise<void> {
      // One process does it for all.
      if (!ledger.background.leading) return
      const state = JSON.stringify([
        operator.accountsOf(host.config).map(({ account }) => host.pool.health(account).outMs(now()) > 0),
        ledger.drifted,
      ])
      if (state !== told) {
        await tellChanges()
        told = state
      }
      await Promise.all((await records.notices.due(now(), SENT_AT_ONCE)).map(deliver))
      if (now() - forgotten > HOUR_MS) {
        forgotten = now()
        await records.notices.forgetBefore(now() - KEPT_MS)
      }
    }

    async function deliver(notice: operator.WaitingNotice): Promise<void> {
      const last = await send(notice)
      const tries = notice.tries + 1
      const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** notice.tries, MAX_PAUSE_MS)
      const next = last === undefined || tries >= options.tries ? undefined : now() + pauseMs
      await records.notices.tried(notice.id, { delivered: last === undefined, last: last ?? 'delivered', next })
      if (last === undefined) return
      const words = next === undefined ? 'a notice was given up' : 'a notice was not delivered'
      log.warn({ notice: notice.id, type: notice.type, tries, reason: last }, words)
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

    let looking = false
    const timer = setInterval(() => {
      if (looking) return
      looking = true
      look()
        .catch((cause: unknown) => log.warn({ err: cause }, 'notices cannot be sent at the moment'))
        .finally(() => (looking = false))
    }, LOOK_EVERY_MS).unref()
    return {
      async recorded(sql, { entries, charges }) {
        for (const entry of entries)
          if (entry.notes.quarantined && wanted.has('charge.quarantined')) {
            const data = {
              request_id: entry.id,
              key: entry.account,
              model: entry.notes.model,
              charge: credits(entry.charge),
            }
            await operator.addNotice(sql, noticeOf('charge.quarantined', data))
          }
        for (const spent of await operator.spendingOf(sql, charges)) {
          const least = leasts.get(spent.type) ?? 0n
          const { account, type, name, label, before, after } = spent
          const data = { key: account, key_type: type, name, label, balance: credits(after) }
          const falls = (below: bigint): boolean => before >= below && after < below
          if (falls(least) && wanted.has('key.exhausted'))
            await operator.addNotice(sql, noticeOf('key.exhausted', data))
          else if (falls(low) && wanted.has('key.low')) await operator.addNotice(sql, noticeOf('key.low', data))
        }
      },
      // A newer configuration sends from now on.
      retire: () => clearInterval(timer),
    }
  },
})

/** Says why a request failed, without the address, which may have a secret. */
function causeOf(thrown: unknown): string {
  const { name, cause } = thrown as Error & { cause?: { code?: string } }
  if (name === 'TimeoutError') return 'no answer in time'
  return cause?.code ?? 'the connection failed'
}
