/** Puts the events of a reply in order, and converts between whole replies and events. */
import { noReply } from './decoding.ts'
import type { NeutralEvent, Reply } from './neutral.ts'

/** Most parts of a reply, and most events that wait for other parts. */
const PARTS_MAX = 20_000
const HELD_MAX = 100_000

/** Puts overlapping parts one after the other. The events of a later part wait until the earlier parts have ended. */
export class PartOrder {
  #current: number | undefined
  /** Parts so far, and events that wait. */
  #parts = 0
  #held = 0
  readonly #waiting = new Map<number, NeutralEvent[]>()

  push(event: NeutralEvent): readonly NeutralEvent[] {
    switch (event.kind) {
      case 'open':
        if (++this.#parts > PARTS_MAX) throw noReply('too many parts')
        if (this.#current !== undefined && this.#current !== event.part) {
          this.#waiting.set(event.part, [event])
          return []
        }
        this.#current = event.part
        return [event]
      case 'delta':
      case 'close':
        if (event.part !== this.#current) {
          if (++this.#held > HELD_MAX) throw noReply('too many parts at a time')
          this.#waiting.get(event.part)?.push(event)
          return []
        }
        return event.kind === 'close' ? [event, ...this.#next()] : [event]
      case 'stop':
        return [...this.#all(), event]
      default:
        return [event]
    }
  }

  /**
   * After the current part has ended: the events of the parts after it that have ended too, and those of the next one.
   */
  #next(): NeutralEvent[] {
    this.#current = undefined
    const out: NeutralEvent[] = []
    for (const [part, events] of this.#waiting) {
      this.#waiting.delete(part)
      for (const event of events) out.push(event)
      if (events.at(-1)?.kind === 'close') continue
      this.#current = part
      break
    }
    return out
  }

  /** Ends all open parts. */
  #all(): NeutralEvent[] {
    const out: NeutralEvent[] = []
    while (this.#current !== undefined) {
      out.push({ kind: 'close', part: this.#current })
      for (const event of this.#next()) out.push(event)
    }
    return out
  }
}

/** The events of a whole reply. */
export function eventsOf({ id, parts, stop }: Reply): NeutralEvent[] {
  const events = parts.flatMap((item, part): NeutralEvent[] => {
    const text = item.kind === 'call' ? item.input : item.text
    const signature = item.kind === 'reasoning' ? item.signature : undefined
    return [
      {
        kind: 'open',
        part,
        what: item.kind === 'call' ? { kind: 'call', id: item.id, name: item.name } : { kind: item.kind },
      },
      ...(text === '' ? [] : [{ kind: 'delta' as const, part, text }]),
      { kind: 'close', part, ...(signature && { signature }) },
    ]
  })
  return [{ kind: 'start', id }, ...events, { kind: 'stop', stop }, { kind: 'end' }]
}

/** The reply that events describe; undefined if they contain no stop. */
export function replyOf(events: Iterable<NeutralEvent>): Reply | undefined {
  const parts = new Map<number, Writable>()
  let id = ''
  let stop: Reply['stop'] | undefined
  for (const event of events) {
    if (event.kind === 'start') id = event.id
    else if (event.kind === 'open') parts.set(event.part, { what: event.what, text: [], signature: undefined })
    else if (event.kind === 'delta') parts.get(event.part)?.text.push(event.text)
    else if (event.kind === 'close') {
      const part = parts.get(event.part)
      if (part) part.signature = event.signature
    } else if (event.kind === 'stop') stop ??= event.stop
  }
  return stop && { id, stop, parts: [...parts.values()].map(partOf) }
}

/** A part while it is collected. */
interface Writable {
  readonly what: Extract<NeutralEvent, { kind: 'open' }>['what']
  readonly text: string[]
  signature: Extract<NeutralEvent, { kind: 'close' }>['signature']
}

function partOf({ what, text, signature }: Writable): Reply['parts'][number] {
  const said = text.join('')
  return what.kind === 'call'
    ? { ...what, input: said }
    : { kind: what.kind, text: said, ...(signature && { signature }) }
}
