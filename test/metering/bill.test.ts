import t from 'tap'
import { GatewayError } from '../../core/errors.ts'
import type { Outcome } from '../../core/exchange/exchange.ts'
import { BILLS, type Bill, billFor, type EndedBy, type Reported, type Rule, ruleFor } from '../../core/metering/bill.ts'
import type { Terms } from '../../core/metering/estimate.ts'
import { NO_EXTRAS } from '../../core/metering/extras.ts'
import type { RawUsage } from '../../core/formats/terms.ts'
import { modelOf } from '../plugins/facts.ts'
import { keepsTable } from '../tables.ts'
import { replied, SAID, TERMS } from './billable.ts'

/** The bill of each way to end: every cell of the table, and the three rows above it. */

const [INPUT, OUTPUT] = [3000n, 15_000n]
/** Bytes of text in the reply, if there is content. */
const ANSWERED = 300
const IMPLAUSIBLE_TOKENS = 9_000_000_000

/** Usage in the messages format, by how much of it is reported. */
const USAGE: Readonly<Record<Reported, RawUsage | undefined>> = {
  complete: { input_tokens: 10, output_tokens: 20 },
  partial: { input_tokens: 10 },
  implausible: { input_tokens: IMPLAUSIBLE_TOKENS, output_tokens: 20 },
  none: undefined,
}

const OPEN = [{ upstream: 'u', account: 'u/a', status: 200 }]
const OUTCOMES: Readonly<Record<EndedBy, Outcome>> = {
  nobody: { kind: 'relayed', status: 200, attempts: OPEN },
  customer: { kind: 'broken', by: 'client', status: 200, attempts: OPEN },
  upstream: { kind: 'broken', by: 'upstream', status: 200, attempts: OPEN },
  gateway: { kind: 'broken', by: 'gateway', status: 200, attempts: OPEN },
  stop: { kind: 'broken', by: 'drain', status: 200, attempts: OPEN },
}

const charged = (input: number, output: number): bigint => BigInt(input) * INPUT + BigInt(output) * OUTPUT
const most = (a: bigint, b: bigint): bigint => (a > b ? a : b)
const ESTIMATED = { source: 'estimated', quarantined: false } as const
const DOUBTED = { source: 'estimated', quarantined: true } as const

/**
 * What each rule charges here. An estimate takes three bytes for a token, and a cancel charge two. The reported part of
 * the input counts.
 */
const CHARGES: Readonly<Record<Rule, (isPartial: boolean, bytes: number) => Partial<Bill>>> = {
  free: () => ({ charge: 0n, billed: false, quarantined: false }),
  reported: () => ({ charge: charged(10, 20), source: 'upstream', quarantined: false }),
  estimate: (isPartial, bytes) => ({ ...ESTIMATED, charge: charged(isPartial ? 10 : SAID / 3, bytes / 3) }),
  'cancel charge': (isPartial, bytes) => ({ ...ESTIMATED, charge: charged(isPartial ? 10 : SAID / 2, bytes / 2) }),
  // One token of input a byte is possible, and the reported output was.
  'bounded estimate': (_, bytes) => ({ ...DOUBTED, charge: most(charged(SAID, 20), charged(SAID / 3, bytes / 3)) }),
  'bounded cancel charge': (_, bytes) => ({
    ...DOUBTED,
    charge: most(charged(SAID, 20), charged(SAID / 2, bytes / 2)),
  }),
}

for (const [ended, outcome] of Object.entries(OUTCOMES) as [EndedBy, Outcome][])
  for (const [reported, usage] of Object.entries(USAGE) as [Reported, RawUsage | undefined][])
    for (const isDelivered of [true, false]) {
      const rule = BILLS[ended][reported][isDelivered ? 'delivered' : 'undelivered']
      t.test(`ended by ${ended}, ${reported} reported, content ${isDelivered ? '' : 'not '}delivered: ${rule}`, t => {
        const isFinal = reported === 'complete' || reported === 'implausible'
        const bytes = isDelivered ? ANSWERED : 0
        const bill = billFor(replied(usage, isFinal, { delivered: bytes }), outcome, TERMS)
        t.match(bill, { ...CHARGES[rule](reported === 'partial', bytes), failed: false })
        t.end()
      })
    }

t.test('a reply of a stage is free', t => {
  t.equal(ruleFor(replied(USAGE.complete, true), { kind: 'answered', status: 200 }, TERMS), 'free')
  t.end()
})

t.test('a request that no account was working on is free when its client leaves', t => {
  const error = new GatewayError('upstream_failed')
  const failed: Outcome = { kind: 'failed', by: 'client', error, attempts: [{ ...OPEN[0]!, status: 503 }] }
  t.equal(ruleFor(replied(undefined, false), failed, TERMS), 'free')
  t.equal(ruleFor(replied(undefined, false), { ...failed, attempts: OPEN }, TERMS), 'cancel charge')
  t.equal(ruleFor(replied(USAGE.complete, true), failed, TERMS), 'reported', 'what a failed attempt reports is owed')
  t.end()
})

