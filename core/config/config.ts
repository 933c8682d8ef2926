/**
 * The configuration as the gateway uses it: names resolved, units converted, prices exact. It is frozen once it is in
 * force.
 */
import type { SecretForms } from '../lib/prefixes.ts'
import type { FailureRule } from '../formats/classify.ts'
import type { CacheMarks, Format, SaidReading } from '../formats/index.ts'
import type { Action, PolicyName } from '../formats/policies.ts'
import type { Price } from '../money/price.ts'
import type { AddressRanges } from '../lib/addresses.ts'
import type { CalendarWindow } from '../plans/calendar.ts'
import type { KeyLimits } from '../plans/limits.ts'
import type { PlanTerms } from '../plans/terms.ts'
import type { Address } from './store-address.ts'

/** One credential of an upstream. */
export interface UpstreamAccount {
  /** `<upstream>/<name>`: its name in logs and in the ledger. */
  readonly name: string
  /** The base address without `/v1`; undefined for the simulated provider. */
  readonly url: URL | undefined
  readonly key: string
  /** The proxy by which the gateway connects to this account's provider. */
  readonly proxy: URL | undefined
  /** Its share of the conversations, relative to other accounts. */
  readonly weight: number
  /** The models that it can serve, by the names that are sent. Undefined for all. */
  readonly models: ReadonlySet<string> | undefined
  readonly header: 'authorization' | 'x-api-key'
  readonly quotas: readonly Quota[]
}

/** What an account may spend in each time window. */
export interface Quota {
  /** Describes the window, without spaces. */
  readonly name: string
  /** Nano-credits. */
  readonly amount: bigint
  /** Whether it counts what customers are charged, or what the upstream charges the operator. */
  readonly unit: 'credits' | 'cost'
  /** Windows of a calendar, or the last so many milliseconds. */
  readonly window: CalendarWindow | { readonly rollingMs: number }
  /** Whether one key is kept from using it up. */
  readonly fairShare: boolean
}

/** A provider the operator buys from. */
export interface Upstream {
  readonly name: string
  /** Whether the simulated provider takes its place. */
  readonly simulated: boolean
  /** Preferred formats first. The client's own format, if it is listed, is always preferred. */
  readonly speaks: readonly Format[]
  /** Who makes the compactions that clients ask for. */
  readonly compaction: 'native' | 'gateway'
  /** How its reports are meant, where they do not say it or use words that the gateway does not know. */
  readonly said: SaidReading
  /** Output limit to send when the format requires one and neither the request nor the model has one. */
  readonly defaultOutput: number
  readonly accounts: readonly UpstreamAccount[]
  /**
   * What happens to a stream whose client disconnects before the last content. If undefined, format and model decide.
   */
  readonly onDisconnect: 'cancel' | 'finish' | undefined
  /** What the upstream charges the operator, by the model name that is sent; `*` covers all others. */
  readonly cost: ReadonlyMap<string, Price>
  /** Nano-credits per dollar of a cost that the upstream reports. If undefined, reported costs are ignored. */
  readonly dollar: bigint | undefined
  /** Members and query parameters that it gets although they are not listed. */
  readonly passes: ReadonlySet<string>
  /** What its failures are about, beyond what the gateway knows. The first that matches decides. */
  readonly failures: readonly FailureRule[]
  readonly health: HealthConfig
  readonly timeouts: UpstreamTimeouts
  /** Whether HTTP/2 is used if the provider offers it. */
  readonly http2: boolean
}

/** When an account that fails is not asked for a time. */
export interface HealthConfig {
  /** Failures in a row. */
  readonly failures: number
  /** The share of failures among the requests of a window, and the number of requests from which it counts. */
  readonly rate: number
  readonly least: number
  readonly windowMs: number
  /** For how long: the first time, and at most. */
  readonly cooldownMs: number
  readonly cooldownMaxMs: number
}

/** Time limits of an upstream, in milliseconds. */
export interface UpstreamTimeouts {
  readonly connectMs: number
  /** How long an idle connection is kept, unless the upstream announces a shorter time. */
  readonly keepAliveMs: number
  /** Age from which a connection takes no new request. */
  readonly connectionAgeMs: number
  /** Interval of the checks of an HTTP/2 connection. */
  readonly pingMs: number
  readonly firstByteMs: number
  readonly idleMs: number
  readonly totalMs: number
  /** How long the gateway keeps reading a stream after its client left, before the last content. */
  readonly finishMs: number
  /** How long the gateway keeps reading a stream after its last content, to learn its usage. */
  readonly usageMs: number
}

