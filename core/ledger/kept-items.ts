/**
 * Items of replies that later requests may refer to: the gateway made them, so no provider has them. They are kept in
 * the store for an hour, encrypted under a key that only the customer's secret gives.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { operation } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'
import { nameOf, type Spender } from './script/store-keys.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** How long an item is kept, in milliseconds. */
const KEPT_MS = 3_600_000
/** Most bytes of the items of one key, as they are stored. */
const KEY_BYTES = 262_144
/** Most bytes of the items of a shard. There are 1024 shards, so that all items have at most 256 MiB. */
const SHARD_BYTES = 262_144
const BASE64_FACTOR = 4 / 3
/** Most items of one reply that are kept. */
const ITEMS_MAX = 256

/** The key whose items are kept, and the secret that its customer presented. */
export interface ItemOwner {
  readonly spender: Spender
  readonly secret: string
}

/** Keeps items of replies. */
export class KeptItems {
  readonly #scripts: Scripts
  readonly #now: () => number
  /** By key: the running write. Once a client can have seen a reply, its items must be there. */
  readonly #writing = new Map<string, Promise<unknown>>()

  /** @param now milliseconds since the epoch */
  constructor(scripts: Scripts, now: () => number) {
    this.#scripts = scripts
    this.#now = now
  }

  /**
   * Keeps items. Each is a text with an id.
   * @throws GatewayError unavailable
   */
  async keep(owner: ItemOwner, items: ReadonlyMap<string, string>): Promise<void> {
    const { keys } = this.#scripts
    const key = keyOf(owner)
    const { spender } = owner
    const name = nameOf(spender)
    const until = String(this.#now() + KEPT_MS)
    const writes = [...items].slice(0, ITEMS_MAX).flatMap(([id, text]) => {
      // As text, what is encrypted is longer by a third.
      if (Buffer.byteLength(text) * BASE64_FACTOR > KEY_BYTES) return []
      const value = `${until} ${sealed(text, `${until} ${id}`, key)}`
      const args = { name, id, value, ms: KEPT_MS, accountMax: KEY_BYTES, shardMax: SHARD_BYTES }
      return [this.#scripts.run(operation('keep', spender.account, keys.kept(spender), args))]
    })
    const written = Promise.allSettled([this.#writing.get(name), ...writes])
    this.#writing.set(name, written)
    await written
    if (this.#writing.get(name) === written) this.#writing.delete(name)
    await Promise.all(writes)
  }

  /** Returns the items that are kept, by id. @throws GatewayError unavailable */
  async read(owner: ItemOwner, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
    await this.#writing.get(nameOf(owner.spender))
    const { keys, redis } = this.#scripts
    const { items } = keys.kept(owner.spender)
    const found = await orUnavailable(redis.hmget(items, ...ids))
    const key = keyOf(owner)
    return new Map(
      ids.flatMap((id, index) => {
        const [until = '', value] = found[index]?.split(' ') ?? []
        const text = Number(until) > this.#now() ? opened(value, `${until} ${id}`, key) : undefined
        return text === undefined ? [] : [[id, text] as const]
      }),
    )
  }
}

/** The key that encrypts the items of an owner. */
function keyOf({ spender, secret }: ItemOwner): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, nameOf(spender), 'tollgate kept items', 32))
}

const NONCE_BYTES = 12
const TAG_BYTES = 16

/** @param label what the value belongs to */
function sealed(text: string, label: string, key: Buffer): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(label))
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]).toString('base64')
}

/** The text of an item. Undefined if the item is missing, or if another secret sealed it. */
function opened(value: string | undefined, label: string, key: Buffer): string | undefined {
  if (value === undefined) return undefined
  const bytes = Buffer.from(value, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES)).setAAD(Buffer.from(label))
  try {
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
    return decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
  } catch {
    // The secret has been rotated since, or the store holds something else.
    return undefined
  }
}
