/**
 * The log: JSON lines, written in batches. What is written is scrubbed of customers' keys and of the
 * upstreams' credentials, so that no call of it can leak one by mistake.
 */
import type { Writable } from 'node:stream'
import { pino, type Logger, type LogFn } from 'pino'
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
    // Most batches have none, and saying so is cheaper than looking for one.
    let clean = text.includes('sk-') ? text.replace(/\bsk-[A-Za-z0-9_-]{4,}/g, 'sk-***') : text
    for (const secret of this.#secrets) if (clean.includes(secret)) clean = clean.replaceAll(secret, '***')
    return clean
  }
}

/** Has a log write what a configuration asks for, and nothing that it keeps secret. */
export function configureLog({ log, scrubber }: { readonly log: Log; readonly scrubber: Scrubber }, config: Config): void {
  scrubber.watch(credentialsOf(config))
  log.level = config.log
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

/** Lines in one batch: some 15 KB of the access log's. */
const BATCH = 40
/** Milliseconds that a line waits for others. */
const BATCH_MS = 500
/** Bytes that may wait for whoever reads the log: lines that come beyond them are lost. */
const BACKLOG = 16 * 1024 * 1024

/** Lines on their way out. A reader that went away costs log lines and nothing else, and so does one that does not keep up. */
class Batches {
  readonly #scrubber: Scrubber
  readonly #out: Writable
  #lines = ''
  #count = 0
  #lost = 0
  #timer: NodeJS.Timeout | undefined

  constructor(scrubber: Scrubber, out: Writable) {
    this.#scrubber = scrubber
    this.#out = out
  }

  write(line: string): void {
    this.#lines += line
    this.#timer ??= setTimeout(() => this.flush(), BATCH_MS).unref()
    if (++this.#count === BATCH) this.flush()
  }

  flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#count === 0) return
    const [lines, count] = [this.#lines, this.#count]
    this.#lines = ''
    this.#count = 0
    if (this.#out.writableLength > BACKLOG) {
      this.#lost += count
      return
    }
    const loss = { level: 'warn', time: Date.now(), lines: this.#lost, msg: 'lines were lost here: whoever reads them did not keep up' }
    this.#out.write((this.#lost > 0 ? `${JSON.stringify(loss)}\n` : '') + this.#scrubber.scrub(lines))
    this.#lost = 0
  }
}

/** The members of a line that JSON.stringify writes as pino does, without their opening brace; undefined for what needs pino. */
function membersOf(said: object): string | undefined {
  if (Object.getPrototypeOf(said) !== Object.prototype || 'err' in said) return undefined
  try {
    const json = JSON.stringify(said)
    return json === '{}' ? undefined : json.slice(1)
  } catch {
    return undefined
  }
}

/** A log of JSON lines. @param level pino's level names; `silent` for none */
export function createLog(scrubber: Scrubber, level: string, out: Writable): Log {
  const batches = new Batches(scrubber, out)
  // Most lines, one for each exchange, have members alone, and pino takes three times as long for them.
  function logMethod(this: Log, said: Parameters<LogFn>, log: LogFn, number: number): void {
    const [first, ...others] = said
    const members = this === root && others.length === 0 && typeof first === 'object' && first !== null ? membersOf(first) : undefined
    if (members === undefined) log.apply(this, said)
    else batches.write(`{"level":"${pino.levels.labels[number]}","time":${Date.now()},${members}\n`)
  }
  const serializers = { err: (cause: Error) => told(pino.stdSerializers.err(cause)) }
  const root = pino({ level, base: null, serializers, hooks: { logMethod }, formatters: { level: label => ({ level: label }) } }, batches)
  return root
}
