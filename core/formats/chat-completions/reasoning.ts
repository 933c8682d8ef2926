/** Reasoning in chat messages. The format itself has no member for it, but vendors and clients use these two. */
import { present } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Reasoning, Thinking } from '../translate/neutral.ts'
import { wrapSignature, unwrapSignature, type Place } from '../translate/passthrough.ts'
import type { Json } from '../terms.ts'
import { object, positive, text, words } from '../json.ts'

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

const REASONING = new Set(words('effort enabled max_tokens exclude'))
const THINKING = new Set(words('type budget_tokens'))
const KINDS: ReadonlySet<unknown> = new Set(words('enabled adaptive disabled'))

/**
 * How much to reason. Compatible vendors have members of their own for it, by which their clients turn reasoning off as
 * well.
 */
export function thinkingOf(body: Json, dropped: DroppedFields): Thinking | undefined {
  const [reasoning, thinking] = [object(body['reasoning']), object(body['thinking'])]
  const strange = {
    reasoning: !reasoning,
    thinking: !KINDS.has(thinking?.['type']),
    enable_thinking: typeof body['enable_thinking'] !== 'boolean',
  }
  for (const [name, isStrange] of Object.entries(strange))
    if (isStrange && body[name] !== undefined && body[name] !== null) dropped.add(name)
  dropped.within(reasoning, 'reasoning', REASONING)
  dropped.within(thinking, 'thinking', THINKING)
  const effort = text(body['reasoning_effort']) ?? text(reasoning?.['effort'])
  const isOff =
    effort === 'none' ||
    reasoning?.['enabled'] === false ||
    thinking?.['type'] === 'disabled' ||
    body['enable_thinking'] === false
  if (isOff) return { on: false, effort: 'none', shown: true }
  const budget = positive(reasoning?.['max_tokens']) ?? positive(thinking?.['budget_tokens'])
  const isOn =
    reasoning?.['enabled'] === true ||
    thinking?.['type'] === 'enabled' ||
    thinking?.['type'] === 'adaptive' ||
    body['enable_thinking'] === true
  if (effort === undefined && budget === undefined && !isOn) return undefined
  return present({ on: true, effort, budget, shown: reasoning?.['exclude'] !== true })
}
