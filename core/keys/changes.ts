/** Creates, changes and finds keys as operators do. A change goes to the records first, then to the store. */
import { randomBytes } from 'node:crypto'
import { sideBySide } from '../lib/side-by-side.ts'
import { turn } from '../lib/turns.ts'
import { GatewayError } from '../errors.ts'
import { firstGrants } from '../records/account-rows.ts'
import { type Also, RecordsError, type Transaction } from '../records/database.ts'
import type { KeyRecord, RecordedKey } from '../records/key-records.ts'
import { digestsOf, hintOf, isPublicId, newSecret, type Secret, secretDigest } from './secrets.ts'
import type { KeySettings } from './settings.ts'
import { newPlan } from '../plans/plan.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { knownFirst } from '../ledger/known-first.ts'
import type { Restored } from '../ledger/recovery/restore.ts'
import { operation } from '../ledger/script/names.ts'
import type { Scripts } from '../ledger/script/scripts.ts'
import { causeOf, orUnavailable } from '../records/unavailable.ts'
import { extensionOf } from './extension.ts'
import { moveKey } from './move.ts'
import type { KeyEdit, NewKeys } from './wishes.ts'
import { type Reached, recordedSurely } from './recorded.ts'

/** What a caller adds to a change. */
export interface ChangeExtras {
  /** Writes more in the transaction that records the change, given the keys as they are then. What it throws undoes it. */
  readonly also?: ((sql: Transaction, keys: readonly KeyRecord[]) => Promise<void>) | undefined
  /** Makes the secrets; random ones by default. */
  readonly secrets?: (() => Secret) | undefined
}

/** A new key, or a key with a new secret. The secret is not stored anywhere. */
export interface CreatedKey {
  readonly key: KeyRecord
  readonly secret: string
  readonly reached: Reached
}

/** A key that could create others without its limits has none. @throws RangeError */
function checkManaging<K extends Pick<NewKeys, 'manage' | 'cap' | 'limits'>>(key: K): K {
  if (key.manage === true && (key.cap ?? key.limits) !== undefined)
    throw new RangeError(
      'a key that manages others has no cap and no limits of its own: limit its balance by credits or a plan',
    )
  return key
}

/** Keys that are written to the store at the same time. */
const SIDE_BY_SIDE = 64
/** Keys that are made before other work gets its turn. */
const MADE_AT_ONCE = 50

/** Who learns that keys have changed. */
export interface KeyObserver {
  /** Called when there is a key with a digest. */
  appeared(digest: string): void
  /** Called when the key with a digest has changed. */
  changed(digest: string): void
}

/** Changes keys, as an operator does. */
export class KeyChanges {
  readonly #ledger: Ledger
  readonly #now: () => number
  readonly #observer: KeyObserver
  readonly #settings: () => KeySettings

  /**
   * @param now milliseconds since the epoch
   * @param settings what imported secrets look like
   */
  constructor(ledger: Ledger, now: () => number, observer: KeyObserver, settings: () => KeySettings) {
    this.#settings = settings
    this.#ledger = ledger
    this.#now = now
    this.#observer = observer
  }

  /** Creates a key. Only the result contains the secret. @throws GatewayError unavailable */
  async create(wish: NewKeys): Promise<CreatedKey> {
    return (await this.createMany(wish, 1))[0] as CreatedKey
  }

