/** The states of an exploration: what gateways know and what is on its way, beside the contents of store and records. */
import { NO_CLAIMS } from '../../core/ledger/hold.ts'
import type { Operation } from '../../core/ledger/script/names.ts'

/** What becomes of a message. */
export type Fate = 'arrives' | 'is lost' | 'is late' | 'is not answered'

/** What may happen beside the steps of a request. Each happens at most as often as its scope allows. */
export const FAULTS = [
  'is lost',
  'is late',
  'is not answered',
  'repeat',
  'pause',
  'kill',
  'the archiver dies',
  'the database is away',
  'hours pass',
  'the store restarts',
  'a hold comes back',
  'the store falls back',
  'the store is emptied',
  'the records fall back',
] as const
export type Fault = (typeof FAULTS)[number]

/** The faults with which the store loses something, and those with which the records do. Outcomes are lost with time. */
const FALLS: readonly (readonly Fault[])[] = [
  ['the store falls back', 'the store is emptied', 'hours pass'],
  ['the records fall back'],
]

/**
 * A request: not begun; asked for and not answered; running; ended with its charge; its gateway is dead; or over without a
 * charge.
 */
export type Phase = 'new' | 'in doubt' | 'live' | 'ended' | 'dead' | 'over'

export interface Request {
  phase: Phase
  /** What is held for it, as its gateway knows. */
  amount: number
  /** What the customer has received, in nano-credits. */
  floor: number
  extended: boolean
  /** What it has claimed of the windows of a plan, as its gateway knows. */
  claims: string
  /** Its settlement: not made; waits on disk; taken by the store and perhaps not recorded; recorded or forgotten. */
  settlement: 'none' | 'waiting' | 'taken' | 'done'
  /** The store lost its settlement together with the gateway, before it was recorded. */
  excused: boolean
}

export interface State {
  /** Numbers of the contents of store and records. */
  store: number
  records: number
  /** What they fall back to. */
  savedStore: number
  savedRecords: number
  /** How many comparisons ago the store was compared last, and what it falls back to. More than none after a fall. */
  comparisons: number
  savedComparisons: number
  readonly requests: Request[]
  /** Messages that arrive later. */
  late: Operation[]
  /** Entries that the archiver has recorded and not yet deleted from the store. */
  untrimmed: string[]
  /** What fell back and was not compared yet. */
  fallen: 'nothing' | 'store' | 'torn store' | 'uncounted store' | 'empty store' | 'records'
  /** Whether outcomes may be missing in the store. */
  doubtful: boolean
  /** The faults so far. */
  faults: Fault[]
}

/** What is explored. */
export class Scope {
  readonly name: string
  /** What each request is charged in the end. */
  readonly charges: readonly number[]
  readonly #faults: readonly Fault[]
  readonly #most: number
  /** Whether requests are extended and renewed. */
  readonly grows: boolean
  /** Whether the requests are of several keys, which share the account. */
  readonly isShared: boolean
  /** Whether a plan pays for the requests. */
  readonly hasPlan: boolean

  /** @param most faults in one way through the states; each fault happens once */
  constructor(
    name: string,
    charges: readonly number[],
    faults: readonly Fault[],
    {
      most = faults.length,
      grows = true,
      isShared = false,
      hasPlan = false,
    }: {
      readonly most?: number
      readonly grows?: boolean
      readonly isShared?: boolean
      readonly hasPlan?: boolean
    } = {},
  ) {
    this.name = name
    this.charges = charges
    this.#faults = faults
    this.#most = most
    this.grows = grows
    this.isShared = isShared
    this.hasPlan = hasPlan
  }

  allows({ faults }: State, fault: Fault): boolean {
    // If both sides lose something, what is owed cannot be known.
    const isFall = FALLS.some(falls => falls.includes(fault))
    const bothFall = isFall && FALLS.every(falls => falls.some(each => each === fault || faults.includes(each)))
    return faults.length < this.#most && this.#faults.includes(fault) && !faults.includes(fault) && !bothFall
  }
}

/** One step. */
export interface Action {
  readonly name: string
  /** Whether the step is a fault, or something that never has to happen. */
  readonly isFault: boolean
  run(state: State, fate: () => Fate): Promise<void>
}

/** The state before anything has happened. */
export function begin({ charges }: Scope, store: number, records: number): State {
  return {
    store,
    records,
    savedStore: store,
    savedRecords: records,
    comparisons: 0,
    savedComparisons: 0,
    requests: charges.map(() => ({
      phase: 'new',
      amount: 0,
      floor: 0,
      extended: false,
      claims: NO_CLAIMS,
      settlement: 'none',
      excused: false,
    })),
    late: [],
    untrimmed: [],
    fallen: 'nothing',
    doubtful: false,
    faults: [],
  }
}

/** A text that is the same for states from which the same can happen. */
export function keyOf(state: State): string {
  const late = state.late.map(({ name, args }) => `${name} ${args.join(' ')}`).sort()
  return JSON.stringify({ ...state, late, faults: state.faults.toSorted() })
}
