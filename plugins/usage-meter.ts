import { createHash } from 'node:crypto'
import { bill, holdFor, outputLimit, outputOf, runningCharge, type Bill, type Rates } from '../core/ledger/bill.ts'
import { Cover } from '../core/ledger/cover.ts'
import {
  type Attempts,
  definePlugin,
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
  type Outcome,
  quotaAccount,
  type With,
} from '../core/plugin.ts'

declare module '../core/exchange.ts' {
  interface Facts {
    /** What is set aside for the exchange. */
    cover: Cover
  }
}

/** A quota that comes back within this time, in milliseconds, is worth a retry. */
const NEAR_MS = 60_000

type Known = With<'key' | 'secret' | 'body' | 'model' | 'route' | 'tally'>

/** Sets the cost of a request aside before it is sent, and settles what it really cost when it has ended. */
export default definePlugin({
  name: 'usage-meter',
  summary: 'Holds the likely cost before a request is sent, settles the true cost after its last byte.',
  on: 'inference',
  needs: ['key', 'secret', 'body', 'model', 'route', 'tally'],
  gives: ['cover'],
  meters: true,
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      leastOutput: {
        type: 'integer',
        minimum: 1,
        maximum: 1_000_000,
        default: 16,
        description: 'a number of output tokens, which a balance must cover for a request to be admitted',
      },
      unlimitedOutput: {
        type: 'integer',
        minimum: 1,
        maximum: 1_000_000,
        default: 32_768,
        description: 'a number of output tokens, which are held for a JSON reply that nothing limits',
      },
      mediaTokens: {
        type: 'integer',
        minimum: 1,
        maximum: 10_000_000,
        default: 3000,
        description: 'tokens held and estimated for one embedded image, sound or file',
      },
      bytesPerToken: { type: 'integer', minimum: 1, maximum: 100, default: 3, description: 'bytes of text that estimates count as one token' },
    },
  },
  setup(rates, host) {
    return {
      async request(x) {
        const requests = holdRequests(x, host, rates)
        const answers = await holdAll(requests, x, host)
        const no = answers.findIndex(({ kind }) => kind !== 'held')
        if (no !== -1) {
          const error = refusal(answers[no] as HoldAnswer, requests[no] as HoldRequest, no > 0, host.now())
          giveBack(answers, error, host)
          throw error
        }
        const type = typeOf(x, host)
        const choices = x.format.choices(x.body)
        const cover = new Cover(holdsOf(answers), host.ledger, rates, type.holdAhead * choices)
        if (type.clampOutput && cover.thin) x.format.limitOutput(x.body, Math.floor(outputOf(x, cover.amount, rates) / choices))
        return { cover }
      },
      response(x, head) {
        // Whoever gets less than he asked for is to see it.
        if (x.cover.thin && typeOf(x, host).clampOutput) head.reply['x-tollgate-output-limit'] = String(x.format.outputLimit(x.body))
      },
      events: 'telling',
      event(x, { reading }) {
        if (reading.usage) x.cover.look()
      },
      progress: x => x.cover.progress(x),
      settle(x, outcome) {
        const result = bill(x, outcome, rates)
        const notes = finalNotes(x, outcome, result, host)
        const kind = result.billed ? 'settle' : 'void'
        const attempt = attemptOf(x, result)
        // The upstream account has paid for every attempt: its quota knows of no retries.
        x.cover.holds.forEach((hold, index) => host.ledger.settle(hold, { charge: result.charge, kind, notes, attempt: index === 0 ? attempt : undefined }))
        if (result.quarantined) host.log.warn({ exchange: x.id, key: x.key.id, model: notes.model }, 'implausible usage; charged the estimate')
      },
    }
  },
})

function holdRequests(x: Exchange & Known, host: Host, rates: Rates): HoldRequest[] {
  const { holdAhead, clampOutput, concurrency } = typeOf(x, host)
  const limit = outputLimit(x)
  const stream = x.body.get('stream') === true
  // A stream's hold grows with it, and it can be ended; a JSON reply comes whole and has to be covered whole.
  const choices = x.format.choices(x.body)
  const ahead = stream ? Math.min(limit, holdAhead * choices) : limit === Infinity ? rates.unlimitedOutput * choices : limit
  const amount = holdFor(x, ahead, rates)
  const least = stream || clampOutput ? holdFor(x, Math.min(ahead, rates.leastOutput * choices), rates) : amount
  const base = { id: x.id, amount, least, notes: firstNotes(x), floor: () => runningCharge(x, rates) }
  const { account } = x.route.candidates[0] as { account: { name: string; quota?: HoldRequest['quota'] } }
  const own: HoldRequest = { ...base, account: x.key.id, version: x.key.version, concurrency }
  return account.quota ? [own, { ...base, account: quotaAccount(account.name), version: '', quota: account.quota }] : [own]
}

/** A type that the file no longer has serves nobody: the gate has refused its keys. */
function typeOf({ key }: Known, { config }: Host): KeyType {
  return config.keyTypes.get(key.type) as KeyType
}

