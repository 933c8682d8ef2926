import t from 'tap'
import { scriptSource } from '../../core/ledger/script/scripts.ts'
import { simulatedClock } from './plan-simulation.ts'
import { PLANS, QUOTAS, SHARED } from './script-mutations.ts'

t.test('each rule that is broken on purpose stands in the script once', t => {
  const script = scriptSource()
  for (const [rule, part, instead] of [...SHARED, ...QUOTAS, ...PLANS, simulatedClock('clock')]) {
    t.equal(script.split(part).length - 1, 1, `${rule}: ${part}`)
    t.not(
      script.replace(part, () => instead),
      script,
      `${rule} is broken`,
    )
  }
  t.end()
})
