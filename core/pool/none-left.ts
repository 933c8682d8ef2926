/** The error for a model that no account can serve now. */
import { GatewayError } from '../errors.ts'

/** A client is asked to try again within this time, in milliseconds. A later time makes the error final. */
export const NEAR_MS = 60_000
/** A date in the far future means nothing to a client. */
const FAR_MS = 30 * 86_400_000

/** Returns the error. @param waitMs milliseconds until an account can serve the model; Infinity if that is not known */
export function noneLeft(waitMs: number, cause?: unknown): GatewayError {
  return new GatewayError('overloaded', {
    message: 'No account of the provider can serve this model at the moment.',
    ...(waitMs < FAR_MS && { retryAfterMs: Math.max(waitMs, 1000) }),
    ...(waitMs > NEAR_MS && { retry: false }),
    ...(cause !== undefined && { cause }),
  })
}
