/** Holds: what an exchange asks of the ledger, the answers, and how a hold ends. */
import type { Quota } from '../config/config.ts'
import type { Indexed } from '../lib/swap-list.ts'
import { MAX_AMOUNT, NANO } from '../money/credits.ts'
import { claimsIn } from '../plans/claims.ts'
import type { Plan } from '../plans/plan.ts'
import type { Notes } from '../records/entry.ts'
import type { Spender } from './script/store-keys.ts'

/** Returns an amount at the key's prices in the unit of a hold, rounded up. @param rate as in `HoldRequest` */
export function scaled(nano: bigint, rate: bigint | undefined): bigint {
  if (rate === undefined) return nano
  const amount = (nano * rate + NANO - 1n) / NANO
  return amount > MAX_AMOUNT ? MAX_AMOUNT : amount
}

/** The answer to a hold request. */
export type HoldAnswer =
  | { readonly kind: 'held'; readonly hold: Hold }
  /** `ofShare`: the quota has something left, but nothing for this key. */
  | { readonly kind: 'insufficient'; readonly balance: bigint; readonly resetsAt: number; readonly ofShare: boolean }
  /** The balance has enough, but the cap of the key does not: so much is left of it, which may be below zero. */
  | { readonly kind: 'capped'; readonly left: bigint }
  | Limited
  | { readonly kind: 'disabled' | 'expired' | 'stale' | 'busy' }

/** Why a hold gets nothing although the balance may have enough. */
export type Limited =
  /** A rate of the key is used up, for so long, and all of it is there again after `fullInMs`. */
  | {
      readonly kind: 'limited'
      readonly what: 'requests' | 'tokens'
      readonly waitMs: number
      readonly fullInMs: number
    }
  /**
   * A window has too little: `used`, or because running holds have `filled` it. It is one of the plan or of the key's limits.
   * `balance`: what the balance has, which may be below zero. `left`: what the window has, in its unit.
   */
  | {
      readonly kind: 'used' | 'filled'
      readonly isOfKey: boolean
      readonly place: number
      readonly resetsAt: number
      readonly balance: bigint
      readonly left: bigint
    }

/** The windows and rates in which a hold needs room, beside or instead of the credits of the balance. */
export interface HoldBounds {
  /** The plan of the balance. Undefined without one. */
  readonly plan: Plan | undefined
  /** Whether the credits of the balance may be used. */
  readonly credits: boolean
  /** What a key may be charged in its life, by its type, in nano-credits. */
  readonly cap: bigint | undefined
  /**
   * Return the windows of the plan that count the request, and those of the key, as the script asks for them. A request that
   * runs goes on with a plan that ends.
   */
  readonly windows: (now: number, isRunning?: boolean) => string
  readonly keyWindows: (now: number) => string
  /** The requests and tokens that a minute allows, as the script asks for them. */
  readonly rates: string
  /** The tokens of the amount, and those of the least amount. */
  readonly tokens: number
  readonly leastTokens: number
}

/** What nearly all holds need: the credits of the balance. */
export const UNBOUNDED: HoldBounds = {
  plan: undefined,
  credits: true,
  cap: undefined,
  windows: () => '',
  keyWindows: () => '',
  rates: '',
  tokens: 0,
  leastTokens: 0,
}

/** The claims of a hold that has none, as the script writes them. */
export const NO_CLAIMS = '-'

