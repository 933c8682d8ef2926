/** Pairs tool calls with their results. */
import type { DroppedFields } from './dropped-fields.ts'
import type { Call, Item } from './neutral.ts'
import { ownId, type Taken } from './passthrough.ts'

type Result = Extract<Item, { kind: 'result' }>

/**
 * A conversation in which every call has exactly one result, every result has its call, and no two calls share an id.
 * Providers refuse anything else. Results come directly after the calls of their turn. Reasoning that leads to nothing
 * is dropped.
 */
export function pairToolResults(items: readonly Item[], dropped: DroppedFields): Item[] {
  return led(inTurns(items, answersTo(items, dropped), dropped), dropped)
}

/**
 * The result of each call, with an id of its own. A result belongs to the first call with its id that has none. A call
 * from before the user's last message no longer waits when its id is used again.
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

/** Each call in its place and, after the calls of a turn, their results. */
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
  /** Results came: what the model does next is a new step. */
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

/** The items without reasoning that nothing follows in its turn. */
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
