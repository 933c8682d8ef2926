/**
 * Attempts at requests that may be sent again: those that run, and those that have ended and whose replies are kept for
 * a retry.
 */
import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Outcome } from './exchange.ts'
import type { BuiltInExchange, BuiltInWith } from './built-in.ts'
import type { Claim } from '../ledger/claims.ts'
import type { AttemptPart } from '../ledger/hold.ts'
import { JoinedReply, type Outlet, type SharedBytes } from '../client/outlet.ts'

/** One attempt at a request. */
export class ClientAttempt {
  /** The id of the key that sent it. */
  readonly account: string
  /** The hash of the client's idempotency key; undefined if it sent none. */
  readonly name: string | undefined
  /** The claim in the store on the idempotency key. */
  claim: Claim | undefined
  readonly #outlet: Outlet
  /** The exchange, while it runs. */
  #exchange: (BuiltInExchange & BuiltInWith<'body'>) | undefined
  #digest: string | undefined

  constructor(exchange: BuiltInExchange & BuiltInWith<'key' | 'body'>, name: string | undefined) {
    this.account = exchange.key.id
    this.name = name
    this.#exchange = exchange
    this.#outlet = exchange.outlet
  }

  /** Identifies the path and the body. Computed only when it is needed, which is rare. */
  get digest(): string {
    return (this.#digest ??= this.#exchange ? requestDigest(this.#exchange) : '')
  }

  /** Its client has left, and its reply is still read or kept. */
  get abandoned(): boolean {
    return this.#outlet.empty && !this.spent
  }

  /** Its exchange runs. */
  get runs(): boolean {
    return this.#exchange !== undefined
  }

  /** It ended without a complete reply. */
  get spent(): boolean {
    return this.#exchange?.over === true && !this.#exchange.complete
  }

  /** The reply for a retry; undefined if it is no longer available from its start. */
  get reply(): JoinedReply | undefined {
    return this.#outlet.joinable ? new JoinedReply(this.#outlet) : undefined
  }

  /** The whole reply has been sent or kept. */
  get whole(): boolean {
    return this.#outlet.over
  }

  /** Bytes of the reply that are kept. */
  get bytes(): number {
    return this.#outlet.keptBytes
  }

  /** Notes that the exchange has ended. What is left of it is its reply. */
  end(): void {
    this.#digest = this.digest
    this.#exchange = undefined
  }

  /** Drops the reply. */
  forget(): void {
    this.#outlet.forget()
  }
}

/** Identifies a request: its path, its body, and the headers that change how it is answered. */
export function requestDigest({ path, body, headers, format }: BuiltInExchange & BuiltInWith<'body'>): string {
  const names = Object.keys(headers).filter(name => format.forwards(name) && !COMMON.test(name))
  const said = names.sort().map(name => `${name}: ${String(headers[name])}\n`)
  return createHash('sha256')
    .update(`${path}\n${said.join('')}\n`)
    .update(body.received)
    .digest('hex')
    .slice(0, 32)
}

/** Headers that only tell who asks, or which try it is. */
const COMMON = /^(?:x-|user-agent$|accept$|content-type$|session-id$|thread-id$|originator$)/

/**
 * The part of a billed exchange among the attempts at its request: `lost` if its client left before anything arrived,
 * `retry` if it is a retry that succeeded, undefined otherwise. SDKs count their retries and repeat the body; other
 * clients send an idempotency key.
 */
export function attemptPartOf(x: BuiltInExchange & BuiltInWith<'body'>, outcome: Outcome): AttemptPart | undefined {
  const count = x.headers['x-stainless-retry-count']
  const name = x.headers['idempotency-key']
  if (count === undefined && name === undefined) return undefined
  const repeated = name !== undefined || Number(count) > 0
  // A complete reply of which no client has a byte is kept for the retry, unless it is too large. Then it is not lost.
  const lost = x.firstByteAfter === undefined && !(x.complete && x.outlet.joinable)
  const delivered = repeated && outcome.kind === 'relayed'
  if (!lost && !delivered) return undefined
  const part = lost ? 'lost' : 'retry'
  const request = createHash('sha256')
    .update(`${requestDigest(x)}\n${String(name ?? '')}`)
    .digest('hex')
    .slice(0, 32)
  return { request, part }
}

/** The hash of an idempotency key. */
export function idempotencyName(header: string): string {
  return createHash('sha256').update(header).digest('hex').slice(0, 32)
}

/** Bytes that each kept reply counts in addition to its own. */
const ENTRY_BYTES = 1024

/** All attempts of the process. */
export class Attempts {
  /** How long a reply is kept for its retry, in milliseconds. */
  readonly keptMs: number
  /** Bytes left for replies that are kept while they arrive. */
  readonly room: SharedBytes
  /** Attempts that run or are kept, by account and idempotency key. */
  readonly #named = new Map<string, ClientAttempt>()
  /** Attempts that run or are kept, by account. */
  readonly #all = new Map<string, Set<ClientAttempt>>()
  readonly #kept: LRUCache<ClientAttempt, true>

