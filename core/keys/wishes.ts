/** What operators ask for: new keys, and changes of keys. */
import type { Metadata } from '../records/account-rows.ts'

/** The properties of new keys. */
export interface NewKeys {
  readonly type: string
  readonly name: string
  readonly batch?: string
  /** What their owners see instead of the secrets. Each key's hint, if it is empty. */
  readonly label?: string
  /** In nano-credits, for each key. */
  readonly credits: bigint
  readonly expiresAt: number | undefined
  /** The most that each may be charged in its life, in nano-credits. */
  readonly cap?: bigint | undefined
  /** Limits of their own, as JSON. */
  readonly limits?: string | undefined
  /** For how long each is valid from its first use, in milliseconds, instead of an expiry. */
  readonly lifetimeMs?: number | undefined
  readonly metadata?: Metadata | undefined
  /** Whether their owners may create other keys for the balance. Such keys have no cap and no limits of their own. */
  readonly manage?: boolean | undefined
  /** The balance that they spend from. Each key has one of its own if it is left out. */
  readonly account?: string | undefined
  /** What a shop calls their balances, if they are new. */
  readonly externalId?: string | undefined
}

/** What an operator may change of a key. An empty label is replaced by the hint; null as expiry means never. */
export interface KeyEdit {
  readonly name?: string | undefined
  readonly label?: string | undefined
  readonly expiresAt?: number | null | undefined
  /** In nano-credits; null for no cap. */
  readonly cap?: bigint | null | undefined
  /** As JSON; null for none. */
  readonly limits?: string | null | undefined
  readonly type?: string | undefined
  readonly metadata?: Metadata | undefined
  readonly manage?: boolean | undefined
}
