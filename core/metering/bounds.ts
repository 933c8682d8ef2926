/** The windows and rates in which a request needs room: those of its balance's plan, and those of its key's limits. */
import type { Config, KeyType, ModelEntry } from '../config/config.ts'
import type { BuiltInWith } from '../exchange/built-in.ts'
import type { Key } from '../keys/keys.ts'
import type { HoldBounds } from '../ledger/hold.ts'
import { NANO } from '../money/credits.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import { allows, type KeyLimits, keyWindowsAsked, narrowed, ratesAsked } from '../plans/limits.ts'
import { askedOf, isValid } from '../plans/plan.ts'

/** The tokens that a request may use, and those of the least amount that it takes. */
export interface AskedTokens {
  readonly tokens: number
  readonly leastTokens: number
}

/** Returns the limits of a key: the narrower ones of its type and of its own. */
export function limitsOf(type: Pick<KeyType, 'limits'>, key: Pick<Key, 'limits'>): KeyLimits {
  return narrowed(type.limits, key.limits)
}

/** Returns the names by which plans and limits may list a model. */
export function listedIds({ entry }: Pick<BuiltInWith<'model'>['model'], 'entry'>): readonly string[] {
  return entry.aliasOf === undefined ? [entry.id] : [entry.id, entry.aliasOf]
}

/** Returns the models that a key may use, in the order of the file. @param type as `typeOf` returns it */
export function modelsFor(type: KeyType, key: Pick<Key, 'limits'>, groups: Config['groups']): readonly ModelEntry[] {
  const limits = limitsOf(type, key)
  const models = [...type.models.values()]
  return limits.models.length === 0 ? models : models.filter(entry => allows(limits, listedIds({ entry }), groups))
}

/** Returns the windows and rates in which a request needs room. Undefined if it needs only credits, as most do. */
export function boundsOf(
  { model }: Pick<BuiltInWith<'model'>, 'model'>,
  { plan }: Pick<Key, 'plan'>,
  limits: KeyLimits,
  { groups, tokens }: { readonly groups: Config['groups']; readonly tokens: AskedTokens },
): HoldBounds | undefined {
  const rates = ratesAsked(limits)
  if (!plan && rates === '' && limits.creditsPerDay === undefined && limits.credits === undefined) return undefined
  const ids = listedIds(model)
  return {
    plan,
    credits: plan?.terms.then !== 'refuse',
    cap: limits.credits,
    windows: (now, isRunning = false) =>
      plan && (isRunning || isValid(plan, now)) ? askedOf(plan, ids, groups, now) : '',
    keyWindows: now => keyWindowsAsked(limits, now),
    rates,
    ...tokens,
  }
}

/**
 * Returns the tokens that windows and rates count of a usage.
 * @param cached how much of a token counts that was read from a cache, in nano-units
 */
export function countedTokens(usage: Usage, cached: bigint = NANO): number {
  const read = cached === NANO ? usage.cacheRead : Math.ceil((usage.cacheRead * Number(cached)) / Number(NANO))
  return inputTokens(usage) - usage.cacheRead + read + usage.output
}
