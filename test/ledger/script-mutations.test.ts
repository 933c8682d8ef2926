import t from 'tap'
import { scriptSource } from '../../core/ledger/script/scripts.ts'
import { simulatedClock } from './plan-simulation.ts'
import { RULES } from './script-mutations.ts'

t.test('each rule that is broken on purpose stands in the script once', t => {
  const script = scriptSource()
  for (const { rule, text, instead } of [...Object.values(RULES).flat(), simulatedClock('clock')]) {
    t.equal(script.split(text).length - 1, 1, `${rule}: ${text}`)
    t.not(
      script.replace(text, () => instead),
      script,
      `${rule} is broken`,
    )
  }
  t.end()
})
