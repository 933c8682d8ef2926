/** A configuration as the gateway uses it: names resolved, units read, prices exact. Frozen once it is in force. */
import type { Format } from '../formats/index.ts'
import type { Action, PolicyName } from '../formats/policies.ts'
import type { Price } from '../money/price.ts'
import type { TrustedProxies } from '../lib/addresses.ts'
import type { Address } from './store-address.ts'

/** One credential of an upstream. */
export interface Account {
  /** `<upstream>/<number>`: how logs and the ledger name it. */
  readonly name: string
  readonly key: string
  readonly header: 'authorization' | 'x-api-key'
  readonly quota?: Quota | undefined
}

/** What an account may spend in each window. */
export interface Quota {
  /** Nano-credits. */
  readonly amount: bigint
  readonly per: 'day' | 'week'
}

/** A provider the operator buys from. */
export interface Upstream {
  readonly name: string
  /** The base address without `/v1`; undefined for the simulated provider. */
  readonly url: URL | undefined
  /** In the order in which they are preferred; the client's own comes before them all. */
  readonly speaks: readonly Format[]
  /** Output tokens that are asked for where the format wants a number and nobody names one. */
  readonly defaultOutput: number
  readonly accounts: readonly Account[]
  /** What becomes of a stream whose client leaves before its last content; undefined where format and model decide. */
  readonly onDisconnect: 'cancel' | 'finish' | undefined
  /** What it charges the operator, by the name of a model as it is sent, `*` for all others. */
  readonly cost: ReadonlyMap<string, Price>
  /** Nano-credits that one dollar of a cost it reports is worth; undefined where such reports do not count. */
  readonly dollar: bigint | undefined
  readonly timeouts: UpstreamTimeouts
}

/** How long an upstream may take, in milliseconds. */
export interface UpstreamTimeouts {
  readonly connect: number
  /** How long an idle connection is kept, unless the upstream names a shorter time. */
  readonly keepAlive: number
  readonly firstByte: number
  readonly idle: number
  readonly total: number
  /** How long a stream is read on before its last content for a client that has left. */
  readonly finish: number
  /** How long a stream is read on after its last content for its usage. */
  readonly usage: number
}

/** A model of a key type, as its customers name it. */
export interface ModelEntry {
  readonly id: string
  /** The name that goes upstream. */
  readonly sends: string
  readonly price: Price
  readonly priceName: string
  /** Tokens. */
  readonly context: number | undefined
  /** Tokens. */
  readonly maxOutput: number | undefined
  /** Output tokens to ask for where the upstream's format wants a number and the request has none. */
  readonly output: number
  /** What becomes of the model's reasoning: billed and never sent, sent, or there is none. Undefined where the file does not say. */
  readonly reasoning: 'hidden' | 'shown' | 'none' | undefined
  /** Whether a request's output limit bounds the reasoning as well. */
  readonly reasoningInLimit: boolean
  /** Tokens a second, the 95th percentile; undefined where it is learned. */
  readonly outputRate: number | undefined
  /** Input tokens that the upstream adds by itself; undefined where they are learned. */
  readonly overhead: number | undefined
  /** How the model is told to reason, where the messages format is translated into. */
  readonly thinking: 'adaptive' | 'budget'
  /** The id this one is an alias of. */
  readonly aliasOf: string | undefined
}

export interface KeyType {
  readonly name: string
  readonly upstream: Upstream
  readonly formats: readonly Format[]
  readonly default: ModelEntry
  readonly fillDefault: boolean
  /** The most requests of one key at a time. */
  readonly concurrency: number
  /** Milliseconds for which a request waits for others of its key to end. */
  readonly concurrencyWait: number
  /** The most replies of one key that are read on at a time for clients that have left. */
  readonly abandoned: number
  /** Whether running streams of a key that is disabled, expired or rotated are ended. */
  readonly onDisabled: 'end' | 'finish'
  /** Output tokens of a running stream that are held for at a time. */
  readonly holdAhead: number
  /** Whether a request's output limit is lowered to what the balance pays for. */
  readonly clampOutput: boolean
  /** What becomes of members that cost money, keep state, or change the model or the address, where the file says so. */
  readonly policy: Readonly<Partial<Record<PolicyName, Action>>>
  /** By id, in the order of the file. */
  readonly models: ReadonlyMap<string, ModelEntry>
}

/** One word of `chain:` with its options, checked against the plugin's schema. */
export interface ChainEntry {
  readonly plugin: string
  readonly options: Readonly<Record<string, unknown>>
}

export interface Limits {
  readonly connections: number
  /** Bytes. */
  readonly url: number
  readonly headers: number
  readonly body: number
  readonly reply: number
  /** Of a request's JSON. */
  readonly values: number
  readonly depth: number
  /** Bytes of all requests and replies in flight, of all workers together; undefined for a share of what there is. */
  readonly memory: number | undefined
  /** Milliseconds. */
  readonly headersTime: number
  readonly bodyIdle: number
  readonly bodyTime: number
  readonly writeIdle: number
  readonly keepalive: number
  readonly idleConnection: number
  /** Bounds on reading and discarding the rest of a body behind an early answer: time, bytes, and requests at a time. */
  readonly unreadTime: number
  readonly unreadBody: number
  readonly unreadBodies: number
  /** Idle connections that one address may keep open. */
  readonly idlePerAddress: number
  /** Requests without a valid key that one address may make in a minute. */
  readonly anonymous: number
  /** The operator's own proxies, whose `x-forwarded-for` is believed. */
  readonly trustedProxies: TrustedProxies
  readonly stage: number
  readonly drainDelay: number
  readonly drain: number
}

export interface StoreConfig {
  /** Undefined for a store of our own. */
  readonly address: Address | undefined
  /** Replicas that must have a grant before it is acknowledged. */
  readonly replicas: number
  /** Refuse stores that may lose what they acknowledged. */
  readonly production: boolean
  /** Absolute path of the data folder. */
  readonly data: string
  readonly prefix: string
  /** Milliseconds. */
  readonly commandTimeout: number
}

export interface LedgerConfig {
  /** Milliseconds. */
  readonly lease: number
  readonly reapEvery: number
  readonly remember: number
  readonly history: number
  readonly retries: number
  /** Bytes of all replies that are kept for retries. */
  readonly keptReplies: number
  /** Waivers of one key in an hour. */
  readonly waivers: number
  /** Entries that a key gets in a minute for requests that cost nothing. */
  readonly freeEntries: number
  /** Milliseconds for which it is remembered which key made what lies with a provider. */
  readonly stored: number
  readonly auditEvery: number
  readonly keyCache: number
}

export interface Config {
  /** Absolute path of the file it was read from. */
  readonly file: string
  readonly listen: { readonly host: string; readonly port: number }
  /** Processes that share the port. */
  readonly workers: number
  /** The least that is logged. */
  readonly log: 'debug' | 'info' | 'warn' | 'error' | 'silent'
  readonly store: StoreConfig
  readonly ledger: LedgerConfig
  readonly limits: Limits
  readonly upstreams: ReadonlyMap<string, Upstream>
  readonly keyTypes: ReadonlyMap<string, KeyType>
  readonly chain: readonly ChainEntry[]
  /** Folders with plugins of the operator's own, absolute. */
  readonly plugins: readonly string[]
}
