/** What the bench measures, and how much of it is too much. */

type Kind = 'json' | 'burst' | 'paced'

export interface Mark {
  readonly kind: Kind
  /** The client does not ask for the usage, which is taken out of its stream. */
  readonly unasked?: true
  /** Compares a translated exchange with the same one passed through, rather than Tollgate with the bare proxy. */
  readonly translated?: true
  readonly title: string
  /** Highest ratio to the bare proxy. */
  readonly most: number
}

/**
 * How a kind of exchange is asked for. As much is asked as is answered: so requests/s are what a target can do, and its
 * CPU is what requests cost, not what it costs to fall asleep and wake up between them.
 */
export interface Load {
  /** Requests of one slice. */
  readonly requests: number
  /** Slices of each target: short ones, so that whatever else the machine does falls on both, and many. */
  readonly slices: number
  /** Clients that ask at the same time, each one request after the other. */
  readonly clients: number
}

export const LOADS: Readonly<Record<Kind, Load>> = {
  json: { requests: 320, slices: 75, clients: 32 },
  burst: { requests: 320, slices: 75, clients: 32 },
  paced: { requests: 100, slices: 15, clients: 100 },
}

/** How many clients the rows without a mark have: what is batched costs less, the more of it there is. */
export const CROWDS: readonly number[] = [1, 8, 32, 128]

export const MARKS: readonly Mark[] = [
  { kind: 'json', title: 'JSON, 1 KB', most: 1.4 },
  { kind: 'burst', title: 'SSE, 20 events at once', most: 1.2 },
  { kind: 'burst', unasked: true, title: 'SSE, 20 events at once, usage hidden', most: 1.5 },
  { kind: 'paced', title: 'SSE paced, an event', most: 1.15 },
  { kind: 'paced', unasked: true, title: 'SSE paced, an event, usage hidden', most: 1.4 },
  { kind: 'json', translated: true, title: 'JSON, translated', most: 2.5 },
  { kind: 'burst', translated: true, title: 'SSE, 20 events at once, translated', most: 2.5 },
  { kind: 'paced', translated: true, title: 'SSE paced, an event, translated', most: 2.5 },
]
