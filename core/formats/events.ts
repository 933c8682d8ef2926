/** Events of a reply: what stages see of them, and how they are written. */
import type { Outline } from '../lib/json/outline.ts'
import type { EventReader, Reading } from './terms.ts'
import { renamed } from './renaming.ts'

/**
 * One event of a reply as it passes: a server-sent event, or the whole of a JSON reply (then `type` is empty).
 * Parsing is lazy: a stage that only looks at `type` costs nothing.
 */
export class ReplyEvent {
  /** The `event:` field; empty where the format sends none. */
  readonly type: string
  /** Words before it, where a stage has put some. */
  readonly comment: string | undefined
  readonly #reader: EventReader
  #data: string | undefined
  readonly #outline: Outline | undefined
  #json: { readonly value: unknown } | undefined
  #reading: Reading | undefined

  /**
   * @param data of a long reply, its outline
   * @param reading what it says, where that is known without reading it
   */
  constructor(reader: EventReader, type: string, data: string | Outline, comment?: string, reading?: Reading) {
    this.#reader = reader
    this.#reading = reading
    this.comment = comment
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

  /** The data as JSON; undefined when it is none, such as `[DONE]`. */
  get json(): unknown {
    return (this.#json ??= { value: this.data === DONE ? undefined : parsed(this.data) }).value
  }

  /** The data as bytes. */
  get bytes(): Buffer {
    return this.#outline?.bytes ?? Buffer.from(this.data)
  }

  /** The event with another text as the value of the member at a path; as it is where no text stands there. @param path names of members from the root on */
  renamed(path: readonly string[], text: string): ReplyEvent {
    return new ReplyEvent(
      this.#reader,
      this.type,
      this.#outline?.with(path, text) ?? renamed(this.data, path, text),
      this.comment,
    )
  }

  /** What the event says, in the terms that all formats share. */
  get reading(): Reading {
    return (this.#reading ??= this.#data === DONE ? { last: true, terminal: true } : this.#reader.read(this.json))
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Changes the events of one reply on their way to the client. It is asked about every event that contains one of
 * `matches`, or about all of them when it names none.
 */
export interface Rewriter {
  /** A word in quotes is the name of a member, or its value, but never a whole piece of the model's text. */
  readonly matches?: readonly string[]
  /**
   * What can be taken out of the events' bytes, as latin-1, before they are looked at: for what stands in every event and
   * would have each of them parsed. Of no use where somebody wants to see all events as they came.
   */
  readonly removes?: RegExp
  /** The events to send instead; none to drop it, undefined to leave its bytes as they are. */
  event(event: ReplyEvent): readonly OutgoingEvent[] | undefined
}

/** An event to send: its `event:` field, empty for none, and its `data:`. */
export interface OutgoingEvent {
  readonly type: string
  readonly data: string
  /** Words before it that parsers pass over. */
  readonly comment?: string | undefined
}

/** An event of the formats that name theirs. */
export function typedEvent(json: { readonly type: string; readonly [member: string]: unknown }): OutgoingEvent {
  return { type: json.type, data: JSON.stringify(json) }
}

/** The data of the event that closes a chat-completions stream. */
export const DONE = '[DONE]'

/** One server-sent event as text. Line breaks inside `data` become further data lines, so none can forge an event. */
export function frame(type: string, data: string, comment?: string): string {
  const lines = data.split(/\r\n|\n|\r/)
  return `${comment === undefined ? '' : `: ${comment}\n`}${type === '' ? '' : `event: ${type}\n`}data: ${lines.join('\ndata: ')}\n\n`
}
