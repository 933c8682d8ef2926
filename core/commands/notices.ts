/** `tollgate webhooks test`: sends a notice that means nothing, to see whether its receiver gets it. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { onRecords, StoreFailure } from './on-ledger.ts'

/** How long the command waits for the running gateway to send it, and between two looks, in milliseconds. */
const WAIT_MS = 30_000
const LOOK_MS = 200

/** Adds a notice of the type `test`, which a running gateway sends, and prints what became of it. */
export async function testNotices(environment: Environment, config: Config): Promise<void> {
  const { now, newId } = environment
  const at = now()
  const id = `msg_${newId()}`
  const body = JSON.stringify({ type: 'test', timestamp: new Date(at).toISOString(), data: {} })
  const found = await onRecords(environment, config, async ({ notices }) => {
    await notices.add({ id, type: 'test', at, body })
    for (;;) {
      const delivery = await notices.delivery(id)
      if (delivery && delivery.tries > 0) return delivery
      if (now() - at > WAIT_MS) {
        await notices.tried(id, { delivered: false, last: 'the test was given up' })
        return undefined
      }
      await sleep(LOOK_MS)
    }
  })
  if (!found) throw new StoreFailure('no running gateway sends notices: start one whose chain has the stage `webhooks`')
  if (found.state !== 'delivered') throw new StoreFailure(`the test was not delivered: ${found.last}`)
  environment.print(`The test was delivered (${id}).`)
}
