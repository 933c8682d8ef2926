/** What is known about a model and a conversation before a request is sent, and what its reply adds. */
import type { KeyType } from '../config/config.ts'
import type { BuiltInExchange, BuiltInWith } from '../exchange/built-in.ts'
import { type Rates, type Terms, windowOf } from './estimate.ts'
import { translatedExtras } from './extras.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import { weigh, type Weight } from './input.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import { entryNamed } from './pricing.ts'
import { reasoningOf } from '../exchange/model.ts'
import type { MeterState } from './meter-state.ts'
import type { ConversationOwner } from './prefixes.ts'

/** Minimum output tokens and milliseconds of a reply from which to learn its model's speed. */
const RATE_MIN = { tokens: 200, ms: 1000 } as const
/** Maximum size of a request from which to learn how much the upstream adds, in bytes. A larger one hides it. */
const BODY_BYTES_MAX = 16_384

type Known = BuiltInExchange & BuiltInWith<'key' | 'body' | 'model' | 'route' | 'extras'>

/** What the meter knows at this moment. */
export interface MeterNow {
  readonly meter: MeterState
  /** Milliseconds since the epoch. */
  readonly now: number
}

/** What an exchange is charged by, and what is held for it. */
export interface TermsPair {
  readonly charged: Terms
  /** With what other keys have shown about the model. */
  readonly held: Terms
}

/**
 * Returns the terms of one exchange.
 * @param models the models of the key's type
 * @param rates `outputRate` for models without one, in tokens per second; `cacheLifetime` in seconds
 */
export function termsOf(
  x: Known,
  models: KeyType['models'],
  rates: Rates & { readonly outputRate: number; readonly cacheLifetime: number },
  { meter, now }: MeterNow,
): TermsPair {
  const { entry } = x.model
  const { translation } = x.route
  const { learned, prefixes } = meter
  const extras = translation ? translatedExtras(x.extras, translation.asksForTier) : x.extras
  const providerTools = extras.tools.length > 0 || extras.rereads
  const [model, key, owner] = [upstreamModel(x), x.key.id, conversationOwner(x)]
  const charged: Terms = {
    ...rates,
    reasoning: reasoningOf(x),
    outputRate: entry.outputRate ?? learned.ownRate(model, key, rates.outputRate),
    overhead: entry.overhead ?? learned.ownOverhead(model, key),
    weight: withMarks(weigh(x.body, rates, { stored: x.stored, most: windowOf(x.model), providerTools }), x),
    extras,
    entryOf: name => entryNamed([entry, ...models.values()], name),
    prefix: once(() => prefixes.find(owner, x.body, now, rates.cacheLifetime * 1000)),
  }
  const outputRate = entry.outputRate ?? learned.heldRate(model, key, rates.outputRate)
  const overhead = entry.overhead ?? learned.heldOverhead(model, key)
  const isSame = outputRate === charged.outputRate && overhead === charged.overhead
  return { charged, held: isSame ? charged : { ...charged, outputRate, overhead } }
}

/** The weight of a request whose prompt the gateway marks for a cache, although the client does not. */
function withMarks(weight: Weight, { route }: Known): Weight {
  return weight.caches === undefined && route.translation?.marksPrompt ? { ...weight, caches: '5m' } : weight
}

/** Returns the name of an upstream's model. Another upstream may add other tokens to it, and be faster. */
export function upstreamModel({ route, model }: Known): string {
  return `${route.upstream.name} ${model.entry.sends}`
}

/** The scope of a prompt cache: what a key has sent to one account of an upstream. */
function conversationOwner(x: Known): ConversationOwner {
  return { key: x.key.id, account: x.route.account.name, model: x.model.entry.sends, format: x.format }
}

/** Evaluates a function at the first call only. */
function once<T>(look: () => T): () => T {
  let found: { readonly value: T } | undefined
  return () => (found ??= { value: look() }).value
}

/** Learns from a reply whose upstream reported its usage. */
export function learn(x: Known, terms: Terms, usage: Usage, { meter, now }: MeterNow): void {
  const { learned, prefixes } = meter
  const model = upstreamModel(x)
  const { textBytes, tokens, unbounded, providerTools } = terms.weight
  // If the provider ran tools, each pass read from the cache again.
  const cachedTokens = providerTools ? 0 : usage.cacheRead
  prefixes.learn(conversationOwner(x), x.body, { inputTokens: inputTokens(usage), cachedTokens }, now)
  // Several concurrent choices, and tools, change the apparent speed of the model.
  if (providerTools || x.format.choices(x.body) > 1) return
  if (usage.output >= RATE_MIN.tokens && x.elapsedMs >= RATE_MIN.ms)
    learned.learn(model, x.key, { rate: (usage.output * 1000) / x.elapsedMs }, now)
  if (textBytes > BODY_BYTES_MAX || tokens > 0 || unbounded) return
  const added = Math.max(0, inputTokens(usage) - Math.ceil(textBytes / SAFE_BYTES_PER_TOKEN))
  learned.learn(model, x.key, { overhead: added }, now)
}
