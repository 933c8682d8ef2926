/** Reasoning in chat messages. The format has no member for it; vendors and clients agree on these two all the same. */
import type { Reasoning } from '../translate/neutral.ts'
import { wrapSignature, unwrapSignature, type Place } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** The members that carry reasoning's text, by vendor. */
const FIELDS = ['reasoning_content', 'reasoning'] as const

/** The text of reasoning in a message or a delta, and the member it stood in. */
export function reasoningText(message: Json): { field: string; said: string } | undefined {
  for (const field of FIELDS) {
    const said = text(message[field])
    if (said) return { field, said }
  }
  return undefined
}

/** A reasoning and where in its message it stood. */
export interface Placed {
  readonly reasoning: Reasoning
  readonly place: Place
}

const FIRST: Place = { said: 0, calls: 0 }

/**
 * The reasonings of a message: those another format's signatures have come through with, each whole and in its place, or else
 * the message's own, of which its maker needs to know what it was called.
 */
export function reasoningsOf(message: Json): Placed[] {
  const details = Array.isArray(message['reasoning_details']) ? message['reasoning_details'] : undefined
  const through = (details ?? []).flatMap(detail => unwrapSignature(text(object(detail)?.['data']) ?? '') ?? [])
  if (through.length > 0)
    return through.flatMap(({ reasoning, place }) => (reasoning ? [{ reasoning, place: place ?? FIRST }] : []))
  return ownReasoning(message).map(reasoning => ({ reasoning, place: FIRST }))
}

/** A message's own reasoning, one at most. */
export function ownReasoning(message: Json): Reasoning[] {
  const details = Array.isArray(message['reasoning_details']) ? message['reasoning_details'] : undefined
  const found = reasoningText(message)
  if (!found && !details) return []
  const signature = { by: 'chat-completions' as const, data: { field: found?.field, ...(details && { details }) } }
  return [{ kind: 'reasoning', text: found?.said ?? '', signature }]
}

/** Reasoning of this format's own, as members of the message that it belongs to. */
export function spelledReasoning({ text: said, signature }: Reasoning): Json {
  const { field, details } = signature?.data ?? {}
  const known = FIELDS.find(name => name === field)
  return { ...(known && { [known]: said }), ...(Array.isArray(details) && { reasoning_details: details }) }
}

/** A reasoning from another format, for a client to bring back. */
export function signatureDetail(reasoning: Omit<Reasoning, 'kind'>, index: number, place: Place): Json {
  return { type: 'reasoning.encrypted', data: wrapSignature(reasoning, place), index }
}
