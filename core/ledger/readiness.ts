/** Whether the ledger can hold anything at this moment. */
import type { Ledger } from './ledger.ts'
import type { Scripts } from './script/scripts.ts'
import { SHARDS } from './script/store-keys.ts'

/** How long the store keeps what a probe writes, in milliseconds. */
const PROBE_MS = 1000

/** Shards of which each master of a cluster has some. */
const PROBED = Array.from({ length: 16 }, (_, at) => (at * SHARDS) / 16)
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
  const refusal = await refusalOf(scripts)
  if (refusal !== undefined) return refusal
  return (await continuity.whenOpen()) ? background.behind : 'the store is being compared with the records'
}

/** Returns why the store takes no writes. A full one, and one without its replicas, still answer. */
async function refusalOf({ redis, keys }: Scripts): Promise<string | undefined> {
  const write = (shard: number): Promise<unknown> => redis.set(keys.inShard(shard, 'probe'), '1', 'PX', PROBE_MS)
  try {
    await write(0)
  } catch {
    try {
      // Of a cluster, other masters may take them.
      await Promise.any(PROBED.map(write))
    } catch (failed) {
      const [cause] = (failed as AggregateError).errors as [unknown]
      const refuses = cause instanceof Error && cause.name === 'ReplyError'
      return refuses ? `the store takes no writes: ${cause.message}` : 'the store does not answer'
    }
  }
  return undefined
}
