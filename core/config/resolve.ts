/** What the names in gateway.yaml refer to: upstreams, prices, models and aliases; and the rules that span settings. */
import { resolve as resolvePath } from 'node:path'
import { FORMATS, type Format } from '../formats/index.ts'
import { formatCredits, MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import type { Price } from '../money/price.ts'
import type { Account, Config, KeyType, ModelEntry, Upstream } from './config.ts'
import { limits } from './limits.ts'
import { parseAddress, type Address } from './store-address.ts'
import { didYouMean, type Path, type Problem, type Source, suggest } from './locate.ts'
import { checkPolicy, costFromFile, priceFromFile, type Reader, unsentCosts, untiered } from './prices.ts'
import type { RawConfig } from './schema.ts'
import { asksTheShell } from './syntax.ts'
import { duration, size } from './units.ts'
import { scalarText, type Env } from './yaml.ts'

type RawUpstream = RawConfig['upstreams'][string]
type RawKeyType = RawConfig['keyTypes'][string]
type RawModel = RawKeyType['models'][number]

/** What the model itself is like, whichever name it goes by. */
const OF_THE_MODEL = ['thinking', 'reasoning', 'reasoningInLimit', 'outputRate', 'overhead'] as const

/** The word that asks for the simulated provider, as a url and as its account's key. */
const SIMULATED = 'simulated'

export class Resolver {
  readonly problems: Problem[] = []
  readonly warnings: Problem[] = []
  readonly #source: Source
  readonly #file: string
  readonly #env: Env
  #production = false
  /** Names of prices that there are not: where the first stands, and how many models have it. */
  readonly #unpriced = new Map<string, { readonly path: Path; models: number }>()
  readonly #reader: Reader = {
    add: (path, message, hint, at) => this.#add(path, message, hint, at),
    decimal: path => this.#decimal(path),
  }

  constructor(source: Source, file: string, env: Env) {
    this.#source = source
    this.#file = file
    this.#env = env
  }

  /** The configuration without its chain. Only of use when `problems` stays empty. */
  resolve(raw: RawConfig): Config {
    // The file may be of the wrong shape, and looked at all the same.
    this.#production = (raw.production as unknown) === true || this.#env['NODE_ENV'] === 'production'
    const prices = mapValues(raw.prices, (price, name) => priceFromFile(price, ['prices', name], this.#reader))
    const upstreams = mapValues(raw.upstreams, (upstream, name) => this.#upstream(upstream, name, prices))
    const keyTypes = mapValues(raw.keyTypes, (type, name) => this.#keyType(type, name, upstreams, prices))
    for (const [name, { path, models }] of this.#unpriced) {
      this.#add(
        path,
        `there is no price "${name}"${models > 1 ? `, which ${models} models have` : ''}`,
        suggest(name, prices.keys()),
      )
    }
    for (const [name, model] of untiered(keyTypes.values())) {
      const hint = 'add the rates for long input, or tiers: [] where it costs no more'
      this.warnings.push(
        this.#source.problem(
          ['prices', name],
          `"${name}" has no "tiers", and "${model}" may take more than 200000 tokens of input`,
          hint,
        ),
      )
    }
    for (const { upstream, model } of unsentCosts(upstreams.values(), [...keyTypes.values()])) {
      this.warnings.push(
        this.#source.problem(
          ['upstreams', upstream, 'cost', model],
          `no key type sends "${model}" to this upstream`,
          'name a model as it is sent',
          'key',
        ),
      )
    }
    return {
      file: this.#file,
      listen: raw.listen,
      workers: raw.workers,
      log: raw.log,
      store: {
        address: this.#address(raw.store),
        replicas: raw.store.replicas,
        production: this.#production,
        data: resolvePath(this.#file, '..', raw.store.data),
        prefix: raw.store.prefix,
        commandTimeout: duration(raw.store.commandTimeout),
      },
      ledger: {
        lease: duration(raw.ledger.lease),
        reapEvery: duration(raw.ledger.reapEvery),
        remember: duration(raw.ledger.remember),
        history: duration(raw.ledger.history),
        retries: duration(raw.ledger.retries),
        keptReplies: size(raw.ledger.keptReplies),
        waivers: raw.ledger.waivers,
        freeEntries: raw.ledger.freeEntries,
        stored: duration(raw.ledger.stored),
        auditEvery: duration(raw.ledger.auditEvery),
        keyCache: duration(raw.ledger.keyCache),
      },
      limits: limits(raw.limits),
      upstreams,
      keyTypes,
      chain: [],
      plugins: raw.plugins.map(folder => resolvePath(this.#file, '..', folder)),
    }
  }

  #add(path: Path, message: string, hint?: string, at?: 'key'): void {
    this.problems.push(this.#source.problem(path, message, hint, at))
  }

  #address({ redis: url, replicas }: RawConfig['store']): Address | undefined {
    const address = url === 'auto' ? undefined : parseAddress(url)
    if (url === 'auto' && replicas > 0)
      this.#add(
        ['store', 'replicas'],
        'a store of our own has no replicas',
        'name a Redis that has, or leave this at 0',
      )
    if (url !== 'auto' && !address) {
      const shapes =
        'redis://host:6379, redis+cluster://host:7000,host:7001 or redis+sentinel://host:26379,host:26379/master'
      this.#add(['store', 'redis'], 'expected a redis://, redis+cluster:// or redis+sentinel:// URL, or auto', shapes)
    }
    return address
  }

  #upstream(raw: RawUpstream, name: string, prices: ReadonlyMap<string, Price>): Upstream {
    const path = ['upstreams', name]
    const url = this.#url(raw, path)
    const accounts = raw.accounts.map((account, index): Account => {
      const at = [...path, 'accounts', index]
      // Of what is missing, or no URL or key, it is told elsewhere.
      const known = url !== undefined || raw.url === SIMULATED
      if (
        account.key &&
        known &&
        !asksTheShell(account.key) &&
        (account.key === SIMULATED) !== (raw.url === SIMULATED)
      ) {
        this.#add(
          account.key === SIMULATED ? [...at, 'key'] : [...path, 'url'],
          'a simulated url goes with a simulated key, a real one with a real one',
          'set both the URL and the key, in the environment or here, or neither',
        )
      }
      const quota = account.quota && {
        amount: this.#amount([...at, 'quota', 'credits']),
        per: account.quota.per,
      }
      return { name: `${name}/${index + 1}`, key: account.key, header: account.header, quota }
    })
    return {
      name,
      url,
      speaks: formats(raw.speaks),
      defaultOutput: raw.defaultOutput,
      accounts,
      onDisconnect: raw.onDisconnect,
      cost: costFromFile(raw.cost ?? {}, [...path, 'cost'], prices, this.#reader),
      dollar: raw.dollar === undefined ? undefined : this.#decimal([...path, 'dollar']),
      timeouts: {
        connect: duration(raw.timeouts.connect),
        keepAlive: duration(raw.timeouts.keepAlive),
        firstByte: duration(raw.timeouts.firstByte),
        idle: duration(raw.timeouts.idle),
        total: duration(raw.timeouts.total),
        finish: duration(raw.timeouts.finish),
        usage: duration(raw.timeouts.usage),
      },
    }
  }

  #url(raw: RawUpstream, path: Path): URL | undefined {
    const at = [...path, 'url']
    if (raw.url === SIMULATED) {
      if (this.#production) this.#add(at, 'the simulated provider is refused in production', 'set the upstream URL')
      return undefined
    }
    const url = URL.canParse(raw.url) ? new URL(raw.url) : undefined
    if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
      this.#add(
        at,
        'expected an http:// or https:// URL, or simulated',
        /^[\w.-]+(?::\d+)?(?:\/|$)/.test(raw.url) ? 'begin it with https://' : undefined,
      )
      return undefined
    }
    if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
      this.#add(at, 'expected a URL without credentials, query or fragment')
    } else if (/\/v1(?:\/(?:chat\/completions|responses|messages))?\/?$/.test(url.pathname)) {
      this.#add(
        at,
        'the URL must not end in /v1: the formats add it, and what follows it',
        'leave out everything from /v1 on',
      )
    } else if (!raw.allowPrivate && isLinkLocal(url.hostname)) {
      this.#add(at, 'link-local addresses are refused', 'allowPrivate: true permits them')
    } else if (!raw.allowPrivate && url.protocol === 'http:' && !isLoopback(url.hostname)) {
      this.#add(
        at,
        'plain http to another host would show the account key to the network',
        'use https, or say allowPrivate: true',
      )
    }
    return url
  }

  /** The exact nano-units of a decimal, read from its source text. */
  #decimal(path: Path): bigint {
    const amount = parseDecimal(scalarText(this.#source, path))
    if (amount === undefined) this.#add(path, 'expected a plain decimal with at most nine decimal places, such as 0.30')
    return amount ?? 0n
  }

  /** A sum that the ledger can keep. */
  #amount(path: Path): bigint {
    const amount = this.#decimal(path)
    if (amount > MAX_AMOUNT) this.#add(path, `expected at most ${formatCredits(MAX_AMOUNT)} credits`)
    return amount
  }

  #keyType(
    raw: RawKeyType,
    name: string,
    upstreams: ReadonlyMap<string, Upstream>,
    prices: ReadonlyMap<string, Price>,
  ): KeyType {
    const path = ['keyTypes', name]
    const upstream = upstreams.get(raw.upstream)
    if (!upstream)
      this.#add(
        [...path, 'upstream'],
        `there is no upstream "${raw.upstream}"`,
        suggest(raw.upstream, upstreams.keys()),
      )
    const models = this.#models(raw, path, prices, upstream?.defaultOutput ?? 0)
    checkPolicy(raw.policy ?? {}, models, [...path, 'policy'], this.#reader)
    const standard = models.get(raw.default)
    if (!standard)
      this.#add(
        [...path, 'default'],
        `this key type has no model "${raw.default}"`,
        suggest(raw.default, models.keys()),
      )
    return {
      name,
      upstream: upstream as Upstream,
      formats: formats(raw.formats),
      default: standard as ModelEntry,
      fillDefault: raw.fillDefault,
      concurrency: raw.concurrency,
      concurrencyWait: duration(raw.concurrencyWait),
      abandoned: raw.abandoned,
      onDisabled: raw.onDisabled,
      holdAhead: raw.holdAhead,
      clampOutput: raw.clampOutput,
      policy: raw.policy ?? {},
      models,
    }
  }

  #models(
    raw: RawKeyType,
    path: Path,
    prices: ReadonlyMap<string, Price>,
    output: number,
  ): ReadonlyMap<string, ModelEntry> {
    const byId = new Map<string, RawModel>()
    raw.models.forEach((model, index) => {
      if (byId.has(model.id)) this.#add([...path, 'models', index, 'id'], `"${model.id}" stands twice in this list`)
      byId.set(model.id, model)
    })
    this.#warn(
      raw,
      path,
      'reasoning',
      'say hidden, shown or none: hidden is assumed where the upstream does not tell, and holds grow with the clock',
    )
    this.#warn(
      raw,
      path,
      'maxOutput',
      'name the most output tokens of one reply: without it a JSON request without a limit is held for unlimitedOutput tokens',
    )
    const models = new Map<string, ModelEntry>()
    raw.models.forEach((model, index) => {
      const entry = this.#model(model, [...path, 'models', index], byId, prices)
      if (entry) models.set(model.id, { ...entry, output: Math.min(entry.maxOutput ?? Infinity, output) })
    })
    return models
  }

  /** Warns of a setting that models lack, once a key type. */
  #warn(raw: RawKeyType, path: Path, name: 'reasoning' | 'maxOutput', hint: string): void {
    const lacking = raw.models.filter(model => model.as === undefined && model[name] === undefined)
    const [first] = lacking
    if (!first) return
    const others = lacking.length > 1 ? ` and ${lacking.length - 1} more` : ''
    this.warnings.push(
      this.#source.problem(
        [...path, 'models', raw.models.indexOf(first)],
        `"${first.id}"${others} of this key type ${others === '' ? 'has' : 'have'} no "${name}"`,
        hint,
      ),
    )
  }

  #model(
    raw: RawModel,
    path: Path,
    byId: ReadonlyMap<string, RawModel>,
    prices: ReadonlyMap<string, Price>,
  ): Omit<ModelEntry, 'output'> | undefined {
    const target = raw.as === undefined ? raw : byId.get(raw.as)
    if (!target) {
      this.#add([...path, 'as'], `this key type has no model "${raw.as}"`, suggest(raw.as ?? '', byId.keys()))
      return undefined
    }
    if (target.as !== undefined) {
      this.#add(
        [...path, 'as'],
        `"${raw.as}" is an alias itself`,
        target.as === raw.id ? 'name another model' : didYouMean(target.as),
      )
      return undefined
    }
    for (const member of OF_THE_MODEL) {
      if (raw.as !== undefined && raw[member] !== undefined)
        this.#add([...path, member], `an alias has the "${member}" of what it is an alias of`)
    }
    const context = raw.context ?? target.context
    const maxOutput = raw.maxOutput ?? target.maxOutput
    const named = (['maxOutput', 'context'] as const).find(member => raw[member] !== undefined)
    if (named && (maxOutput ?? 0) > (context ?? Infinity))
      this.#add([...path, named], `${maxOutput} tokens of output do not fit into a context window of ${context}`)
    const sends = raw.sends ?? target.sends ?? target.id
    const ownModel = raw.as !== undefined && sends !== (target.sends ?? target.id)
    if (ownModel && raw.price === undefined)
      this.#add(
        [...path, 'sends'],
        `"${raw.id}" sends another model than "${raw.as}", and has no price of its own`,
        `add price: one of ${[...prices.keys()].join(', ')}`,
      )
    if (raw.as !== undefined && !ownModel && raw.price !== undefined)
      this.#add([...path, 'price'], 'an alias has the price of what it is an alias of')
    const priceName = ownModel ? raw.price : target.price
    const price = priceName === undefined ? undefined : prices.get(priceName)
    if (priceName === undefined) {
      if (raw.as === undefined) this.#add(path, `"price" is missing: every model has one`, suggest('', prices.keys()))
    } else if (!price && (raw.as === undefined || ownModel)) {
      const known = this.#unpriced.get(priceName)
      if (known) known.models++
      else this.#unpriced.set(priceName, { path: [...path, 'price'], models: 1 })
    }
    return {
      id: raw.id,
      sends,
      price: price as Price,
      priceName: priceName ?? '',
      context,
      maxOutput,
      reasoning: target.reasoning,
      reasoningInLimit: target.reasoningInLimit ?? true,
      outputRate: target.outputRate,
      overhead: target.overhead,
      thinking: target.thinking ?? 'adaptive',
      // One that sends another model is a model of its own.
      aliasOf: ownModel ? undefined : raw.as,
    }
  }
}

function formats(names: readonly (keyof typeof FORMATS)[]): Format[] {
  return names.map(name => FORMATS[name])
}

function mapValues<V, R>(record: Readonly<Record<string, V>>, f: (value: V, name: string) => R): Map<string, R> {
  return new Map(Object.entries(record).map(([name, value]) => [name, f(value, name)]))
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

function isLinkLocal(host: string): boolean {
  return host.startsWith('169.254.') || /^\[fe[89ab]/i.test(host) || host === 'metadata.google.internal'
}
