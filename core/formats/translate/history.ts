/** What an upstream's format cannot carry of a conversation. */
import type { GatewayError } from '../../errors.ts'
import { lastPast, refused } from './decoding.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { Item, Part, Request, Spoken } from './neutral.ts'

/** Who says a part: a message's role, or a tool. */
export type Speaker = Extract<Spoken, { kind: 'message' }>['role'] | 'tool'

/** The error if a format cannot carry this part from this speaker; undefined if it can. */
export type Refusal = (part: Part, speaker: Speaker) => GatewayError | undefined

/** The error for media from a speaker who is neither the user nor a tool. */
export function onlyUsers({ kind }: Part, speaker: Speaker): GatewayError | undefined {
  if (speaker === 'user' || speaker === 'tool') return undefined
  const message = `A message of the ${speaker} cannot contain media (${kind}) in the upstream's format. Only users can send them.`
  return refused('messages', message)
}

/**
 * The conversation without the parts that a format cannot carry. They are dropped, unless they are in the last turn.
 * @throws GatewayError invalid_body for a part of the last turn
 */
export function carried(
  { items, isPast = false }: Pick<Request, 'items' | 'isPast'>,
  refusal: Refusal,
  dropped: DroppedFields,
): Item[] {
  const last = isPast
    ? items.length - 2
    : lastPast(items, item =>
        item.kind === 'message' ? item.role === 'assistant' : item.kind === 'call' || item.kind === 'reasoning',
      )
  return items.map((item, index) => {
    if (!('parts' in item)) return item
    const speaker = item.kind === 'message' ? item.role : 'tool'
    const parts = item.parts.filter(part => {
      const error = refusal(part, speaker)
      if (!error) return true
      if (index > last) throw error
      dropped.add(part.kind)
      return false
    })
    return parts.length === item.parts.length ? item : { ...item, parts }
  })
}

/** What may be marked for the prompt cache. */
interface Markable {
  readonly cache?: unknown
}

const isMarked = ({ cache }: Markable): boolean => cache !== undefined

function markables(item: Item): readonly Markable[] {
  if ('parts' in item) return item.parts
  return item.kind === 'call' ? [item] : []
}

/** Notes marks for the prompt cache, for formats without them. */
export function dropMarks(items: readonly Item[], others: readonly Markable[], dropped: DroppedFields): void {
  if (others.some(isMarked) || items.some(item => markables(item).some(isMarked))) dropped.add('cache_control')
}
