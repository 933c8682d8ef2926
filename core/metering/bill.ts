/**
 * The bill of a finished exchange: a table of who ended the reply, what its upstream reported, and whether content was
 * delivered. docs/charging.md has the same table.
 */
import type { Attempt, Outcome } from '../exchange/exchange.ts'
import type { CountedUsage } from '../formats/index.ts'
import { type BilledUsage, chargeAll } from '../money/price.ts'
import { assertMoney } from '../money/assertions.ts'
import { inputTokens, NO_USAGE, plus, type Usage } from '../money/usage.ts'
import { cancelParts, imagesApart } from './charge.ts'
import { type Billable, bounded, cancelUsage, observed, plausible, type Terms } from './estimate.ts'
import { billed, otherServer, plausibleCalls, unpriced } from './pricing.ts'

/** The charge of a finished exchange and its derivation. */
export interface Bill {
  /** In nano-credits. */
  readonly charge: bigint
  /** False if the exchange costs nothing because nothing was delivered. */
  readonly billed: boolean
  readonly usage: Usage
  readonly source: 'upstream' | 'estimated'
  /** Whether the upstream reported an implausible usage. */
  readonly quarantined: boolean
  /** The usage in separately priced parts. Empty if nothing is billed. */
  readonly parts: readonly BilledUsage[]
  /** The used items that have no price. */
  readonly unpriced: readonly string[]
  /** Whether the exchange failed, with or without a partial reply. */
  readonly failed: boolean
  /** The model that answered, if it is another one of the key type than was asked for. */
  readonly served: string | undefined
  /** The price in the file by which it is charged. */
  readonly priceName: string
  /**
   * Paths in the reported usage that were not understood, or that do not add up; `images` if the usage does not count
   * them; `input` or `output` if it counts at most one token of a long text.
   */
  readonly unread: readonly string[]
}

/**
 * Who ended a reply early. `nobody`: the reply is complete. `customer`: the client left, or the customer's balance or key
 * ended the reply. `upstream`: the upstream broke it off. `gateway`: the reply was over one of the gateway's limits, or
 * the gateway failed. `stop`: the gateway is shutting down.
 */
export type EndedBy = 'nobody' | 'customer' | 'upstream' | 'gateway' | 'stop'

/** What the upstream has reported about usage: all of it, a part of it, something implausible, or nothing. */
export type Reported = 'complete' | 'partial' | 'implausible' | 'none'

/** How an exchange is charged. */
export type Rule = 'free' | 'reported' | 'estimate' | 'cancel charge' | 'bounded estimate' | 'bounded cancel charge'

/** Rules for a reply that has delivered content, and for one that has not. */
export interface Cell {
  readonly delivered: Rule
  readonly undelivered: Rule
}

/** A reply that its upstream or the gateway broke costs what was delivered. If nothing was delivered, it is free, whatever it
 * reported. */
const FAILED: Readonly<Record<Reported, Cell>> = {
  complete: { delivered: 'reported', undelivered: 'free' },
  partial: { delivered: 'estimate', undelivered: 'free' },
  implausible: { delivered: 'bounded estimate', undelivered: 'free' },
  none: { delivered: 'estimate', undelivered: 'free' },
}

/** The table of bills. */
export const BILLS: Readonly<Record<EndedBy, Readonly<Record<Reported, Cell>>>> = {
  nobody: {
    complete: { delivered: 'reported', undelivered: 'reported' },
    partial: { delivered: 'estimate', undelivered: 'estimate' },
    implausible: { delivered: 'bounded estimate', undelivered: 'bounded estimate' },
    none: { delivered: 'estimate', undelivered: 'free' },
  },
  // A customer who ends a reply owes what its upstream may have generated.
  customer: {
    complete: { delivered: 'reported', undelivered: 'reported' },
    partial: { delivered: 'cancel charge', undelivered: 'cancel charge' },
    implausible: { delivered: 'bounded cancel charge', undelivered: 'bounded cancel charge' },
    none: { delivered: 'cancel charge', undelivered: 'cancel charge' },
  },
  upstream: FAILED,
  // A customer can ask for a stream that goes over a limit.
  gateway: {
    complete: { delivered: 'reported', undelivered: 'free' },
    partial: { delivered: 'cancel charge', undelivered: 'free' },
    implausible: { delivered: 'bounded cancel charge', undelivered: 'free' },
    none: { delivered: 'cancel charge', undelivered: 'free' },
  },
  stop: FAILED,
}

