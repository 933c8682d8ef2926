/** The process and the machine that a command runs in. */
import type { Log } from './log.ts'
import type { Scrubber } from './scrubber.ts'

/** What the process offers. Only `core/main.ts` makes one for real; a test passes its own. */
export interface Environment {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Bytes of memory that the process may use: those of the machine, or of its container if these are fewer. */
  readonly memoryBytes: number
  /** Returns the most file descriptors that the process may have; Infinity if unknown. */
  readonly openFiles: () => number
  /** The number of the user that the process runs as, where there is one. */
  readonly uid: number | undefined
  readonly log: Log
  readonly scrubber: Scrubber
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** A new unique id, safe in headers and store keys. */
  readonly newId: () => string
  /** Prints a line on standard output. */
  readonly print: (line: string) => void
  /** Prints a line on standard error, without any secret that the scrubber knows. */
  readonly complain: (line: string) => void
  /** Calls back whenever the process receives a signal. */
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', handler: () => void) => void
  /** Ends the process when its output has been read; `start` waits a moment at most. */
  readonly exit: (code: number) => Promise<never>
}
