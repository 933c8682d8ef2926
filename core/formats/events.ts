/** The events of a reply, as stages see them, and how they are written. */
import type { Outline } from '../lib/json/outline.ts'
import { withEnds } from './ends.ts'
import { jsonFrom } from './json.ts'
import type { EventReader, Reading } from './terms.ts'
import { renamed } from './renaming.ts'

/**
 * One event of a reply: a server-sent event, or a whole JSON reply, whose `type` is empty. It is parsed only when
 * needed, so that a stage that reads only `type` costs nothing.
 */
export class ReplyEvent {
  /** The `event:` field. Empty if the event has no such field. */
  readonly type: string
  /** A comment before the event, if a stage has added one. */
  readonly comment: string | undefined
  readonly #reader: EventReader
  #data: string | undefined
  readonly #outline: Outline | undefined
  #json: { readonly value: unknown } | undefined
  #reading: Reading | undefined

  /**
   * @param data the text, or for a long reply its outline
   * @param known a comment before the event, and what it says, if that is known without parsing
   */
  constructor(
    reader: EventReader,
    type: string,
    data: string | Outline,
    known?: { readonly comment?: string | undefined; readonly reading?: Reading | undefined },
  ) {
    this.#reader = reader
    this.#reading = known?.reading
    this.comment = known?.comment
    this.type = type
    if (typeof data === 'string') this.#data = data
    else {
      this.#outline = data
      this.#json = { value: data.json }
    }
  }

  /** The `data:` field, its lines joined by newlines. */
  get data(): string {
    return (this.#data ??= this.#outline?.bytes.toString('utf8') ?? '')
  }

  /** The data as JSON; undefined if it is not JSON, such as `[DONE]`. */
  get json(): unknown {
    return (this.#json ??= { value: this.data === DONE ? undefined : jsonFrom(this.data) }).value
  }

  /** The data as bytes. */
  get bytes(): Buffer {
    return this.#outline?.bytes ?? Buffer.from(this.data)
  }

  /**
   * A copy in which the string at a path is another one; the same event if no string stands there.
   * @param path names of members, from the root on
   */
  renamed(path: readonly string[], text: string): ReplyEvent {
    return new ReplyEvent(this.#reader, this.type, this.#outline?.with(path, text) ?? renamed(this.data, path, text), {
      comment: this.comment,
    })
  }

  /** What the event says, in terms that all formats share. */
  get reading(): Reading {
    return (this.#reading ??=
      this.#data === DONE
        ? { completes: true, endsStream: true }
        : withEnds(this.#reader.read(this.json), this.#reader.ends))
  }
}

/**
 * Changes the events of one reply on their way to the client. It sees each event that contains one of `matches`, or all
 * events without `matches`.
 */
export interface Rewriter {
  /**
   * Texts to look for, or expressions without flags. A word in quotes is the name of a member, or its value, but never a
   * whole piece of the model's output.
   */
  readonly matches?: readonly (string | RegExp)[]
  /**
   * Changes the text of whole events, as latin-1, before it is searched: for members that stand in every event, which would
   * all have to be parsed otherwise. Must leave each event what it is. Not used if a stage wants to see all events.
   */
  readonly edit?: (latin1: string) => string
  /** Returns the events to send instead: none to drop it, undefined to leave its bytes unchanged. */
  event(event: ReplyEvent): readonly OutgoingEvent[] | undefined
}

/** An event to send. `type` is its `event:` field, empty for none. */
export interface OutgoingEvent {
  readonly type: string
  readonly data: string
  /** A comment before the event, which parsers ignore. */
  readonly comment?: string | undefined
}

/** An event of a format whose events have names. */
export function typedEvent(json: { readonly type: string; readonly [member: string]: unknown }): OutgoingEvent {
  return { type: json.type, data: JSON.stringify(json) }
}

/** The data of the event that closes a chat-completions stream. */
export const DONE = '[DONE]'

/**
 * A server-sent event as text. Line breaks in the data become further `data:` lines, so that data cannot forge an
 * event.
 */
export function frame(type: string, data: string, comment?: string): string {
  const lines = data.split(/\r\n|\n|\r/)
  return `${comment === undefined ? '' : `: ${comment}\n`}${type === '' ? '' : `event: ${type}\n`}data: ${lines.join('\ndata: ')}\n\n`
}

/** Whether bytes of a stream show reasoning, which may be a summary and does not tell how much was generated. */
export function isSummary({ summaries }: { readonly summaries: readonly string[] }, bytes: Buffer): boolean {
  for (const text of summaries) if (bytes.includes(text)) return true
  return false
}
