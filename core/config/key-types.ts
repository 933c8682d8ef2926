/** Reads the `keyTypes:` section: models, aliases and their prices. */

import { formatCredits } from '../money/credits.ts'
import { factorFrom, isInexact, timesFactor } from '../money/price-factor.ts'
import { leastCharge, type Price } from '../money/price.ts'
import type { KeyType, ModelEntry, Upstream } from './config.ts'
import type { Path } from './locate.ts'
import { suggest, didYouMean } from '../lib/suggest.ts'
import { type Groups, limitsFromFile, planFromFile } from './plans.ts'
import { PRICE_FACTOR } from './plan-schema.ts'
import { checkPolicy } from './prices.ts'
import type { RawConfig } from './schema.ts'
import { formatsNamed, type SectionReader } from './section-reader.ts'
import { duration } from './units.ts'

type RawKeyType = RawConfig['keyTypes'][string]
type RawModel = RawKeyType['models'][number]

/** Settings that describe the model itself; an alias inherits them. */
const OF_THE_MODEL = [
  'thinking',
  'thinkingOff',
  'sampling',
  'cacheMarks',
  'reasoning',
  'reasoningInLimit',
  'outputRate',
  'overhead',
] as const

/** Whether an answer is yes, as it is by default. */
function isYes(answer: string | boolean | undefined): boolean {
  return answer !== 'no' && answer !== false
}

/** Converts the entries of `keyTypes`. */
export class KeyTypeReader {
  readonly #reader: SectionReader
  readonly #prices: ReadonlyMap<string, Price>
  readonly #groups: Groups
  /** Names of prices that do not exist, with the path of the first use and the number of models. */
  readonly #missing = new Map<string, { readonly path: Path; models: number }>()

  constructor(prices: ReadonlyMap<string, Price>, groups: Groups, reader: SectionReader) {
    this.#prices = prices
    this.#groups = groups
    this.#reader = reader
  }

  /** Reports each missing price once. Call it after the last key type. */
  reportMissingPrices(): void {
    for (const [name, { path, models }] of this.#missing) {
      const message = `there is no price "${name}"${models > 1 ? `, which ${models} models have` : ''}`
      this.#reader.add(path, message, suggest(name, this.#prices.keys()))
    }
  }

