/**
 * The names of the store's keys. Each account belongs to a shard, and all keys of a shard carry its tag, so that a
 * cluster keeps them on one server.
 */
import { crc32 } from 'node:zlib'
import { lru } from '../../lib/lru.ts'

/** Number of shards. A store that was made with another number is refused. */
export const SHARDS = 1024

/** Prefix of the accounts of quotas. */
export const OF_QUOTAS = 'quota:'

/** The shard of an account. */
export function shardOf(account: string): number {
  return crc32(account) % SHARDS
}

/** An account, and the key that spends from it. */
export interface Spender {
  readonly account: string
  /** Undefined for a key with the name of its account. */
  readonly key?: string | undefined
}

/** Returns what a pointer says: the account, the key that spends from it, and their shard. */
export function pointerTo({ account, key = account }: Spender): string {
  return `${account} ${key} ${shardOf(account)}`
}

/** Reads a pointer. */
export function spenderAt(pointer: string): { readonly account: string; readonly key: string } {
  const [account = '', key = account] = pointer.split(' ')
  return { account, key }
}

/** Returns how the script names a key: '' if it has the name of its account. */
export function ownerOf({ account, key }: Spender): string {
  return key === undefined || key === account ? '' : key
}

/** Returns the name of what belongs to a key in its account: `ACCOUNT`, or `ACCOUNT/KEY` if the key has another name. */
export function nameOf(spender: Spender): string {
  const owner = ownerOf(spender)
  return owner === '' ? spender.account : `${spender.account}/${owner}`
}

/** Returns the name of a hold in the set of leases, by which it is found when its lease ends. */
export function leaseName({ account, id }: { readonly account: string; readonly id: string }, bucket: string): string {
  return `${account} ${id} ${bucket}`
}

/** The keys of one account, and those that it shares with its shard. */
export interface AccountKeys {
  readonly shard: number
  /** The record and the sums. */
  readonly account: string
  /** The slots of replies whose clients left. */
  readonly slots: string
  /** Of a quota that is shared fairly, the shares of keys. It has no slots, so both have the same name. */
  readonly shares: string
  /** The ends of the leases in the shard. */
  readonly leases: string
  /** The ended exchanges of the shard that are not recorded yet. */
  readonly stream: string
}

/** The keys of one store. */
export class StoreKeys {
  readonly #prefix: string
  readonly #accounts = lru<string, AccountKeys>(10_000)

  constructor(prefix: string) {
    this.#prefix = prefix
  }

  /** Returns a key that belongs to no shard. */
  shared(name: string): string {
    return `${this.#prefix}:${name}`
  }

  /** Returns a key of a shard. */
  inShard(shard: number, name: string): string {
    return `${this.#prefix}:{${shard}}:${name}`
  }

  /** Returns the key of a shard's stream of ended exchanges. */
  stream(shard: number): string {
    return this.inShard(shard, 'x')
  }

  /** Returns the key of the ends of a shard's leases. */
  leases(shard: number): string {
    return this.inShard(shard, 'l')
  }

  /** Returns the keys of an account. */
  of(account: string): AccountKeys {
    let keys = this.#accounts.get(account)
    if (!keys) {
      const shard = shardOf(account)
      const slots = this.inShard(shard, `b:${account}`)
      keys = {
        shard,
        account: this.inShard(shard, `a:${account}`),
        slots,
        shares: slots,
        leases: this.leases(shard),
        stream: this.stream(shard),
      }
      this.#accounts.set(account, keys)
    }
    return keys
  }

  /** Returns the key of the record of a customer's key. */
  record(spender: Spender): string {
    const own = this.of(spender.account)
    const owner = ownerOf(spender)
    return owner === '' ? own.account : this.inShard(own.shard, `k:${spender.account}:${owner}`)
  }

  /** Returns the key of the slots of replies whose clients left. */
  slots(spender: Spender): string {
    const own = this.of(spender.account)
    const owner = ownerOf(spender)
    return owner === '' ? own.slots : `${own.slots}:${owner}`
  }

  /** Returns the key of a hold. */
  hold(account: string, id: string): string {
    return this.inShard(this.of(account).shard, `h:${account}:${id}`)
  }

  /** Returns the key of a bucket of outcomes. */
  outcomes(account: string, bucket: string): string {
    return this.inShard(this.of(account).shard, `o:${bucket}`)
  }

  /** Returns the key of the resends of one request. */
  resends(spender: Spender, request: string): string {
    return this.#ofSpender('r', spender, request)
  }

  /** Returns the key of a claimed name. */
  claim(spender: Spender, name: string): string {
    return this.#ofSpender('c', spender, name)
  }

  /** Returns the key of an object that a key stored at a provider. */
  stored(spender: Spender, id: string): string {
    return this.#ofSpender('s', spender, id)
  }

  /** Returns the keys of the items that are kept of a key's replies: the items, their ends, and the sizes in the shard. */
  kept(spender: Spender): { readonly items: string; readonly ends: string; readonly sizes: string } {
    const { shard } = this.of(spender.account)
    const name = (letter: string): string => this.inShard(shard, `${letter}:${nameOf(spender)}`)
    return { items: name('i'), ends: name('j'), sizes: this.inShard(shard, 'n') }
  }

  #ofSpender(letter: string, spender: Spender, name: string): string {
    return this.inShard(this.of(spender.account).shard, `${letter}:${nameOf(spender)}:${name}`)
  }

  /** Returns the key that leads from the hash of a secret to its account. */
  pointer(digest: string): string {
    return this.shared(`k:${digest.slice(0, 22)}`)
  }
}
