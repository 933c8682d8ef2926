/** Customers' keys: made, found by what the customer sends, managed. The secret itself is stored nowhere. */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { GatewayError } from '../errors.ts'
import type { Ledger } from './ledger.ts'
import { stored, Unconfirmed } from './scripts.ts'

/** A key as its record says; its type is the name of a key type. */
export interface Key {
  /** Public id, the ledger's name of the account. It outlives a rotation of the secret. */
  readonly id: string
  readonly name: string
  readonly type: string
  readonly status: 'active' | 'disabled'
  /** Milliseconds since the epoch; undefined for never. */
  readonly expiresAt: number | undefined
  readonly createdAt: number
  /** Changes with every change of the record. */
  readonly version: string
  /** Changes with every rotation of the secret; `0` before the first. */
  readonly rotation: string
  /** `sk-...` and the last four characters: enough to tell one's keys apart. */
  readonly label: string
  /** Nano-credits that were left when the record was read. */
  readonly balance: bigint
}

/** What a new key is to be. */
export interface NewKey {
  readonly type: string
  readonly name: string
  /** Nano-credits. */
  readonly credits: bigint
  readonly expiresAt: number | undefined
}

/** The fields of a key's record. */
const FIELDS = ['type', 'name', 'status', 'expires', 'created', 'ver', 'sec', 'label', 'rot'] as const

/** How long "there is no such key" is believed, in milliseconds, and of how many secrets. */
const ABSENT_MS = 5000
const ABSENT_MAX = 10_000
/** Keys whose records are believed for a while, and keys that are known to have been valid. */
const CACHED_MAX = 50_000
const KNOWN_MAX = 100_000

export class Keys {
  readonly #ledger: Ledger
  /** Records by the digests of their secrets. */
  readonly #found: LRUCache<string, Key>
  /** Digests of secrets that no key has. They have a place of their own, where guesses displace nothing but guesses. */
  readonly #absent = new LRUCache<string, true>({ max: ABSENT_MAX, ttl: ABSENT_MS })
  /** Digests of secrets that were valid when they were last looked up, however long ago. */
  readonly #known = new LRUCache<string, true>({ max: KNOWN_MAX })
  /** Look-ups under way, by digest. */
  readonly #reading = new Map<string, Reading>()
  readonly #now: () => number

  /** @param cacheMs how long a record is believed; a hold checks its version all the same */
  constructor(ledger: Ledger, cacheMs: number, now: () => number) {
    this.#ledger = ledger
    this.#now = now
    // Looking at the clock anew each millisecond would cost more than it is worth.
    this.#found = new LRUCache({
      max: CACHED_MAX,
      ttl: Math.max(cacheMs, 1),
      ttlResolution: Math.min(cacheMs / 10, 100),
    })
  }

  /**
   * The key whose secret this is; at once, where it was looked up of late. That there is none is remembered for some seconds.
   * @throws GatewayError unavailable, as a rejection
   */
  find(secret: string): Key | undefined | Promise<Key | undefined> {
    const digest = digestOf(secret)
    const found = this.#found.get(digest)
    if (found || this.#absent.has(digest)) return found
    return this.#reading.get(digest)?.answer ?? this.#read(digest)
  }

  /** Whether a secret was a valid key's when it was last looked up. Asks nobody. */
  recognises(secret: string): boolean {
    return this.#known.has(digestOf(secret))
  }

  /**
   * As `find`, but by a look at the store that begins after this call. Those who ask while a look is under way share the next.
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
   * The key with this secret, straight from the store, if it may be used now: for requests for which nothing is held, as a hold
   * checks that itself.
   * @throws GatewayError invalid_key, key_expired or unavailable
   */
  async usable(secret: string): Promise<Key> {
    const key = await this.refind(secret)
    if (key?.status !== 'active') throw new GatewayError('invalid_key')
    if (key.expiresAt !== undefined && key.expiresAt <= this.#now()) throw new GatewayError('key_expired')
    return key
  }

  /** Makes a key. The secret is in the answer and nowhere else; `doubt` says when its replicas have not confirmed it. */
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
    // In this order a crash leaves at most an account that nobody has the secret of.
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

  /** The trail, where it tells of keys that the store does not have. */
  async lost(): Promise<string | undefined> {
    const { scripts, trail } = this.#ledger
    return trail.exists && (await stored(scripts.redis.exists(scripts.shared('accounts')))) === 0
      ? trail.file
      : undefined
  }

  /** A key by its public id. */
  async get(id: string): Promise<Key | undefined> {
    const values = await this.#fields(id)
    return keyOf(id, values, balanceIn(values))
  }

  /** Every key, in no order. */
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

  /** Disables or enables a key. Requests under way learn of it at their next renewal. */
  async setStatus(id: string, status: Key['status']): Promise<void> {
    const { scripts } = this.#ledger
    await stored(scripts.redis.hset(scripts.key(id, 'a'), { status, ver: newVersion() }))
    await this.#note(id)
  }

  /** Gives a key a new secret; the old one is dead when this returns. Balance and history stay. */
  async rotate(id: string): Promise<{ key: Key; secret: string }> {
    const { scripts } = this.#ledger
    const { secret, digest, label } = newSecret()
    const old = await stored(scripts.redis.hget(scripts.key(id, 'a'), 'sec'))
    // The record names the one secret that counts: between these steps exactly one of the two pointers is believed.
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
    // A rotated secret may still have its pointer for a moment.
    const current = values[FIELDS.indexOf('sec')] ?? ''
    const same = current.length === digest.length && timingSafeEqual(Buffer.from(current), Buffer.from(digest))
    return same ? keyOf(id, values, balanceIn(values)) : undefined
  }

  /** The fields of a record, and behind them the balance of its account. */
  #fields(id: string): Promise<(string | null)[]> {
    const { scripts } = this.#ledger
    return stored(scripts.redis.hmget(scripts.key(id, 'a'), ...FIELDS, 'bal'))
  }

  /** Leaves the record, as it is now, on the trail. */
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

/** A look at the store that is under way. */
interface Reading {
  readonly answer: Promise<Key | undefined>
  /** The look after it, for those who ask meanwhile. */
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

/** What is done but unconfirmed is told of at the end: nobody else knows the secret. */
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

/** A new secret of 48 letters and digits, some 285 bits. */
function newSecret(): { secret: string; digest: string; label: string } {
  const letters = randomBytes(96).toString('base64').replace(/[+/=]/g, '').slice(0, 48)
  const secret = `sk-${letters}`
  return { secret, digest: digestOf(secret), label: `sk-...${letters.slice(-4)}` }
}
