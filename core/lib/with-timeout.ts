/** A promise that must not keep others waiting for ever. */

/**
 * The promise's own outcome, if it comes in time.
 * @param ms time limit in milliseconds
 * @throws Error naming `what` when it does not
 */
export async function withTimeout<T>(promise: T | Promise<T>, ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}