/** A model of a key type, under the name that customers use. */
export interface ModelEntry {
  readonly id: string
  /** Its name for people. */
  readonly name: string
  /** The upstreams that serve it, the preferred one first. */
  readonly upstreams: readonly Upstream[]
  /** The model name that is sent upstream. */
  readonly sends: string
  /** Other names by which its upstreams answer. */
  readonly answers: ReadonlySet<string>
  readonly price: Price
  readonly priceName: string
  /** Size of the context window, in tokens. */
  readonly context: number | undefined
  /** Largest possible output, in tokens. */
  readonly maxOutput: number | undefined
  /** Output tokens to ask for when the upstream's format requires a limit and the request has none. */
  readonly output: number
  /**
   * How the model's reasoning appears: billed but not sent, sent, or not at all. Undefined if the file does not say.
   */
  readonly reasoning: 'hidden' | 'shown' | 'none' | undefined
  /** Whether a request's output limit includes the reasoning. */
  readonly reasoningInLimit: boolean
  /** Tokens per second, 95th percentile. If undefined, it is learned from replies. */
  readonly outputRate: number | undefined
  /** Input tokens that the upstream itself adds. If undefined, they are learned from replies. */
  readonly overhead: number | undefined
  /** How to request reasoning when a request is translated into the messages format. */
  readonly thinking: 'adaptive' | 'budget'
  /** Whether the model's reasoning can be turned off. */
  readonly thinkingOff: boolean
  /** Whether the model accepts a temperature, `top_p` and `top_k`. */
  readonly sampling: boolean
  /** Where a request that is translated into the messages format is marked for the prompt cache. */
  readonly cacheMarks: CacheMarks
  /** The model id that this entry is an alias of. */
  readonly aliasOf: string | undefined
}

/** When a request that failed at one account is sent to another one. */
export interface RetryPolicy {
  /** Maximum accounts that a request is sent to. */
  readonly attempts: number
  readonly totalMs: number
  /** The failures after which another account is asked: `connect`, `timeout`, `empty`, a status, or `5xx`. */
  readonly on: ReadonlySet<string>
  /** How long the events before the first content are held back while another account could be asked. */
  readonly openingMs: number
}

/** A product of the reseller: what the keys of one type may use, and at which prices. */
export interface KeyType {
  readonly name: string
  /** The upstreams that serve its models, the preferred one first. A model may have others. */
  readonly upstreams: readonly Upstream[]
  readonly retry: RetryPolicy
  readonly formats: readonly Format[]
  readonly default: ModelEntry
  readonly fillDefault: boolean
  /** Whether everybody sees it: on the customers' page, in prices, and on the page of the status. */
  readonly isPublic: boolean
  /** Whether a request that is charged less than it cost is told. */
  readonly onLoss: 'warn' | 'ignore'
  /** The plan of balances that are made with a lone key of it; undefined for none. */
  readonly plan: PlanTerms | undefined
  /** The limits of each key. */
  readonly limits: KeyLimits
  /** Maximum replies of one key that are read to the end at the same time after their clients left. */
  readonly abandoned: number
  /** Whether running streams end when their key is disabled, expires or is rotated. */
  readonly onDisabled: 'end' | 'finish'
  /** Names of the key types of the keys that a managing key of this type may create. */
  readonly manages: readonly string[]
  /** Output tokens by which the hold of a running stream stays ahead. */
  readonly holdAhead: number
  /** Whether a request's output limit is lowered to what the balance covers. */
  readonly clampOutput: boolean
  /**
   * Actions for request members that cost money, keep state, or change the model or the address; only those that the
   * file sets.
   */
  readonly policy: Readonly<Partial<Record<PolicyName, Action>>>
  /** By model id, in the order of the file. */
  readonly models: ReadonlyMap<string, ModelEntry>
}

/** One stage of `chain:` with its options, checked against the plugin's schema. */
export interface ChainEntry {
  readonly plugin: string
  readonly options: Readonly<Record<string, unknown>>
}

