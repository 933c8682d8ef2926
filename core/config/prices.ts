/** Converts the `prices:` section, and checks that everything a key type allows has a price. */
import { POLICIES, type Policy, type PolicyName } from '../formats/policies.ts'
import { ratesOf, versioned } from '../money/price-text.ts'
import { CALL_NAMES, CONDITION_NAMES, isStandard, type Price, RATE_NAMES, type Rates } from '../money/price.ts'
import type { Config, KeyType, ModelEntry, Upstream } from './config.ts'
import type { Path } from './locate.ts'
import { suggest } from '../lib/suggest.ts'
import type { RawConfig } from './schema.ts'
import type { SectionReader } from './section-reader.ts'

type RawPrice = RawConfig['prices'][string]
type RawRates = Pick<RawPrice, (typeof RATE_NAMES)[number]>

/** Converts one entry of `prices`. */
export function priceFromFile(raw: RawPrice, path: Path, reader: SectionReader): Price {
  const tiers = raw.tiers?.map((tier, index) => {
    const at = [...path, 'tiers', index]
    const missingPrices = RATE_NAMES.filter(name => raw[name] !== undefined && tier[name] === undefined)
    if (missingPrices.length > 0)
      reader.add(at, `this tier lacks ${missingPrices.join(', ')}`, 'a tier needs every rate that its price has')
    const below = raw.tiers?.[index - 1]?.above ?? 0
    if (tier.above <= below)
      reader.add(
        [...at, 'above'],
        `expected more than ${below}`,
        'sort the tiers by `above`, smallest first, without duplicates',
      )
    return { above: tier.above, ...readRates(tier, at, reader) }
  })
  const factors = CONDITION_NAMES.flatMap(name => {
    const named = raw[name]
    if (!named) return []
    for (const value of Object.keys(named)) {
      if (value === 'auto')
        reader.add(
          [...path, name, value],
          '"auto" is not a tier that a reply reports',
          'list the tiers that it may become',
          'key',
        )
      else if (isStandard(value))
        reader.add(
          [...path, name, value],
          `"${value}" is the standard, which the rates themselves are for`,
          'list what costs more or less than the standard',
          'key',
        )
      else if (value !== value.toLowerCase())
        reader.add([...path, name, value], 'names are lower case', `write it as ${value.toLowerCase()}`, 'key')
    }
    return [[name, new Map(Object.keys(named).map(value => [value, reader.decimal([...path, name, value])]))]]
  })
  const calls = CALL_NAMES.flatMap(name =>
    raw.calls?.[name] === undefined ? [] : [[name, reader.decimal([...path, 'calls', name])]],
  )
  return versioned({
    ...readRates(raw, path, reader),
    tiers,
    factors: Object.fromEntries(factors),
    calls: Object.fromEntries(calls),
  })
}

function readRates(raw: RawRates, path: Path, reader: SectionReader): Rates {
  return ratesOf(name => (raw[name] === undefined ? undefined : reader.decimal([...path, name])))
}

/** Converts the `cost` of an upstream. */
export function costFromFile(
  raw: Readonly<Record<string, string>>,
  path: Path,
  prices: ReadonlyMap<string, Price>,
  reader: SectionReader,
): ReadonlyMap<string, Price> {
  const known = Object.entries(raw).flatMap(([model, name]) => {
    const price = prices.get(name)
    if (!price) reader.add([...path, model], `there is no price "${name}"`, suggest(name, prices.keys()))
    return price ? [[model, price] as const] : []
  })
  return new Map(known)
}

/** Returns the names of the settings that a price lacks for a member to be allowed. */
export function lacking(price: Price, policy: PolicyName): string[] {
  const { needs }: Policy = POLICIES[policy]
  switch (needs?.kind) {
    case 'rates':
      return needs.names.some(name => price[name] !== undefined) ? [] : [needs.names.join(' or ')]
    case 'condition':
      return (price.factors[needs.name]?.size ?? 0) === 0 ? [needs.name] : []
    case 'call':
      return [
        ...(price.calls[needs.name] === undefined ? [`calls.${needs.name}`] : []),
        ...(needs.rate && price[needs.rate] === undefined ? [needs.rate] : []),
      ]
    default:
      return []
  }
}

/** Reports each member that a key type allows although one of its prices has no rate for it. */
export function checkPolicy(
  policy: Readonly<Partial<Record<PolicyName, string>>>,
  models: ReadonlyMap<string, Pick<ModelEntry, 'price' | 'priceName'>>,
  path: Path,
  reader: SectionReader,
): void {
  const prices = new Map(
    [...models.values()].flatMap(({ price, priceName }) => (price ? [[priceName, price] as const] : [])),
  )
  for (const [name, action] of Object.entries(policy) as [PolicyName, string][]) {
    if (action !== 'allow') continue
    const missing = [...prices].flatMap(([priceName, price]) =>
      lacking(price, name).map(setting => `prices.${priceName}.${setting}`),
    )
    if (missing.length > 0)
      reader.add([...path, name], `"${name}" is allowed but has no price`, `set ${missing.join(', ')}`)
  }
}

/** Returns the costs of models that no key type sends to the upstream, with their paths. */
export function unsentCosts(
  upstreams: Iterable<Upstream>,
  keyTypes: readonly KeyType[],
): { upstream: string; model: string }[] {
  return [...upstreams].flatMap(upstream => {
    const sent = new Set(
      keyTypes
        .flatMap(({ models }) => [...models.values()])
        .filter(({ upstreams }) => upstreams.includes(upstream))
        .map(({ sends }) => sends),
    )
    return [...upstream.cost.keys()]
      .filter(model => model !== '*' && !sent.has(model))
      .map(model => ({ upstream: upstream.name, model }))
  })
}

/** Returns the models without a cost that accounts with a quota in cost serve, with the places of the accounts. */
export function uncosted(
  upstreams: Iterable<Upstream>,
  keyTypes: readonly KeyType[],
): { upstream: string; account: number; models: readonly string[] }[] {
  const models = keyTypes.flatMap(type => [...type.models.values()])
  return [...upstreams].flatMap(upstream =>
    upstream.accounts.flatMap(({ quotas, models: served }, account) => {
      if (quotas.every(({ unit }) => unit === 'credits') || upstream.cost.has('*')) return []
      const sent = models
        .filter(({ upstreams, sends }) => upstreams.includes(upstream) && served?.has(sends) !== false)
        .map(({ sends }) => sends)
      const missing = [...new Set(sent)].filter(model => !upstream.cost.has(model))
      return missing.length === 0 ? [] : [{ upstream: upstream.name, account, models: missing }]
    }),
  )
}

/** Number of input tokens above which some providers charge more. */
const LONG_INPUT = 200_000

/** Returns the prices without a rate for long input, each with a model whose input may be long. */
export function untiered(keyTypes: Iterable<Pick<KeyType, 'models'>>): ReadonlyMap<string, string> {
  const found = new Map<string, string>()
  for (const { models } of keyTypes) {
    for (const { id, price, priceName, context = Infinity } of models.values()) {
      if (price && price.tiers === undefined && context > LONG_INPUT && !found.has(priceName)) found.set(priceName, id)
    }
  }
  return found
}

/** Returns every price that a charge or a cost may use. */
export function pricesOf({ keyTypes, upstreams }: Config): Price[] {
  const charged = [...keyTypes.values()].flatMap(({ models }) => [...models.values()].map(({ price }) => price))
  return [...charged, ...[...upstreams.values()].flatMap(({ cost }) => [...cost.values()])]
}
