/** The error for a model that no account can serve now. */
import { afterWait, GatewayError } from '../errors.ts'

/** A date in the far future means nothing to a client. */
const FAR_MS = 30 * 86_400_000

/** Returns the error. @param waitMs milliseconds until an account can serve the model; Infinity if that is not known */
export function noneLeft(waitMs: number, cause?: unknown): GatewayError {
  return new GatewayError('overloaded', {
    message: 'No account of the provider can serve this model at the moment.',
    ...(waitMs < FAR_MS ? afterWait(Math.max(waitMs, 1000)) : { retry: false }),
    ...(cause !== undefined && { cause }),
  })
}