/** A request for a hold, and how its cost so far is known while it runs. */
export interface HoldRequest extends HoldName {
  readonly amount: bigint
  /** The smallest acceptable amount. Equal to the amount if nothing less is acceptable. */
  readonly least: bigint
  /** The version of the key's record on which the request is based. Ignored for quotas. */
  readonly version: string
  /** The key's rotation counter, by which the hold detects that its secret has become invalid. Undefined for quotas. */
  readonly rotation?: string | undefined
  /** Whether an amount above half of the balance is reduced to that half, but not below `least`. */
  readonly half?: boolean | undefined
  /** Maximum concurrent holds of the account. */
  readonly concurrency?: number | undefined
  /** For how long the request has waited for one of them to end, in milliseconds. */
  readonly waitedMs?: number | undefined
  /** The windows and rates in which it needs room. */
  readonly bounds?: HoldBounds | undefined
  /** For a hold of a quota: the quota. */
  readonly quota?: Quota | undefined
  /** For a quota in cost: what the request costs for each nano-credit that it is charged, in nano-units. */
  readonly rate?: bigint | undefined
  /** For a quota that is shared fairly: the key whose share is used. */
  readonly sharer?: string | undefined
  /** Stored with the hold, for the entry that is written if the gateway dies. */
  readonly notes: Notes
  /** Returns the charge for what the customer has received so far, in nano-credits, with its notes. */
  readonly floor: () => { readonly charge: bigint; readonly tokens?: number; readonly notes: Partial<Notes> }
  /** Called when the exchange must end: its key was disabled, or a newer abandoned reply took its place. */
  readonly endExchange?: ((why: EndReason) => void) | undefined
}

/** Why the ledger ends an exchange before its reply is complete. */
export type EndReason = 'disabled' | 'expired' | 'rotated' | 'crowded'

/** Identifies a hold. One exchange may have holds on several accounts under the same id. */
export interface HoldName extends Spender {
  readonly id: string
}

/** The windows of a plan, and the rates of a key, when a hold was taken. */
export interface HoldStanding {
  /** The text of the script. */
  readonly windows: string
  /** When the rates of requests and of tokens are unused again, in milliseconds since the epoch; 0 without such a limit. */
  readonly requestsFreeAt: number
  readonly tokensFreeAt: number
}

/** A hold that this process renews until it settles it. */
export class Hold implements HoldName, Indexed {
  index = -1
  readonly request: HoldRequest
  /** The bucket of its outcome. */
  readonly bucket: string
  /** Held amount in nano-credits. It is less than requested if the balance was insufficient. */
  amount: bigint
  /** What the key may still hold. */
  balance: bigint
  /** What it has taken of windows and rates, as the script writes it. */
  claims = NO_CLAIMS
  /** The tokens that were wanted last. */
  tokens = 0
  /** What its windows and rates were when it was taken. */
  standing: HoldStanding | undefined
  /** Whether this process has settled the hold. */
  over = false
  /** Whether the client has left and the reply is being read to the end in one of the key's slots for such replies. */
  abandoned = false

  constructor(request: HoldRequest, bucket: string, amount: bigint, balance: bigint) {
    this.request = request
    this.bucket = bucket
    this.amount = amount
    this.balance = balance
    this.tokens = request.bounds?.tokens ?? 0
  }

  get account(): string {
    return this.request.account
  }

  get key(): string | undefined {
    return this.request.key
  }

  /** What is held of the balance, without what a plan gives. */
  get ofCredits(): bigint {
    return this.amount - claimsIn(this.claims).ofPlan
  }

  /** The held amount at the key's prices. */
  get covers(): bigint {
    const { rate } = this.request
    if (rate === undefined) return this.amount
    return rate === 0n ? MAX_AMOUNT : (this.amount * NANO) / rate
  }

  get id(): string {
    return this.request.id
  }
}

/** How a hold ends. */
export interface HoldEnd {
  readonly charge: bigint
  /** The tokens that windows and rates count. */
  readonly tokens?: number | undefined
  readonly kind: 'settle' | 'void'
  readonly notes: Notes
  /** What this exchange is among the resends of one request, if it is one of them. */
  readonly resend?: ResendPart | undefined
}

/**
 * What an exchange is among the resends of one request. If one of them delivered nothing and a later one delivers, only the
 * dearer of the two is charged.
 */
export interface ResendPart {
  /** Identifies the request. Safe in a store key. */
  readonly request: string
  /**
   * `lost`: this one delivered nothing, so it is the undelivered request. `retry`: this resend delivered its reply. The
   * words are those of version 1, which the store and the outbox keep.
   */
  readonly part: 'lost' | 'retry'
}
