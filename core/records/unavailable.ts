/** Turns failures of the store and of the records into the error that a client gets. */
import { GatewayError, soonMs } from '../errors.ts'
import { Undone } from './database.ts'

/** Returns the error for anything that only the store or the records could answer. */
export function unavailable(cause: unknown): GatewayError {
  return new GatewayError('unavailable', { cause, retryAfterMs: soonMs() })
}

/**
 * Awaits a command of the store, or a query of the records.
 * @throws GatewayError unavailable for any failure, since the caller can only try again later; Undone as it is
 */
export async function orUnavailable<T>(command: Promise<T>): Promise<T> {
  try {
    return await command
  } catch (cause) {
    throw cause instanceof GatewayError || cause instanceof Undone ? cause : unavailable(cause)
  }
}

/** Returns why the store or the records could not answer, or any other error as it is. */
export function causeOf(thrown: unknown): unknown {
  return thrown instanceof GatewayError ? thrown.details.cause : thrown
}
