/** The network line of an attacker: a gigabit a second, shared by everything that a process sends. */
import { setTimeout as sleep } from 'node:timers/promises'

const BYTES_PER_SECOND = 125_000_000

/** The time when the line has carried everything so far. */
let freeAt = 0

/** Resolves when the line has carried these bytes. */
export async function carried(bytes: number): Promise<void> {
  const now = performance.now()
  freeAt = Math.max(freeAt, now) + (bytes / BYTES_PER_SECOND) * 1000
  await sleep(freeAt - now)
}
