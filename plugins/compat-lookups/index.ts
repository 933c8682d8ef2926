import { type Awaitable, type Key, PerMinute, Reply } from 'tollgate/plugin'
import {
  type Allowance,
  allowance,
  credits,
  dayUsage,
  defineBuiltIn,
  type BuiltInExchange,
  planStanding,
  resetWord,
  PRIVATE,
  shownAllowance,
  standing,
  shownWindow,
  usageOf,
  type WindowView,
  BOOLEAN,
  setting,
  whole,
  seenBy,
} from 'tollgate/plugin/operator'
import { type Account, type Answer, PATHS } from './answers.ts'
import { rounded } from './numbers.ts'
import { claudeHeaders, codexHeaders } from './windows.ts'

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
      perMinute: setting(whole(1), 120, 'Maximum look-ups of this kind per key and minute.'),
      codexCredits: setting(BOOLEAN, true, 'Whether replies have the headers from which Codex shows the balance.'),
      claudeLimits: setting(
        BOOLEAN,
        true,
        'Whether replies have the headers from which Claude Code shows how much of a limit is used.',
      ),
    },
  },
  setup({ creditsPerDollar, perMinute, codexCredits, claudeLimits }, { config, ledger, now }) {
    const looked = new PerMinute(now)
    const dollars = (nano: bigint): number => rounded(credits(nano) / creditsPerDollar)

    async function accountOf(key: Key): Promise<Account> {
      const at = now()
      const [may, summary] = await Promise.all([
        allowance(ledger, key, config, at),
        // While the records are away, a balance is still exact.
        seenBy(ledger, key)
          .then(whose => ledger.reads.summary(whose, at))
          .catch(() => undefined),
      ])
      const periods = summary && dayUsage(summary, at)
      const windows = may.plan?.windows ?? []
      return {
        key,
        now: at,
        ...sumsOf(may, dollars),
        standing: standing(key, may, at).status,
        limitReset: resetWord(may.plan),
        windows,
        rows: windows.map(view => inDollars(view, creditsPerDollar)),
        daily: periods ? dollars(periods.day) : null,
        weekly: periods ? dollars(periods.week) : null,
        monthly: periods ? dollars(periods.month) : null,
        usage: summary ? withActualCost(usageOf(summary, at)) : {},
      }
    }

    function look(x: BuiltInExchange, key: Key): Awaitable<Reply> {
      looked.limit(key.id, perMinute, 'This key looks things up too often.')
      const answer = PATHS.get(x.path) as Answer
      return accountOf(key).then(account => Reply.json(answer(account), PRIVATE))
    }

    return {
      request: x => (x.inference ? undefined : look(x, x.key)),
      response(x, head) {
        const hold = x.runningHold?.keyHold
        if (!hold || head.failure || head.status >= 300) return
        // What the request itself holds is not spent yet.
        const balance = hold.balance + hold.ofCredits
        const windows = planStanding(x.key, hold.standing?.windows, now())?.windows ?? []
        if (codexCredits) Object.assign(head.reply, codexHeaders(dollars(balance), windows, now()))
        if (claudeLimits) Object.assign(head.reply, claudeHeaders(x.key, balance, windows, now()))
      },
    }
  },
})

/** Returns what tools show of a key, in their unit. */
function sumsOf(may: Allowance, dollars: (nano: bigint) => number): Pick<Account, 'granted' | 'balance' | 'used'> {
  const { limit, used, remaining } = shownAllowance(may)
  const held = may.plan?.widestOfCredits ? 0n : may.credits.held
  return { granted: dollars(limit), balance: dollars(remaining), used: dollars(used + held) }
}

/** Returns a window in the shape of `rate_limits`. Credits are in the unit of the tools. */
function inDollars(view: WindowView, creditsPerDollar: number): object {
  const row = shownWindow(view)
  if (view.window.unit !== 'credits') return row
  const amounts = ['limit', 'used', 'remaining'].map(name => [name, rounded(Number(row[name]) / creditsPerDollar)])
  return { ...row, ...Object.fromEntries(amounts) }
}

/** These tools call a cost without a discount `cost`, and what was paid `actual_cost`. */
function withActualCost(usage: Record<string, unknown>): Record<string, unknown> {
  const { today, total } = usage['usage'] as Record<'today' | 'total', { cost: number }>
  return { ...usage, usage: { today: paid(today), total: paid(total) } }
}

function paid(count: { cost: number }): object {
  return { ...count, actual_cost: count.cost }
}
