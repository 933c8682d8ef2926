/** Calls and their results. */
import type { DroppedFields } from './dropped-fields.ts'
import type { Call, Item } from './neutral.ts'
import { ownId, type Taken } from './passthrough.ts'

type Result = Extract<Item, { kind: 'result' }>

/**
 * A conversation in which every call is answered and every answer has its call, once, and no id stands for two calls:
 * providers refuse all else. An answer comes directly after the calls of its turn; reasoning that led to nothing is no
 * reasoning.
 */
export function pairToolResults(items: readonly Item[], dropped: DroppedFields): Item[] {
  return led(inTurns(items, answersTo(items, dropped), dropped), dropped)
}

/**
 * The answer to each call, under an id that is its own. An answer belongs to the first call of its id that waits for one;
 * a call from before the user spoke again waits no longer once its id is used anew.
 */
function answersTo(items: readonly Item[], dropped: DroppedFields): Map<Item, { call: Call; result: Result }> {
  const answers = new Map<Item, { call: Call; result: Result }>()
  const waiting = new Map<string, { turn: number; calls: Call[] }>()
  const taken: Taken = new Map()
  let turn = 0
  for (const item of items) {
    if (item.kind === 'message' && item.role === 'user') turn++
    if (item.kind === 'call') {
      const open = waiting.get(item.id)
      if (open?.turn === turn) open.calls.push(item)
      else waiting.set(item.id, { turn, calls: [item] })
    } else if (item.kind === 'result') {
      const call = waiting.get(item.id)?.calls.shift()
      if (!call) {
        dropped.add('tool_result')
        continue
      }
      const id = ownId(item.id, taken)
      answers.set(call, { call: { ...call, id }, result: { ...item, id } })
    }
  }
  return answers
}

/** Each call in its place and, behind the calls of a turn, their answers. */
function inTurns(
  items: readonly Item[],
  answers: ReadonlyMap<Item, { call: Call; result: Result }>,
  dropped: DroppedFields,
): Item[] {
  const result: Item[] = []
  let due: Item[] = []
  const answer = (): void => {
    for (const each of due) result.push(each)
    due = []
  }
  /** Results have come: what the model does next it does knowing them. */
  let known = false
  for (const item of items) {
    if (item.kind === 'result') {
      known = true
      continue
    }
    if (known || item.kind === 'message') answer()
    known = false
    if (item.kind !== 'call') {
      result.push(item)
      continue
    }
    const answered = answers.get(item)
    if (!answered) {
      dropped.add('tool_call')
      continue
    }
    result.push(answered.call)
    due.push(answered.result)
  }
  answer()
  return result
}

/** Without reasoning that nothing follows in its turn. */
function led(items: readonly Item[], dropped: DroppedFields): Item[] {
  const result: Item[] = []
  let follows = false
  for (const item of items.toReversed()) {
    if (item.kind === 'reasoning' && !follows) {
      dropped.add('reasoning')
      continue
    }
    follows =
      item.kind === 'reasoning' || item.kind === 'call' || (item.kind === 'message' && item.role === 'assistant')
    result.push(item)
  }
  return result.reverse()
}
