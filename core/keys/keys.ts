/** Customers' keys, as requests find them. The secrets themselves are never stored. */
import { timingSafeEqual } from 'node:crypto'
import { GatewayError } from '../errors.ts'
import type { Whose } from '../records/entry.ts'
import type { KeyRecord } from '../records/key-records.ts'
import { KeyChanges } from './changes.ts'
import { Plans } from './plans.ts'
import { digestsOf, secretDigest } from './secrets.ts'
import { type KeySettings, NO_SETTINGS } from './settings.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { balanceFrom } from '../ledger/reads.ts'
import { allowanceOf } from '../ledger/allowance.ts'
import { partOf } from '../ledger/script/parts.ts'
import type { Spender } from '../ledger/script/store-keys.ts'
import { CLOSED_STORE } from '../ledger/recovery/refusals.ts'
import { unavailable } from '../records/unavailable.ts'
import { lru } from '../lib/lru.ts'
import { type KeyLimits, keyLimitsFrom } from '../plans/limits.ts'
import { type Plan, planFrom } from '../plans/plan.ts'

/** A key as the store has it. Its type is the name of a key type. */
export interface Key extends Pick<
  KeyRecord,
  'id' | 'account' | 'type' | 'status' | 'expiresAt' | 'label' | 'createdAt' | 'cap'
> {
  readonly spender: Spender
  /** Whose history and usage its customer sees: its own. */
  readonly whose: Whose
  /** Changes whenever the record changes. */
  readonly version: string
  /** Its own limits. Undefined for none. */
  readonly limits: KeyLimits | undefined
  /** The plan of its balance. Undefined for none. */
  readonly plan: Plan | undefined
  /** Changes whenever the secret is rotated. `0` before the first rotation. */
  readonly rotation: string
  /** What it may use, what is left of that, and what it has been charged itself, in nano-credits, when the record was read. */
  readonly granted: bigint
  readonly balance: bigint
  readonly settled: bigint
}

/** The fields of a key's record in the store, and those of its account. */
const KEY_FIELDS = [
  'type',
  'status',
  'expiresAt',
  'version',
  'digest',
  'label',
  'rotation',
  'createdAt',
  'cap',
  'elsewhere',
  'limits',
] as const
const ACCOUNT_FIELDS = ['balance', 'granted', 'held', 'plan'] as const

/** How long an unknown secret is remembered, in milliseconds, and how many. */
const ABSENT_MS = 5000
const ABSENT_MAX = 10_000
/** Number of cached records, and number of secrets known to have been valid. */
const CACHED_MAX = 50_000
const KNOWN_MAX = 100_000

/** The keys in the store, with a cache. */
export class Keys {
  /** Creates and changes keys, and finds them as operators do. */
  readonly changes: KeyChanges
  /** Changes the plans of balances. */
  readonly plans: Plans
  readonly #ledger: Ledger
  readonly #now: () => number
  /** A reload changes them. */
  settings: KeySettings
  /** Cached records by the digests of their secrets. */
  readonly #found = lru<string, Cached>(CACHED_MAX)
  readonly #cacheMs: number
  /**
   * Digests of unknown secrets, with the epoch of the store that did not know them. A separate cache, so that guesses
   * displace only other guesses.
   */
  readonly #absent = lru<string, number>(ABSENT_MAX, { ttl: ABSENT_MS })
  /** Digests of secrets that were valid at their last look-up, however long ago. */
  readonly #known = lru<string, true>(KNOWN_MAX)
  /** Running look-ups by digest. */
  readonly #reading = new Map<string, Reading>()

  /**
   * @param cacheMs how long a record is used for requests that hold nothing
   */
  constructor(ledger: Ledger, cacheMs: number, now: () => number, settings = NO_SETTINGS) {
    this.settings = settings
    this.#ledger = ledger
    this.#now = now
    this.plans = new Plans(ledger)
    this.changes = new KeyChanges(
      ledger,
      now,
      {
        appeared: digest => void this.#absent.delete(digest),
        changed: digest => void this.#found.delete(digest),
      },
      () => this.settings,
    )
    this.#cacheMs = cacheMs
  }

  /**
   * Finds a key by its secret, from the cache if possible: for requests that hold, which shows whether the record is the latest
   * one. An unknown secret is remembered for a few seconds.
   * @throws GatewayError unavailable, as a rejection
   */
  find(secret: string): Key | undefined | Promise<Key | undefined> {
    return this.#cached(secret, Infinity)
  }

  /** Like `find`, but from a record that was read within `ledger.keyCache`: for requests that hold nothing. */
  findRecent(secret: string): Key | undefined | Promise<Key | undefined> {
    return this.#cached(secret, this.#cacheMs)
  }

  #cached(secret: string, mostMs: number): Key | undefined | Promise<Key | undefined> {
    const digest = secretDigest(secret)
    const found = this.#found.get(digest)
    const { open, epoch } = this.#ledger.continuity
    if (found && (mostMs === Infinity || performance.now() - found.readAt < mostMs)) return found.key
    if (open && this.#absent.get(digest) === epoch) return undefined
    return this.#reading.get(digest)?.answer ?? this.#read(digest, secret)
  }

