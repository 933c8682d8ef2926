/** The order of a reply's events. */
import type { NeutralEvent, Reply } from './neutral.ts'

/** Puts overlapping parts one after the other: what comes of a later part waits until the earlier ones have closed. */
export class Sequence {
  #current: number | undefined
  readonly #waiting = new Map<number, NeutralEvent[]>()

  push(event: NeutralEvent): readonly NeutralEvent[] {
    switch (event.kind) {
      case 'open':
        if (this.#current === undefined) this.#current = event.part
        else if (this.#current !== event.part) {
          this.#waiting.set(event.part, [event])
          return []
        }
        return [event]
      case 'delta':
      case 'close':
        if (event.part !== this.#current) {
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

  /** The current part has closed: the next one's events, and those of the ones behind it that it brings with it. */
  #next(): NeutralEvent[] {
    this.#current = undefined
    for (const [part, events] of this.#waiting) {
      this.#waiting.delete(part)
      if (events.at(-1)?.kind !== 'close') {
        this.#current = part
        return events
      }
      return [...events, ...this.#next()]
    }
    return []
  }

  /** Closes what is still open. */
  #all(): NeutralEvent[] {
    const out: NeutralEvent[] = []
    while (this.#current !== undefined) out.push({ kind: 'close', part: this.#current }, ...this.#next())
    return out
  }
}

/** The events of a reply that came whole. */
export function eventsOf({ id, parts, stop }: Reply): NeutralEvent[] {
  const events = parts.flatMap((item, part): NeutralEvent[] => {
    const text = item.kind === 'call' ? item.input : item.text
    const seal = item.kind === 'reasoning' ? item.seal : undefined
    return [
      { kind: 'open', part, what: item.kind === 'call' ? { kind: 'call', id: item.id, name: item.name } : { kind: item.kind } },
      ...(text === '' ? [] : [{ kind: 'delta' as const, part, text }]),
      { kind: 'close', part, ...(seal && { seal }) },
    ]
  })
  return [{ kind: 'start', id }, ...events, { kind: 'stop', stop }, { kind: 'end' }]
}
