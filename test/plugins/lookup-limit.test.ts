import t from 'tap'
import lookupLimit from '../../plugins/lookup-limit.ts'
import { drive } from 'tollgate/testing'
import { at, hostWith, keyOf, NOW } from './facts.ts'

t.test('each key may look itself up only so often a minute', async t => {
  let now = NOW
  const exchange = at('/api/v1/key-info')
  const facts = { key: keyOf('famC') }
  const { stage } = await drive(lookupLimit, {
    options: { perMinute: 2 },
    exchange,
    facts,
    host: hostWith({ now: () => now }),
  })
  const ask = (id: string): unknown => stage.request?.({ key: keyOf('famC', { id }) } as never)
  ask('key_1')
  t.throws(() => ask('key_1'), { code: 'rate_limited', retry: true })
  ask('key_2')
  now += 60_000
  t.equal(ask('key_1'), undefined, 'a minute later it may again')
})
