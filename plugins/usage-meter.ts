import { type Attempt, type Outcome, formatCredits, GatewayError } from 'tollgate/plugin'
import * as metering from 'tollgate/plugin/metering'
import {
  type Hold,
  type HoldStanding,
  floorOf,
  modelOf,
  ratesNow,
  SwapList,
  resendPartOf,
  defineBuiltIn,
  type BuiltInGiven,
  type EndReason,
  type BuiltInExchange,
  type HoldRequest,
  type KeyLimits,
  type BuiltInHost,
  type Upstream,
  type BuiltInWith,
} from 'tollgate/plugin/metering'

/** Interval of the checks of silent replies that may cost money, in milliseconds. */
const TICK_MS = 1000

type Known = BuiltInWith<'key' | 'secret' | 'body' | 'model' | 'route' | 'extras' | 'tally'>
type Metered = BuiltInWith<'runningHold'> & Known

/** Holds the cost of a request before it is sent, and settles its actual cost afterwards. */
export default defineBuiltIn({
  name: 'usage-meter',
  summary: 'Holds the likely cost before a request is sent. Settles the actual cost at its end.',
  on: 'inference',
  needs: ['key', 'secret', 'body', 'model', 'route', 'extras', 'tally'],
  gives: ['runningHold'],
  meters: true,
  options: metering.METER_OPTIONS,
  setup(rates, host) {
    const meter = new Meter(rates, host)
    const ticking = setInterval(() => meter.tick(), TICK_MS)
    ticking.unref()
    return {
      request(x) {
        if (x.body.contents.attachments.length === 0) return meter.hold(x)
        const weighing = metering.weighDocuments(x, rates.pageTokens, job =>
          host.longJobs.of(x.key.id, x).documents(job),
        )
        return weighing.then(() => meter.hold(x))
      },
      attempt: (x, failed) => meter.goOn(x, failed),
      response(x, head) {
        if (head.stream && !head.failure) {
          x.runningHold.isStreaming = true
          host.ledger.begun(x.runningHold.holds)
        }
        const { request, standing } = x.runningHold.keyHold
        if (standing && request.bounds?.rates !== '') Object.assign(head.reply, meter.rateHeaders(x, standing))
        const served = metering.otherServer(x.model.entry, x.tally, x.runningHold.terms.charged)
        if (served) head.reply['x-tollgate-served-model'] = served.id
        // A header tells the client about a lowered output limit.
        if (x.runningHold.isOutputLowered) head.reply['x-tollgate-output-limit'] = String(x.format.outputLimit(x.body))
      },
      events: 'signals',
      event(x, { reading }) {
        if (reading.usage || reading.calls || reading.rounds) x.runningHold.recheck()
      },
      progress: x => x.runningHold.progress(x),
      listening(x, anybody) {
        const done = anybody
          ? host.ledger.rejoin(x.runningHold.keyHold)
          : host.ledger.abandon(
              x.runningHold.keyHold,
              metering.typeOf(host.config, x.key).abandoned,
              !streams(x) || x.runningHold.terms.charged.weight.providerTools,
            )
        if (!anybody) host.meter.lines.ended(x.key.id)
        done.catch((cause: unknown) =>
          host.log.warn(
            { exchange: x.id, err: cause },
            'the store does not know whether a client still receives a reply',
          ),
        )
      },
      decide: (x, outcome) => meter.conclude(x, outcome),
      settle(x, outcome) {
        if (!x.runningHold.concluded) void meter.conclude(x, outcome)
      },
      close: () => clearInterval(ticking),
    }
  },
})

type MeterRates = Parameters<typeof metering.termsOf>[2] & { readonly address: boolean }

/** Holds and settles the cost of exchanges. */
class Meter {
  readonly #rates: MeterRates
  readonly #host: BuiltInHost
  readonly #holder: metering.Holder
  readonly #planEvents: metering.PlanEvents
  /** Replies that may cost something while they deliver nothing. */
  readonly #silent = new SwapList<metering.RunningHold>()

  constructor(rates: MeterRates, host: BuiltInHost) {
    this.#rates = rates
    this.#host = host
    this.#holder = new metering.Holder(host)
    this.#planEvents = new metering.PlanEvents(host)
  }

