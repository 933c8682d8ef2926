/** Customers' keys: creating, finding and managing them. The secrets themselves are never stored. */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { GatewayError } from '../errors.ts'
import type { Ledger } from './ledger.ts'
import { stored, Unconfirmed } from './scripts.ts'

/** A key as recorded in the store. Its type is the name of a key type. */
export interface Key {
  /** The public id, and the name of the key's account in the ledger. It survives a rotation of the secret. */
  readonly id: string
  readonly name: string
  readonly type: string
  readonly status: 'active' | 'disabled'
  /** Milliseconds since the epoch. Undefined if the key never expires. */
  readonly expiresAt: number | undefined
  readonly createdAt: number
  /** Changes whenever the record changes. */
  readonly version: string
  /** Changes whenever the secret is rotated. `0` before the first rotation. */
  readonly rotation: string
  /** `sk-...` and the last four characters, by which owners tell their keys apart. */
  readonly label: string
  /** The balance in nano-credits when the record was read. */
  readonly balance: bigint
}

/** The properties of a new key. */
export interface NewKey {
  readonly type: string
  readonly name: string
  /** In nano-credits. */
  readonly credits: bigint
  readonly expiresAt: number | undefined
}

/** The fields of a key's record in the store. */
const FIELDS = ['type', 'name', 'status', 'expires', 'created', 'ver', 'sec', 'label', 'rot'] as const

/** How long an unknown secret is remembered, in milliseconds, and how many. */
const ABSENT_MS = 5000
const ABSENT_MAX = 10_000
/** Number of cached records, and number of secrets known to have been valid. */
const CACHED_MAX = 50_000
const KNOWN_MAX = 100_000

/** The keys in the store, with a cache. */
export class Keys {
  readonly #ledger: Ledger
  /** Cached records by the digests of their secrets. */
  readonly #found: LRUCache<string, Key>
  /** Digests of unknown secrets. A separate cache, so that guesses displace only other guesses. */
  readonly #absent = new LRUCache<string, true>({ max: ABSENT_MAX, ttl: ABSENT_MS })
  /** Digests of secrets that were valid at their last look-up, however long ago. */
  readonly #known = new LRUCache<string, true>({ max: KNOWN_MAX })
  /** Running look-ups by digest. */
  readonly #reading = new Map<string, Reading>()
  readonly #now: () => number