/** Holds everywhere at once; a key whose record changed since it was looked up is looked up anew, once. */
async function holdAll(requests: readonly HoldRequest[], x: Known, host: Host): Promise<HoldAnswer[]> {
  const [own] = requests as readonly [HoldRequest]
  const answers = requests.length === 1 ? [await host.ledger.hold(own)] : await settleAll(requests, request => host.ledger.hold(request), host)
  if (answers[0]?.kind !== 'stale') return answers
  try {
    const key: Key | undefined = await host.keys.refind(x.secret)
    if (!key || key.status !== 'active') return [{ kind: 'disabled' }, ...answers.slice(1)]
    return [await host.ledger.hold({ ...own, version: key.version }), ...answers.slice(1)]
  } catch (thrown) {
    giveBack(answers, GatewayError.from(thrown), host)
    throw thrown
  }
}

/** All answers; when one request fails, what the others hold is given back before its error goes on. */
async function settleAll(requests: readonly HoldRequest[], hold: (request: HoldRequest) => Promise<HoldAnswer>, host: Host): Promise<HoldAnswer[]> {
  const results = await Promise.allSettled(requests.map(hold))
  const answers = results.filter(result => result.status === 'fulfilled').map(({ value }) => value)
  const failed = results.find(result => result.status === 'rejected')
  if (!failed) return answers
  const error = GatewayError.from(failed.reason)
  giveBack(answers, error, host)
  throw error
}

function holdsOf(answers: readonly HoldAnswer[]): Hold[] {
  return answers.filter(answer => answer.kind === 'held').map(({ hold }) => hold)
}

/** Voids what was held for a request that goes no further. */
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
        const quieter = request.notes.stream ? '' : ' A lower limit of output tokens, or a stream, needs less.'
        return new GatewayError('allocation_exhausted', { message: `This key has ${has} credits left; this request may need ${needs}.${quieter}` })
      }
      const wait = answer.resetsAt - now
      return new GatewayError('quota_exhausted', {
        message: `The quota behind this model is used up until ${new Date(answer.resetsAt).toISOString()}.`,
        ...(wait <= NEAR_MS ? { retryAfterMs: Math.max(wait, 1000) } : { retry: false }),
      })
    }
    case 'busy':
      return new GatewayError('rate_limited', { message: 'Too many requests of this key run at the same time.', retryAfterMs: 1000 })
    case 'expired':
      return new GatewayError('key_expired')
    case 'disabled':
    case 'stale':
      return new GatewayError('key_disabled')
    default:
      return new GatewayError('internal', { cause: new Error(`a new hold was answered with ${answer.kind}`) })
  }
}

function firstNotes(x: Exchange & Known): Notes {
  const { entry, asked } = x.model
  return {
    requestId: x.id,
    endpoint: x.path,
    model: entry.aliasOf ?? entry.id,
    stream: x.body.get('stream') === true,
    ...(asked !== entry.id && { requestedModel: asked.slice(0, 200) }),
    ...(entry.aliasOf !== undefined && { requestedModel: entry.id }),
  }
}

/**
 * The part of an exchange among the attempts at its request, when it has one: it brought its client nothing, or it comes
 * after one that may have. SDKs count their retries and repeat the body; others may name the request by a key.
 */
function attemptOf(x: Known, { billed }: Bill): Attempts | undefined {
  const count = x.headers['x-stainless-retry-count']
  const name = x.headers['idempotency-key']
  const repeated = name !== undefined || Number(count) > 0
  const part = x.firstByteAfter === undefined ? (repeated ? 'again' : 'lost') : repeated ? 'retry' : undefined
  if (!billed || !part || (count === undefined && name === undefined)) return undefined
  const digest = createHash('sha256')
    .update(`${x.path}\n${String(name ?? '')}\n`)
    .update(x.body.received)
  const request = digest.digest('hex').slice(0, 32)
  return { request, part }
}

const BROKEN_BY = { client: 'client_gone', upstream: 'broken', drain: 'broken', budget: 'budget' } as const

function finalNotes(x: With<'cover'> & Known, outcome: Outcome, result: Bill, host: Host): Notes {
  const status = outcome.kind === 'broken' ? BROKEN_BY[outcome.by] : result.failed ? 'failed' : 'ok'
  return {
    ...x.cover.notes,
    status,
    httpStatus: outcome.kind === 'failed' ? x.format.status(outcome.error) : outcome.status,
    ...(outcome.kind === 'failed' && { errorCode: outcome.error.code }),
    ...(result.billed && { usage: result.usage, usageSource: result.source }),
    ...(result.quarantined && { quarantined: true }),
    ...(result.cost !== undefined && { upstreamCost: result.cost }),
    price: x.model.entry.priceName,
    durationMs: host.now() - x.startedAt,
    ...(x.firstByteAfter !== undefined && { ttftMs: x.firstByteAfter }),
  }
}
