/** How requests in the messages format ask the model to reason. */
import type { ModelTraits, Request } from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { budgetOf, effortOf, LEAST_EFFORT } from '../translate/tools.ts'

/** A turn as it is written. */
export interface EncodedTurn {
  readonly role: 'user' | 'assistant'
  readonly content: Json[]
}

/** How a request asks the model to reason. */
interface AskedThinking {
  /** Whether the model reasons, as far as the request decides it. */
  readonly on: boolean
  /** The member `thinking`; undefined to leave it to the model. */
  readonly spelled?: Json
  readonly effort?: string
}

/**
 * Returns how to ask the model to reason. Reasoning is off where providers would refuse it: if a tool is forced, if the
 * request begins the reply, and if the history calls tools without the reasoning that led to them. A model whose
 * reasoning cannot be turned off accepts all of these.
 */
export function encodeThinking(
  { thinking, toolChoice }: Request,
  turns: readonly EncodedTurn[],
  maxTokens: number,
  { thinking: how, thinkingOff = true, reasoning }: ModelTraits,
): AskedThinking {
  if (!thinking || reasoning === 'none') return { on: false }
  const off: AskedThinking = thinkingOff ? { on: false, spelled: { type: 'disabled' } } : { on: true }
  const least = how === 'adaptive' && !thinkingOff ? { effort: LEAST_EFFORT } : {}
  if (!thinking.on) return { ...off, ...least }
  const effort = effortOf(thinking)
  const asked =
    how === 'adaptive' && effort !== undefined ? { effort: effort === 'minimal' ? LEAST_EFFORT : effort } : {}
  const forced = toolChoice?.kind === 'any' || toolChoice?.kind === 'tool'
  if (forced || turns.at(-1)?.role === 'assistant' || unexplainedCalls(turns))
    return thinkingOff ? off : { ...off, ...asked }
  const display = thinking.shown ? {} : { display: 'omitted' }
  if (how === 'adaptive') return { on: true, spelled: { type: 'adaptive', ...display }, ...asked }
  const budget = budgetOf(thinking, maxTokens)
  return budget === undefined ? off : { on: true, spelled: { type: 'enabled', budget_tokens: budget, ...display } }
}

/** Whether the running turn, after the user's last message, has calls but does not begin with reasoning. */
function unexplainedCalls(turns: readonly EncodedTurn[]): boolean {
  const asked = turns.findLastIndex(
    ({ role, content }) => role === 'user' && content.some(block => block['type'] !== 'tool_result'),
  )
  const running = turns.slice(asked + 1).filter(({ role }) => role === 'assistant')
  const [first] = running.flatMap(({ content }) => content)
  const calls = running.some(({ content }) => content.some(block => block['type'] === 'tool_use'))
  return calls && first?.['type'] !== 'thinking' && first?.['type'] !== 'redacted_thinking'
}
