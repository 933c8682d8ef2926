/** What the client of a stream gets while its reply has not begun: comments, so that nothing on the way gives up. */
import type { GatewayError } from '../errors.ts'
import type { Format, RunningStream } from '../formats/index.ts'
import type { Outlet } from '../client/outlet.ts'

/** A comment that keeps a silent stream open. */
export const KEEPALIVE = Buffer.from(': keepalive\n\n')

const HEADERS = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' }

/** An exchange whose reply has not begun. */
interface WaitingExchange {
  readonly id: string
  readonly format: Format
  readonly outlet: Outlet
  readonly gone: boolean
  readonly begun: boolean
  waiting: boolean
  readonly inOnePiece: boolean
}

/** Sends a comment to the client of a stream. The first one sends the head, so that an error must be an event then. */
export function keepWaiting(x: WaitingExchange): void {
  if (x.gone || x.begun || x.inOnePiece) return
  if (!x.waiting) x.outlet.begin(200, HEADERS)
  x.waiting = true
  x.outlet.write(KEEPALIVE)
}

/** A stream that has no event yet. */
const NOTHING_RUNNING: RunningStream = {
  choices: 1,
  opening: undefined,
  recent: undefined,
  opened: new Set(),
  closed: new Set(),
}

/** Ends a stream that has only comments with an error. */
export function failWaiting(x: Pick<WaitingExchange, 'id' | 'format' | 'outlet'>, error: GatewayError): Promise<void> {
  return x.outlet.end(Buffer.from(x.format.errorEvent(error, x.id, NOTHING_RUNNING)))
}
