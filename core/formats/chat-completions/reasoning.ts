/** Reasoning in chat messages. The format itself has no member for it, but vendors and clients use these two. */
import type { Reasoning } from '../translate/neutral.ts'
import { wrapSignature, unwrapSignature, type Place } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** The members with the text of the reasoning, by vendor. */
const FIELDS = ['reasoning_content', 'reasoning'] as const

/** The text of the reasoning in a message or a delta, and the member that holds it. */
export function reasoningText(message: Json): { field: string; said: string } | undefined {
  for (const field of FIELDS) {
    const said = text(message[field])
    if (said) return { field, said }
  }
  return undefined
}

/** A reasoning, and where it stood in its message. */
export interface Placed {
  readonly reasoning: Reasoning
  readonly place: Place
}

const FIRST: Place = { said: 0, calls: 0 }

/**
 * The reasonings of a message: those of other formats whose signatures came back, each in its place, or else the
 * message's own.
 */
export function reasoningsOf(message: Json): Placed[] {
  const details = Array.isArray(message['reasoning_details']) ? message['reasoning_details'] : undefined
  const through = (details ?? []).flatMap(detail => unwrapSignature(text(object(detail)?.['data']) ?? '') ?? [])
  if (through.length > 0)
    return through.flatMap(({ reasoning, place }) => (reasoning ? [{ reasoning, place: place ?? FIRST }] : []))
  return ownReasoning(message).map(reasoning => ({ reasoning, place: FIRST }))
}

/** The message's own reasoning, one at most. The provider needs the name of its member back. */
export function ownReasoning(message: Json): Reasoning[] {
  const details = Array.isArray(message['reasoning_details']) ? message['reasoning_details'] : undefined
  const found = reasoningText(message)
  if (!found && !details) return []
  const signature = { by: 'chat-completions' as const, data: { field: found?.field, ...(details && { details }) } }
  return [{ kind: 'reasoning', text: found?.said ?? '', signature }]
}

/** A reasoning of this format as members of its message. */
export function spelledReasoning({ text: said, signature }: Reasoning): Json {
  const { field, details } = signature?.data ?? {}
  const known = FIELDS.find(name => name === field)
  return { ...(known && { [known]: said }), ...(Array.isArray(details) && { reasoning_details: details }) }
}

/** A reasoning of another format, for the client to send back. */
export function signatureDetail(reasoning: Omit<Reasoning, 'kind'>, index: number, place: Place): Json {
  return { type: 'reasoning.encrypted', data: wrapSignature(reasoning, place), index }
}
