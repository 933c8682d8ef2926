/** Sends the files of the outbox that are complete. */
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { type Settlement, settlementFrom } from './settlement.ts'

/** Settlements that are sent at once. The next ones wait for them, so that requests are not delayed. */
const AT_ONCE = 200

/** What became of settlements: the store took them, refused one of them by itself, or did not answer. */
export type Sent = 'taken' | 'refused' | 'away'

/** A file of settlements that is complete: no more lines are added to it. */
export interface Sealed {
  readonly path: string
  /** The lines that the store has taken, while others of the file wait. */
  readonly taken: Set<number>
  /** Settlements in the file, as far as they have been counted. */
  count: number
  /** Until when a kept file is needed, in milliseconds of the store's clock. 0 for a file to send. */
  readonly keptUntil: number
}

/** Sends the lines of a file that were not taken yet. */
export async function sendFile(
  file: Sealed,
  send: (settlement: Settlement) => Promise<Sent>,
  isClosed: () => boolean,
): Promise<Sent> {
  let worst = 'taken' as Sent
  let batch: { line: number; settlement: Settlement }[] = []
  const flush = async (): Promise<void> => {
    const results = await Promise.all(batch.map(({ settlement }) => send(settlement)))
    batch.forEach(({ line }, index) => results[index] === 'taken' && file.taken.add(line))
    batch = []
    if (results.includes('away') || isClosed()) worst = 'away'
    else if (results.includes('refused')) worst = 'refused'
  }
  let line = -1
  const input = createReadStream(file.path)
  try {
    for await (const text of createInterface({ input, crlfDelay: Infinity })) {
      const settlement = settlementFrom(text)
      // A process that died while writing a line had not acknowledged it.
      if (!settlement) continue
      line++
      file.count = Math.max(file.count, line + 1)
      // While the store is away, the rest of the file is only counted.
      if (file.taken.has(line) || worst === 'away') continue
      batch.push({ line, settlement })
      if (batch.length >= AT_ONCE) await flush()
    }
    if (batch.length > 0) await flush()
  } finally {
    input.destroy()
  }
  return worst
}
