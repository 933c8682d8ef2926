import t from 'tap'
import countTokens from '../../plugins/count-tokens.ts'
import type { Reply } from 'tollgate/plugin'
import { drive, type Driven } from 'tollgate/testing'
import { at, bodyFrom, format, headOf, hostWith, keyOf, MESSAGES, RESPONSES, routeOf } from './facts.ts'

const COUNT = '/v1/messages/count_tokens'
const body = bodyFrom({ model: 'm', messages: [{ role: 'user', content: 'Hello, world' }] })

function ask(upstream: string, options = {}): Promise<Driven> {
  const exchange = at(COUNT, { format: format(MESSAGES) })
  const facts = { key: keyOf('famA'), secret: 'sk-a', body, route: routeOf('famA', upstream) }
  return drive(countTokens, { options, exchange, facts, host: hostWith({ keys: { usable: () => Promise.resolve() } }) })
}

t.test('an upstream of the same format counts; for another one the text is estimated', async t => {
  t.equal((await ask(MESSAGES)).given, undefined)
  const { input_tokens: tokens } = JSON.parse(String(((await ask(RESPONSES)).given as Reply).body))
  t.ok(tokens > 3 && tokens < 20, String(tokens))
})

t.test('an upstream that cannot count is replaced by the estimate, and a failure is not', async t => {
  const { stage } = await ask(MESSAGES)
  for (const status of [404, 405, 501])
    t.match(
      String((await stage.response?.({ body, format: format(MESSAGES) } as never, headOf({ status })))?.body),
      'input_tokens',
    )
  for (const status of [200, 400, 500]) t.equal(stage.response?.({ body } as never, headOf({ status })), undefined)
})

t.test('a key may count tokens only so often a minute', async t => {
  const { stage } = await ask(MESSAGES, { perMinute: 2 })
  const x = { key: keyOf('famA'), secret: 'sk-a', body, route: routeOf('famA', MESSAGES), format: format(MESSAGES) }
  await stage.request?.(x as never)
  await t.rejects(
    Promise.resolve().then(() => stage.request?.(x as never)),
    { code: 'rate_limited' },
  )
})
