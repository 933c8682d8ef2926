import t from 'tap'
import type { HoldRequest } from '../../core/ledger/hold.ts'
import { Hold } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { runningCharge } from '../../core/metering/charge.ts'
import { RunningHold } from '../../core/metering/running-hold.ts'
import { replied, TERMS } from './billable.ts'

/** The hold of a running reply. */

const LIMIT = 1000

/** A reply without a listener that has been silent, with a hold of an amount. Returns whether it is given up. */
function isGivenUp(amount: bigint): boolean {
  const terms = { ...TERMS, reasoning: 'hidden' as const }
  let givenUp = false
  const x = {
    ...replied(undefined, false, { silentMs: 60_000, elapsedMs: 60_000 }),
    gone: true,
    stop: () => {},
    giveUp: () => (givenUp = true),
  }
  const hold = new Hold({ amount } as HoldRequest, '0', amount, 0n)
  const running = new RunningHold(
    {} as Ledger,
    { keyHold: hold, quotaHolds: [] },
    { charged: terms, held: terms },
    4096,
  )
  running.silent = x as never
  running.tick()
  return givenUp
}

t.test('a reply without a listener is read on as far as its hold goes, and to the end if that covers its limit', t => {
  const terms = { ...TERMS, reasoning: 'hidden' as const }
  const whole = runningCharge(replied(undefined, false), terms, LIMIT)
  t.equal(isGivenUp(whole), false)
  t.equal(isGivenUp(whole - 1n), true)
  t.end()
})
