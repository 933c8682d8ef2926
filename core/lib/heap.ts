/** How V8 manages its memory. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * Lets V8 13 collect the buffers of requests together with young objects. By default it collects them by collections of
 * the whole heap, which cost more than the rest of a large request. Other versions have not been measured. See
 * https://github.com/nodejs/node/issues/61967.
 */
export function collectBuffersEarly(v8Version: string): void {
  if (!v8Version.startsWith('13.')) return
  setFlagsFromString('--scavenger-max-new-space-capacity-mb=8')
  setFlagsFromString('--external-memory-accounted-in-global-limit')
}

/**
 * Collects all garbage, and gives the room of the heap back. Starting a process leaves more garbage than it keeps, and
 * V8 keeps the room while nothing happens.
 */
export function releaseMemory(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: { type: 'major'; flavor: 'last-resort' }) => void
  setFlagsFromString('--no-expose-gc')
  collect({ type: 'major', flavor: 'last-resort' })
}
