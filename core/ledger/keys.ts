/** Customers' keys: creating, finding and managing them. The secrets themselves are never stored. */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { GatewayError } from '../errors.ts'
import type { Ledger } from './ledger.ts'
import type { KeyRecord, RecordedKey } from '../records/key-records.ts'
import { stored, unavailable } from './scripts.ts'

/** A key as the store has it. Its type is the name of a key type. */
export interface Key extends Pick<KeyRecord, 'id' | 'type' | 'status' | 'expiresAt' | 'label'> {
  /** Changes whenever the record changes. */
  readonly version: string
  /** Changes whenever the secret is rotated. `0` before the first rotation. */
  readonly rotation: string
  /** The balance in nano-credits when the record was read. */
  readonly balance: bigint
}

/** The properties of new keys. */
export interface NewKeys {
  readonly type: string
  readonly name: string
  readonly batch?: string
  /** In nano-credits, for each key. */
  readonly credits: bigint
  readonly expiresAt: number | undefined
}

/** A new key and its secret. The secret is not stored anywhere. */
export interface CreatedKey {
  readonly key: KeyRecord
  readonly secret: string
}

/** The fields of a key in the store. */
const FIELDS = ['ty', 'st', 'ex', 've', 'sec', 'la', 'ro', 'bal'] as const

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
    if (found || (this.#absent.has(digest) && this.#ledger.continuity.open)) return found
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

  /** Creates a key. Only the result contains the secret. @throws GatewayError unavailable */
  async create(wish: NewKeys): Promise<CreatedKey> {
    return (await this.createMany(wish, 1))[0] as CreatedKey
  }

  /**
   * Creates keys: all of them or, if the records fail, none. If the store fails after that, a running gateway tells it
   * of them later.
   * @throws GatewayError unavailable if none was created
   */
  async createMany({ type, name, batch = '', credits, expiresAt }: NewKeys, count: number): Promise<CreatedKey[]> {
    const createdAt = this.#now()
    const created = Array.from({ length: count }, (): CreatedKey => {
      const { secret, digest, label } = newSecret()
      const id = `key_${randomBytes(9).toString('hex')}`
      return {
        key: { id, type, name, batch, status: 'active', expiresAt, createdAt, version: 1, digest, label, rotation: 0 },
        secret,
      }
    })
    const { records, restorer } = this.#ledger
    await stored(
      records.keys.add(
        created.map(({ key }) => key),
        credits,
        createdAt,
      ),
    )
    const [grants, granted] = credits > 0n ? [1, credits] : [0, 0n]
    const known = created.map(({ key }) => ({ ...key, grants, granted, settled: 0n, ordinal: 0 }))
    await Promise.all(known.map(key => restorer.restore(key)))
    await stored(records.keys.applied(known))
    for (const { key } of created) this.#absent.delete(key.digest)
    return created
  }

  /** Whether there are any keys. */
  any(): Promise<boolean> {
    return stored(this.#ledger.records.keys.any())
  }

  /** Finds the record of a key by its public id or its secret. @throws GatewayError unavailable */
  record(idOrSecret: string): Promise<RecordedKey | undefined> {
    const { keys } = this.#ledger.records
    return stored(idOrSecret.startsWith('sk-') ? keys.find(digestOf(idOrSecret)) : keys.get(idOrSecret))
  }

  /**
   * Disables a key. The store knows at once; the records follow, also if they are away now. Running requests learn of
   * it at their next renewal.
   * @returns whether it is recorded
   * @throws GatewayError unavailable; RangeError if the store has no such key
   */
  async disable(id: string): Promise<boolean> {
    const { scripts, background } = this.#ledger
    await stored(scripts.redis.sadd(scripts.keys.shared('disabled'), id))
    const [kind] = await scripts.run({
      name: 'disable',
      account: id,
      keys: [scripts.keys.of(id).account],
      args: [],
    })
    if (kind === 'unknown') throw new RangeError(`there is no key ${id}`)
    return background.recordDisabled(id).then(
      () => true,
      () => false,
    )
  }

  /** Enables a disabled key. @throws GatewayError unavailable */
  async enable(id: string): Promise<void> {
    await this.#change(id, key => ({ ...key, status: 'active' }))
  }

  /** Gives a key a new secret. The old secret is invalid when this returns. Balance and history stay. */
  async rotate(id: string): Promise<CreatedKey> {
    const { secret, digest, label } = newSecret()
    const { scripts } = this.#ledger
    let old = ''
    const key = await this.#change(id, before => {
      old ||= before.digest
      return { ...before, digest, label, rotation: before.rotation + 1 }
    })
    await stored(scripts.redis.del(scripts.keys.pointer(old)))
    return { key, secret }
  }

  /** Changes the record of a key: in the records first, then in the store. */
  async #change(id: string, changed: (key: RecordedKey) => RecordedKey): Promise<RecordedKey> {
    const { scripts, records, restorer } = this.#ledger
    for (;;) {
      const before = await stored(records.keys.get(id))
      if (!before) throw new RangeError(`there is no key ${id}`)
      const [inStore] = await stored(scripts.redis.hmget(scripts.keys.of(id).account, 've'))
      const key = { ...changed(before), version: Math.max(before.version, Number(inStore ?? 0)) + 1 }
      // Somebody else has changed it meanwhile.
      if (!(await stored(records.keys.change(id, key, { at: this.#ledger.continuity.now(), pending: true })))) continue
      // The store has a newer record if the key was disabled at the same time.
      if (!(await restorer.restore(key))) continue
      await stored(records.keys.applied([key]))
      return key
    }
  }

  async #load(digest: string): Promise<Key | undefined> {
    const { scripts } = this.#ledger
    const id = await stored(scripts.redis.get(scripts.keys.pointer(digest)))
    if (id === null) {
      // A store that has lost its keys does not know who is a stranger.
      if (!this.#ledger.continuity.watching || (await this.#ledger.continuity.whenOpen())) return undefined
      throw unavailable(new Error('the store is being compared with the records'))
    }
    const values = await stored(scripts.redis.hmget(scripts.keys.of(id).account, ...FIELDS))
    // A rotated secret may keep its pointer for a moment.
    const current = values[FIELDS.indexOf('sec')] ?? ''
    const same = current.length === digest.length && timingSafeEqual(Buffer.from(current), Buffer.from(digest))
    return same ? keyOf(id, values) : undefined
  }
}

/** A running look-up. */
interface Reading {
  readonly answer: Promise<Key | undefined>
  /** The next look-up, shared by those who ask in the meantime. */
  next: Promise<Key | undefined> | undefined
}

function keyOf(id: string, values: readonly (string | null)[]): Key | undefined {
  const of = (field: (typeof FIELDS)[number]): string => values[FIELDS.indexOf(field)] ?? ''
  if (of('ty') === '') return undefined
  return {
    id,
    type: of('ty'),
    status: of('st') === 'active' ? 'active' : 'disabled',
    expiresAt: of('ex') === '' ? undefined : Number(of('ex')),
    version: of('ve'),
    rotation: of('ro'),
    label: of('la'),
    balance: BigInt(of('bal') || 0),
  }
}

function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64url')
}

/** Creates a secret of 48 letters and digits (about 285 bits). */
function newSecret(): { secret: string; digest: string; label: string } {
  const letters = randomBytes(96).toString('base64').replace(/[+/=]/g, '').slice(0, 48)
  const secret = `sk-${letters}`
  return { secret, digest: digestOf(secret), label: `sk-...${letters.slice(-4)}` }
}
