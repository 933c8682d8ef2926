import { setTimeout as sleep } from 'node:timers/promises'
import {
  addTo,
  floorOf,
  metering,
  modelOf,
  SwapList,
  attemptPartOf,
  definePlugin,
  type EndReason,
  type Exchange,
  formatCredits,
  GatewayError,
  type Hold,
  type HoldAnswer,
  type HoldRequest,
  type Host,
  type Key,
  type KeyType,
  type Notes,
  quotaAccount,
  type Upstream,
  type With,
} from 'tollgate/plugin'

declare module 'tollgate/plugin' {
  interface Facts {
    /** The holds of the exchange. */
    runningHold: metering.RunningHold
  }
}

/** If a quota renews within this time, in milliseconds, the client is asked to retry. */
const NEAR_MS = 60_000
/** Interval of the checks of silent replies that may cost money, in milliseconds. */
const TICK_MS = 1000
/**
 * Milliseconds between attempts to start a request whose key has too many running ones: minimum and random addition.
 */
const BUSY_MS = { least: 50, spread: 100 } as const

type Known = With<'key' | 'secret' | 'body' | 'model' | 'route' | 'extras' | 'tally'>
type Metered = With<'runningHold'> & Known

/** Holds the cost of a request before it is sent, and settles its actual cost afterwards. */
export default definePlugin({
  name: 'usage-meter',
  summary: 'Holds the likely cost before a request is sent. Settles the actual cost after its last byte.',
  on: 'inference',
  needs: ['key', 'secret', 'body', 'model', 'route', 'extras', 'tally'],
  gives: ['runningHold'],
  meters: true,
  options: metering.METER_OPTIONS,
  setup(rates, host) {
    /** Replies that may cost something while they deliver nothing. */
    const silent = new SwapList<metering.RunningHold>()
    const ticking = setInterval(() => {
      for (const runningHold of silent.all()) runningHold.tick()
    }, TICK_MS)
    ticking.unref()
    return {
      async request(x) {
        if (x.body.contents.attachments.length > 0)
          await metering.weighDocuments(x, rates.pageTokens, job => host.longJobs.of(x.key.id, x).documents(job))
        const terms = metering.termsOf(x, typeOf(x, host).models, rates, host.meter, host.now())
        const requests = holdRequests(x, host, terms)
        const answers = await holdAll(requests, x, host)
        const no = answers.findIndex(({ kind }) => kind !== 'held')
        if (no !== -1) {
          const error = refusal(answers[no] as HoldAnswer, requests[no] as HoldRequest, no > 0, host.now())
          giveBack(answers, error, host)
          throw error
        }
        const choices = x.format.choices(x.body)
        const runningHold = new metering.RunningHold(
          holdsOf(answers),
          host.ledger,
          terms,
          typeOf(x, host).holdAhead * choices,
        )
        if (runningHold.underfunded && lowers(x, host))
          x.format.limitOutput(x.body, Math.floor(metering.outputOf(x, runningHold.amount, terms) / choices))
        if (!streams(x) && terms.extras.tools.length + terms.extras.advisors.length > 0)
          x.format.limitCalls(x.body, terms.toolCalls)
        if (terms.reasoning !== 'none' && (streams(x) || !x.model.entry.reasoningInLimit)) {
          runningHold.silent = x
          silent.add(runningHold)
        }
        return { runningHold }
      },
      response(x, head) {
        // A header tells the client about a lowered output limit.
        if (x.runningHold.underfunded && lowers(x, host))
          head.reply['x-tollgate-output-limit'] = String(x.format.outputLimit(x.body))
      },
      events: 'signals',
      event(x, { reading }) {
        if (reading.usage || reading.calls) x.runningHold.recheck()
      },
      progress: x => x.runningHold.progress(x),
      listening(x, anybody) {
        const done = anybody
          ? host.ledger.rejoin(x.runningHold.keyHold)
          : host.ledger.abandon(
              x.runningHold.keyHold,
              typeOf(x, host).abandoned,
              !streams(x) || x.runningHold.terms.weight.providerTools,
            )
        done.catch((cause: unknown) =>
          host.log.warn(
            { exchange: x.id, err: cause },
            'the store does not know whether a client still receives a reply',
          ),
        )
      },
      settle(x, outcome) {
        silent.delete(x.runningHold)
        const model = modelOf(x)
        const suspended = host.meter.learned.suspended(model, host.now())
        const result = metering.billFor(x, outcome, x.runningHold.terms, suspended)
        const cost = result.parts.length > 0 || x.tally.usage() ? costOfReply(x, result) : undefined
        const notes = metering.notesAtEnd(x, x.runningHold.notes, outcome, result, cost, host.now())
        watch(x, result, cost, model, host)
        const kind = result.billed ? 'settle' : 'void'
        const attempt = result.billed ? attemptPartOf(x, outcome) : undefined
        // The upstream account pays for every attempt, so its quota ignores retries.
        x.runningHold.holds.forEach((hold, index) =>
          host.ledger.settle(hold, { charge: result.charge, kind, notes, attempt: index === 0 ? attempt : undefined }),
        )
        if (result.quarantined) quarantine(x, model, suspended, host)
        else if (result.billed && result.source === 'upstream')
          metering.learn(x, x.runningHold.terms, result.usage, host.meter, host.now())
      },
      close: () => clearInterval(ticking),
    }
  },
})

