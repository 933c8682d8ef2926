/** The attackers of the siege, in a process of their own. The siege tells it when to begin and end an attack. */
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

// Attackers have machines of their own. Here they get the CPU time that the gateway and the honest customers leave.
setPriority(19)
answering((order: Order) => {
  if (order === 'end') return end()
  const stop = new AbortController()
  const answers: Answers = {}
  running = { over: ATTACKS[order.attack]?.run(order.loot, stop.signal, answers) ?? Promise.resolve(), stop, answers }
  return undefined
})
