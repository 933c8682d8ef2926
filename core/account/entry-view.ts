/** Entries of a history in the shapes that customers and operators read, with the unit prices of their charges. */
import { chargeParts } from '../ledger/entries.ts'
import type { PriceBook } from '../ledger/price-book.ts'
import { formatCredits } from '../money/credits.ts'
import { type CallName, type ConditionName, type Price, ratesAt } from '../money/price.ts'
import { ratesText } from '../money/price-text.ts'
import { productsOf } from '../money/products.ts'
import { inputTokens } from '../money/usage.ts'
import type { ChargePart, HistoryEntry } from '../records/entry.ts'
import { moneyLine } from '../records/money-line.ts'

/** Converts nano-credits to a JSON number, for display. The exact amount is always beside it as a string. */
export function credits(nano: bigint): number {
  return Number(formatCredits(nano))
}

/** Returns the members that are set, with their names in snake case. */
export function snake(members: object): object {
  return Object.fromEntries(
    Object.entries(members).flatMap(([name, value]) => (value === undefined ? [] : [[snakeCase(name), value]])),
  )
}

function snakeCase(name: string): string {
  return name.replaceAll(/(?<=[a-z])(?=[A-Z\d])/g, '_').toLowerCase()
}

/** One part of a charge as customers read it. Amounts are exact decimals. */
interface PricedPart {
  readonly [name: string]: unknown
  readonly model?: string
  readonly products: readonly { name: string; count: number; price: string; per: string; credits: string }[]
  readonly factors?: Readonly<Record<string, { readonly name: string; readonly factor: string }>>
}

/** Returns one part of a charge for customers: tokens and calls, each with its unit price. */
function shownPart({ usage, conditions = {}, model }: ChargePart, price: Price): PricedPart {
  const { calls, ...named } = conditions
  const factors = Object.entries(named).flatMap(([name, value]) => {
    const factor = price.factors[name as ConditionName]?.get(value)
    return factor === undefined ? [] : [[snakeCase(name), { name: value, factor: formatCredits(factor) }]]
  })
  const fees = Object.entries(calls ?? {}).map(([name, count]) => [
    snakeCase(name),
    { count, price: formatCredits(price.calls[name as CallName] ?? 0n) },
  ])
  return {
    ...(model !== undefined && { model }),
    version: price.version,
    unit: 'credits per million tokens',
    ...snake(ratesText(ratesAt(price, inputTokens(usage)))),
    tokens: Object.fromEntries(
      Object.entries(usage).flatMap(([name, count]) => (count > 0 ? [[snakeCase(name), count]] : [])),
    ),
    products: productsOf({ usage, price, conditions }).map(({ name, count, rate, per, credits: exact }) => ({
      name: snakeCase(name),
      count,
      price: formatCredits(rate),
      per,
      credits: exact,
    })),
    ...(factors.length > 0 && { factors: Object.fromEntries(factors) }),
    ...(fees.length > 0 && { calls: Object.fromEntries(fees) }),
  }
}

/**
 * Returns one history entry for customers, with the unit prices of its charge.
 * @throws GatewayError unavailable
 */
export async function pricedEntry(
  entry: HistoryEntry,
  prices: PriceBook,
): Promise<Record<string, unknown> & { readonly unit_prices: readonly PricedPart[] | null }> {
  const parts = await Promise.all(
    chargeParts(entry.notes).map(async part => ({ part, price: await prices.get(part.price) })),
  )
  const shownParts = parts.flatMap(({ part, price }) => (price ? [shownPart(part, price)] : []))
  return { ...shownEntry(entry), unit_prices: shownParts.length === 0 ? null : shownParts }
}

/** The members of a history entry that are money, and columns of every list of entries. */
export const MONEY_COLUMNS = ['cost', 'cost_nano', 'paid_from', 'credits_nano', 'plan_nano', 'waived_nano']

/** Returns one history entry for customers, without prices. Its cost is what the customer pays, from credits or from a plan. */
export function shownEntry(entry: HistoryEntry): Record<string, unknown> {
  const { notes } = entry
  const usage = notes.usage
  const { credits: ofCredits, plan, paid, waived, price, from } = moneyLine(entry)
  return {
    id: entry.id,
    request_id: notes.entry ?? entry.id,
    created_at: new Date(entry.at).toISOString(),
    type: entry.kind,
    endpoint: notes.endpoint ?? null,
    model: notes.model ?? null,
    requested_model: notes.requestedModel ?? notes.model ?? null,
    served_model: notes.served ?? notes.model ?? null,
    stream: notes.stream ?? null,
    ...(notes.compaction && { compaction: true }),
    status: notes.status ?? (entry.kind === 'reaped' ? 'broken' : null),
    http_status: notes.httpStatus ?? null,
    error_code: notes.errorCode ?? null,
    input_tokens: usage ? inputTokens(usage) : 0,
    output_tokens: usage?.output ?? 0,
    cache_read_tokens: usage?.cacheRead ?? 0,
    cache_creation_tokens: usage ? usage.cacheWrite5m + usage.cacheWrite1h : 0,
    cache_creation_5m_tokens: usage?.cacheWrite5m ?? 0,
    cache_creation_1h_tokens: usage?.cacheWrite1h ?? 0,
    reasoning_tokens: usage?.reasoning ?? 0,
    total_tokens: usage ? inputTokens(usage) + usage.output : 0,
    cost: credits(paid),
    cost_nano: String(paid),
    paid_from: from,
    credits_nano: String(ofCredits),
    plan_cost: credits(plan),
    plan_nano: String(plan),
    waived_nano: String(waived),
    total_nano: String(price),
    balance_after: credits(entry.balance),
    usage_source: notes.usageSource ?? (entry.kind === 'reaped' ? 'estimated' : null),
    quarantined: notes.quarantined ?? false,
    price: notes.price ?? null,
    price_version: notes.priceVersion ?? null,
    unpriced: notes.unpriced ?? [],
    duration_ms: notes.durationMs ?? null,
    ttft_ms: notes.ttftMs ?? null,
    silent_ms: notes.silentMs ?? null,
    credits_entry: notes.entry ?? null,
    credit_reason: notes.reason ?? null,
    client_disconnected: notes.status === 'client_gone',
  }
}