  /** Returns whether a secret was valid when it was last looked up. It never asks the store. */
  recognises(secret: string): boolean {
    return this.#known.has(secretDigest(secret))
  }

  /**
   * Like `find`, but reads the store after this call. Concurrent callers share the next read.
   * @throws GatewayError unavailable, as a rejection
   */
  refind(secret: string): Promise<Key | undefined> {
    const digest = secretDigest(secret)
    const reading = this.#reading.get(digest)
    if (!reading) return this.#read(digest, secret)
    return (reading.next ??= reading.answer.catch(() => undefined).then(() => this.#read(digest, secret)))
  }

  /**
   * Reads a key again. @returns whether its record, or the plan of its balance, is another one than this
   * @throws GatewayError unavailable, as a rejection
   */
  async hasChanged(secret: string, before: Key): Promise<boolean> {
    const key = await this.refind(secret)
    const names = ['account', 'version', 'rotation', 'status'] as const
    return !key || names.some(name => key[name] !== before[name]) || key.plan?.version !== before.plan?.version
  }

  #read(digest: string, secret: string): Promise<Key | undefined> {
    const digests = digestsOf(secret, this.settings.importSuffix)
    const reading: Reading = { answer: this.#load(digests, secret), next: undefined }
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
      this.#found.set(digest, { key, readAt: performance.now() })
      this.#absent.delete(digest)
    } else {
      this.#found.delete(digest)
      this.#absent.set(digest, this.#ledger.continuity.epoch)
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

  async #load(digests: readonly string[], secret: string): Promise<Key | undefined> {
    const { continuity } = this.#ledger
    for (;;) {
      const { open, epoch } = continuity
      const key = await this.#first(digests, secret)
      if (!continuity.watching) return key
      const isCurrent = (): boolean => open && epoch === continuity.epoch
      if (key && isCurrent()) return key
      // A store that is being compared may have lost the key, or its latest state, even before anybody has noticed.
      if (!(await continuity.whenOpen()) || (await this.#epoch()) !== continuity.epoch) {
        continuity.recheck()
        throw unavailable(new Error(CLOSED_STORE))
      }
      // If it was compared meanwhile, it is read again.
      if (isCurrent()) return key
    }
  }

  /** Returns the key with one of these digests. One that is found by a later digest gets the first. */
  async #first(digests: readonly string[], secret: string): Promise<Key | undefined> {
    const [own = ''] = digests
    for (const digest of digests) {
      const key = await this.#fromStore(digest)
      // If this fails, the next use does it.
      if (key && digest !== own) void this.changes.adopt(key.id, digest, secret).catch(() => {})
      if (key) return key
    }
    return undefined
  }

  /** Returns the epoch of the store; undefined if it is empty. */
  async #epoch(): Promise<number | undefined> {
    const [owner, epoch] = await this.#ledger.continuity.meta.get('records', 'generation')
    return owner === null ? undefined : Number(epoch)
  }

  async #fromStore(digest: string): Promise<Key | undefined> {
    const found = await this.#ledger.scripts.find(digest, KEY_FIELDS, ACCOUNT_FIELDS)
    if (!found) return undefined
    const { spender, fields } = found
    // A rotated secret may keep its pointer for a moment.
    const current = fields.digest ?? ''
    const same = current.length === digest.length && timingSafeEqual(Buffer.from(current), Buffer.from(digest))
    return same ? keyFrom(spender, fields) : undefined
  }
}

/** A record, and when it was read, in milliseconds of the clock of `performance`. */
interface Cached {
  readonly key: Key
  readonly readAt: number
}

/** A running look-up. */
interface Reading {
  readonly answer: Promise<Key | undefined>
  /** The next look-up, shared by those who ask in the meantime. */
  next: Promise<Key | undefined> | undefined
}

type KeyFields = Readonly<Record<(typeof KEY_FIELDS | typeof ACCOUNT_FIELDS)[number] | 'part', string | null>>

function keyFrom(
  { account, key: id }: { readonly account: string; readonly key: string },
  fields: KeyFields,
): Key | undefined {
  const { type, status, expiresAt, version, label, rotation, createdAt, cap, elsewhere, part, plan } = fields
  if (!type) return undefined
  const limits = {
    account: balanceFrom(fields),
    cap: cap ? BigInt(cap) : undefined,
    elsewhere: BigInt(elsewhere || 0),
    part: partOf({ account, key: id }, part),
  }
  const { balance, granted } = allowanceOf(limits)
  return {
    id,
    account,
    spender: { account, key: id },
    whose: part === null && id === account ? { account } : { account, key: id },
    type,
    status: status === 'active' ? 'active' : 'disabled',
    expiresAt: expiresAt ? Number(expiresAt) : undefined,
    version: version ?? '',
    rotation: rotation ?? '',
    label: label ?? '',
    // A key without it is older than the field.
    createdAt: Number(createdAt ?? 0),
    cap: limits.cap,
    limits: fields.limits ? keyLimitsFrom(fields.limits) : undefined,
    plan: plan ? planFrom(plan) : undefined,
    balance,
    granted,
    settled: limits.part?.charged ?? limits.account.settled,
  }
}
