import type { Log } from './log.ts'

const ignore = (): void => {}

/** The log of a command that ends by itself, which prints what it has to say. Loading pino takes 50 ms. */
export const SILENT_LOG = {
  level: 'silent',
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  fatal: ignore,
  flush: (written?: () => void) => written?.(),
} satisfies Partial<Log> as unknown as Log
