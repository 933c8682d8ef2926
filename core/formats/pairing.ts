/** Calls and their results. */
import type { Losses } from './losses.ts'
import type { Item } from './neutral.ts'

/**
 * A conversation in which every call is answered and every answer has its call, once: providers refuse all else. An
 * answer comes directly after the calls of its turn.
 */
export function paired(items: readonly Item[], losses: Losses): Item[] {
  const answers = new Map<string, Item>()
  const called = new Set<string>()
  for (const item of items) {
    if (item.kind === 'call') called.add(item.id)
    if (item.kind !== 'result') continue
    if (called.has(item.id) && !answers.has(item.id)) answers.set(item.id, item)
    else losses.add('tool_result')
  }
  const result: Item[] = []
  let due: Item[] = []
  let made = new Set<string>()
  for (const item of items) {
    if (item.kind === 'result') continue
    const ofTurn = item.kind === 'call' || item.kind === 'reasoning' || (item.kind === 'message' && item.role === 'assistant')
    if (!ofTurn || (due.length > 0 && item.kind !== 'call')) {
      result.push(...due)
      due = []
    }
    if (item.kind !== 'call') result.push(item)
    else if (answers.has(item.id) && !made.has(item.id)) {
      result.push(item)
      due.push(answers.get(item.id) as Item)
      made.add(item.id)
    } else losses.add('tool_call')
  }
  return [...result, ...due]
}
