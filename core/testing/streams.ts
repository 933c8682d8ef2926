/** Streams in the exact shapes that providers send, oddities included, each with its reported usage. */
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { ReplyEvent } from '../formats/events.ts'
import { formatOf, PLAIN } from '../formats/index.ts'

/** A stream that a provider has sent. */
export interface RecordedStream {
  readonly name: string
  readonly type: 'famA' | 'famC'
  /** The endpoint of its format. */
  readonly path: string
  /** Its events, as text. */
  readonly events: readonly string[]
  /** The history entry's counters. */
  readonly usage: { readonly input: number; readonly output: number; readonly cacheRead?: number }
}

/** The recorded streams, which streams.yaml has. */
export const STREAMS: readonly RecordedStream[] = (
  parse(readFileSync(new URL('streams.yaml', import.meta.url), 'utf8')) as readonly { readonly events: string }[]
).map(({ events, ...stream }) => ({
  ...(stream as Omit<RecordedStream, 'events'>),
  events: events.trimEnd().split('\n\n'),
}))

/**
 * Returns the events of a stream as the hooks of a stage see them.
 * @param path the endpoint of its format
 * @param texts its events: lines of `event:` and `data:`
 */
export function replyEvents(path: string, texts: readonly string[]): ReplyEvent[] {
  const format = formatOf(path) ?? PLAIN
  return texts.map(text => {
    const field = (name: string): string => new RegExp(`^${name}: ?(.*)$`, 'm').exec(text)?.[1] ?? ''
    return new ReplyEvent(format, field('event'), field('data'))
  })
}
