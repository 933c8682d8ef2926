import { hash, timingSafeEqual } from 'node:crypto'
import { GatewayError, type Outcome, Reply } from 'tollgate/plugin'
import * as metering from 'tollgate/plugin/metering'
import { brokenRules, defineBuiltIn, type BuiltInHost } from 'tollgate/plugin/operator'
import { Counter, labelled, metric, type Value } from './exposition.ts'
import { RequestMetrics } from './requests.ts'

/** An account as the pool knows it. */
type Member = BuiltInHost['pool']['members'] extends ReadonlyMap<string, infer M> ? M : never

/** What is counted since the start of the process, whatever configuration is in force. */
interface Counts {
  readonly outcomes: Counter
  readonly requests: RequestMetrics
  readonly used: metering.UsedSums
}

const COUNTS = new WeakMap<BuiltInHost['meter'], Counts>()

function countsOf(meter: BuiltInHost['meter']): Counts {
  const known = COUNTS.get(meter)
  if (known) return known
  const used = (meter.used ??= new metering.UsedSums())
  const counts = { outcomes: new Counter(), requests: new RequestMetrics(), used }
  COUNTS.set(meter, counts)
  return counts
}

/** Metrics for Prometheus. No metric has a label with a key. */
export default defineBuiltIn({
  name: 'metrics',
  summary: 'Answers GET /metrics in the Prometheus format.',
  on: ['all', 'GET /metrics'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      token: {
        type: 'string',
        minLength: 16,
        expected: 'a bearer token of at least 16 characters',
        description: 'Bearer token that a collector must send.',
      },
    },
  },
  setup({ token }, host) {
    const { outcomes, requests, used } = countsOf(host.meter)
    return {
      request(x) {
        if (x.path !== '/metrics') return
        if (token !== undefined && !same(x.headers.authorization, `Bearer ${token}`))
          throw new GatewayError('invalid_key')
        const lines = [
          ...requests.lines(used),
          ...ledgerLines(host),
          ...meterLines(host),
          ...gatewayLines(host),
          ...accountLines(host),
          ...metric('tollgate_exchanges_total', 'counter', 'Finished exchanges.', outcomes.values),
        ]
        return new Reply(200, `${lines.join('\n')}\n`, {
          'content-type': 'text/plain; version=0.0.4',
          'cache-control': 'no-store',
        })
      },
      settle(x, outcome) {
        outcomes.count({ outcome: outcomeName(outcome) })
        requests.ended(x, outcome, host.now())
      },
    }
  },
})

/** Returns how an exchange ended, and who interrupted an incomplete reply. */
function outcomeName(outcome: Outcome): string {
  return outcome.kind === 'broken' ? `broken_by_${outcome.by}` : outcome.kind
}

/** Compares digests, whose lengths are equal whatever bytes a header has. */
function same(given: string | undefined, expected: string): boolean {
  const [one, other] = [given ?? '', expected].map(text => hash('sha256', text, 'buffer')) as [Buffer, Buffer]
  return timingSafeEqual(one, other)
}

/** The metrics of the ledger. */
function ledgerLines({ ledger }: BuiltInHost): string[] {
  return [
    ...metric('tollgate_ledger_drifted_accounts', 'gauge', 'Accounts whose sums did not agree at the last audit.', [
      ['', ledger.drifted],
    ]),
    ...metric(
      'tollgate_broken_rules_total',
      'counter',
      'Assertions about money that have failed: a defect. See the log.',
      [['', brokenRules()]],
    ),
    ...metric('tollgate_settlements_waiting', 'gauge', 'Settlements that wait for the store.', [['', ledger.waiting]]),
    ...metric(
      'tollgate_unrecorded_age_seconds',
      'gauge',
      'Time since the oldest exchange ended that waits to be recorded.',
      [['', ledger.background.unrecordedMs / 1000]],
    ),
    ...metric('tollgate_backlog_bytes', 'gauge', 'Ended exchanges that wait to be recorded.', [
      ['', ledger.background.state.backlogBytes],
    ]),
    ...metric('tollgate_holds', 'gauge', 'Holds that this process renews.', [['', ledger.live]]),
    ...metric('tollgate_oldest_hold_seconds', 'gauge', 'Time since the oldest of them began.', [
      ['', ledger.oldestHoldMs / 1000],
    ]),
  ]
}

/** The metrics of metering. */
function meterLines({ meter }: BuiltInHost): string[] {
  return [
    ...metric('tollgate_queue', 'gauge', 'Requests that wait for others of their key to end.', [
      ['', meter.lines.length],
    ]),
    ...metric('tollgate_quarantined_total', 'counter', 'Requests whose reported usage was implausible.', [
      ['', meter.quarantined],
    ]),
    ...metric(
      'tollgate_quarantine_alarms_total',
      'counter',
      'Alarms: a model reported implausible usage to three keys within an hour.',
      [['', meter.implausibleAlarms]],
    ),
    ...metric('tollgate_unpriced_total', 'counter', 'Requests that used something without a price.', [
      ['', meter.unpriced],
    ]),
    ...metric(
      'tollgate_unread_usage_total',
      'counter',
      'Replies whose usage was understood only in part.',
      [...meter.unread.all].map(({ upstream, model, count }) => [labelled({ upstream, model }), count]),
    ),
    ...metric(
      'tollgate_served_models_total',
      'counter',
      'Replies by another model than the one that was asked for.',
      [...meter.served.all].map(({ count, ...names }) => [labelled(names), count]),
    ),
    ...metric(
      'tollgate_dropped_members_total',
      'counter',
      'Members of requests that were dropped because they are not listed.',
      [...meter.dropped.all].map(([member, count]) => [labelled({ member }), count]),
    ),
    ...metric('tollgate_below_cost_total', 'counter', 'Requests that were charged less than they cost the operator.', [
      ['', meter.belowCost],
    ]),
  ]
}

/** The metrics of the process. */
function gatewayLines({ status }: BuiltInHost): string[] {
  return [
    ...metric('tollgate_memory_taken_bytes', 'gauge', 'Memory used by requests and replies in flight.', [
      ['', status.memory.taken],
    ]),
    ...metric('tollgate_memory_budget_bytes', 'gauge', 'Memory that requests and replies in flight may use.', [
      ['', status.memory.total],
    ]),
    ...metric(
      'tollgate_memory_refused_total',
      'counter',
      'Requests and replies that were refused for lack of memory.',
      [['', status.memory.refused]],
    ),
    ...metric(
      'tollgate_upstream_repeats_total',
      'counter',
      'Requests that were sent again because an upstream closed an idle connection.',
      [['', status.repeated]],
    ),
  ]
}

/** The metrics of the upstream accounts. */
function accountLines({ pool, now }: BuiltInHost): string[] {
  const accounts = (value: (member: Member) => number): Value[] =>
    [...pool.members].map(([account, member]) => [labelled({ account }), value(member)])
  return [
    ...metric(
      'tollgate_account_usable',
      'gauge',
      'Whether an account of an upstream may be asked.',
      accounts(({ health }) => (health.isOut(now()) ? 0 : 1)),
    ),
    ...metric(
      'tollgate_account_requests_total',
      'counter',
      'Requests that this process sent by an account.',
      accounts(({ health }) => health.counts.requests),
    ),
    ...metric(
      'tollgate_account_failures_total',
      'counter',
      'Those of them that the account failed to answer.',
      accounts(({ health }) => health.counts.failures),
    ),
  ]
}