function streams({ body }: Known): boolean {
  return body.get('stream') === true
}

/** Returns whether to lower the request's output limit to what is held. */
function lowers(x: Known, host: Host): boolean {
  return !streams(x) || typeOf(x, host).clampOutput
}

/** Returns what the reply costs the operator, in nano-credits, if known; also for a reply without a charge. */
function costOfReply(x: Metered, { parts }: metering.Bill): bigint | undefined {
  const { terms } = x.runningHold
  const reported = x.tally.usage()
  const used = parts.length === 0 && reported?.valid ? metering.billedSoFar(x, reported.usage, terms) : parts
  const { upstream } = x.route.candidates[0] as { upstream: Upstream }
  return metering.costOf(used, x.model.entry.sends, upstream, reported?.cost)
}

/** Logs usage without a price, and charges below the operator's cost. */
function watch(
  x: Metered,
  { charge, unpriced }: metering.Bill,
  cost: bigint | undefined,
  model: string,
  { meter, log }: Host,
): void {
  const of = { exchange: x.id, key: x.key.id, model }
  if (unpriced.length > 0) {
    meter.unpriced++
    log.warn({ ...of, unpriced }, 'a reply used something without a price; it is charged at the plain rates')
  }
  if (cost === undefined || charge >= cost) return
  meter.belowCost++
  log.warn({ ...of, charge: formatCredits(charge), cost: formatCredits(cost) }, 'a charge is below its cost')
}

/** Logs an implausible report, and a suspension after several. */
function quarantine(x: Metered, model: string, suspended: boolean, { meter, log, now }: Host): void {
  log.warn(
    { exchange: x.id, key: x.key.id, model },
    suspended ? 'implausible usage; the estimate is charged' : 'implausible usage; the plausible part is charged',
  )
  meter.quarantined++
  if (!meter.learned.quarantine(model, now())) return
  meter.suspensions++
  log.error(
    { model, upstream: x.route.candidates[0]?.upstream.name },
    'three implausible usage reports of a model within an hour; further ones are charged as estimated',
  )
}

function holdRequests(x: Exchange & Known, host: Host, terms: metering.Terms): HoldRequest[] {
  const { holdAhead, clampOutput, concurrency } = typeOf(x, host)
  const limit = metering.outputLimit(x)
  const stream = streams(x)
  // A stream's hold grows with it, and a stream can be ended. A JSON reply must be covered completely.
  const choices = x.format.choices(x.body)
  const all = limit === Infinity ? terms.unlimitedOutput * choices : limit
  const ahead = stream ? Math.min(limit, holdAhead * choices) : all
  const calls = metering.heldCalls(x, terms)
  const amount = metering.holdFor(x, ahead, terms, calls.most)
  const leastOutput = stream || clampOutput ? terms.leastOutput : terms.leastLimit
  const least = metering.holdFor(x, Math.min(ahead, leastOutput * choices), terms, calls.least)
  const floor = (): ReturnType<HoldRequest['floor']> => floorOf(metering.delivered(x, terms), x.model.entry.priceName)
  const base = { id: x.id, amount, least, notes: metering.notesAtStart(x), floor }
  const { account } = x.route.candidates[0] as { account: { name: string; quota?: HoldRequest['quota'] } }
  const { id, version, rotation } = x.key
  const own: HoldRequest = {
    ...base,
    account: id,
    version,
    rotation,
    concurrency,
    half: !stream && !clampOutput,
    end: why => end(x, why, terms, host),
  }
  return account.quota
    ? [own, { ...base, account: quotaAccount(account.name), version: '', quota: account.quota }]
    : [own]
}

