/** What the bench measures, and the limit of each figure. */

type Kind = 'json' | 'burst' | 'paced'

export interface Mark {
  readonly kind: Kind
  /** The client does not ask for usage, so the gateway removes it from the stream. */
  readonly unasked?: true
  /** Compares a translated exchange with the same one passed through, instead of Tollgate with the bare proxy. */
  readonly translated?: true
  readonly title: string
  /** Highest ratio to the bare proxy. */
  readonly most: number
}

/**
 * How the bench produces a kind of exchange. Clients send the next request with each reply. So requests/s are what a
 * target can do, and its CPU time is the cost of requests, without the cost of sleeping and waking up between them.
 */
export interface Load {
  /** Requests of one slice. */
  readonly requests: number
  /** Slices of each target: short and many, so that other work of the machine affects both targets. */
  readonly slices: number
  /** Concurrent clients, each with one request after another. */
  readonly clients: number
}

export const LOADS: Readonly<Record<Kind, Load>> = {
  json: { requests: 320, slices: 75, clients: 32 },
  burst: { requests: 320, slices: 75, clients: 32 },
  paced: { requests: 100, slices: 15, clients: 100 },
}

/** Numbers of clients in the rows without a mark. The more requests share a batch, the less each costs. */
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
