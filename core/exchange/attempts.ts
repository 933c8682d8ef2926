/** Requests that may be asked again: those under way, and those that are done and whose replies are kept for a retry. */
import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Exchange, Outcome, With } from './exchange.ts'
import type { Claim } from '../ledger/accounts.ts'
import type { AttemptPart } from '../ledger/hold.ts'
import { JoinedReply, type Outlet, type SharedBytes } from './outlet.ts'

/** One attempt at a request. */
export class Attempt {
  /** The account of the key that sent it. */
  readonly account: string
  /** The client's own name for the request, hashed; undefined where it gave none. */
  readonly name: string | undefined
  /** The store's word that the name is this attempt's. */
  claim: Claim | undefined
  readonly #outlet: Outlet
  /** The exchange, while it runs. */
  #exchange: (Exchange & With<'body'>) | undefined
  #digest: string | undefined

  constructor(exchange: Exchange & With<'key' | 'body'>, name: string | undefined) {
    this.account = exchange.key.id
    this.name = name
    this.#exchange = exchange
    this.#outlet = exchange.outlet
  }

  /** Of the path and the body. Most attempts are never asked for it. */
  get digest(): string {
    return (this.#digest ??= this.#exchange ? digestOf(this.#exchange) : '')
  }

  /** Its client has left, and its reply still comes, or has come. */
  get abandoned(): boolean {
    return this.#outlet.empty && !this.spent
  }

  /** Its exchange is not over. */
  get runs(): boolean {
    return this.#exchange !== undefined
  }

  /** It ended without its reply. */
  get spent(): boolean {
    return this.#exchange?.over === true && !this.#exchange.complete
  }

  /** The reply for a client that asks again; undefined when it cannot be had from its start any more. */
  get reply(): JoinedReply | undefined {
    return this.#outlet.joinable ? new JoinedReply(this.#outlet) : undefined
  }

  /** All of the reply has been given. */
  get whole(): boolean {
    return this.#outlet.over
  }

  /** Bytes of the reply that are kept. */
  get bytes(): number {
    return this.#outlet.keptBytes
  }

  /** The exchange is over: what is left of it is its reply. */
  end(): void {
    this.#digest = this.digest
    this.#exchange = undefined
  }

  /** Nobody will ask for the reply any more. */
  forget(): void {
    this.#outlet.forget()
  }
}

/** What identifies a request: its path, its body, and the headers by which a format's clients say how it is to be answered. */
export function digestOf({ path, body, headers, format }: Exchange & With<'body'>): string {
  const names = Object.keys(headers).filter(name => format.forwards(name) && !COMMON.test(name))
  const said = names.sort().map(name => `${name}: ${String(headers[name])}\n`)
  return createHash('sha256')
    .update(`${path}\n${said.join('')}\n`)
    .update(body.received)
    .digest('hex')
    .slice(0, 32)
}

/** Headers that say who asks, or which try it is. */
const COMMON = /^(?:x-|user-agent$|accept$|content-type$|session-id$|thread-id$|originator$)/

/**
 * The part that a billed exchange has among the attempts at its request, when it has one: its client left before anything came,
 * or it is a retry that succeeded. SDKs count their retries and repeat the body; others may name the request by a key.
 */
export function attemptPartOf(x: Exchange & With<'body'>, outcome: Outcome): AttemptPart | undefined {
  const count = x.headers['x-stainless-retry-count']
  const name = x.headers['idempotency-key']
  if (count === undefined && name === undefined) return undefined
  const repeated = name !== undefined || Number(count) > 0
  // A complete reply of which no client has a byte is not lost: it is kept for the retry, unless it is too large.
  const lost = x.firstByteAfter === undefined && !(x.complete && x.outlet.joinable)
  const part = lost ? 'lost' : repeated && outcome.kind === 'relayed' ? 'retry' : undefined
  if (!part) return undefined
  const request = createHash('sha256')
    .update(`${digestOf(x)}\n${String(name ?? '')}`)
    .digest('hex')
    .slice(0, 32)
  return { request, part }
}

/** What stands for the name that a client gives its request. */
export function nameOf(header: string): string {
  return createHash('sha256').update(header).digest('hex').slice(0, 32)
}

/** Bytes that a kept reply is counted with beside its own. */
const ENTRY_BYTES = 1024

export class Attempts {
  /** Milliseconds for which a reply is kept for its retry. */
  readonly keptMs: number
  /** For the replies that are kept while they come, beside those that are done. */
  readonly room: SharedBytes
  /** Those under way and those that are kept, by the client's name for them. */
  readonly #named = new Map<string, Attempt>()
  /** Likewise, by account. */
  readonly #all = new Map<string, Set<Attempt>>()
  readonly #kept: LRUCache<Attempt, true>