  /** Checks the replies that may cost something while they deliver nothing. */
  tick(): void {
    for (const runningHold of this.#silent.all()) runningHold.tick()
  }

  #termsOf(x: Known): metering.TermsPair {
    const now = { meter: this.#host.meter, now: this.#host.now() }
    return metering.termsOf(x, metering.typeOf(this.#host.config, x.key).models, this.#rates, now)
  }

  /** Returns the headers that say what is left of a key's rates. */
  rateHeaders(x: BuiltInExchange & Known, { requestsFreeAt, tokensFreeAt }: HoldStanding): Record<string, string> {
    const now = this.#host.now()
    const rates = ratesNow(
      metering.limitsOf(metering.typeOf(this.#host.config, x.key), x.key),
      [requestsFreeAt, tokensFreeAt],
      now,
    )
    return x.format.rateHeaders(rates, now)
  }

  /** Holds the likely cost of a request. @throws GatewayError if the balance or the quotas do not cover it */
  async hold(x: BuiltInExchange & Known): Promise<BuiltInGiven<'runningHold'>> {
    const { format } = x.route
    const type = metering.typeOf(this.#host.config, x.key)
    const limits = metering.limitsOf(type, x.key)
    const isLimited = metering.lowerOutput(x, limits)
    const { request, tokens, freeOutput } = holdRequest(x, this.#host, this.#termsOf(x), {
      limits,
      address: this.#rates.address,
    })
    const { groups } = this.#host.config
    const bounds = metering.boundsOf(x, x.key, limits, { groups, tokens })
    const [keyHold, quotaHolds] = await this.#holder.hold({ ...request, bounds }, x, limits)
    this.#planEvents.note(keyHold)
    const aheadTokens = type.holdAhead * x.format.choices(x.body)
    // Another account may have been chosen for its quota, which may speak another format.
    if (x.route.format !== format) x.tally.follow(x)
    const holds = { keyHold, quotaHolds }
    const runningHold = new metering.RunningHold(this.#host.ledger, holds, this.#termsOf(x), aheadTokens)
    lower(x, runningHold, this.#host)
    runningHold.isOutputLowered ||= isLimited
    if (freeOutput !== undefined && metering.lowerToTokens(x, keyHold, freeOutput)) runningHold.isOutputLowered = true
    if (runningHold.terms.held.reasoning !== 'none' && (streams(x) || !x.model.entry.reasoningInLimit)) {
      runningHold.silent = x
      this.#silent.add(runningHold)
    }
    return { runningHold }
  }

  /** Goes on to another upstream account. @returns false if its quotas cannot be held */
  async goOn(x: BuiltInExchange & Metered, failed: Attempt): Promise<boolean> {
    const { runningHold } = x
    const { quotaHolds } = runningHold
    // The upstream account pays for what the failed attempt used. The customer does not. If this one cannot be asked
    // either, the hook runs again with the same failed attempt, whose use counts once.
    const isNew = runningHold.accountedFor !== failed
    const used = isNew ? usedBy(x) : []
    const upstream = this.#host.config.upstreams.get(failed.upstream)
    const cost = isNew && upstream ? costOf(x, used, upstream) : undefined
    runningHold.failedCost += cost ?? 0n
    runningHold.accountedFor = failed
    runningHold.quotaHolds = []
    this.#holder.endQuotas(quotaHolds, used, cost)
    const holds = await this.#heldFor(x)
    if (!holds) return false
    runningHold.goOn(holds, this.#termsOf(x))
    lower(x, runningHold, this.#host)
    return true
  }

  /** Settles the holds of an exchange. @returns a promise that resolves when the charge is on its way */
  conclude(x: BuiltInExchange & Metered, outcome: Outcome): Promise<void> {
    this.#silent.delete(x.runningHold)
    x.runningHold.concluded = true
    const { charged } = x.runningHold.terms
    const result = metering.billFor(x, outcome, charged)
    x.runningHold.bill = result
    const cost = costOfReply(x, result)
    const notes = metering.notesAtEnd(x, outcome, { first: x.runningHold.notes, result, cost, now: this.#host.now() })
    watch(x, result, cost, this.#host)
    if (result.billed && this.#host.meter.used) {
      const by = { type: x.key.type, model: modelOf(x), account: notes.upstream ?? '' }
      this.#host.meter.used.note(by, result.usage, result.charge, cost)
    }
    const kind = result.billed ? 'settle' : 'void'
    const resend = result.billed ? resendPartOf(x, outcome) : undefined
    const { keyHold, quotaHolds } = x.runningHold
    const { bounds } = keyHold.request
    const tokens = bounds ? metering.countedTokens(result.usage, bounds.plan?.cached) : 0
    const onItsWay = this.#holder.end(keyHold, { charge: result.charge, tokens, kind, notes, resend })
    if (result.billed) this.#planEvents.ended(keyHold, { charge: result.charge, tokens })
    // The upstream account pays for every attempt: its quota ignores resends, and counts what a failed attempt reports.
    const used = result.billed ? result.parts : usedBy(x)
    this.#holder.endQuotas(quotaHolds, used, costOf(x, used, x.route.upstream), notes)
    if (result.quarantined) quarantine(x, this.#host)
    else if (result.billed && result.source === 'upstream')
      metering.learn(x, charged, result.usage, { meter: this.#host.meter, now: this.#host.now() })
    return onItsWay
  }

  /** Holds on the quotas of another account than the first. Undefined if it cannot be asked. */
  async #heldFor(x: BuiltInExchange & Metered): Promise<readonly Hold[] | undefined> {
    const { runningHold } = x
    const { request } = runningHold.keyHold
    const answer = await this.#holder.holdQuotas(request, x).catch((cause: unknown) => {
      this.#host.log.warn({ exchange: x.id, err: cause }, 'the quotas of an account cannot be held, so it is not asked')
      return undefined
    })
    if (answer?.kind !== 'held') return undefined
    if (!runningHold.concluded) return answer.holds
    // The store answered so late that the exchange has ended.
    this.#holder.endQuotas(answer.holds, [], 0n)
    return undefined
  }
}

function streams({ body }: Known): boolean {
  return body.get('stream') === true
}

/** Returns whether to lower the request's output limit to what is held. */
function lowers(x: Known, host: BuiltInHost): boolean {
  return !streams(x) || metering.typeOf(host.config, x.key).clampOutput
}

/** Returns the output tokens that a balance must cover. */
function leastOutput(x: Known, { leastOutput, leastLimit }: metering.Terms, host: BuiltInHost): number {
  const least = streams(x) || metering.typeOf(host.config, x.key).clampOutput ? leastOutput : leastLimit
  return x.format.choices(x.body) * Math.max(least, x.route.translation ? x.route.format.leastOutput : 0)
}

/** Lowers the limits of a request that cannot be ended early to what is held: first its calls, then its output. */
function lower(x: BuiltInExchange & Known, runningHold: metering.RunningHold, host: BuiltInHost): void {
  const { amount, underfunded } = runningHold
  const terms = runningHold.terms.held
  const { tools, advisors } = terms.extras
  let calls = metering.CALLS_MAX
  if (!streams(x) && tools.length + advisors.length > 0) {
    const output = Math.min(metering.outputLimit(x), leastOutput(x, terms, host))
    if (underfunded) calls = metering.callsFor(x, amount, output, terms)
    x.format.limitCalls(x.body, calls, terms.toolCalls)
  }
  if (!underfunded || !lowers(x, host)) return
  const tokens = metering.outputOf(x, amount, terms, metering.heldCalls(x, terms, calls))
  const limit = Math.floor(tokens / x.format.choices(x.body))
  runningHold.isOutputLowered = limit < metering.outputLimit(x) / x.format.choices(x.body)
  if (runningHold.isOutputLowered) x.format.limitOutput(x.body, limit)
}

type Parts = metering.Bill['parts']

/** Returns what the current attempt has used, as far as its reply reports it. */
function usedBy(x: Metered): Parts {
  return metering.reportedParts(x, x.runningHold.terms.charged)
}

/** Returns what a use costs the operator, in nano-credits, if known. */
function costOf(x: Metered, used: Parts, upstream: Upstream): bigint | undefined {
  const reported = x.tally.usage()
  if (used.length === 0 && !reported) return undefined
  return metering.costOf(used, x.model.entry.sends, upstream, reported?.cost)
}

/** Returns what the exchange costs the operator, in nano-credits, if known; also for a reply without a charge. */
function costOfReply(x: Metered, { parts }: metering.Bill): bigint | undefined {
  const { failedCost } = x.runningHold
  const cost = costOf(x, parts.length === 0 ? usedBy(x) : parts, x.route.upstream)
  return failedCost === 0n ? cost : failedCost + (cost ?? 0n)
}

/** Logs usage without a price, usage that is understood in part, and charges below the operator's cost. */
function watch(
  x: Metered,
  { charge, unpriced, unread, served }: metering.Bill,
  cost: bigint | undefined,
  { config, meter, log, now }: BuiltInHost,
): void {
  const model = modelOf(x)
  const of = { exchange: x.id, key: x.key.id, model }
  if (unpriced.length > 0) {
    meter.unpriced++
    log.warn({ ...of, unpriced }, 'a reply used something without a price; it is charged at the plain rates')
  }
  const { name } = x.route.upstream
  if (served !== undefined && meter.served.note({ upstream: name, model, served }, now()))
    log.warn(
      { ...of, upstream: name, served },
      'another model answered than the one that was asked for; the cheaper price counts',
    )
  if (unread.length > 0 && meter.unread.note({ upstream: name, model }, now()))
    log.warn({ ...of, upstream: name, unread }, 'a reply reported usage that is understood only in part')
  if (cost === undefined || charge >= cost || metering.typeOf(config, x.key).onLoss === 'ignore') return
  meter.belowCost++
  log.warn({ ...of, charge: formatCredits(charge), cost: formatCredits(cost) }, 'a charge is below its cost')
}

/** Logs an implausible report, and an alarm if several keys have got one. Neither changes a charge. */
function quarantine(x: Metered, { meter, log, now }: BuiltInHost): void {
  const model = modelOf(x)
  log.warn({ exchange: x.id, key: x.key.id, model }, 'implausible usage; the plausible part is charged')
  meter.quarantined++
  if (!meter.learned.implausible(metering.upstreamModel(x), x.key.id, now())) return
  meter.implausibleAlarms++
  log.error(
    { model, upstream: x.route.upstream.name },
    'implausible usage reports of a model to three keys within an hour; check outputRate and context in the file',
  )
}

/** How a hold is requested. */
interface HoldWish {
  readonly limits: KeyLimits
  /** Whether to note the client's address. */
  readonly address: boolean
}

interface Wanted {
  readonly request: HoldRequest
  readonly tokens: metering.AskedTokens
  /** The output limit, if output costs nothing, so that the hold does not grow with it. */
  readonly freeOutput: number | undefined
}

/** Returns the request for the hold on the key's account, and its tokens. @throws GatewayError context_too_long */
function holdRequest(
  x: BuiltInExchange & Known,
  host: BuiltInHost,
  { charged, held: terms }: metering.TermsPair,
  { limits, address }: HoldWish,
): Wanted {
  metering.checkInput(x, terms, limits)
  const { holdAhead, clampOutput } = metering.typeOf(host.config, x.key)
  const limit = metering.outputLimit(x)
  const stream = streams(x)
  // A stream's hold grows with it, and a stream can be ended. A JSON reply must be covered completely.
  const choices = x.format.choices(x.body)
  const all = limit === Infinity ? terms.unlimitedOutput * choices : limit
  const calls = metering.heldCalls(x, terms)
  const isFree = metering.holdFor(x, all, terms, calls) === metering.holdFor(x, 0, terms, calls)
  const ahead = stream && !isFree ? Math.min(limit, holdAhead * choices) : all
  const amount = metering.holdFor(x, ahead, terms, calls)
  const leastAhead = Math.min(ahead, leastOutput(x, terms, host))
  const leastCalls = metering.heldCalls(x, terms, 1)
  const least = metering.holdFor(x, leastAhead, terms, leastCalls)
  const tokens = {
    tokens: metering.tokensHeld(x, ahead, terms, calls),
    leastTokens: metering.tokensHeld(x, leastAhead, terms, leastCalls),
  }
  const floor = (): ReturnType<HoldRequest['floor']> => {
    const parts = metering.delivered(x, charged, (x as Partial<Metered>).runningHold?.isStreaming === true)
    const counted = parts.reduce((sum, { usage }) => sum + metering.countedTokens(usage, x.key.plan?.cached), 0)
    return { ...floorOf(parts, metering.answeredBy(x, parts, charged)), tokens: counted }
  }
  const { spender, version, rotation } = x.key
  const request: HoldRequest = {
    id: x.id,
    amount,
    least,
    notes: metering.notesAtStart(x, address),
    floor,
    ...spender,
    version,
    rotation,
    concurrency: limits.concurrency,
    half: !stream && !clampOutput,
    endExchange: why => end(x, why, terms, host),
  }
  return { request, tokens, freeOutput: isFree ? all : undefined }
}

/** Ends an exchange on behalf of the ledger. */
function end(x: BuiltInExchange & Known, why: EndReason, { weight }: metering.Terms, host: BuiltInHost): void {
  // A JSON reply arrives in one piece and is paid for.
  if (!streams(x) || x.complete) return
  if (why === 'crowded' && weight.providerTools) return
  if (why === 'crowded' || x.gone) return x.giveUp()
  if (metering.typeOf(host.config, x.key).onDisabled === 'finish') return
  x.stop('disabled', new GatewayError(why === 'expired' ? 'key_expired' : 'key_disabled'))
}

/** Keys of a type that is no longer in the file have been refused before. */