  /** @param cacheMs how long a record is cached; a hold always checks the record's version as well */
  constructor(ledger: Ledger, cacheMs: number, now: () => number) {
    this.#ledger = ledger
    this.#now = now
    // Reading the clock for every look-up would cost more than it is worth.
    this.#found = new LRUCache({
      max: CACHED_MAX,
      ttl: Math.max(cacheMs, 1),
      ttlResolution: Math.min(cacheMs / 10, 100),
    })
  }

  /**
   * Finds a key by its secret, from the cache if possible. An unknown secret is remembered for a few seconds.
   * @throws GatewayError unavailable, as a rejection
   */
  find(secret: string): Key | undefined | Promise<Key | undefined> {
    const digest = digestOf(secret)
    const found = this.#found.get(digest)
    if (found || this.#absent.has(digest)) return found
    return this.#reading.get(digest)?.answer ?? this.#read(digest)
  }

  /** Returns whether a secret was valid when it was last looked up. It never asks the store. */
  recognises(secret: string): boolean {
    return this.#known.has(digestOf(secret))
  }

  /**
   * Like `find`, but reads the store after this call. Concurrent callers share the next read.
   * @throws GatewayError unavailable, as a rejection
   */
  refind(secret: string): Promise<Key | undefined> {
    const digest = digestOf(secret)
    const reading = this.#reading.get(digest)
    if (!reading) return this.#read(digest)
    return (reading.next ??= reading.answer.catch(() => undefined).then(() => this.#read(digest)))
  }

  #read(digest: string): Promise<Key | undefined> {
    const reading: Reading = { answer: this.#load(digest), next: undefined }
    this.#reading.set(digest, reading)
    const over = (): void => {
      if (this.#reading.get(digest) === reading) this.#reading.delete(digest)
    }
    reading.answer.then(
      key => {
        over()
        this.#remember(digest, key)
      },
      () => {
        over()
        this.#found.delete(digest)
      },
    )
    return reading.answer
  }

  #remember(digest: string, key: Key | undefined): void {
    if (key) {
      this.#found.set(digest, key)
      this.#absent.delete(digest)
    } else {
      this.#found.delete(digest)
      this.#absent.set(digest, true)
    }
    if (key?.status === 'active') this.#known.set(digest, true)
    else this.#known.delete(digest)
  }

  /**
   * Reads the key with this secret from the store and checks that it may be used now. For requests without a hold; a
   * hold makes this check itself.
   * @throws GatewayError invalid_key, key_expired or unavailable
   */
  async usable(secret: string): Promise<Key> {
    const key = await this.refind(secret)
    if (key?.status !== 'active') throw new GatewayError('invalid_key')
    if (key.expiresAt !== undefined && key.expiresAt <= this.#now()) throw new GatewayError('key_expired')
    return key
  }

  /** Creates a key. Only the result contains the secret. `doubt` says that the replicas have not confirmed the key. */
  async create(wish: NewKey): Promise<{ key: Key; secret: string; doubt?: Unconfirmed }> {
    const { scripts } = this.#ledger
    const id = `key_${randomBytes(9).toString('hex')}`
    const { secret, digest, label } = newSecret()
    const record = {
      v: '1',
      type: wish.type,
      name: wish.name,
      status: 'active',
      expires: wish.expiresAt === undefined ? '' : String(wish.expiresAt),
      created: String(this.#now()),
      ver: '1',
      sec: digest,
      label,
      rot: '',
    }
    // In this order, a crash leaves at most an account whose secret does not exist.
    await stored(scripts.redis.sadd(scripts.shared('accounts'), id))
    await stored(scripts.redis.hset(scripts.key(id, 'a'), record))
    await this.#note(id)
    const granted =
      wish.credits > 0n
        ? await doubtOf(this.#ledger.grant(id, `${id}-first`, wish.credits, { reason: 'created' }))
        : undefined
    const doubt = (await doubtOf(this.#point(digest, id))) ?? granted
    const values = FIELDS.map(field => record[field])
    this.#absent.delete(digest)
    return { key: keyOf(id, values, wish.credits) as Key, secret, ...(doubt && { doubt }) }
  }

  /** Returns the path of the trail if it has keys that the store lacks. */
  async lost(): Promise<string | undefined> {
    const { scripts, trail } = this.#ledger
    return trail.exists && (await stored(scripts.redis.exists(scripts.shared('accounts')))) === 0
      ? trail.file
      : undefined
  }

  /** Finds a key by its public id. */
  async get(id: string): Promise<Key | undefined> {
    const values = await this.#fields(id)
    return keyOf(id, values, balanceIn(values))
  }

  /** Iterates over all keys, in no particular order. */
  async *all(): AsyncGenerator<Key> {
    const { scripts } = this.#ledger
    let cursor = '0'
    const seen = new Set<string>()
    do {
      const [next, ids] = await stored(scripts.redis.sscan(scripts.shared('accounts'), cursor, 'COUNT', 500))
      cursor = next
      for (const key of await Promise.all(ids.filter(id => !seen.has(id) && seen.add(id)).map(id => this.get(id))))
        if (key) yield key
    } while (cursor !== '0')
  }

  /** Disables or enables a key. Running requests learn of it at their next renewal. */
  async setStatus(id: string, status: Key['status']): Promise<void> {
    const { scripts } = this.#ledger
    await stored(scripts.redis.hset(scripts.key(id, 'a'), { status, ver: newVersion() }))
    await this.#note(id)
  }

  /** Gives a key a new secret. The old secret is invalid when this returns. Balance and history stay. */
  async rotate(id: string): Promise<{ key: Key; secret: string }> {
    const { scripts } = this.#ledger
    const { secret, digest, label } = newSecret()
    const old = await stored(scripts.redis.hget(scripts.key(id, 'a'), 'sec'))
    // The record names the one valid secret, so at any time between these steps exactly one of the two pointers is
    // valid.
    await this.#point(digest, id)
    await stored(scripts.redis.hset(scripts.key(id, 'a'), { sec: digest, label, ver: newVersion(), rot: newVersion() }))
    await this.#note(id)
    if (old) await stored(scripts.redis.del(this.#pointer(old)))
    const key = await this.get(id)
    if (!key) throw new RangeError(`there is no key ${id}`)
    return { key, secret }
  }

  async #load(digest: string): Promise<Key | undefined> {
    const { scripts } = this.#ledger
    const id = await stored(scripts.redis.get(this.#pointer(digest)))
    if (id === null) return undefined
    const values = await this.#fields(id)
    // A rotated secret may keep its pointer for a moment.
    const current = values[FIELDS.indexOf('sec')] ?? ''
    const same = current.length === digest.length && timingSafeEqual(Buffer.from(current), Buffer.from(digest))
    return same ? keyOf(id, values, balanceIn(values)) : undefined
  }

  /** Reads the fields of a record, followed by the balance of its account. */
  #fields(id: string): Promise<(string | null)[]> {
    const { scripts } = this.#ledger
    return stored(scripts.redis.hmget(scripts.key(id, 'a'), ...FIELDS, 'bal'))
  }

  /** Writes the current record to the trail. */
  async #note(account: string): Promise<void> {
    const { scripts, trail } = this.#ledger
    const values = await stored(scripts.redis.hmget(scripts.key(account, 'a'), 'v', ...FIELDS))
    const record = Object.fromEntries(['v', ...FIELDS].map((field, index) => [field, values[index] ?? '']))
    await trail.add({ kind: 'key', account, at: this.#now(), record })
  }

  async #point(digest: string, id: string): Promise<void> {
    await stored(this.#ledger.scripts.redis.set(this.#pointer(digest), id))
    await this.#ledger.confirm(this.#pointer(digest))
  }

  #pointer(digest: string): string {
    return this.#ledger.scripts.shared(`key:${digest}`)
  }
}

/** A running look-up. */
interface Reading {
  readonly answer: Promise<Key | undefined>
  /** The next look-up, shared by those who ask in the meantime. */
  next: Promise<Key | undefined> | undefined
}

function balanceIn(values: readonly (string | null)[]): bigint {
  return BigInt(values[FIELDS.length] ?? 0)
}

function keyOf(id: string, values: readonly (string | null | undefined)[], balance: bigint): Key | undefined {
  const of = (field: (typeof FIELDS)[number]): string => values[FIELDS.indexOf(field)] ?? ''
  if (of('type') === '') return undefined
  return {
    id,
    type: of('type'),
    name: of('name'),
    status: of('status') === 'active' ? 'active' : 'disabled',
    expiresAt: of('expires') === '' ? undefined : Number(of('expires')),
    createdAt: Number(of('created')),
    version: of('ver'),
    rotation: of('rot') || '0',
    label: of('label'),
    balance,
  }
}

/**
 * Returns a missing confirmation instead of throwing it: the caller must still get the secret, which nobody else knows.
 */
async function doubtOf(done: Promise<unknown>): Promise<Unconfirmed | undefined> {
  try {
    await done
    return undefined
  } catch (thrown) {
    if (thrown instanceof Unconfirmed) return thrown
    throw thrown
  }
}

function digestOf(secret: string): string {
  return hash('sha256', secret, 'hex')
}

function newVersion(): string {
  return randomBytes(6).toString('hex')
}

/** Creates a secret of 48 letters and digits (about 285 bits). */
function newSecret(): { secret: string; digest: string; label: string } {
  const letters = randomBytes(96).toString('base64').replace(/[+/=]/g, '').slice(0, 48)
  const secret = `sk-${letters}`
  return { secret, digest: digestOf(secret), label: `sk-...${letters.slice(-4)}` }
}
