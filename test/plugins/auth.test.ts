import t from 'tap'
import auth from '../../plugins/auth.ts'
import { drive, type Driven } from 'tollgate/testing'
import { at, CHAT, hostWith, keyOf, NOW } from './facts.ts'

const SECRET = 'sk-secret'

function ask(headers: object, key: unknown, path = CHAT, fresh: unknown = key): Promise<Driven> {
  const keys = { find: () => key, findRecent: () => key, refind: () => Promise.resolve(fresh) }
  const host = hostWith({ keys, clientRequests: { mayJoin: () => false } })
  return drive(auth, { exchange: at(path, { headers: headers as never }), host })
}

t.test('the key is found in either header, and given with its secret', async t => {
  const key = keyOf('famC')
  t.same((await ask({ authorization: `Bearer ${SECRET}` }, key)).given, { key, secret: SECRET })
  t.same((await ask({ 'x-api-key': SECRET }, key)).given, { key, secret: SECRET })
})

t.test('a request without a key, with another word, or with an unknown key is refused', async t => {
  t.match((await ask({}, undefined)).thrown, { code: 'missing_key' })
  t.match((await ask({ 'x-api-key': 'word' }, keyOf('famC'))).thrown, { code: 'invalid_key' })
  t.match((await ask({ 'x-api-key': SECRET }, undefined)).thrown, { code: 'invalid_key' })
  t.match((await ask({ 'x-api-key': SECRET }, keyOf('gone'))).thrown, { code: 'key_disabled' })
  t.match((await ask({ 'x-api-key': SECRET }, keyOf('famC', { status: 'disabled' }))).thrown, { code: 'key_disabled' })
})

t.test('an expired or exhausted key may look up its balance and may not buy', async t => {
  for (const [key, code] of [
    [keyOf('famC', { expiresAt: NOW }), 'key_expired'],
    [keyOf('famC', { balance: 1n }), 'allocation_exhausted'],
  ] as const) {
    t.match((await ask({ 'x-api-key': SECRET }, key)).thrown, { code })
    t.match((await ask({ 'x-api-key': SECRET }, key, '/api/v1/key-info')).given, { key })
  }
})

t.test('a cached key that cannot buy is read again before it is refused', async t => {
  const toppedUp = keyOf('famC')
  t.match((await ask({ 'x-api-key': SECRET }, keyOf('famC', { balance: 0n }), CHAT, toppedUp)).given, { key: toppedUp })
})