  /** Converts one entry of `keyTypes`. */
  read(raw: RawKeyType, name: string, upstreams: ReadonlyMap<string, Upstream>): KeyType {
    const path = ['keyTypes', name]
    const models = this.#priced(this.#models(raw, path, upstreams), raw, path)
    checkPolicy(raw.policy ?? {}, models, [...path, 'policy'], this.#reader)
    const standard = models.get(raw.default)
    if (!standard)
      this.#reader.add(
        [...path, 'default'],
        `this key type has no model "${raw.default}"`,
        suggest(raw.default, models.keys()),
      )
    const known = { groups: this.#groups, models }
    return {
      name,
      upstreams: this.#upstreams(raw.upstream, [...path, 'upstream'], upstreams),
      retry: {
        attempts: raw.retry.attempts,
        totalMs: duration(raw.retry.totalTime),
        on: new Set(raw.retry.on.map(String)),
        openingMs: duration(raw.retry.opening),
      },
      formats: formatsNamed(raw.formats),
      default: standard as ModelEntry,
      fillDefault: raw.fillDefault,
      isPublic: raw.public,
      onLoss: raw.onLoss,
      plan: raw.plan && planFromFile(raw.plan, [...path, 'plan'], this.#reader, known),
      limits: limitsFromFile(raw.limits, [...path, 'limits'], this.#reader, known),
      abandoned: raw.abandoned,
      onDisabled: raw.onDisabled,
      manages: raw.manages,
      holdAhead: raw.holdAhead,
      clampOutput: raw.clampOutput,
      policy: raw.policy ?? {},
      models,
    }
  }

  /** Returns the upstreams with these names, and reports those that do not exist. */
  #upstreams(names: string | string[], path: Path, upstreams: ReadonlyMap<string, Upstream>): Upstream[] {
    return (Array.isArray(names) ? names : [names]).flatMap((name, index) => {
      const upstream = upstreams.get(name)
      if (upstream) return [upstream]
      const at = Array.isArray(names) ? [...path, index] : path
      this.#reader.add(at, `there is no upstream "${name}"`, suggest(name, upstreams.keys()))
      return []
    })
  }

  /** Multiplies the prices of models by the factor of their key type. */
  #priced(
    models: ReadonlyMap<string, ModelEntry>,
    { priceFactor }: RawKeyType,
    path: Path,
  ): ReadonlyMap<string, ModelEntry> {
    if (priceFactor === undefined) return models
    const at = [...path, 'priceFactor']
    const factor = factorFrom(formatCredits(this.#reader.decimal(at)))
    if (factor === undefined) {
      this.#reader.add(at, `expected ${PRICE_FACTOR.expected}`)
      return models
    }
    const inexact = [...models.values()].find(({ price }) => (price as Price | undefined) && isInexact(price, factor))
    if (inexact)
      this.#reader.add(
        at,
        `price "${inexact.priceName}" would have more than nine decimal places`,
        'take a factor, or prices, with fewer decimal places',
      )
    return new Map(
      [...models].map(([id, entry]) => [
        id,
        (entry.price as Price | undefined) ? { ...entry, price: timesFactor(entry.price, factor) } : entry,
      ]),
    )
  }

  #models(raw: RawKeyType, path: Path, upstreams: ReadonlyMap<string, Upstream>): ReadonlyMap<string, ModelEntry> {
    const byId = new Map<string, RawModel>()
    raw.models.forEach((model, index) => {
      if (byId.has(model.id))
        this.#reader.add([...path, 'models', index, 'id'], `this list contains "${model.id}" twice`)
      byId.set(model.id, model)
    })
    this.#warn(
      raw,
      path,
      'reasoning',
      'set it to hidden, shown or none: otherwise hidden is assumed unless the upstream speaks messages, and holds grow with time',
    )
    this.#warn(
      raw,
      path,
      'maxOutput',
      'set the maximum output of one reply: otherwise a JSON request without an output limit holds unlimitedOutput tokens',
    )
    const models = new Map<string, ModelEntry>()
    raw.models.forEach((model, index) => {
      const at = [...path, 'models', index]
      const entry = this.#model(model, at, byId)
      if (!entry) return
      const own = model.upstream ?? (model.as === undefined ? undefined : byId.get(model.as)?.upstream)
      const named = own ?? raw.upstream
      // The key type's own list is checked once, for all its models.
      const known = (Array.isArray(named) ? named : [named]).flatMap(name => upstreams.get(name) ?? [])
      const serving =
        model.upstream === undefined ? known : this.#upstreams(model.upstream, [...at, 'upstream'], upstreams)
      this.#checkServed(entry, serving, at)
      const defaultOutput = Math.min(...serving.map(upstream => upstream.defaultOutput))
      const output = Math.min(entry.maxOutput ?? Infinity, defaultOutput)
      models.set(model.id, { ...entry, upstreams: serving, output })
    })
    return models
  }

  /** Reports a model that no account of its upstreams can serve. */
  #checkServed({ sends }: Pick<ModelEntry, 'sends'>, serving: readonly Upstream[], path: Path): void {
    const accounts = serving.flatMap(upstream => upstream.accounts)
    if (accounts.length === 0 || accounts.some(({ models }) => models?.has(sends) ?? true)) return
    const names = serving.map(({ name }) => name).join(' or ')
    this.#reader.add(path, `no account of ${names} serves "${sends}"`, 'add it to the `models` of an account')
  }

  /** Warns once per key type about a setting that some of its models lack. */
  #warn(raw: RawKeyType, path: Path, name: 'reasoning' | 'maxOutput', hint: string): void {
    const lacking = raw.models.filter(model => model.as === undefined && model[name] === undefined)
    const [first] = lacking
    if (!first) return
    const others = lacking.length > 1 ? ` and ${lacking.length - 1} more` : ''
    const message = `"${first.id}"${others} of this key type ${others === '' ? 'has' : 'have'} no "${name}"`
    this.#reader.warn([...path, 'models', raw.models.indexOf(first)], message, hint)
  }

  /** Returns the model that an alias stands for, or the model itself. */
  #target(raw: RawModel, path: Path, byId: ReadonlyMap<string, RawModel>): RawModel | undefined {
    const target = raw.as === undefined ? raw : byId.get(raw.as)
    if (!target) {
      this.#reader.add([...path, 'as'], `this key type has no model "${raw.as}"`, suggest(raw.as ?? '', byId.keys()))
      return undefined
    }
    if (target.as !== undefined) {
      this.#reader.add(
        [...path, 'as'],
        `"${raw.as}" is an alias; name the model that it stands for`,
        target.as === raw.id ? 'name another model' : didYouMean(target.as),
      )
      return undefined
    }
    for (const member of OF_THE_MODEL) {
      if (raw.as !== undefined && raw[member] !== undefined)
        this.#reader.add([...path, member], `an alias has the "${member}" of its model`)
    }
    return target
  }

  /** Returns a price, and reports it if it is missing. An alias that sends the same model has the price of that model. */
  #price(name: string | undefined, path: Path, isModel: boolean, sendsOtherModel: boolean): Price | undefined {
    if (name === undefined) {
      if (isModel) this.#reader.add(path, `"price" is missing: every model needs one`, suggest('', this.#prices.keys()))
      return undefined
    }
    const price = this.#prices.get(name)
    if (!price && (isModel || sendsOtherModel)) {
      const known = this.#missing.get(name)
      if (known) known.models++
      else this.#missing.set(name, { path: [...path, 'price'], models: 1 })
    }
    return price
  }

  #model(
    raw: RawModel,
    path: Path,
    byId: ReadonlyMap<string, RawModel>,
  ): Omit<ModelEntry, 'output' | 'upstreams'> | undefined {
    const target = this.#target(raw, path, byId)
    if (!target) return undefined
    const context = raw.context ?? target.context
    const maxOutput = raw.maxOutput ?? target.maxOutput
    const named = (['maxOutput', 'context'] as const).find(member => raw[member] !== undefined)
    if (named && (maxOutput ?? 0) > (context ?? Infinity))
      this.#reader.add([...path, named], `maxOutput (${maxOutput}) exceeds context (${context})`)
    const sends = raw.sends ?? target.sends ?? target.id
    const sendsOtherModel = raw.as !== undefined && sends !== (target.sends ?? target.id)
    if (sendsOtherModel && raw.price === undefined)
      this.#reader.add(
        [...path, 'sends'],
        `"${raw.id}" sends a different model than "${raw.as}" and needs its own price`,
        `add price: one of ${[...this.#prices.keys()].join(', ')}`,
      )
    if (raw.as !== undefined && !sendsOtherModel && raw.price !== undefined)
      this.#reader.add([...path, 'price'], 'an alias has the price of its model')
    const priceName = sendsOtherModel ? raw.price : target.price
    const price = this.#price(priceName, path, raw.as === undefined, sendsOtherModel)
    return {
      id: raw.id,
      name: raw.name ?? raw.id,
      sends,
      answers: new Set(raw.answers ?? target.answers),
      price: price as Price,
      priceName: priceName ?? '',
      context,
      maxOutput,
      reasoning: target.reasoning,
      reasoningInLimit: target.reasoningInLimit ?? true,
      outputRate: target.outputRate,
      overhead: target.overhead,
      thinking: target.thinking ?? 'adaptive',
      thinkingOff: isYes(target.thinkingOff),
      sampling: isYes(target.sampling),
      cacheMarks: target.cacheMarks ?? 'conversations',
      // An entry with its own `sends` is a model of its own, not an alias.
      aliasOf: sendsOtherModel ? undefined : raw.as,
    }
  }
}

const leastCharges = new WeakMap<KeyType, bigint>()

/** Returns what the smallest request of a key type costs at its cheapest model, in nano-credits. */
export function leastOf(type: KeyType): bigint {
  let least = leastCharges.get(type)
  if (least === undefined)
    leastCharges.set(type, (least = leastCharge([...type.models.values()].map(({ price }) => price))))
  return least
}
