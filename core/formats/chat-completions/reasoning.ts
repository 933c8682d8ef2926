/** Reasoning in chat messages. The format has no member for it; vendors and clients agree on these two all the same. */
import type { Reasoning } from '../neutral.ts'
import { sealed, unsealed } from '../opaque.ts'
import { type Json, object, text } from '../reading.ts'

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

/** The reasoning of a message; what its maker needs to know it again is what it was called. */
export function reasoningOf(message: Json): Reasoning | undefined {
  const details = Array.isArray(message['reasoning_details']) ? message['reasoning_details'] : undefined
  const found = reasoningText(message)
  const carried = details?.map(detail => unsealed(text(object(detail)?.['data']) ?? '')).find(seal => seal !== undefined)
  if (!found && !details) return undefined
  const own = { by: 'chat-completions' as const, data: { field: found?.field, ...(details && { details }) } }
  const seal = carried ? carried.seal : own
  return { kind: 'reasoning', text: found?.said ?? '', ...(seal && { seal }) }
}

/** Reasoning of this format's own, as members of the message that it belongs to. */
export function spelledReasoning({ text: said, seal }: Reasoning): Json {
  const { field, details } = seal?.data ?? {}
  return { ...(typeof field === 'string' && { [field]: said }), ...(details !== undefined && { reasoning_details: details }) }
}

/** The seal of reasoning from another format, for a client to bring back. */
export function sealDetails({ seal }: Pick<Reasoning, 'seal'>): Json {
  return seal ? { reasoning_details: [{ type: 'reasoning.encrypted', data: sealed(seal), index: 0 }] } : {}
}