  /**
   * @param ms how long a reply is kept for its retry
   * @param bytes of all kept replies
   */
  constructor(ms: number, bytes: number) {
    this.keptMs = ms
    this.room = { bytes }
    this.#kept = new LRUCache<Attempt, true>({
      max: 100_000,
      maxSize: bytes,
      ttl: ms,
      ttlAutopurge: true,
      sizeCalculation: (_value, attempt) => ENTRY_BYTES + attempt.bytes,
      dispose: (_value, attempt) => this.drop(attempt),
    })
  }

  /** Whether a request may be a retry of an attempt of this account: one of the same name, or one whose client has left. */
  mayJoin(account: string, { headers }: Pick<Exchange, 'headers'>): boolean {
    const header = headers['idempotency-key']
    if (typeof header === 'string') return this.named(account, nameOf(header)) !== undefined
    if (!(Number(headers['x-stainless-retry-count']) > 0)) return false
    return this.#abandonedBy(account).length > 0
  }

  /** The attempt that a client of this account gave a name to. */
  named(account: string, name: string): Attempt | undefined {
    const attempt = this.#named.get(`${account} ${name}`)
    return attempt && this.#known(attempt) ? attempt : undefined
  }

  /** Whether the name belongs to an attempt that was given up and has not been settled yet. */
  ending(account: string, name: string): boolean {
    const attempt = this.#named.get(`${account} ${name}`)
    return attempt?.runs === true && attempt.spent
  }

  /** An attempt at the same request whose client has left. */
  abandoned(account: string, request: Exchange & With<'body'>): Attempt | undefined {
    const left = this.#abandonedBy(account)
    if (left.length === 0) return undefined
    const digest = digestOf(request)
    return left.find(attempt => attempt.digest === digest)
  }

  #abandonedBy(account: string): Attempt[] {
    return [...(this.#all.get(account) ?? [])].filter(attempt => attempt.abandoned && this.#known(attempt))
  }

  /** Notes an attempt that begins. */
  begin(attempt: Attempt): void {
    const { account, name } = attempt
    if (name !== undefined) this.#named.set(`${account} ${name}`, attempt)
    const all = this.#all.get(account)
    if (all) all.add(attempt)
    else this.#all.set(account, new Set([attempt]))
  }

  /** Keeps an attempt that is done, for its retry. */
  keep(attempt: Attempt): void {
    attempt.end()
    this.#kept.set(attempt, true)
    // One that is larger than all there is room for is not.
    if (!this.#kept.has(attempt)) this.drop(attempt)
  }

  /** Whether the attempt runs, or its reply is kept still. One that was given up brings nobody a reply any more. */
  #known(attempt: Attempt): boolean {
    return attempt.runs ? !attempt.spent : this.#kept.get(attempt) === true
  }

  /** Forgets an attempt. */
  drop(attempt: Attempt): void {
    const { account, name } = attempt
    attempt.forget()
    if (name !== undefined && this.#named.get(`${account} ${name}`) === attempt)
      this.#named.delete(`${account} ${name}`)
    const all = this.#all.get(account)
    all?.delete(attempt)
    if (all?.size === 0) this.#all.delete(account)
  }
}