/** What the rules compute from. */
interface Case {
  readonly x: Billable
  readonly terms: Terms
  readonly reported: CountedUsage | undefined
}

/** The part of a bill that its rule decides. */
type Charged = Omit<Bill, 'failed' | 'served' | 'priceName' | 'unread'>

/** A usage with its price. */
type Priced = Omit<Charged, 'source' | 'quarantined'>

const FREE: Charged = {
  charge: 0n,
  billed: false,
  usage: NO_USAGE,
  source: 'upstream',
  quarantined: false,
  parts: [],
  unpriced: [],
}

const RULES: Readonly<Record<Rule, (of: Case) => Charged>> = {
  free: () => FREE,
  // Implausible calls are reduced to plausible ones. The tokens are believed all the same.
  reported: ({ x, terms, reported }) => ({
    ...withParts(priced((reported as CountedUsage).usage, x, terms, reported), imagesApart(x, terms, reported), terms),
    source: 'upstream',
    quarantined: !plausibleCalls(x.tally, terms),
  }),
  estimate: ({ x, terms }) => {
    const own = priced(observed(x, terms), x, terms)
    // What was begun and not finished was not delivered.
    return estimated(x.complete ? withParts(own, imagesApart(x, terms, undefined), terms) : own)
  },
  'cancel charge': ({ x, terms }) => estimated(cancelled(cancelUsage(x, terms), x, terms)),
  'bounded estimate': of => {
    const estimate = observed(of.x, of.terms)
    return boundedBy(estimate, priced(estimate, of.x, of.terms), of)
  },
  'bounded cancel charge': of => {
    const estimate = cancelUsage(of.x, of.terms)
    return boundedBy(estimate, cancelled(estimate, of.x, of.terms), of)
  },
}

/** Returns the bill of a finished exchange. */
export function billFor(x: Billable, outcome: Outcome, terms: Terms): Bill {
  const reported = x.tally.usage()
  const rule = ruleFor(x, outcome, terms)
  const failed = outcome.kind === 'failed' || x.tally.failure !== undefined
  const charged = RULES[rule]({ x, terms, reported })
  const { billed: isBilled, charge, parts } = charged
  const facts = (): object => ({ rule, charge, parts: parts.length })
  assertMoney(!isBilled || parts.length < 2 || charge === chargeAll(parts), 'the parts of a charge sum to it', facts)
  assertMoney(isBilled || charge === 0n, 'what is not billed is not charged', facts)
  return {
    ...charged,
    failed,
    ...answeredBy(x, parts, terms),
    unread: charged.billed ? [...x.tally.unread, ...surprises(x, charged, terms, reported)] : x.tally.unread,
  }
}

/** Returns which model answered, if it is another one of the key type, and the name of the price by which a request is charged. */
export function answeredBy(
  { model: { entry }, tally }: Billable,
  [first]: readonly BilledUsage[],
  terms: Terms,
): Pick<Bill, 'served' | 'priceName'> {
  const server = otherServer(entry, tally, terms)
  const isOther = first !== undefined && first.price !== entry.price
  const priced = isOther && [server, ...terms.extras.models.values()].find(other => other?.price === first.price)
  return { served: server?.id, priceName: (priced || entry).priceName }
}

/** What a reply used beyond what was asked for, or without reporting it. */
function surprises(
  x: Billable,
  { usage }: Charged,
  terms: Terms,
  reported: CountedUsage | undefined,
): readonly string[] {
  return [
    ...(reported && imagesApart(x, terms, reported).length > 0 ? ['images'] : []),
    ...(reported && countsNothing(usage.output, x.delivered) ? ['output'] : []),
    ...(reported && countsNothing(inputTokens(usage), terms.weight.textBytes) ? ['input'] : []),
  ]
}

