/** The limits of keys: those of a key type, and those of a single key, of which the narrower one counts. */
import { AddressRanges, isRange } from '../lib/addresses.ts'
import { duration } from '../lib/duration.ts'
import { lru } from '../lib/lru.ts'
import { MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import { factorFrom } from '../money/price-factor.ts'
import { type Span, windowAt } from './calendar.ts'
import { isListed } from './listed.ts'

/** Limits as they are written, in gateway.yaml and of a key. */
export interface LimitTerms {
  readonly requestsPerMinute?: number | undefined
  readonly tokensPerMinute?: number | undefined
  /** Plain decimals. */
  readonly creditsPerDay?: string | undefined
  readonly credits?: string | undefined
  readonly concurrency?: number | undefined
  readonly queue?: string | undefined
  readonly models?: readonly string[] | undefined
  readonly addresses?: readonly string[] | undefined
  readonly maxInput?: number | undefined
  readonly maxOutput?: number | undefined
  /** Of a single key: what its prices are multiplied by, a plain decimal. It is no limit, but kept with them. */
  readonly priceFactor?: string | undefined
}

/** Limits as they are used. Undefined is no limit. */
export interface KeyLimits {
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
  /** What requests may cost in a UTC day, in nano-credits. */
  readonly creditsPerDay: bigint | undefined
  /** What each key of a type may be charged in its life, in nano-credits. That of a single key is its cap. */
  readonly credits: bigint | undefined
  /** Running requests. */
  readonly concurrency: number | undefined
  /** How long a request above that waits for another one to end, in milliseconds. */
  readonly queueMs: number | undefined
  /** Lists of models and groups, each of which must contain the model. */
  readonly models: readonly (readonly string[])[]
  /** Ranges of addresses, each of which must contain the client's. */
  readonly addresses: readonly AddressRanges[]
  /** Tokens of a request and of a reply. */
  readonly maxInput: number | undefined
  readonly maxOutput: number | undefined
  /** What the prices of a single key are multiplied by, in nano-units. Undefined for 1. */
  readonly priceFactor: bigint | undefined
}

/** Reads limits. Amounts that cannot be read, which have been reported, are none. */
export function limitsFrom(terms: LimitTerms): KeyLimits {
  const { requestsPerMinute, tokensPerMinute, creditsPerDay, credits, concurrency, queue } = terms
  const { models, addresses, maxInput, maxOutput, priceFactor } = terms
  return {
    requestsPerMinute,
    tokensPerMinute,
    creditsPerDay: creditsPerDay === undefined ? undefined : parseDecimal(creditsPerDay),
    credits: credits === undefined ? undefined : parseDecimal(credits),
    concurrency,
    queueMs: queue === undefined ? undefined : duration(queue),
    models: models ? [models] : [],
    addresses: addresses ? [new AddressRanges(addresses.filter(isRange))] : [],
    maxInput,
    maxOutput,
    priceFactor: priceFactor === undefined ? undefined : factorFrom(priceFactor),
  }
}

const read = lru<string, KeyLimits>(10_000)

/** Reads the limits of a key from their JSON. The same text gives the same limits. */
export function keyLimitsFrom(text: string): KeyLimits {
  let limits = read.get(text)
  if (!limits) read.set(text, (limits = limitsFrom(JSON.parse(text) as LimitTerms)))
  return limits
}

/** Returns the smaller of two limits. One that is undefined does not count. */
export function narrower<T extends number | bigint>(one: T | undefined, other: T | undefined): T | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return one < other ? one : other
}

/** Returns the narrower of the limits of a type and of a key, one by one. `credits` are those of the type. */
export function narrowed(type: KeyLimits, key: KeyLimits | undefined): KeyLimits {
  if (!key) return type
  return {
    requestsPerMinute: narrower(type.requestsPerMinute, key.requestsPerMinute),
    tokensPerMinute: narrower(type.tokensPerMinute, key.tokensPerMinute),
    creditsPerDay: narrower(type.creditsPerDay, key.creditsPerDay),
    credits: type.credits,
    concurrency: narrower(type.concurrency, key.concurrency),
    queueMs: narrower(type.queueMs, key.queueMs),
    models: [...type.models, ...key.models],
    addresses: [...type.addresses, ...key.addresses],
    maxInput: narrower(type.maxInput, key.maxInput),
    maxOutput: narrower(type.maxOutput, key.maxOutput),
    priceFactor: key.priceFactor,
  }
}

/** Whether limits allow a model. @param ids by which it may be listed */
export function allows(
  { models }: Pick<KeyLimits, 'models'>,
  ids: readonly string[],
  groups: ReadonlyMap<string, ReadonlySet<string>>,
): boolean {
  return models.every(names => isListed(names, ids, groups))
}

/** Whether limits allow the address of a client. */
export function allowsAddress({ addresses }: Pick<KeyLimits, 'addresses'>, address: string): boolean {
  return addresses.every(ranges => ranges.has(address))
}

const UTC_DAY = { per: 'day', zone: 'UTC', weekday: 1, day: 1, hour: 0, minute: 0 } as const

/** Returns the day of `creditsPerDay`. @param now by the store's clock */
export function utcDay(now: number): Span {
  return windowAt(UTC_DAY, now)
}

/** Returns the day of a limit; undefined for no limit. */
export function limitedDay({ creditsPerDay }: Pick<KeyLimits, 'creditsPerDay'>, now: number): Span | undefined {
  return creditsPerDay === undefined ? undefined : utcDay(now)
}

/** Returns the windows of a key's limits, as the script asks for them; '' for none. @param now by the store's clock */
export function keyWindowsAsked(limits: Pick<KeyLimits, 'creditsPerDay'>, now: number): string {
  const day = limitedDay(limits, now)
  return day ? `1 0:c:c:${limits.creditsPerDay}:${day.from}:${day.until}` : ''
}

/** Returns the windows of a key of which so much is used, as the script writes them. @param used nano-credits */
export function keyWindowsUsed({ from, until }: Span, used: bigint): string {
  return `1 0:c:c:${MAX_AMOUNT}:${from}:${until}:0:${used > 0n ? used : 0n}`
}

/** Returns the rates of a key's limits, as the script asks for them; '' for none. */
export function ratesAsked({
  requestsPerMinute = 0,
  tokensPerMinute = 0,
}: Pick<KeyLimits, 'requestsPerMinute' | 'tokensPerMinute'>): string {
  return requestsPerMinute === 0 && tokensPerMinute === 0 ? '' : `${requestsPerMinute} ${tokensPerMinute}`
}