  /**
   * @param ms how long a reply is kept for its retry
   * @param bytes bytes for all kept replies
   */
  constructor(ms: number, bytes: number) {
    this.keptMs = ms
    this.room = { bytes }
    this.#kept = new LRUCache<ClientAttempt, true>({
      maxSize: bytes,
      ttl: ms,
      ttlAutopurge: true,
      sizeCalculation: (_value, attempt) => ENTRY_BYTES + attempt.bytes,
      dispose: (_value, attempt) => this.drop(attempt),
    })
  }

  /**
   * Whether a request may be a retry of an attempt of this account: one with the same idempotency key, or one whose
   * client has left.
   */
  mayJoin(account: string, { headers }: Pick<BuiltInExchange, 'headers'>): boolean {
    const header = headers['idempotency-key']
    if (typeof header === 'string') return this.named(account, idempotencyName(header)) !== undefined
    if (!(Number(headers['x-stainless-retry-count']) > 0)) return false
    return this.#abandonedBy(account).length > 0
  }

  /** The attempt of this account with an idempotency key. */
  named(account: string, name: string): ClientAttempt | undefined {
    const attempt = this.#named.get(`${account} ${name}`)
    return attempt && this.#known(attempt) ? attempt : undefined
  }

  /** Whether the attempt with this key was given up and has not been settled yet. */
  ending(account: string, name: string): boolean {
    const attempt = this.#named.get(`${account} ${name}`)
    return attempt?.runs === true && attempt.spent
  }

  /** An attempt at the same request whose client has left. */
  abandoned(account: string, request: BuiltInExchange & BuiltInWith<'body'>): ClientAttempt | undefined {
    const left = this.#abandonedBy(account)
    if (left.length === 0) return undefined
    const digest = requestDigest(request)
    return left.find(attempt => attempt.digest === digest)
  }

  #abandonedBy(account: string): ClientAttempt[] {
    return [...(this.#all.get(account) ?? [])].filter(attempt => attempt.abandoned && this.#known(attempt))
  }

  /** Notes an attempt that begins. */
  begin(attempt: ClientAttempt): void {
    const { account, name } = attempt
    if (name !== undefined) this.#named.set(`${account} ${name}`, attempt)
    const all = this.#all.get(account)
    if (all) all.add(attempt)
    else this.#all.set(account, new Set([attempt]))
  }

  /** Keeps an attempt that has ended, for its retry. */
  keep(attempt: ClientAttempt): void {
    attempt.end()
    this.#kept.set(attempt, true)
    // An attempt larger than the whole cache is not kept.
    if (!this.#kept.has(attempt)) this.drop(attempt)
  }

  /** Whether the attempt runs, or its reply is still kept. An attempt that was given up counts as unknown. */
  #known(attempt: ClientAttempt): boolean {
    return attempt.runs ? !attempt.spent : this.#kept.get(attempt) === true
  }

  /** Forgets an attempt. */
  drop(attempt: ClientAttempt): void {
    const { account, name } = attempt
    attempt.forget()
    if (name !== undefined && this.#named.get(`${account} ${name}`) === attempt)
      this.#named.delete(`${account} ${name}`)
    const all = this.#all.get(account)
    all?.delete(attempt)
    if (all?.size === 0) this.#all.delete(account)
  }
}
