import { type Awaitable, GatewayError, type Key, PerMinute, Reply } from 'tollgate/plugin'
import {
  allowance,
  credits,
  dayUsage,
  defineBuiltIn,
  type BuiltInExchange,
  PRIVATE,
  usageOf,
} from 'tollgate/plugin/operator'
import { type Account, type Answer, PATHS, plain, rounded } from './answers.ts'

/** Answers what customers' tools ask other gateways and providers about a key, in their shapes. */
export default defineBuiltIn({
  name: 'compat-lookups',
  summary: "Answers the balance look-ups of customers' tools in their own shapes, and tells agents the balance.",
  on: [
    ...[...PATHS.keys()].map(path => `GET ${path}` as `GET /${string}`),
    'POST /api/usage',
    'POST /v1/api/usage',
    'inference',
  ],
  needs: ['key'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      creditsPerDollar: {
        type: 'number',
        exclusiveMinimum: 0,
        default: 1,
        description: 'Credits that these tools show as one dollar.',
      },
      perMinute: {
        type: 'integer',
        minimum: 1,
        default: 120,
        description: 'Maximum look-ups of this kind per key and minute.',
      },
      codexCredits: {
        type: 'boolean',
        default: true,
        description: 'Whether replies have the headers from which Codex shows the balance.',
      },
      claudeLimits: {
        type: 'boolean',
        default: true,
        description: 'Whether replies have the headers from which Claude Code shows how much of a limit is used.',
      },
    },
  },
  setup({ creditsPerDollar, perMinute, codexCredits, claudeLimits }, { ledger, now }) {
    const looked = new PerMinute(now)
    const dollars = (nano: bigint): number => rounded(credits(nano) / creditsPerDollar)

    async function accountOf(key: Key): Promise<Account> {
      const at = now()
      const [sums, summary] = await Promise.all([
        allowance(ledger, key),
        // While the records are away, a balance is still exact.
        ledger.reads.summary(key.whose, at).catch(() => undefined),
      ])
      const periods = summary && dayUsage(summary, at)
      return {
        key,
        now: at,
        granted: dollars(sums.granted),
        balance: dollars(sums.balance),
        used: dollars(sums.settled + sums.held),
        daily: periods ? dollars(periods.day) : null,
        weekly: periods ? dollars(periods.week) : null,
        monthly: periods ? dollars(periods.month) : null,
        usage: summary ? withActualCost(usageOf(summary, at)) : {},
      }
    }

    function look(x: BuiltInExchange, key: Key): Awaitable<Reply> {
      const retryAfterMs = looked.take(key.id, perMinute)
      if (retryAfterMs > 0)
        throw new GatewayError('rate_limited', { message: 'This key looks things up too often.', retryAfterMs })
      const answer = PATHS.get(x.path) as Answer
      return accountOf(key).then(account => Reply.json(answer(account), PRIVATE))
    }

    return {
      request: x => (x.inference ? undefined : look(x, x.key)),
      response(x, head) {
        const hold = x.runningHold?.keyHold
        if (!hold || head.failure || head.status >= 300) return
        // What the request itself holds is not spent yet.
        const balance = hold.balance + hold.amount
        if (codexCredits)
          Object.assign(head.reply, {
            'x-codex-credits-has-credits': String(balance > 0n),
            'x-codex-credits-unlimited': 'false',
            'x-codex-credits-balance': plain(dollars(balance)),
          })
        if (claudeLimits) Object.assign(head.reply, claudeHeaders(x.key, balance, now()))
      },
    }
  },
})

const MONTH_MS = 30 * 86_400_000

/** Headers that say that the key may go on, how much of it is used, and until when it lasts. */
function claudeHeaders({ granted, expiresAt }: Key, balance: bigint, now: number): Record<string, string> {
  const ends = Math.min(expiresAt ?? now + MONTH_MS, now + MONTH_MS)
  const reset = String(Math.floor(ends / 1000))
  const share = granted > 0n ? 1 - Number((balance * 10_000n) / granted) / 10_000 : 1
  return {
    'anthropic-ratelimit-unified-status': 'allowed',
    'anthropic-ratelimit-unified-representative-claim': 'overage',
    'anthropic-ratelimit-unified-reset': reset,
    'anthropic-ratelimit-unified-overage-status': 'allowed',
    'anthropic-ratelimit-unified-overage-utilization': String(rounded(Math.min(1, Math.max(0, share)))),
    'anthropic-ratelimit-unified-overage-reset': reset,
  }
}

/** These tools call a cost without a discount `cost`, and what was paid `actual_cost`. */
function withActualCost(usage: Record<string, unknown>): Record<string, unknown> {
  const { today, total } = usage['usage'] as Record<'today' | 'total', { cost: number }>
  return { ...usage, usage: { today: paid(today), total: paid(total) } }
}

function paid(count: { cost: number }): object {
  return { ...count, actual_cost: count.cost }
}
