/** A promise with a time limit. */

/**
 * Resolves or rejects as the promise does, if it does so in time.
 * @param ms the limit in milliseconds
 * @param what the name for the error
 * @throws Error if the limit is reached
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
