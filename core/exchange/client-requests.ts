/**
 * Requests that clients may send again: those that run, and those that have ended and whose replies are kept for a
 * resend.
 */
import { createHash, type Hash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { LRUCache } from 'lru-cache'
import type { Outcome } from './exchange.ts'
import type { BuiltInExchange, BuiltInWith } from './built-in.ts'
import type { Body } from '../formats/body.ts'
import type { Claim } from '../ledger/claims.ts'
import type { ResendPart } from '../ledger/hold.ts'
import { JoinedReply, type Outlet, type SharedBytes } from '../client/outlet.ts'
import { SLICE_BYTES, turn } from '../lib/turns.ts'

/** A request of a client that may be sent again. */
export class ClientRequest {
  /** The id of the key that sent it. */
  readonly key: string
  /** The hash of the client's idempotency key; undefined if it sent none. */
  readonly name: string | undefined
  /** The claim in the store on the idempotency key. */
  claim: Claim | undefined
  readonly #outlet: Outlet
  /** The exchange, while it runs. */
  #exchange: (BuiltInExchange & BuiltInWith<'body'>) | undefined
  #digest: string | undefined

  constructor(exchange: BuiltInExchange & BuiltInWith<'key' | 'body'>, name: string | undefined) {
    this.key = exchange.key.id
    this.name = name
    this.#exchange = exchange
    this.#outlet = exchange.outlet
  }

  /** Identifies the path and the body. Computed only when it is needed. */
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

  /** The reply for a resend; undefined if it is no longer available from its start. */
  get reply(): JoinedReply | undefined {
    return this.#outlet.joinable ? new JoinedReply(this.#outlet) : undefined
  }

  /** The whole reply has been sent or kept. */
  get whole(): boolean {
    return this.#outlet.ended
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

/** The digests of requests, by their bodies. They stay when a conversation is released. */
const digests = new WeakMap<Body, string>()

/** Notes the digest of a request whose conversation is about to be released, if a client may send it again. */
export async function noteDigest(x: BuiltInExchange & BuiltInWith<'body'>): Promise<void> {
  if (!mayBeSentAgain(x.headers) || digests.has(x.body)) return
  const { received } = x.body
  const hash = digestBegun(x)
  for (let at = 0; at < received.length; at += SLICE_BYTES) {
    if (at > 0) await turn(x.key?.id)
    hash.update(received.subarray(at, at + SLICE_BYTES))
  }
  digests.set(x.body, digestEnded(hash))
}

/** Whether a client has said which try a request is, or has named it. */
export function mayBeSentAgain(headers: IncomingHttpHeaders): boolean {
  return headers['x-stainless-retry-count'] !== undefined || headers['idempotency-key'] !== undefined
}

/** Returns what a resend has in common with its request: the path, the body, and the headers that change the answer. */
export function requestDigest(x: BuiltInExchange & BuiltInWith<'body'>): string {
  let digest = digests.get(x.body)
  if (digest === undefined) digests.set(x.body, (digest = digestEnded(digestBegun(x).update(x.body.received))))
  return digest
}

/** Returns the digest of everything before the body. */
function digestBegun({ path, headers, format }: BuiltInExchange): Hash {
  const names = Object.keys(headers).filter(name => format.forwards(name) && !COMMON.test(name))
  const said = names.sort().map(name => `${name}: ${String(headers[name])}\n`)
  return createHash('sha256').update(`${path}\n${said.join('')}\n`)
}

function digestEnded(hash: Hash): string {
  return hash.digest('hex').slice(0, 32)
}

/** Headers that only tell who asks, or which try it is. */
const COMMON = /^(?:x-|user-agent$|accept$|content-type$|session-id$|thread-id$|originator$)/

/**
 * Returns the part of a billed exchange among the resends of one request: `lost` if its client left before anything
 * arrived, `retry` if it is a resend that succeeded, undefined otherwise. SDKs count their resends and repeat the body;
 * other clients send an idempotency key.
 */
export function resendPartOf(x: BuiltInExchange & BuiltInWith<'body'>, outcome: Outcome): ResendPart | undefined {
  if (!mayBeSentAgain(x.headers)) return undefined
  const name = x.headers['idempotency-key']
  const repeated = name !== undefined || Number(x.headers['x-stainless-retry-count']) > 0
  // A complete reply of which no client has a byte is kept for the resend, unless it is too large.
  const isUndelivered = x.firstByteAfter === undefined && !(x.complete && x.outlet.joinable)
  const delivered = repeated && outcome.kind === 'relayed'
  if (!isUndelivered && !delivered) return undefined
  const part = isUndelivered ? 'lost' : 'retry'
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

/** The requests of one process that may be sent again. */
export class ClientRequests {
  /** How long a reply is kept for its resend, in milliseconds. */
  readonly keptMs: number
  /** Bytes left for replies that are kept while they arrive. */
  readonly room: SharedBytes
  /** Requests that run or are kept, by account and idempotency key. */
  readonly #named = new Map<string, ClientRequest>()
  /** Requests that run or are kept, by account. */
  readonly #all = new Map<string, Set<ClientRequest>>()
  readonly #kept: LRUCache<ClientRequest, true>

  /**
   * @param ms how long a reply is kept for its resend
   * @param bytes bytes for all kept replies
   */
  constructor(ms: number, bytes: number) {
    this.keptMs = ms
    this.room = { bytes }
    this.#kept = new LRUCache<ClientRequest, true>({
      maxSize: bytes,
      ttl: ms,
      ttlAutopurge: true,
      sizeCalculation: (_value, request) => ENTRY_BYTES + request.bytes,
      dispose: (_value, request) => this.drop(request),
    })
  }

  /**
   * Whether a request may be a resend of an earlier one of this key: of one with the same idempotency key, or of one whose
   * client has left.
   */
  mayJoin(key: string, { headers }: Pick<BuiltInExchange, 'headers'>): boolean {
    const header = headers['idempotency-key']
    if (typeof header === 'string') return this.named(key, idempotencyName(header)) !== undefined
    if (!(Number(headers['x-stainless-retry-count']) > 0)) return false
    return this.#abandonedBy(key).length > 0
  }

  /** The request of this key with an idempotency key. */
  named(key: string, name: string): ClientRequest | undefined {
    const request = this.#named.get(`${key} ${name}`)
    return request && this.#known(request) ? request : undefined
  }

  /** Whether the request with this key was given up and has not been settled yet. */
  ending(key: string, name: string): boolean {
    const request = this.#named.get(`${key} ${name}`)
    return request?.runs === true && request.spent
  }

  /** The same request, sent earlier, whose client has left. */
  abandoned(key: string, request: BuiltInExchange & BuiltInWith<'body'>): ClientRequest | undefined {
    const left = this.#abandonedBy(key)
    if (left.length === 0) return undefined
    const digest = requestDigest(request)
    return left.find(earlier => earlier.digest === digest)
  }

  #abandonedBy(key: string): ClientRequest[] {
    return [...(this.#all.get(key) ?? [])].filter(request => request.abandoned && this.#known(request))
  }

  /** Notes a request that begins. */
  begin(request: ClientRequest): void {
    const { key, name } = request
    if (name !== undefined) this.#named.set(`${key} ${name}`, request)
    const all = this.#all.get(key)
    if (all) all.add(request)
    else this.#all.set(key, new Set([request]))
  }

  /** Keeps a request that has ended, for its resend. */
  keep(request: ClientRequest): void {
    request.end()
    this.#kept.set(request, true)
    // A request larger than the whole cache is not kept.
    if (!this.#kept.has(request)) this.drop(request)
  }

  /** Whether the request runs, or its reply is still kept. A request that was given up counts as unknown. */
  #known(request: ClientRequest): boolean {
    return request.runs ? !request.spent : this.#kept.get(request) === true
  }

  /** Forgets a request. */
  drop(request: ClientRequest): void {
    const { key, name } = request
    request.forget()
    if (name !== undefined && this.#named.get(`${key} ${name}`) === request) this.#named.delete(`${key} ${name}`)
    const all = this.#all.get(key)
    all?.delete(request)
    if (all?.size === 0) this.#all.delete(key)
  }
}
