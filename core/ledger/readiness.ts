/** Whether the ledger can hold anything at this moment. */
import type { Ledger } from './ledger.ts'

/** Returns why nothing can be held, in words for operators; undefined if it can. */
export async function unready({ records, scripts, continuity }: Ledger): Promise<string | undefined> {
  const { failure } = records.database
  if (failure !== undefined) return failure
  try {
    await scripts.redis.ping()
  } catch {
    return 'the store does not answer'
  }
  return (await continuity.whenOpen()) ? undefined : 'the store is being compared with the records'
}
