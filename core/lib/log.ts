/**
 * The log: JSON lines, several in a write. What is written is scrubbed of customers' keys and of the upstreams' credentials,
 * so that no call of it can leak one by mistake.
 */
import type { Writable } from 'node:stream'
import { pino, type Logger, type LogFn } from 'pino'

export type Log = Logger

/** Removes secrets from text: whatever looks like a customer key, and the given credentials wherever they stand. */
export class Scrubber {
  #secrets: readonly string[] = []

  /** The credentials to remove from now on; short words are left alone, as they would mutilate ordinary text. */
  watch(secrets: readonly string[]): void {
    const long = secrets.filter(secret => secret.length >= 8)
    // In a line of JSON it may stand in other characters.
    this.#secrets = [
      ...new Set([...this.#secrets, ...long, ...long.map(secret => JSON.stringify(secret).slice(1, -1))]),
    ]
  }

  scrub(text: string): string {
    // Most lines have none, and saying so is cheaper than looking for one.
    let clean = text.includes('sk-') ? text.replace(/\bsk-[A-Za-z0-9_-]{4,}|sk-[A-Za-z0-9_-]{20,}/g, 'sk-***') : text
    for (const secret of this.#secrets) if (clean.includes(secret)) clean = clean.replaceAll(secret, '***')
    return clean
  }
}

/** An error for the log, without the command to the store that it may come with: it can be the one that tells the password. */
function withoutCommands(cause: unknown): unknown {
  if (typeof cause !== 'object' || cause === null) return cause
  const { command: _command, ...others } = cause as Record<string, unknown>
  return Object.fromEntries(Object.entries(others).map(([name, part]) => [name, withoutCommands(part)]))
}

/** Why something failed, in a line, where a stack would say no more: what an upstream or the store has answered is no defect. */
export function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  const { message, code } = cause as NodeJS.ErrnoException
  // Node tells of the addresses that it has tried one by one, and of all together by a code alone.
  if (cause instanceof AggregateError && message === '') return cause.errors.map(reasonOf).join('; ')
  return code === undefined || message.includes(code) ? message : `${message} (${code})`
}

/** Bytes of lines that go out as one: 4 KiB, with a line break before them, a pipe takes whole, whichever other process writes to it. */
const PIECE = 4095
/** Milliseconds that a line waits for others. */
const PIECE_MS = 500
/** Bytes that may wait for whoever reads the log: lines that come beyond them are lost. */
const BACKLOG = 16 * 1024 * 1024
const LOST = 'lines were lost here: they could not be written, or whoever reads them did not keep up'

interface Piece {
  readonly text: string
  /** Lines in it, or told by it to be lost. */
  readonly count: number
}

/** Lines on their way out. A reader that went away costs log lines and nothing else, as do one that does not keep up and a full disk. */
class LineBuffer {
  readonly #scrubber: Scrubber
  readonly #out: Writable
  readonly #now: () => number
  /** Lines that are to go out as one. */
  #lines = ''
  #bytes = 0
  #count = 0
  #timer: NodeJS.Timeout | undefined
  /** What goes out when the piece before has: a stream that has several writes them together. */
  readonly #waiting: Piece[] = []
  #waitingBytes = 0
  #writing = false
  #lost = 0
  /** What went out last may lack its end. */
  #torn = false
  #whenRead: (() => void) | undefined

  constructor(scrubber: Scrubber, out: Writable, now: () => number) {
    this.#scrubber = scrubber
    this.#out = out
    this.#now = now
  }

  write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#bytes + bytes > PIECE) this.#finish()
    this.#lines += line
    this.#bytes += bytes
    this.#count++
    this.#timer ??= setTimeout(this.#finish, PIECE_MS).unref()
  }

  /** @param read called when nothing waits for its reader, here or in the stream */
  flush(read: () => void): void {
    this.#whenRead = read
    this.#finish()
  }

  readonly #finish = (): void => {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#waitingBytes > BACKLOG) this.#lost += this.#count
    else if (this.#count > 0) {
      this.#tellLoss()
      this.#keep(this.#scrubber.scrub(this.#lines), this.#count)
    }
    this.#lines = ''
    this.#bytes = 0
    this.#count = 0
    if (!this.#writing) this.#next()
  }

  #tellLoss(): void {
    if (this.#lost > 0)
      this.#keep(`${JSON.stringify({ level: 'warn', time: this.#now(), lines: this.#lost, msg: LOST })}\n`, this.#lost)
    this.#lost = 0
  }

  #keep(text: string, count: number): void {
    this.#waiting.push({ text, count })
    this.#waitingBytes += text.length
  }

  #next(): void {
    // A loss is told of as soon as there is room, where there may be any.
    if (this.#waiting.length === 0 && !this.#torn) this.#tellLoss()
    const piece = this.#waiting.shift()
    this.#writing = piece !== undefined
    if (piece) {
      this.#waitingBytes -= piece.text.length
      this.#out.write(this.#torn ? `\n${piece.text}` : piece.text, cause => {
        this.#torn = Boolean(cause)
        if (cause) this.#lost += piece.count
        this.#next()
      })
    } else if (this.#whenRead) {
      this.#out.write('', this.#whenRead)
      this.#whenRead = undefined
    }
  }
}

/** The members of a line that JSON.stringify writes as pino does, without their opening brace; undefined for what needs pino. */
function membersOf(said: object): string | undefined {
  if (Object.getPrototypeOf(said) !== Object.prototype || 'err' in said) return undefined
  try {
    const json = JSON.stringify(said)
    return json.startsWith('{"') ? json.slice(1) : undefined
  } catch {
    return undefined
  }
}

/** A log of JSON lines. @param level pino's level names; `silent` for none */
export function createLog(scrubber: Scrubber, level: string, out: Writable, now: () => number = Date.now): Log {
  const lines = new LineBuffer(scrubber, out, now)
  // Most lines, one for each exchange, have members alone, and pino takes twice as long for them.
  function logMethod(this: Log, said: Parameters<LogFn>, log: LogFn, number: number): void {
    const [first, ...others] = said
    const members =
      this === root && others.length === 0 && typeof first === 'object' && first !== null ? membersOf(first) : undefined
    if (members === undefined) log.apply(this, said)
    else lines.write(`{"level":"${pino.levels.labels[number]}","time":${now()},${members}\n`)
  }
  const serializers = { err: (cause: Error) => withoutCommands(pino.stdSerializers.err(cause)) }
  const root = pino(
    { level, base: null, serializers, hooks: { logMethod }, formatters: { level: label => ({ level: label }) } },
    lines,
  )
  return root
}
