/** How an exchange that reached its upstream can end without a whole reply. */
import type { Up } from '../chain.ts'
import { GatewayError } from '../errors.ts'
import type { Head, Outcome } from '../exchange.ts'
import type { LiveExchange } from '../live.ts'

/** A failed answer is given to the stages; if none makes an error of it, it is a plain failure. */
export function refuse(up: Up, head: Head): never {
  up.response(head)
  throw new GatewayError('upstream_failed', { cause: new Error(`upstream status ${head.status}: ${head.failure?.message ?? ''}`) })
}

/** The client left. */
export function left(x: LiveExchange): Outcome {
  return { kind: 'broken', by: 'client', status: x.begun ? x.res.statusCode : 0, attempts: x.attempts }
}

/** The gateway is stopping and gave the exchange up before its reply began. */
export function stopped(): GatewayError {
  return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.', retryAfterMs: 1000 })
}
