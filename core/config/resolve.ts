/** Resolves references in gateway.yaml (upstreams, prices, models, aliases) and checks rules that span settings. */
import { resolve as resolvePath } from 'node:path'
import { OWN_PREFIX, reservedBy, type SecretForms } from '../lib/prefixes.ts'
import type { Config, KeyType, Limits, Upstream } from './config.ts'
import { limits } from './limits.ts'
import { isDecodable, parseAddress, type Address } from './store-address.ts'
import type { Problem, Source } from './locate.ts'
import { priceFromFile, uncosted, unsentCosts, untiered } from './prices.ts'
import type { RawConfig } from './schema.ts'
import { duration, size } from './units.ts'
import type { Env } from './yaml.ts'
import { SectionReader } from './section-reader.ts'
import { suggest } from '../lib/suggest.ts'
import { upstreamFromFile } from './upstreams.ts'
import { KeyTypeReader } from './key-types.ts'
import type { Groups } from './plans.ts'

/** The shortest time for which the sums of days can be kept by key, in milliseconds. */
const DAY_HISTORY_MIN_MS = 32 * 86_400_000

/** Resolves a file whose shape has been checked. */
export class Resolver {
  readonly #reader: SectionReader
  readonly #file: string
  readonly #env: Env

  /** @param file absolute path of the configuration file */
  constructor(source: Source, file: string, env: Env) {
    this.#reader = new SectionReader(source)
    this.#file = file
    this.#env = env
  }

  get problems(): readonly Problem[] {
    return this.#reader.problems
  }

  get warnings(): readonly Problem[] {
    return this.#reader.warnings
  }

