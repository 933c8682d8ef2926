/** The log of a command that ends by itself. Such a command prints what it has to say, and loading pino takes 50 ms. */
import type { Log } from './log.ts'

const ignore = (): void => {}

/** Ignores all lines. */
export const SILENT_LOG = {
  level: 'silent',
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  fatal: ignore,
  flush: (written?: () => void) => written?.(),
} satisfies Partial<Log> as unknown as Log
