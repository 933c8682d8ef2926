/**
 * The log: lines of JSON. Customers' keys and upstreams' credentials are removed from everything that is written, so
 * that no call can leak one by mistake.
 */
import type { Writable } from 'node:stream'
import { pino, type Logger, type LogFn } from 'pino'
import { escaped } from './printable.ts'
import { memberOf, reasonOf, thrownText } from './reason.ts'
import type { Scrubber } from './scrubber.ts'

/** The log, as all code uses it: pino's interface. */
export type Log = Logger

/** Maximum causes of an error that are read. */
const CAUSES_MAX = 8

/**
 * An error for the log, with its causes. It has no other members than these: errors of libraries carry requests, bodies,
 * and the command that sends the password to Redis. It never throws, since the callers of the log have more to do.
 */
function errorMembers(thrown: unknown): object {
  const causes = [thrown]
  for (let next = memberOf(thrown, 'cause'); next !== undefined && causes.length < CAUSES_MAX;) {
    causes.push(next)
    next = memberOf(next, 'cause')
  }
  const code = thrownText(thrown, 'code')
  const stacks = causes.map(cause => thrownText(cause, 'stack')).filter(stack => stack !== '')
  return {
    type: thrownText(memberOf(thrown, 'constructor'), 'name') || typeof thrown,
    message: causes.map(cause => reasonOf(cause)).join(': '),
    ...(stacks.length > 0 && { stack: stacks.join('\ncaused by: ') }),
    ...(code !== '' && { code }),
  }
}

/**
 * Bytes of the lines that are written at once. With a line break before them they are the 4 KiB that a pipe takes in
 * one piece.
 */
const PIECE_BYTES = 4095
/** Milliseconds that a line waits for others. */
const PIECE_MS = 500
/** Bytes that may wait for the reader of the log. Further lines are lost. */
const BACKLOG_BYTES = 16 * 1024 * 1024
const LOST = 'log lines were lost: they could not be written, or their reader was too slow'

interface Piece {
  readonly text: string
  /** Lines in the text, or lines that the text reports as lost. */
  readonly count: number
}

/**
 * Lines on their way out. If the reader goes away or does not keep up, or the disk is full, only log lines are lost.
 */
class LineBuffer {
  readonly #scrubber: Scrubber
  readonly #out: Writable
  readonly #now: () => number
  /** Lines that will be written at once. */
  #lines = ''
  #bytes = 0
  #count = 0
  #timer: NodeJS.Timeout | undefined
  /** Pieces that wait for the current write. */
  readonly #waiting: Piece[] = []
  #waitingBytes = 0
  #writing = false
  #lost = 0
  /** The last piece may have been written in part. */
  #torn = false
  #whenRead: (() => void) | undefined

  constructor(scrubber: Scrubber, out: Writable, now: () => number) {
    this.#scrubber = scrubber
    this.#out = out
    this.#now = now
  }

  write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#bytes + bytes > PIECE_BYTES) this.#finish()
    this.#lines += line
    this.#bytes += bytes
    this.#count++
    this.#timer ??= setTimeout(this.#finish, PIECE_MS).unref()
  }

  /** Writes everything out. @param read called when nothing waits for the reader any more */
  flush(read: () => void): void {
    this.#whenRead = read
    this.#finish()
  }

  readonly #finish = (): void => {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#waitingBytes > BACKLOG_BYTES) this.#lost += this.#count
    else if (this.#count > 0) {
      this.#reportLoss()
      this.#keep(this.#scrubber.scrub(this.#lines).replaceAll(UNSEEN, escaped), this.#count)
    }
    this.#lines = ''
    this.#bytes = 0
    this.#count = 0
    if (!this.#writing) this.#next()
  }

  #reportLoss(): void {
    if (this.#lost > 0)
      this.#keep(`${JSON.stringify({ level: 'warn', time: this.#now(), lines: this.#lost, msg: LOST })}\n`, this.#lost)
    this.#lost = 0
  }

  #keep(text: string, count: number): void {
    this.#waiting.push({ text, count })
    this.#waitingBytes += text.length
  }

  #next(): void {
    // A loss is reported as soon as there is room.
    if (this.#waiting.length === 0 && !this.#torn) this.#reportLoss()
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

/** Characters that JSON does not escape, and that a terminal obeys: DEL, the later control characters, and directions. */
const UNSEEN = /[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** The members of a line as pino would write them, without the opening brace; undefined for values that need pino. */
function membersOf(said: object): string | undefined {
  if (Object.getPrototypeOf(said) !== Object.prototype || 'err' in said) return undefined
  try {
    const json = JSON.stringify(said)
    return json.startsWith('{"') ? json.slice(1) : undefined
  } catch {
    return undefined
  }
}

/**
 * Makes a log of JSON lines.
 * @param level one of pino's level names; `silent` for none
 * @param now milliseconds since the epoch
 */
export function createLog(scrubber: Scrubber, level: string, out: Writable, now: () => number = Date.now): Log {
  const lines = new LineBuffer(scrubber, out, now)
  // Most lines, one for each exchange, have members only. Pino takes twice as long for them.
  function logMethod(this: Log, said: Parameters<LogFn>, log: LogFn, number: number): void {
    const [first, ...others] = said
    const members =
      this === root && others.length === 0 && typeof first === 'object' && first !== null ? membersOf(first) : undefined
    if (members === undefined) log.apply(this, said)
    else lines.write(`{"level":"${pino.levels.labels[number]}","time":${now()},${members}\n`)
  }
  const serializers = { err: errorMembers }
  const root = pino(
    { level, base: null, serializers, hooks: { logMethod }, formatters: { level: label => ({ level: label }) } },
    lines,
  )
  return root
}
