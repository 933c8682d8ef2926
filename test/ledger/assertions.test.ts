import t from 'tap'
import { alarmOnBrokenRules, assertMoney, brokenRules } from '../../core/money/assertions.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { balanceFrom } from '../../core/ledger/reads.ts'

const NOTES = { endpoint: '', model: '', stream: false }
const HOLD = { account: 'key_1', id: '0'.repeat(32), bucket: '1.0' }

t.test('a broken rule about money throws, and names the rule and the amounts', t => {
  t.doesNotThrow(() => assertMoney(true, 'a charge is an amount', () => t.fail('no facts are needed') as never))
  t.throws(() => assertMoney(false, 'a charge is an amount', () => ({ charge: -1n })), {
    message: 'a rule about money is broken: a charge is an amount ({"charge":"-1"})',
  })
  t.throws(() => settlementOf(HOLD, { charge: -1n, kind: 'settle', notes: NOTES }, 0), {
    message: /a charge is an amount/,
  })
  t.throws(() => settlementOf(HOLD, { charge: 1n, kind: 'void', notes: NOTES }, 0), { message: /charges nothing/ })
  t.throws(() => balanceFrom({ granted: '5', balance: '6', held: '-1' }), { message: /what is held is not negative/ })
  t.end()
})

t.test('with an alarm, the work goes on, and the broken rules are counted', t => {
  const before = brokenRules()
  const heard: unknown[] = []
  alarmOnBrokenRules((rule, facts) => heard.push([rule, facts]))
  t.teardown(() => alarmOnBrokenRules(undefined))
  t.match(settlementOf(HOLD, { charge: -1n, kind: 'settle', notes: NOTES }, 0), { charge: '-1' })
  t.match(heard, [['a charge is an amount', { account: 'key_1', charge: -1n }]])
  t.equal(brokenRules(), before + 1)
  t.end()
})
