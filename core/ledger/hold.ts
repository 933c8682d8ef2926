/** What is asked of the ledger for an exchange, how it answers, and how it ends. */
import type { Quota } from '../config/config.ts'
import type { Indexed } from '../lib/swap-list.ts'
import type { Notes } from './records.ts'

/** How a hold was answered. */
export type HoldAnswer =
  | { readonly kind: 'held'; readonly hold: Hold }
  | { readonly kind: 'insufficient'; readonly balance: bigint; readonly resetsAt: number }
  | { readonly kind: 'disabled' | 'expired' | 'stale' | 'busy' | 'done' }

/** What is to be held, and how its floor is known while it runs. */
export interface HoldRequest extends HoldName {
  readonly amount: bigint
  /** What will do where the balance does not cover the amount; the amount itself when nothing less will. */
  readonly least: bigint
  /** The version of the key's record that was looked at; ignored for quotas. */
  readonly version: string
  /** The key's rotation, by which a hold learns that its secret is no longer valid; none for quotas. */
  readonly rotation?: string | undefined
  /** An amount above half of the balance is cut to that half, though not below `least`. */
  readonly half?: boolean | undefined
  /** The most holds of the account at a time. */
  readonly concurrency?: number | undefined
  /** For an upstream account: the allocation that each window grants. */
  readonly quota?: Quota | undefined
  /** Kept with the hold, for the entry that is written if nobody comes back to settle it. */
  readonly notes: Notes
  /** What the customer has received so far, in nano-credits, and the notes that say so. */
  readonly floor: () => { readonly charge: bigint; readonly notes: Partial<Notes> }
  /** Called when the exchange must end: its key is off, or another abandoned one took its place. */
  readonly end?: ((why: EndReason) => void) | undefined
}

/** Why the ledger wants an exchange to end before its reply does. */
export type EndReason = 'disabled' | 'expired' | 'rotated' | 'crowded'

/** What names a hold: one exchange may hold on several accounts under one id. */
export interface HoldName {
  readonly account: string
  readonly id: string
}

/** A hold that this process keeps alive until it settles it. */
export class Hold implements HoldName, Indexed {
  index = -1
  readonly request: HoldRequest
  /** What is set aside, in nano-credits: less than was asked for where the balance went no further. */
  amount: bigint
  /** What was left beside it then. */
  balance: bigint
  /** It has been settled, as far as this process is concerned. */
  over = false
  /** Its client has left, and its reply is read on in one of the key's places for that. */
  abandoned = false

  constructor(request: HoldRequest, amount: bigint, balance: bigint) {
    this.request = request
    this.amount = amount
    this.balance = balance
  }

  get account(): string {
    return this.request.account
  }

  get id(): string {
    return this.request.id
  }
}

/** How a hold ends. */
export interface End {
  readonly charge: bigint
  readonly kind: 'settle' | 'void'
  readonly notes: Notes
  /** Its part among the attempts at one request, where it has one. */
  readonly attempt?: AttemptPart | undefined
}

/** One of several attempts at a request: of one that brought its client nothing and one retry that succeeded, the dearer is paid. */
export interface AttemptPart {
  /** What identifies the request; safe in a store key. */
  readonly request: string
  /** It brought its client nothing, or it is a retry whose reply came. */
  readonly part: 'lost' | 'retry'
}