/** Length of a text, in bytes, from which a report of no token, or of one, is implausible. */
const WORDY_BYTES_MIN = 2000

/** Whether a report counts hardly any token of a long text. */
function countsNothing(tokens: number, bytes: number): boolean {
  return tokens <= 1 && bytes >= WORDY_BYTES_MIN
}

/** Returns the rule for an exchange: one of three special cases, or a cell of the table. */
export function ruleFor(x: Billable, outcome: Outcome, terms: Terms): Rule {
  if (outcome.kind === 'answered') return 'free'
  const ended = endedBy(x, outcome)
  // The exchange failed before its reply began: no account served it, or a stage replaced the reply. Content that was
  // delivered all the same, which only a defect can cause, is charged.
  if (ended === 'gateway' && outcome.kind === 'failed') return x.delivered === 0 ? 'free' : 'estimate'
  const reported = reportedOf(x, outcome, terms)
  if (ended === 'customer' && reported !== 'complete' && !outcome.attempts.some(mayHaveWorked)) return 'free'
  return BILLS[ended][reported][x.delivered > 0 ? 'delivered' : 'undelivered']
}

function endedBy({ tally }: Billable, outcome: Exclude<Outcome, { kind: 'answered' }>): EndedBy {
  const by = 'by' in outcome ? outcome.by : undefined
  if (by === 'client' || by === 'budget' || by === 'disabled') return 'customer'
  if (tally.failure || by === 'upstream') return 'upstream'
  if (by === 'drain') return 'stop'
  return outcome.kind === 'relayed' ? 'nobody' : 'gateway'
}

function reportedOf(x: Billable, outcome: Outcome, terms: Terms): Reported {
  const reported = x.tally.usage()
  if (!reported) return 'none'
  if (!plausible(reported, x, terms)) return 'implausible'
  // A final report is the whole truth, even if the client did not wait for it and whatever happened to the reply.
  const ended = (x.complete || outcome.kind === 'relayed') && !x.tally.failure
  return reported.complete && (x.tally.usageIsFinal || ended) ? 'complete' : 'partial'
}

/** Whether an account may have worked on the request: it answered with status 200, or has not answered yet. */
function mayHaveWorked({ status = 200, failure }: Attempt): boolean {
  return status === 200 && failure === undefined
}

function estimated(charged: Priced, quarantined = false): Charged {
  return { ...charged, source: 'estimated', quarantined }
}

/**
 * Charges as much of an implausible report as is possible, but not less than an estimate.
 * @param least the estimate with its price
 */
function boundedBy(estimate: Usage, least: Priced, { x, terms, reported }: Case): Charged {
  if (!reported) return estimated(least, true)
  const most = priced(bounded(reported.usage, estimate, x, terms), x, terms)
  return estimated(most.charge > least.charge ? most : least, true)
}

/** Prices the usage of a cancelled reply, with the advice and the images that it may have requested. */
function cancelled(own: Usage, x: Billable, terms: Terms): Priced {
  const parts = cancelParts(own, x, terms)
  const usage = parts.map(part => part.usage).reduce(plus)
  return { billed: true, usage, charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms) }
}

/** Adds separately priced parts. */
function withParts(charged: Priced, parts: readonly BilledUsage[], terms: Terms): Priced {
  if (parts.length === 0) return charged
  const all = [...charged.parts, ...parts]
  const usage = parts.reduce((sum, part) => plus(sum, part.usage), charged.usage)
  return { ...charged, usage, charge: chargeAll(all), parts: all, unpriced: unpriced(all, terms) }
}

/** Prices a usage. @param reported set if it is final, with the reported passes and counters */
function priced(usage: Usage, x: Billable, terms: Terms, reported?: CountedUsage): Priced {
  const parts = billed({ ...reported, usage }, x.model.entry, x.tally, terms)
  return { billed: true, usage, charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms) }
}
