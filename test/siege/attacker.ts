/** The attackers of the siege, in a process of their own: it is told which attack to begin, and asked to end it. */
import { setPriority } from 'node:os'
import { ATTACKS, type Answers, type Loot } from './attacks.ts'
import { answering } from './helper.ts'

export type Order = { readonly attack: number; readonly loot: Loot } | 'end'

let running: { readonly over: Promise<void>; readonly stop: AbortController; readonly answers: Answers } | undefined

async function end(): Promise<Answers | undefined> {
  running?.stop.abort()
  await running?.over
  return running?.answers
}

// Attackers have machines of their own: here they get what the gateway and the honest leave.
setPriority(19)
answering((order: Order) => {
  if (order === 'end') return end()
  const stop = new AbortController()
  const answers: Answers = {}
  running = { over: ATTACKS[order.attack]?.run(order.loot, stop.signal, answers) ?? Promise.resolve(), stop, answers }
  return undefined
})
