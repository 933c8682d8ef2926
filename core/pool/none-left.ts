/** The error for a model that no account can serve now. */
import { afterWait, GatewayError } from '../errors.ts'
import type { AccountsAsked, Pool } from './pool.ts'

/** A date in the far future means nothing to a client. */
const FAR_MS = 30 * 86_400_000

type States = Pick<Pool, 'waitMs' | 'states'>

/** Returns the error. @param model the name that is sent */
export function noneLeft(pool: States, upstreams: AccountsAsked, model: string, cause?: unknown): GatewayError {
  const waitMs = pool.waitMs(upstreams, model)
  return new GatewayError('overloaded', {
    message: 'No account of the provider can serve this model at the moment.',
    ...(waitMs < FAR_MS ? afterWait(Math.max(waitMs, 1000)) : { retry: false }),
    accounts: pool.states(upstreams, model),
    ...(cause !== undefined && { cause }),
  })
}