  /**
   * Creates keys: all of them or, if the records fail, none.
   * @throws GatewayError unavailable if none was created; RangeError if there is no such balance; what `also` throws
   */
  async createMany(wish: NewKeys, count: number, extras: ChangeExtras = {}): Promise<CreatedKey[]> {
    const {
      type,
      name,
      batch = '',
      label = '',
      credits,
      expiresAt,
      lifetimeMs,
      cap,
      metadata = {},
      account,
      manage,
    } = wish
    const externalId = wish.externalId ?? ''
    checkManaging(wish)
    const { also, secrets = newSecret } = extras
    const createdAt = this.#now()
    const created: { key: KeyRecord; secret: string }[] = []
    while (created.length < count) {
      const { secret, digest, hint } = secrets()
      const id = `key_${randomBytes(9).toString('hex')}`
      const own = { id, account: account ?? id, type, name, batch, status: 'active' as const, createdAt }
      const more = { expiresAt, lifetimeMs, cap, limits: wish.limits, metadata, manage }
      created.push({ key: { ...own, ...more, version: 1, digest, label: label || hint, hint, rotation: 0 }, secret })
      if (created.length % MADE_AT_ONCE === 0) await turn()
    }
    const keys = created.map(({ key }) => key)
    const terms = account === undefined ? this.#settings().planOf(type) : undefined
    const plan = terms && JSON.stringify(newPlan(terms, createdAt, type))
    const recorded = await recordedSurely(
      this.#ledger.records,
      async () => {
        const at = this.#ledger.continuity.now()
        const within = also && ((sql: Transaction) => also(sql, keys))
        const { records } = this.#ledger
        if (account !== undefined) return records.keys.join(account, keys, at, within)
        await records.keys.add(
          keys.map(key => ({ ...key, externalId, plan })),
          credits,
          at,
          within,
        )
        return true
      },
      keys[0],
      true,
    )
    if (!recorded) throw new RangeError(`there is no balance ${account}`)
    const reached = recorded === true ? await this.#writeNew(keys, wish, plan) : 'unknown'
    for (const { digest } of keys) this.#observer.appeared(digest)
    return created.map(each => ({ ...each, reached }))
  }

