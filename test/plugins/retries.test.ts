import t from 'tap'
import retries from '../../plugins/retries.ts'
import { drive, type Driven } from 'tollgate/testing'
import { at, bodyFrom, CHAT, hostWith, keyOf } from './facts.ts'

function ask(headers: object, claims: object = {}): Promise<Driven> {
  const clientRequests = {
    begin: () => {},
    drop: () => {},
    named: () => undefined,
    ending: () => false,
    abandoned: () => undefined,
  }
  const exchange = { ...at(CHAT, { headers: headers as never }), outlet: { keep: () => {} } }
  const facts = { key: keyOf('famC'), secret: 'sk-a', body: bodyFrom({ messages: [] }) }
  return drive(retries, { exchange, facts, host: hostWith({ ledger: { claims }, keys: {}, clientRequests }) } as never)
}

t.test('a request without an idempotency key and without a retry count passes unchanged', async t => {
  t.equal((await ask({})).given, undefined)
})

t.test('an idempotency-key that is empty or too long is refused', async t => {
  for (const name of ['', 'x'.repeat(256)])
    t.match((await ask({ 'idempotency-key': name })).thrown, { code: 'invalid_body', message: /1 to 255 characters/ })
})

t.test('an idempotency key that another process uses is a conflict, or an error if the body differs', async t => {
  let digest = ''
  const claim = (_account: string, _name: string, value: string) => {
    digest = value
    return Promise.resolve(value)
  }
  t.match((await ask({ 'idempotency-key': 'a' }, { claim })).thrown, { code: 'request_conflict' })
  t.not(digest, '')
  const other = { claim: () => Promise.resolve('other') }
  t.match((await ask({ 'idempotency-key': 'a' }, other)).thrown, { code: 'invalid_body', message: /Use a new key/ })
})