t.test(
  "the gateway's own failure is free before the reply began, and an estimate after that, whatever was reported",
  t => {
    const failed: Outcome = { kind: 'failed', error: new GatewayError('internal'), attempts: OPEN }
    for (const usage of Object.values(USAGE)) {
      t.equal(ruleFor(replied(usage, true, { complete: true }), failed, TERMS), 'free')
      t.equal(ruleFor(replied(usage, true, { complete: true, delivered: ANSWERED }), failed, TERMS), 'estimate')
    }
    t.equal(billFor(replied(USAGE.complete, true), failed, TERMS).failed, true)
    t.end()
  },
)

t.test('a reply that was over a limit before any of it was delivered costs nothing', t => {
  const error = new GatewayError('upstream_failed')
  const failed: Outcome = { kind: 'failed', error, attempts: [{ ...OPEN[0]!, failure: 'too large' }] }
  for (const usage of Object.values(USAGE)) t.equal(ruleFor(replied(usage, true), failed, TERMS), 'free')
  t.end()
})

t.test('a failure that the upstream reports makes a reply one that the upstream ended', t => {
  const failure = { message: 'no' }
  const relayed = OUTCOMES.nobody
  t.equal(ruleFor(replied(undefined, false, { failure }), relayed, TERMS), 'free')
  t.equal(ruleFor(replied(undefined, false, { failure, delivered: 9 }), relayed, TERMS), 'estimate')
  t.equal(ruleFor(replied(USAGE.complete, false, { failure, complete: true }), relayed, TERMS), 'free', 'partial')
  t.equal(ruleFor(replied(USAGE.complete, true, { failure }), relayed, TERMS), 'free', 'who got nothing pays nothing')
  t.equal(ruleFor(replied(USAGE.complete, true, { failure, delivered: 9 }), relayed, TERMS), 'reported')
  t.end()
})

t.test('a report is final when it cannot change any more, or when the reply is complete', t => {
  const { customer } = OUTCOMES
  t.equal(
    ruleFor(replied(USAGE.complete, true), customer, TERMS),
    'reported',
    'a client that leaves later changes nothing',
  )
  t.equal(ruleFor(replied(USAGE.complete, false, { complete: true }), customer, TERMS), 'reported')
  t.equal(ruleFor(replied(USAGE.complete, false), customer, TERMS), 'cancel charge')
  t.end()
})

t.test('the budget and a disabled key end a reply for the customer; a restart does so for the gateway', t => {
  const broken = (by: 'budget' | 'disabled' | 'drain'): Outcome => ({ kind: 'broken', by, status: 200, attempts: OPEN })
  t.equal(ruleFor(replied(undefined, false, { delivered: 9 }), broken('budget'), TERMS), 'cancel charge')
  t.equal(ruleFor(replied(undefined, false, { delivered: 9 }), broken('disabled'), TERMS), 'cancel charge')
  t.equal(ruleFor(replied(undefined, false, { delivered: 9 }), broken('drain'), TERMS), 'estimate')
  t.equal(ruleFor(replied(undefined, false), broken('drain'), TERMS), 'free')
  t.end()
})

t.test('an implausible report makes a cancelled reply no cheaper, and costs no more than is plausible', t => {
  const { entry } = modelOf('famA', 'acme/famA-large-5')
  const advised: Terms = { ...TERMS, extras: { ...NO_EXTRAS, advisors: [{ entry, most: 3 }] } }
  const unreported = billFor(replied(undefined, false), OUTCOMES.customer, advised)
  t.match(unreported.parts[1], { model: 'acme/famA-large-5' }, 'advice that was requested')
  const small = { input_tokens: 10, output_tokens: 9_000_000_000 }
  const bill = billFor(replied(small, true), OUTCOMES.customer, advised)
  t.match(bill, { quarantined: true, charge: charged(10, 12_000 + 4096) }, 'eight times the rate for ten seconds')
  const windows = { input_tokens: 2_200_000, output_tokens: 50 }
  const large = billFor(replied(windows, true), OUTCOMES.customer, advised)
  const alone = billFor(replied(windows, true), OUTCOMES.nobody, advised)
  t.equal(large.charge, most(alone.charge, unreported.charge))
  t.end()
})

const ENDED: Readonly<Record<EndedBy, string>> = {
  nobody: 'complete',
  customer: 'ended by the client, the balance, or the key',
  upstream: 'ended by the upstream, or with a failure that it reports',
  gateway: 'over a limit of the gateway, or the gateway failed',
  stop: 'ended as the gateway stops',
}
t.test('docs/charging.md has the table of bills', t => {
  const rows = Object.entries(BILLS).flatMap(([ended, cells]) =>
    Object.entries(cells).map(([reported, { delivered, undelivered }]) => [
      ENDED[ended as EndedBy],
      reported,
      delivered,
      undelivered,
    ]),
  )
  keepsTable(t, new URL('../../docs/charging.md', import.meta.url), 'reply', rows)
  t.end()
})
