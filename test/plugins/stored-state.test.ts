import t from 'tap'
import storedState from '../../plugins/stored-state.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, event, hostWith, keyOf, modelOf, RESPONSES, routeOf } from './facts.ts'

const ask = (value: object, sizes: unknown[], events: unknown[] = [], noted: unknown[] = [], more: object = {}) => {
  const storedObjects = {
    sizes: () => Promise.resolve(sizes),
    note: (_account: string, what: unknown) => Promise.resolve(noted.push(what)),
  }
  const facts = {
    key: keyOf('famC'),
    body: bodyFrom({ input: 'a', ...value }),
    route: routeOf('famC', RESPONSES),
    model: modelOf('famC', 'acme/famC-5.5'),
    ...more,
  }
  return drive(storedState, {
    exchange: at(RESPONSES),
    facts,
    events: events.map(json => event(RESPONSES, json)),
    host: hostWith({ ledger: { storedObjects } }),
  })
}

t.test('a request without references holds nothing more', async t => {
  t.match((await ask({}, [])).given, { stored: { tokens: 0 } })
})

t.test('a reply that the key created counts with its size; a reply of another key is refused', async t => {
  const value = { previous_response_id: 'resp_1' }
  t.match((await ask(value, [{ reply: 'resp_1', tokens: 70 }])).given, { stored: { tokens: 70 } })
  t.match((await ask(value, [undefined])).thrown, { code: 'invalid_body', message: /this key did not create/ })
})

t.test('the size of a stored reply is recorded, unless the request forbids storing', async t => {
  const reply = {
    id: 'resp_2',
    object: 'response',
    status: 'completed',
    output: [],
    usage: { input_tokens: 3, output_tokens: 4 },
  }
  const noted: unknown[] = []
  await ask({}, [], [reply], noted)
  await ask({ store: false }, [], [reply], noted)
  t.match(noted, [{ reply: 'resp_2', total: 7, likely: 7, output: 4, at: 'famC/1' }])
})

t.test('the input of a reply whose tools ran is the sum of its passes, of which the last is stored', async t => {
  const usage = { input_tokens: 990_000, output_tokens: 4 }
  const noted: unknown[] = []
  const reply = { id: 'resp_3', object: 'response', status: 'completed', output: [], usage }
  await ask({}, [], [reply], noted, { tally: { passes: 10 } })
  t.match(noted, [{ total: 990_004, likely: 198_004, output: 4 }])
  const value = { previous_response_id: 'resp_3' }
  const size = { reply: 'resp_3', tokens: 990_004, likely: 198_004 }
  t.match((await ask(value, [size])).given, { stored: { tokens: 990_004, likely: 198_004 } })
})
