/** Makes a repeated request with the same idempotency key change nothing and get the same answer. */
import { createHash, randomBytes } from 'node:crypto'
import { GatewayError } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import type { BuiltInExchange, BuiltInHost } from 'tollgate/plugin/operator'
import type { Actor } from './access.ts'

/** One request that creates or grants something. */
export class Once {
  /** What is noted of the request; undefined without an idempotency key. */
  readonly request: Omit<operator.DoneRequest, 'reply'> | undefined
  readonly #secret: string
  readonly #seed: string

  private constructor(secret: string, seed: string, request?: Omit<operator.DoneRequest, 'reply'>) {
    this.#secret = secret
    this.#seed = seed
    this.request = request
  }

  /** @param body what was asked for @throws GatewayError bad_request if the idempotency key is not one */
  static of(x: BuiltInExchange, actor: Actor, body: unknown, at: number): Once {
    const key = x.headers['idempotency-key']
    const seed = randomBytes(32).toString('base64url')
    if (key === undefined) return new Once(actor.secret, seed)
    if (typeof key !== 'string' || !/^[\x21-\x7e]{1,255}$/.test(key)) {
      const message = 'The header idempotency-key must have 1 to 255 characters without spaces.'
      throw new GatewayError('bad_request', { message, param: 'idempotency-key' })
    }
    const id = sha256(`${actor.token.id} ${key}`)
    const fingerprint = fingerprintOf(`${x.method} ${x.path}`, body)
    return new Once(actor.secret, seed, { id, fingerprint, caller: operator.secretDigest(actor.secret), seed, at })
  }

  /** One request that cannot be repeated. */
  static single(actor: Actor): Once {
    return new Once(actor.secret, randomBytes(32).toString('base64url'))
  }

  /**
   * The same request as it was done earlier.
   * @param secrets whether its reply has secrets, which depend on what the caller presented
   * @throws GatewayError request_conflict if it asked for something else, or if its secrets cannot be made again
   */
  earlier(done: operator.DoneRequest, secrets: boolean): Once {
    const { request } = this
    if (secrets && done.fingerprint === request?.fingerprint && done.caller !== request.caller) {
      const message =
        'This request was done. Its secrets can be shown again only to the same token, or to the same session.'
      throw new GatewayError('request_conflict', { message })
    }
    if (done.fingerprint === request?.fingerprint) return new Once(this.#secret, done.seed, done)
    const differs = difference(done.fingerprint, request?.fingerprint ?? '{}')
    const message = `This idempotency key was used for another request: ${differs}. Send each request with a key of its own.`
    throw new GatewayError('request_conflict', { message })
  }

  /** Notes in a transaction that the request is done. @throws operator.RequestDone if it was done already */
  async note(sql: operator.Sql, done: unknown): Promise<void> {
    if (this.request) await operator.noteRequest(sql, { ...this.request, reply: JSON.stringify(done) })
  }

  /**
   * Ends a request whose change was made before.
   * @throws operator.RequestDone with its reply; GatewayError request_conflict if that is no longer kept
   */
  async repeat({ requests }: Pick<BuiltInHost['ledger']['records'], 'requests'>): Promise<never> {
    const known = await operator.orUnavailable(requests.find(this.id))
    if (known) throw new operator.RequestDone(known)
    const message =
      'This idempotency key was used before, and its change was made then. Send a new change with a new key.'
    throw new GatewayError('request_conflict', { message })
  }

  /** An id for a grant, which the ledger gives once. */
  get id(): string {
    return this.request?.id ?? this.#seed
  }

  /** Makes secrets. The same request makes the same ones in the same order. */
  secrets(prefix: string): () => operator.Secret {
    const bytes = this.bytes()
    return () => operator.newSecret(prefix, bytes)
  }

  /** Makes bytes that secrets are made of. */
  bytes(): (count: number) => Buffer {
    return operator.seededBytes(this.#secret, this.#seed)
  }
}

/** Sorts members by their names: clients need not keep the order in which they send them. */
function inOrder(_name: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** The member of a fingerprint that stands for the method and the path. */
const TARGET = ''

/** Returns the hash of each member of a request, as JSON. */
function fingerprintOf(target: string, body: unknown): string {
  const members = typeof body === 'object' && body !== null && !Array.isArray(body) ? Object.entries(body) : []
  const hashes = members.map(
    ([name, value]) => [name, sha256(JSON.stringify(value, inOrder) ?? '').slice(0, 22)] as const,
  )
  return JSON.stringify(Object.fromEntries([[TARGET, sha256(target).slice(0, 22)], ...hashes.sort()]))
}

/** Says in which members two requests differ. */
function difference(one: string, other: string): string {
  // A version before this one has noted one hash.
  if (!one.startsWith('{')) return 'it differs'
  const [then, now] = [JSON.parse(one), JSON.parse(other)] as [Record<string, unknown>, Record<string, unknown>]
  if (then[TARGET] !== now[TARGET]) return 'its path differs'
  const names = [...new Set([...Object.keys(then), ...Object.keys(now)])].filter(name => then[name] !== now[name])
  return `${names.map(name => `"${name}"`).join(', ')} ${names.length === 1 ? 'differs' : 'differ'}`
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('base64url')
}
