/** The rows of the bench's table, and the limit of each figure. */

/**
 * How a row is measured:
 *
 * - `requests`: CPU time of a request while clients send one after another
 * - `events`: CPU time of an event while streams are open
 * - `latency`, `first byte`: median time of a lone client's reply, or of its first byte, without what the provider takes
 * - `open`: memory while streams are open
 * - `rest`: memory, and CPU time a second, of a process that has served nothing yet
 */
type Measure = 'requests' | 'events' | 'latency' | 'first byte' | 'open' | 'rest'

/** What the provider answers. The whole replies are files of nginx; Node makes those that need time. */
export type Reply = 'json' | 'sse20' | 'sse200' | 'paced' | 'first' | 'held'

export interface Row {
  readonly title: string
  readonly measure: Measure
  readonly reply: Reply
  readonly bodyBytes: number
  readonly connections: number
  /** Tollgate's highest figure, as a multiple of the bare proxy's or in the unit. */
  readonly most?: number
  /** The unit of a figure that is not a multiple of the bare proxy's. */
  readonly unit?: 'MB' | 'ms/s'
}

/** What the command line can change of the rows. */
export interface Shape {
  readonly connections: number
  readonly streams: number
  /** Sizes of large requests in KB. */
  readonly sizes: readonly number[]
}

/** Highest multiples for large requests, by size in KB. */
const LARGE_MOST: Readonly<Record<number, number>> = { 100: 2.4, 1000: 5 }

/** Returns the rows in their order. */
export function rowsOf({ connections, streams, sizes }: Shape): Row[] {
  const bodyBytes = 1000
  const whole = { measure: 'requests', bodyBytes, connections } as const
  const lone = { bodyBytes, connections: 1 }
  return [
    { title: 'JSON, 1 KB', reply: 'json', most: 2.1, ...whole },
    { title: 'SSE, 20 events', reply: 'sse20', most: 1.45, ...whole },
    { title: 'SSE, 200 events', reply: 'sse200', most: 1.1, ...whole },
    { title: 'SSE paced, an event', reply: 'paced', measure: 'events', bodyBytes, connections: 100, most: 1.4 },
    ...sizes.map((kb): Row => {
      const most = LARGE_MOST[kb]
      const large = { measure: 'requests', reply: 'json', bodyBytes: kb * 1000, connections: 8 } as const
      return { title: `request of ${kb} KB`, ...large, ...(most !== undefined && { most }) }
    }),
    { title: 'lone request, time added', measure: 'latency', reply: 'json', most: 2.6, ...lone },
    { title: 'lone stream, time added to the first byte', measure: 'first byte', reply: 'first', most: 2.6, ...lone },
    { title: `memory of ${streams} streams`, measure: 'open', reply: 'held', bodyBytes, connections: streams, most: 480, unit: 'MB' }, // prettier-ignore
    { title: 'memory at rest', measure: 'rest', reply: 'json', most: 110, unit: 'MB', ...lone },
    { title: 'CPU time at rest', measure: 'rest', reply: 'json', most: 2, unit: 'ms/s', ...lone },
  ]
}