  /** Writes new keys to the store. They are recorded, so their secrets are valid soon in any case. */
  async #writeNew(keys: readonly KeyRecord[], wish: NewKeys, plan: string | undefined): Promise<'store' | 'records'> {
    try {
      return await this.#write(await this.#recordedOf(keys, wish, plan))
    } catch {
      return 'records'
    }
  }

  /** Returns new keys with the sums of their accounts. @throws GatewayError unavailable */
  async #recordedOf(
    keys: readonly KeyRecord[],
    { credits, account, externalId = '' }: NewKeys,
    plan: string | undefined,
  ): Promise<readonly RecordedKey[]> {
    const fresh = {
      plan,
      shared: false,
      grants: firstGrants({ id: '', granted: credits, plan }).length,
      granted: credits,
      settled: 0n,
      used: 0n,
      elsewhere: 0n,
      ordinal: 0,
      endedAt: 0,
      externalId,
      pending: true,
    }
    if (account === undefined) return keys.map(key => ({ ...key, ...fresh }))
    // They have been recorded, with what a reader needs of their account.
    return orUnavailable(this.#ledger.records.keys.withIds(keys.map(({ id }) => id)))
  }

  /** Writes recorded keys to the store. */
  async #write(keys: readonly RecordedKey[]): Promise<'store' | 'records'> {
    const { records, restorer, continuity } = this.#ledger
    try {
      await sideBySide(keys, SIDE_BY_SIDE, key => restorer.restore(key))
    } catch {
      return 'records'
    }
    // If this fails, the background writes them once more, which changes nothing.
    await records.keys.applied(keys, continuity.now()).catch(() => {})
    return 'store'
  }

  /**
   * Writes pending changes of these keys to the store now instead of in the background, so that a caller can report that
   * they are in force.
   * @throws GatewayError unavailable
   */
  async bringUp(ids: readonly string[]): Promise<void> {
    const { records, restorer, continuity } = this.#ledger
    const pending = (await orUnavailable(records.keys.withIds(ids))).filter(key => key.pending)
    const whole: RecordedKey[] = []
    await sideBySide(pending, SIDE_BY_SIDE, async key => {
      if ((await restorer.restore(key)) !== 'running') whole.push(key)
    })
    if (whole.length > 0) await orUnavailable(records.keys.applied(whole, continuity.now()))
  }

  /** Whether there are any keys. */
  any(): Promise<boolean> {
    return orUnavailable(this.#ledger.records.keys.any())
  }

  /** Finds the record of a key by its public id or its secret. @throws GatewayError unavailable */
  record(idOrSecret: string): Promise<RecordedKey | undefined> {
    const { keys } = this.#ledger.records
    if (isPublicId(idOrSecret)) return orUnavailable(keys.get(idOrSecret))
    return orUnavailable(keys.find(digestsOf(idOrSecret, this.#settings().importSuffix)))
  }

  /**
   * Disables a key. The store knows at once; the records follow, also if they are away now. Running requests learn of
   * it at their next renewal.
   * @returns where the change is; `unrecorded` if it is in the store only, until a running gateway records it
   * @throws GatewayError unavailable if it may not be in force; RangeError if there is no such key
   */
  async disable(id: string): Promise<Reached | 'unrecorded'> {
    const { scripts, background } = this.#ledger
    // The store may not have a new key yet.
    if (!(await disableInStore(scripts, id)))
      return (await this.#change(id, key => ({ ...key, status: 'disabled' }))).reached
    try {
      const key = await background.recordChanged(id)
      if (key) this.#observer.changed(key.digest)
      return 'store'
    } catch (thrown) {
      const cause = causeOf(thrown)
      // If the store failed, it may have lost the change as well.
      if (thrown instanceof GatewayError && !(cause instanceof RecordsError)) throw thrown
      return 'unrecorded'
    }
  }

  /** Enables a disabled key. @throws GatewayError unavailable if nothing was changed; RangeError if it is deleted */
  async enable(id: string, { also }: ChangeExtras = {}): Promise<Reached> {
    // What the store knows first is older than this.
    await this.#ledger.background.recordChanged(id)
    return (await this.#change(id, key => ({ ...key, status: 'active' }), also)).reached
  }

  /**
   * Changes what an operator may choose of a key.
   * @throws GatewayError unavailable if nothing was changed; RangeError if there is no such key, or it is deleted
   */
  async edit(
    id: string,
    { name, label, expiresAt, cap, limits, type, metadata, manage }: KeyEdit,
    { also }: ChangeExtras = {},
  ): Promise<Reached> {
    const edited = (key: RecordedKey): RecordedKey =>
      checkManaging({
        ...key,
        ...(name !== undefined && { name }),
        ...(label !== undefined && { label: label || key.hint }),
        // A fixed expiry, or none, replaces a lifetime.
        ...(expiresAt !== undefined && { expiresAt: expiresAt ?? undefined, lifetimeMs: undefined }),
        ...(type !== undefined && { type }),
        ...(metadata !== undefined && { metadata }),
        ...(manage !== undefined && { manage }),
        ...(cap !== undefined && { cap: cap ?? undefined }),
        ...(limits !== undefined && { limits: limits ?? undefined }),
      })
    return (await this.#change(id, edited, also)).reached
  }

  /** Returns what extends the validity of a key within another change: see `extensionOf`. */
  extension(id: string, byMs: number): Also {
    return extensionOf(this.#ledger, { id, byMs, now: this.#now })
  }

  /** Lets a key spend from another balance: see `moveKey`. */
  async move(id: string, to: string, { also }: ChangeExtras = {}): Promise<Reached> {
    const { key, reached } = await moveKey(this.#ledger, { id, to }, also)
    if (key) this.#observer.changed(key.digest)
    return reached
  }

  /**
   * Deletes a key. Its secret is refused from now on, for good. Its history stays.
   * @throws GatewayError unavailable if nothing was changed; RangeError if there is no such key, or it is deleted
   */
  async remove(id: string, { also }: ChangeExtras = {}): Promise<Reached> {
    return (await this.#change(id, key => ({ ...key, status: 'deleted' }), also)).reached
  }

  /**
   * Gives a key a new secret. The old secret is invalid when the store has the new one. Balance and history stay.
   * @throws GatewayError unavailable if nothing was changed; RangeError if somebody else rotates it at the same time, or if
   * it is deleted
   */
  async rotate(id: string, { also, secrets = newSecret }: ChangeExtras = {}): Promise<CreatedKey> {
    const { secret, digest, hint } = secrets()
    const { scripts } = this.#ledger
    let old = ''
    const rotated = (before: RecordedKey): RecordedKey => {
      old ||= before.digest
      const label = before.label === before.hint ? hint : before.label
      return { ...before, digest, label, hint, rotation: before.rotation + 1 }
    }
    const { key, reached } = await this.#change(id, rotated, also)
    if (key.digest !== digest) throw new RangeError(`somebody else has rotated ${id} at the same time`)
    // The account names the secret that is valid, so the old pointer only takes up room.
    if (reached === 'store') await scripts.redis.del(scripts.keys.pointer(old)).catch(() => {})
    return { key, secret, reached }
  }

  /**
   * Lets a key that was imported with the hash of another gateway be found by the digest of its secret, as others are. Its
   * secret stays the same, so requests that run go on.
   * @throws GatewayError unavailable
   */
  async adopt(id: string, from: string, secret: string): Promise<void> {
    const { scripts, records } = this.#ledger
    if ((await orUnavailable(records.keys.get(id)))?.digest !== from) return
    const [digest, hint] = [secretDigest(secret), hintOf(secret, this.#settings().prefixes)]
    const adopted = (key: RecordedKey): RecordedKey =>
      key.digest === from ? { ...key, digest, hint, label: key.label === key.hint ? hint : key.label } : key
    const { reached } = await this.#change(id, adopted)
    if (reached === 'store') await scripts.redis.del(scripts.keys.pointer(from)).catch(() => {})
  }

  /**
   * Changes the record of a key: in the records first, then in the store.
   * @returns the record as it is then
   * @throws GatewayError unavailable if nothing was changed; RangeError if there is no such key, or it is deleted
   */
  async #change(
    id: string,
    changed: (key: RecordedKey) => RecordedKey,
    also?: ChangeExtras['also'],
  ): Promise<{ readonly key: RecordedKey; readonly reached: Reached }> {
    const { scripts, records, continuity } = this.#ledger
    let recorded: RecordedKey | undefined
    for (;;) {
      let before: RecordedKey | undefined
      let key: RecordedKey
      let isRecorded: boolean | 'unknown'
      try {
        before = await orUnavailable(records.keys.get(id))
        if (!before) throw new RangeError(`there is no key ${id}`)
        if (before.status === 'deleted' && !recorded) throw new RangeError(`the key ${id} is deleted`)
        const known = await knownFirst(scripts, before)
        const current = known.isDisabled ? { ...before, status: 'disabled' as const } : before
        key = {
          ...(recorded ? current : changed(current)),
          version: Math.max(before.version, known.version) + 1,
        }
        const at = continuity.now()
        const first = recorded || !also ? undefined : (sql: Transaction) => also(sql, [key])
        const { version: from } = before
        const change = () => records.keys.change(id, key, { from, at, pending: true }, first)
        isRecorded = await recordedSurely(this.#ledger.records, change, key, key.digest !== before.digest)
      } catch (thrown) {
        if (recorded) return { key: recorded, reached: 'records' }
        throw thrown
      }
      if (isRecorded === 'unknown') return { key, reached: isRecorded }
      // Somebody else has changed it meanwhile.
      if (!isRecorded) continue
      recorded = key
      let restored: Restored
      try {
        restored = await this.#ledger.restorer.restore(key)
      } catch {
        return { key, reached: 'records' }
      }
      // The store refuses the record if the key was disabled meanwhile.
      if (restored === 'old') continue
      this.#observer.changed(before.digest)
      if (restored === 'whole') await records.keys.applied([key], continuity.now()).catch(() => {})
      return { key, reached: 'store' }
    }
  }
}

/**
 * Disables a key in the store. A gateway records it later.
 * @returns false if the store has no such key
 * @throws GatewayError unavailable
 */
export async function disableInStore(scripts: Scripts, id: string): Promise<boolean> {
  await scripts.write('SADD', scripts.keys.shared('disabled'), id)
  // The records may be away, so the store itself says where the key spends.
  const account = (await orUnavailable(scripts.redis.hget(scripts.keys.shared('homes'), id))) ?? id
  const record = scripts.keys.record({ account, key: id })
  const [kind] = await scripts.run(operation('disable', account, { record }, {}))
  return kind !== 'unknown'
}
