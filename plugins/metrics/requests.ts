/** What is measured of requests, by key type, model, account and code. OpenTelemetry's names are used where it has one. */
import { formatCredits, type Outcome } from 'tollgate/plugin'
import * as metering from 'tollgate/plugin/metering'
import { type BuiltInExchange, modelOf, requestEnd } from 'tollgate/plugin/operator'
import { Counter, Histogram, labelled, metric } from './exposition.ts'

/** Bounds of buckets: seconds of a request, to its first byte, and of the gateway's own work. */
const SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const OVERHEAD_SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]

/** Measures requests. */
export class RequestMetrics {
  readonly #requests = new Counter()
  #strangers = 0
  readonly #durations = new Histogram(SECONDS)
  readonly #firstBytes = new Histogram(FIRST_SECONDS)
  readonly #overheads = new Histogram(OVERHEAD_SECONDS)

  /** Measures a request that has ended. */
  ended(x: BuiltInExchange, outcome: Outcome, now: number): void {
    if (!x.inference) return
    const attempts = outcome.kind === 'answered' ? [] : outcome.attempts
    const { code, kind } = requestEnd(outcome)
    if (code === 'missing_key' || code === 'invalid_key') {
      this.#strangers++
      return
    }
    const last = attempts.at(-1)
    const model = x.model ? modelOf({ model: x.model }) : ''
    this.#requests.count({ key_type: x.caller?.type ?? '', model, account: last?.account ?? '', code: code ?? 'ok' })
    // What no account was asked for took no time of a model.
    if (!last) return
    const ms = now - x.startedAt
    const named = { gen_ai_operation_name: 'chat', gen_ai_provider_name: last.upstream, gen_ai_request_model: model }
    this.#durations.observe({ ...named, ...(kind !== 'served' && { error_type: code ?? '' }) }, ms / 1000)
    if (x.firstByteAfter !== undefined && kind === 'served') this.#firstBytes.observe(named, x.firstByteAfter / 1000)
    const lostMs = attempts.reduce((sum, attempt) => sum + (attempt === last ? 0 : (attempt.ms ?? 0)), 0)
    this.#overheads.observe({}, Math.max(0, ms - lostMs - x.elapsedMs) / 1000)
  }

  /** Returns the lines of all metrics. */
  lines(used: metering.UsedSums): string[] {
    const sums = [...used.all].map(sum => ({
      ...sum,
      labels: { key_type: sum.type, model: sum.model, account: sum.account },
    }))
    return [
      ...metric(
        'tollgate_requests_total',
        'counter',
        'Requests for a model that have ended, except those of strangers.',
        this.#requests.values,
      ),
      ...metric(
        'tollgate_strangers_total',
        'counter',
        'Requests for a model without a key, or with one that is unknown.',
        [['', this.#strangers]],
      ),
      ...this.#durations.lines(
        'gen_ai_server_request_duration_seconds',
        'Time of a request that an account was asked for.',
      ),
      ...this.#firstBytes.lines('gen_ai_server_time_to_first_token_seconds', 'Time until the first byte of a reply.'),
      ...this.#overheads.lines('tollgate_overhead_seconds', 'Time of a request in which no account worked on it.'),
      ...metric(
        'tollgate_tokens_total',
        'counter',
        'Tokens that were charged. Reasoning is a part of output, audio and images are parts of input or output.',
        sums.flatMap(({ labels, tokens }) =>
          Object.entries(tokens).map(([name, count]) => [labelled({ ...labels, class: name }), count] as const),
        ),
      ),
      ...metric(
        'tollgate_credits_total',
        'counter',
        'Credits that replies cost balances and plans, before what is waived.',
        sums.map(({ labels, charge }) => [labelled(labels), Number(formatCredits(charge))]),
      ),
      ...metric(
        'tollgate_credits_without_cost_total',
        'counter',
        'Those of requests whose cost is unknown.',
        sums.map(({ labels, withoutCost }) => [labelled(labels), Number(formatCredits(withoutCost))]),
      ),
      ...metric(
        'tollgate_cost_credits_total',
        'counter',
        'What the other requests cost the operator, in credits.',
        sums.map(({ labels, cost }) => [labelled(labels), Number(formatCredits(cost))]),
      ),
    ]
  }
}
