/** What a history entry records about its exchange, when it begins and when it has ended. */
import type { Attempt, Outcome } from '../exchange/exchange.ts'
import type { BuiltInExchange, BuiltInWith } from '../exchange/built-in.ts'
import type { Bill } from './bill.ts'
import type { CountedUsage } from '../formats/terms.ts'
import { chargeNotes } from '../ledger/entries.ts'
import { inputTokens } from '../money/usage.ts'
import type { NotedAttempt, Notes } from '../records/entry.ts'
import { modelOf } from '../exchange/model.ts'
import { requestEnd } from '../exchange/request-end.ts'
import type { ReportedSoFar } from './pricing.ts'

type Known = BuiltInWith<'body' | 'model'>

/**
 * Returns what is known before a request is sent.
 * @param withAddress whether to note the client's address
 */
export function notesAtStart(
  x: BuiltInExchange & Known & BuiltInWith<'key' | 'route' | 'extras'>,
  withAddress: boolean,
): Notes {
  const { entry, asked } = x.model
  return {
    type: x.key.type,
    upstream: x.route.account.name,
    format: x.format.name,
    endpoint: x.path,
    model: modelOf(x),
    stream: x.body.get('stream') === true,
    ...(x.route.compacting && { compaction: true }),
    ...(withAddress && { address: x.address }),
    ...(asked !== entry.id && { requestedModel: asked.slice(0, 200) }),
    ...(entry.aliasOf !== undefined && { requestedModel: entry.id }),
  }
}

/** What the notes of a finished exchange are made of. */
export interface EndNotes {
  /** The notes from its beginning. */
  readonly first: Notes
  readonly result: Bill
  /** The operator's cost in nano-credits. */
  readonly cost: bigint | undefined
  /** Milliseconds since the epoch. */
  readonly now: number
}

/**
 * Returns what is known about a finished exchange.
 */
export function notesAtEnd(
  x: BuiltInExchange & Known & BuiltInWith<'route'> & { readonly tally: ReportedSoFar },
  outcome: Outcome,
  { first, result, cost, now }: EndNotes,
): Notes {
  const end = requestEnd(outcome)
  const attempts = outcome.kind === 'answered' ? [] : outcome.attempts
  const isError = end.kind === 'failed' || end.kind === 'refused'
  return {
    ...first,
    upstream: attempts.at(-1)?.account ?? x.route.account.name,
    status: end.status === 'ok' && result.failed ? 'failed' : end.status,
    httpStatus: outcome.kind === 'failed' ? x.format.status(outcome.error) : outcome.status,
    ...(isError && end.code !== undefined && { errorCode: end.code }),
    ...(result.billed && { ...chargeNotes(result.parts), usageSource: result.source }),
    ...(result.billed && result.source === 'estimated' && x.silentMs > 0 && { silentMs: x.silentMs }),
    ...(result.served !== undefined && { served: result.served }),
    ...(result.quarantined && { quarantined: true }),
    ...(result.unpriced.length > 0 && { unpriced: result.unpriced.slice(0, 20) }),
    ...(result.unread.length > 0 && { unread: result.unread }),
    ...(cost !== undefined && { cost: String(cost) }),
    ...reportedSums(x.tally.usage(), result),
    price: result.priceName,
    durationMs: now - x.startedAt,
    ...(x.firstByteAfter !== undefined && { ttftMs: x.firstByteAfter }),
    ...(attempts.length > 1 && { attempts: attempts.map(noted) }),
  }
}

/** Returns the sums of an upstream that tell something else than the charge. */
function reportedSums(
  usage: CountedUsage | undefined,
  { billed, source, usage: charged }: Bill,
): Pick<Notes, 'reported'> {
  // An estimate has nothing to agree with.
  if (!billed || source === 'estimated') return {}
  const { total, cost: dollars } = usage ?? {}
  const tokens = total === inputTokens(charged) + charged.output ? undefined : total
  if (tokens === undefined && dollars === undefined) return {}
  return { reported: { ...(tokens !== undefined && { tokens }), ...(dollars !== undefined && { dollars }) } }
}

function noted({ account, status, failure }: Attempt): NotedAttempt {
  return { account, ...(status !== undefined && { status }), ...(failure !== undefined && { failure }) }
}