  /** Returns the configuration without its chain. The result is valid only if `problems` stays empty. */
  resolve(raw: RawConfig): Config {
    const reader = this.#reader
    // The shape may be wrong: this runs to report as many problems as possible.
    const production = (raw.production as unknown) === true || this.#env['NODE_ENV'] === 'production'
    const prices = mapValues(raw.prices, (price, name) => priceFromFile(price, ['prices', name], reader))
    const upstreams = mapValues(raw.upstreams, (upstream, name) =>
      upstreamFromFile(upstream, name, { reader, prices, production }),
    )
    const groups = mapValues(raw.groups, models => new Set(models))
    const keyTypeReader = new KeyTypeReader(prices, groups, reader)
    const keyTypes = mapValues(raw.keyTypes, (type, name) => keyTypeReader.read(type, name, upstreams))
    keyTypeReader.reportMissingPrices()
    this.#checkNames(groups, keyTypes)
    this.#checkCosts(upstreams, keyTypes)
    this.#warn(upstreams, keyTypes)
    return {
      file: this.#file,
      text: '',
      digest: '',
      secretFiles: [],
      listen: raw.listen,
      contact: raw.contact,
      workers: raw.workers,
      log: raw.log,
      store: {
        address: this.#address(raw.store),
        replicas: raw.store.replicas,
        records: this.#records(raw.store),
        recordsConnections: raw.store.recordsConnections,
        recordsTimeoutMs: duration(raw.store.recordsTimeout),
        production: production,
        data: resolvePath(this.#file, '..', raw.store.data),
        prefix: raw.store.prefix,
        commandTimeoutMs: duration(raw.store.commandTimeout),
      },
      ledger: {
        leaseMs: duration(raw.ledger.lease),
        reapEveryMs: duration(raw.ledger.reapEvery),
        archiveEveryMs: duration(raw.ledger.archiveEvery),
        backlogBytes: size(raw.ledger.backlog),
        unrecordedMs: duration(raw.ledger.unrecorded),
        historyMs: duration(raw.ledger.history),
        dayHistoryMs: this.#dayHistory(raw.ledger.dayHistory),
        failureHistoryMs: duration(raw.ledger.failureHistory),
        retriesMs: duration(raw.ledger.retries),
        keptRepliesBytes: size(raw.ledger.keptReplies),
        waivers: raw.ledger.waivers,
        freeEntries: raw.ledger.freeEntries,
        storedMs: duration(raw.ledger.stored),
        auditEveryMs: duration(raw.ledger.auditEvery),
        keyCacheMs: duration(raw.ledger.keyCache),
      },
      keys: this.#keys(raw.keys),
      limits: this.#limits(raw.limits),
      upstreams,
      groups,
      keyTypes,
      chain: [],
      plugins: raw.plugins.map(folder => resolvePath(this.#file, '..', folder)),
    }
  }

  #checkNames(groups: Groups, keyTypes: ReadonlyMap<string, KeyType>): void {
    this.#checkGroups(groups, keyTypes)
    this.#checkManaged(keyTypes)
  }

  /** Reports models of groups that no key type has, and groups with the id of a model. */
  #checkGroups(groups: Groups, keyTypes: ReadonlyMap<string, KeyType>): void {
    const models = new Set([...keyTypes.values()].flatMap(({ models: own }) => [...own.keys()]))
    for (const [name, ids] of groups) {
      if (models.has(name))
        this.#reader.add(['groups', name], `a model is called "${name}"`, 'give the group another name', 'key')
      for (const [index, id] of [...ids].entries())
        if (!models.has(id))
          this.#reader.add(['groups', name, index], `no key type has a model "${id}"`, suggest(id, models))
    }
  }

  /** Reports key types that managing keys may create keys of, and that do not exist. */
  #checkManaged(keyTypes: ReadonlyMap<string, KeyType>): void {
    for (const { name, manages } of keyTypes.values())
      for (const [index, managed] of manages.entries())
        if (!keyTypes.has(managed))
          this.#reader.add(
            ['keyTypes', name, 'manages', index],
            `there is no key type "${managed}"`,
            suggest(managed, keyTypes.keys()),
          )
  }

  #warn(upstreams: ReadonlyMap<string, Upstream>, keyTypes: ReadonlyMap<string, KeyType>): void {
    for (const [name, model] of untiered(keyTypes.values())) {
      const message = `price "${name}" has no "tiers", but the input of "${model}" may exceed 200000 tokens`
      const hint = 'add the rates for long input, or tiers: [] if it costs no more'
      this.#reader.warn(['prices', name], message, hint)
    }
    for (const { upstream, model } of unsentCosts(upstreams.values(), [...keyTypes.values()])) {
      const message = `no key type sends "${model}" to this upstream`
      this.#reader.warn(
        ['upstreams', upstream, 'cost', model],
        message,
        'use the name that is sent (`sends`, or the id)',
        'key',
      )
    }
  }

  /** Reports models of accounts with a quota in cost whose cost is unknown. */
  #checkCosts(upstreams: ReadonlyMap<string, Upstream>, keyTypes: ReadonlyMap<string, KeyType>): void {
    const reportedPaths = this.#reader.problems.map(({ path }) => path)
    for (const { upstream, account, models } of uncosted(upstreams.values(), [...keyTypes.values()])) {
      const { length } = models
      // A price that was not found has been reported.
      if (reportedPaths.some(path => path.startsWith(`upstreams.${upstream}.cost`))) continue
      this.#reader.add(
        ['upstreams', upstream, 'accounts', account, 'quota'],
        `a quota in cost needs the cost of every model, and ${length === 1 ? `"${models[0]}" has` : `${length} models have`} none`,
        `add ${length === 1 ? 'it' : 'them'} to upstreams.${upstream}.cost, or '*' for all others`,
      )
    }
  }

  #dayHistory(text: string): number {
    const ms = duration(text)
    if (ms < DAY_HISTORY_MIN_MS)
      this.#reader.add(['ledger', 'dayHistory'], 'key info shows the last 31 days of a key', 'set 32d or more')
    return ms
  }

  #keys({ prefixes, importSuffix }: RawConfig['keys']): SecretForms {
    for (const [index, prefix] of prefixes.entries()) {
      const own = reservedBy(prefix)
      if (own !== undefined)
        this.#reader.add(['keys', 'prefixes', index], `Tollgate's own "${own}…" begins like this`, 'remove it')
    }
    return { prefixes: prefixes.filter(prefix => !prefix.startsWith(OWN_PREFIX)), importSuffix }
  }

  #limits(raw: RawConfig['limits']): Limits {
    if (raw.proxyProtocol && raw.trustedProxies.length === 0)
      this.#reader.add(
        ['limits', 'proxyProtocol'],
        'no proxy is trusted to send headers of the PROXY protocol',
        'list the addresses of your load balancer in limits.trustedProxies',
      )
    return limits(raw)
  }

  #address({ redis: url, replicas }: RawConfig['store']): Address | undefined {
    const address = url === 'auto' ? undefined : parseAddress(url)
    if (url === 'auto' && replicas > 0)
      this.#reader.add(
        ['store', 'replicas'],
        'a managed store has no replicas',
        'set store.redis to a Redis with replicas, or set this to 0',
      )
    if (url !== 'auto' && !address) {
      const shapes =
        'redis://host:6379, redis+cluster://host:7000,host:7001 or redis+sentinel://host:26379,host:26379/master'
      this.#reader.add(
        ['store', 'redis'],
        'expected a redis://, redis+cluster:// or redis+sentinel:// URL, or auto',
        shapes,
      )
    }
    return address
  }

  #records({ records }: RawConfig['store']): string | undefined {
    if (records === 'auto') return undefined
    const url = POSTGRES.test(records) && URL.canParse(records) ? new URL(records) : undefined
    if (!url)
      this.#reader.add(['store', 'records'], 'expected a postgres:// URL, or auto', 'postgres://host:5432/database')
    else if (!isDecodable(url))
      this.#reader.add(['store', 'records'], 'a % in this URL is not the beginning of a code', 'write % as %25')
    return records
  }
}

/** The URLs of a PostgreSQL, as its own tools accept them. */
const POSTGRES = /^postgres(?:ql)?:\/\/[^/,]+\/[^/?]+(?:\?|$)/

function mapValues<V, R>(record: Readonly<Record<string, V>>, f: (value: V, name: string) => R): Map<string, R> {
  return new Map(Object.entries(record).map(([name, value]) => [name, f(value, name)]))
}