/** Limits on what clients may send and occupy. */
export interface Limits {
  readonly connections: number
  /** In bytes. */
  readonly urlBytes: number
  readonly headersBytes: number
  readonly bodyBytes: number
  readonly replyBytes: number
  /** Maximum number of JSON values in a request. */
  readonly values: number
  readonly depth: number
  /**
   * Bytes of all requests and replies in flight, of all workers together. If undefined, a share of the machine's
   * memory.
   */
  readonly memoryBytes: number | undefined
  /** In milliseconds. */
  readonly headersMs: number
  readonly bodyIdleMs: number
  readonly bodyMs: number
  readonly writeIdleMs: number
  readonly keepaliveMs: number
  readonly idleConnectionMs: number
  /**
   * Limits on reading and discarding the rest of a body after an early response: milliseconds, bytes, and requests at a
   * time.
   */
  readonly unreadMs: number
  readonly unreadBytes: number
  readonly unreadBodies: number
  /** Maximum idle connections of one client address. */
  readonly idlePerAddress: number
  /** Maximum requests without a valid key per minute from one client address. */
  readonly anonymous: number
  /** The operator's own proxies. What they say about a client's address is trusted. */
  readonly trustedProxies: AddressRanges
  /** Whether their connections begin with a header of the PROXY protocol. */
  readonly proxyProtocol: boolean
  readonly stageMs: number
  readonly drainDelayMs: number
  readonly drainMs: number
}

/** Where balances and records are stored. */
export interface StoreConfig {
  /** Undefined if the gateway starts its own store. */
  readonly address: Address | undefined
  /** Number of replicas that each Redis must have online. */
  readonly replicas: number
  /** The URL of a PostgreSQL for the records. Undefined for a SQLite file in the data folder. */
  readonly records: string | undefined
  readonly recordsConnections: number
  readonly recordsTimeoutMs: number
  /** Whether stores that may lose acknowledged data are refused. */
  readonly production: boolean
  /** Absolute path of the data folder. */
  readonly data: string
  readonly prefix: string
  /** In milliseconds. */
  readonly commandTimeoutMs: number
}

/** Retention and lease times of the ledger. */
export interface LedgerConfig {
  /** In milliseconds. */
  readonly leaseMs: number
  readonly reapEveryMs: number
  readonly archiveEveryMs: number
  /** Bytes of the store for ended exchanges that cannot be recorded. */
  readonly backlogBytes: number
  readonly unrecordedMs: number
  readonly historyMs: number
  /** For how long the sums of days are kept by key, in milliseconds. */
  readonly dayHistoryMs: number
  /** For how long the causes of failed requests are kept, in milliseconds. */
  readonly failureHistoryMs: number
  readonly retriesMs: number
  /** Bytes of all replies that are kept for resends. */
  readonly keptRepliesBytes: number
  /** Maximum waived charges of one key per hour. */
  readonly waivers: number
  /** Maximum history entries per minute for a key's requests that cost nothing. */
  readonly freeEntries: number
  /** How long the gateway remembers which key created an object at a provider, in milliseconds. */
  readonly storedMs: number
  readonly auditEveryMs: number
  readonly keyCacheMs: number
}

/** The whole configuration. */
export interface Config {
  /** Absolute path of the configuration file. */
  readonly file: string
  /** Its text, and 12 digits of the SHA-256 of it. */
  readonly text: string
  readonly digest: string
  /** Absolute paths of the files that it reads values from. */
  readonly secretFiles: readonly string[]
  readonly listen: { readonly host: string; readonly port: number }
  /** Whom customers ask: a name, an e-mail address, or an https:// address. */
  readonly contact: string
  /** Number of processes that share the port. */
  readonly workers: number
  /** The lowest level that is logged. */
  readonly log: 'debug' | 'info' | 'warn' | 'error' | 'silent'
  readonly store: StoreConfig
  readonly ledger: LedgerConfig
  readonly keys: SecretForms
  readonly limits: Limits
  readonly upstreams: ReadonlyMap<string, Upstream>
  /** Ids of models by the name of their group. */
  readonly groups: ReadonlyMap<string, ReadonlySet<string>>
  readonly keyTypes: ReadonlyMap<string, KeyType>
  readonly chain: readonly ChainEntry[]
  /** Absolute paths of folders with the operator's own plugins. */
  readonly plugins: readonly string[]
}
