/**
 * The log: JSON lines on standard output, written in batches. Every finished line is scrubbed of customers' keys and of
 * the upstreams' credentials, so that no call of it can leak one by mistake.
 */
import { pino, type Logger } from 'pino'
import type { Config } from './config/config.ts'

export type Log = Logger

/** Removes secrets from text: whatever looks like a customer key, and the given credentials wherever they stand. */
export class Scrubber {
  #secrets: readonly string[] = []

  /** The credentials to remove from now on; short words are left alone, as they would mutilate ordinary text. */
  watch(secrets: readonly string[]): void {
    this.#secrets = [...new Set([...this.#secrets, ...secrets.filter(secret => secret.length >= 8)])]
  }

  scrub(text: string): string {
    // Most lines have none, and saying so is cheaper than looking for one.
    let clean = text.includes('sk-') ? text.replace(/\bsk-[A-Za-z0-9_-]{4,}/g, 'sk-***') : text
    for (const secret of this.#secrets) if (clean.includes(secret)) clean = clean.replaceAll(secret, '***')
    return clean
  }
}

/** Every credential that a configuration holds. */
export function credentialsOf({ upstreams, store }: Config): string[] {
  const accounts = [...upstreams.values()].flatMap(upstream => upstream.accounts)
  const { password } = store.address ?? {}
  return [...accounts.map(({ key }) => key), ...(password === undefined ? [] : [password, encodeURIComponent(password)])].filter(key => key !== 'simulated')
}

/** An error for the log, without the command to the store that it may come with: it can be the one that tells the password. */
function told(cause: unknown): unknown {
  if (typeof cause !== 'object' || cause === null) return cause
  const { command: _command, ...others } = cause as Record<string, unknown>
  return Object.fromEntries(Object.entries(others).map(([name, part]) => [name, told(part)]))
}

/** Why something failed, in a line, where a stack would say no more: what an upstream or the store has answered is no defect. */
export function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  const { message, code } = cause as NodeJS.ErrnoException
  // Node tells of the addresses that it has tried one by one, and of all together by a code alone.
  if (cause instanceof AggregateError && message === '') return cause.errors.map(reasonOf).join('; ')
  return code === undefined || message.includes(code) ? message : `${message} (${code})`
}

/** A log to standard output. @param level pino's level names; `silent` for none */
export function createLog(scrubber: Scrubber, level: string): Log {
  // In the other mode each line that joins a batch copies all of it. A write wakes a thread, however small: it may have 16 KiB.
  const destination = pino.destination({ dest: 1, sync: false, contentMode: 'buffer', minLength: 12_288, periodicFlush: 500 })
  // A reader that went away (EPIPE), or a full disk, costs log lines and nothing else.
  destination.on('error', () => {})
  const scrubbed = {
    // Its types know of strings alone.
    write: (line: string) => destination.write(Buffer.from(scrubber.scrub(line)) as unknown as string),
    flush: (done: () => void) => destination.flush(done),
    flushSync: () => destination.flushSync(),
  }
  const serializers = { err: (cause: Error) => told(pino.stdSerializers.err(cause)) }
  return pino({ level, base: null, serializers, formatters: { level: label => ({ level: label }) } }, scrubbed)
}