/** Ends an exchange on behalf of the ledger. */
function end(x: Exchange & Known, why: EndReason, { weight }: metering.Terms, host: Host): void {
  // A JSON reply arrives in one piece and is paid for.
  if (!streams(x) || x.complete) return
  if (why === 'crowded' && weight.providerTools) return
  if (why === 'crowded' || x.gone) return x.giveUp()
  if (typeOf(x, host).onDisabled === 'finish') return
  x.stop('disabled', new GatewayError(why === 'expired' ? 'key_expired' : 'key_disabled'))
}

/** Keys of a type that is no longer in the file have been refused before. */
function typeOf({ key }: Known, { config }: Host): KeyType {
  return config.keyTypes.get(key.type) as KeyType
}

/**
 * Requests the holds on the key's account and on the upstream account's quota, if it has one. Stops at the first
 * refusal.
 */
async function holdAll(
  [own, ...others]: readonly HoldRequest[],
  x: Exchange & Known,
  host: Host,
): Promise<HoldAnswer[]> {
  const answers = [await holdOwn(own as HoldRequest, x, host)]
  if (others.length === 0) return answers
  try {
    for (const other of others) if (answers.at(-1)?.kind === 'held') answers.push(await host.ledger.hold(other))
  } catch (thrown) {
    giveBack(answers, GatewayError.from(thrown), host)
    throw thrown
  }
  return answers
}

/** By key: how many requests wait for others to end. Each of them polls the store, so they are few. */
const busy = new Map<string, number>()

/**
 * Requests the hold on the key's account. If the key has too many running requests, waits; if its record has changed,
 * reads it again.
 */
async function holdOwn(request: HoldRequest, x: Exchange & Known, host: Host): Promise<HoldAnswer> {
  const { concurrency, concurrencyWaitMs } = typeOf(x, host)
  // The stage has a time limit of its own.
  const until = host.now() + Math.min(concurrencyWaitMs, host.config.limits.stageMs / 2)
  let answer = await host.ledger.hold(request)
  if (answer.kind === 'busy' && (busy.get(x.key.id) ?? 0) < concurrency) {
    addTo(busy, x.key.id, 1)
    try {
      while (answer.kind === 'busy' && !x.gone && host.now() < until) {
        await sleep(BUSY_MS.least + Math.random() * BUSY_MS.spread)
        answer = await host.ledger.hold(request)
      }
    } finally {
      addTo(busy, x.key.id, -1)
    }
  }
  if (answer.kind !== 'stale') return answer
  const key: Key | undefined = await host.keys.refind(x.secret)
  if (!key || key.status !== 'active') return { kind: 'disabled' }
  return host.ledger.hold({ ...request, version: key.version, rotation: key.rotation })
}

function holdsOf(answers: readonly HoldAnswer[]): Hold[] {
  return answers.filter(answer => answer.kind === 'held').map(({ hold }) => hold)
}

/** Voids the holds of a request that is not sent. */
function giveBack(answers: readonly HoldAnswer[], error: GatewayError, host: Host): void {
  for (const hold of holdsOf(answers)) {
    const notes: Notes = { ...hold.request.notes, status: 'failed', httpStatus: error.status, errorCode: error.code }
    host.ledger.settle(hold, { charge: 0n, kind: 'void', notes })
  }
}

function refusal(answer: HoldAnswer, request: HoldRequest, quota: boolean, now: number): GatewayError {
  switch (answer.kind) {
    case 'insufficient': {
      if (!quota) {
        const [has, needs] = [formatCredits(answer.balance), formatCredits(request.least)]
        const quieter = request.notes.stream ? '' : ' A lower output limit, or a stream, needs less.'
        return new GatewayError('allocation_exhausted', {
          message: `This key has ${has} credits left, but this request may need ${needs}.${quieter}`,
        })
      }
      const wait = answer.resetsAt - now
      return new GatewayError('quota_exhausted', {
        message: `The quota of this model is used up until ${new Date(answer.resetsAt).toISOString()}.`,
        ...(wait <= NEAR_MS ? { retryAfterMs: Math.max(wait, 1000) } : { retry: false }),
      })
    }
    case 'busy':
      return new GatewayError('rate_limited', {
        message: 'Too many requests of this key run at the same time.',
        retryAfterMs: 1000,
      })
    case 'expired':
      return new GatewayError('key_expired')
    case 'disabled':
    case 'stale':
      return new GatewayError('key_disabled')
    default:
      return new GatewayError('internal', { cause: new Error(`a new hold was answered with ${answer.kind}`) })
  }
}
