import t from 'tap'
import sseTap from '../../plugins/sse-tap.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, CHAT, event, modelOf, routeOf } from './facts.ts'

const tap = (value: object, json: unknown[]) => {
  const body = bodyFrom({ messages: [], ...value })
  const facts = { body, model: modelOf('famC', 'acme/famC-5.5'), route: routeOf('famC', CHAT) }
  const driven = drive(sseTap, { exchange: at(CHAT), facts, events: json.map(part => event(CHAT, part)) })
  return driven.then(({ given }) => ({ body, tally: (given as any).tally }))
}

t.test('a stream is asked for its usage, which is hidden from a client that did not ask', async t => {
  const { body, tally } = await tap({ stream: true }, [])
  t.same(body.get('stream_options'), { include_usage: true })
  t.ok(tally.hide)
  t.notOk((await tap({ stream: true, stream_options: { include_usage: true } }, [])).tally.hide)
})

t.test('usage, model and failure are read from the reply', async t => {
  const usage = { prompt_tokens: 10, completion_tokens: 5 }
  const { tally } = await tap({}, [{ model: 'm', choices: [{ index: 0, finish_reason: 'stop' }], usage }])
  t.equal(tally.model, 'm')
  t.match(tally.usage(), { usage: { input: 10, output: 5 } })
  t.match((await tap({}, [{ error: { message: 'no', type: 'server_error' } }])).tally.failure, { message: 'no' })
})
