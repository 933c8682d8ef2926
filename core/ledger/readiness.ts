/** Whether the ledger can hold anything at this moment. */
import type { Ledger } from './ledger.ts'

/** How long the store keeps what a probe writes, in milliseconds. */
const PROBE_MS = 1000

/** Milliseconds for which an answer is given again: a probe needs no key, and writes. */
const SHARED_MS = 500

/**
 * Returns a function that says why nothing can be held, in words for operators; undefined if it can.
 * @param now milliseconds
 */
export function readiness(ledger: Ledger, now: () => number): () => Promise<string | undefined> {
  let answer: Promise<string | undefined> | undefined
  let at = 0
  return () => {
    if (!answer || Math.abs(now() - at) > SHARED_MS) {
      answer = unready(ledger)
      at = now()
    }
    return answer
  }
}

async function unready({ records, scripts, continuity, background }: Ledger): Promise<string | undefined> {
  const { failure } = records.database
  if (failure !== undefined) return failure
  try {
    // A full store, and one without its replicas, answer without taking anything.
    await scripts.redis.set(scripts.keys.shared('probe'), '1', 'PX', PROBE_MS)
  } catch (cause) {
    const refuses = cause instanceof Error && cause.name === 'ReplyError'
    return refuses ? `the store takes no writes: ${cause.message}` : 'the store does not answer'
  }
  return (await continuity.whenOpen()) ? background.behind : 'the store is being compared with the records'
}
