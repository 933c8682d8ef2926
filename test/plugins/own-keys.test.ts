import t, { type Test } from 'tap'
import { NANO } from '../../core/money/credits.ts'
import { type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { scene } from '../scene.ts'

/** Customers whose keys have other keys of their balance made, and change these. */

const PATH = '/api/v1/keys'
const CHAT = '/v1/chat/completions'
const ALLOWED: Edit = file => file.set('keyTypes.famC.manages', ['famC', 'famB'])
const body = (model: string) => ({ model, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] })

/** A gateway, and a key that manages others. */
async function managing(t: Test, edit = ALLOWED) {
  const { g } = await scene(t, edit)
  const wish = { type: 'famC', name: 'boss', credits: 10n * NANO, expiresAt: undefined, manage: true }
  const { key, secret } = await g.gateway.keys.changes.create(wish)
  return { g, id: key.id, secret, call: callerOf(g, secret) }
}

function callerOf(g: TestGateway, key: string) {
  return (method: string, path = '', sent?: object) =>
    g.call(`${PATH}${path}`, { key, method, ...(sent && { body: sent }) })
}

t.test(
  'a managing key has a key of its balance made, caps and names it, and disables, enables and deletes it',
  async t => {
    const { g, id, secret, call } = await managing(t)
    const made = await call('POST', '', { name: 'intern', cap: 0.5, type: 'famB', expires_in: '30d' })
    t.match(made, {
      status: 201,
      json: {
        object: 'key',
        key: /^sk-/,
        id: /^key_/,
        name: 'intern',
        type: 'famB',
        cap: 0.5,
        used: 0,
        status: 'active',
      },
    })
    const { key, id: own } = made.json
    t.match(await g.call(CHAT, { key, body: body('acme/famB-4.5') }), { status: 200 })
    await g.settledAll([key, secret])
    const list = await call('GET')
    t.match(list.json, {
      types: ['famC', 'famB'],
      data: [
        { id, manage: true },
        { id: own, manage: false },
      ],
    })
    t.ok(list.json.data[1].used > 0)
    t.notMatch(JSON.stringify(list.json), /sk-\w{20}/, 'a list has no secret')
    t.match(await call('PATCH', `/${own}`, { name: 'Ann', cap: null }), {
      status: 200,
      json: { name: 'Ann', cap: null },
    })
    t.match(await call('PATCH', `/${own}`, { disabled: true }), { json: { status: 'disabled' } })
    t.match(await g.call(CHAT, { key, body: body('acme/famB-4.5') }), { status: 401 })
    t.match(await call('PATCH', `/${own}`, { disabled: false }), { json: { status: 'active' } })
    t.match(await call('GET', `/${own}`), { json: { id: own, name: 'Ann' } })
    t.match(await call('DELETE', `/${own}`), { status: 200, json: { deleted: true } })
    t.match(await call('GET', `/${own}`), { status: 404 })
    t.match(await g.call(CHAT, { key, body: body('acme/famB-4.5') }), { status: 401 })
    const actions = await g.gateway.records.audit.list({ count: 20 })
    t.same(actions.map(({ action }) => action).reverse(), [
      'key.create',
      'key.edit',
      'key.disable',
      'key.enable',
      'key.delete',
    ])
    for (const { actor } of actions) t.equal(actor, `key ${id}`)
    t.match(await g.call('/api/v1/key-info', { key: secret }), { json: { manages_keys: true, balance_id: id } })
  },
)

t.test('what a managing key may not do is refused, and changes nothing', async t => {
  const { g, id, secret, call } = await managing(t, file => ALLOWED(file).stage('own-keys', { perBalance: 3 }))
  const { keys } = g.gateway
  const [other] = await keys.changes.createMany(
    { type: 'famA', name: '', credits: 0n, expiresAt: undefined, account: id },
    1,
  )
  const stranger = await g.id(await g.key('famC'))
  const plain = await g.key('famC')
  const wrong: [string, string, object | undefined, number, RegExp][] = [
    ['POST', '', { type: 'famA' }, 400, /"type" must be one of famC, famB/],
    ['POST', '', { cap: -1 }, 400, /"cap" must be an amount/],
    ['POST', '', { cap: '1e3' }, 400, /"cap" must be an amount/],
    ['POST', '', { expires_in: 'long' }, 400, /expires_in/],
    ['POST', '', { manage: true }, 400, /manage/],
    ['POST', '', { name: 'a\nb' }, 400, /name/],
    ['PATCH', `/${id}`, { disabled: true }, 404, /no such key/i],
    ['PATCH', `/${other?.key.id}`, { disabled: true }, 404, /no such key/i],
    ['PATCH', `/${stranger}`, { disabled: true }, 404, /no such key/i],
    ['DELETE', `/${stranger}`, undefined, 404, /no such key/i],
    ['GET', '/key_none', undefined, 404, /no such key/i],
    ['PATCH', '/key_none', { name: 'x' }, 404, /no such key/i],
    ['PATCH', '/key_none', {}, 400, /body|must/],
  ]
  for (const [method, path, sent, status, words] of wrong) {
    const reply = await call(method, path, sent)
    t.match([reply.status, reply.json.error.message], [status, words], `${method} ${path} ${JSON.stringify(sent)}`)
  }
  t.match(await callerOf(g, plain)('GET'), { status: 403, json: { error: { code: 'forbidden' } } })
  t.match(await callerOf(g, plain)('POST', '', {}), { status: 403 })
  const replies = await Promise.all([1, 2, 3].map(() => call('POST', '', { name: 'x' })))
  t.same(
    replies.map(({ status }) => status).sort(),
    [201, 409, 409],
    'at the same time, too, no more keys than allowed',
  )
  t.match(replies.find(({ status }) => status === 409)?.json.error.message, /at most 3 keys/)
  t.equal((await g.gateway.records.keys.list({ account: id, now: Date.now(), count: 9 })).length, 3)
  await t.rejects(keys.changes.edit(id, { cap: NANO }), /manages others has no cap/)
  const wish = { type: 'famC', name: '', credits: NANO, expiresAt: undefined, manage: true, cap: NANO }
  await t.rejects(keys.changes.create(wish), /manages others has no cap/)
  await keys.changes.disable(id)
  t.match(await callerOf(g, secret)('POST', '', {}), { status: 401 })
})

t.test('a managing key cannot undo what the operator did, and changes only the keys that it has created', async t => {
  const { g, id, call } = await managing(t, file => ALLOWED(file).stage('own-keys', { perBalance: 3 }))
  const { keys, records } = g.gateway
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: id }
  const [other] = await keys.changes.createMany(wish, 1)
  t.match(await call('PATCH', `/${other?.key.id}`, { cap: null }), { status: 404 })
  const own = (await call('POST', '', {})).json.id
  t.match((await call('GET')).json.data, [
    { created_by_this_key: false },
    { created_by_this_key: false },
    { id: own, created_by_this_key: true },
  ])
  t.match(await call('PATCH', `/${own}`, { disabled: true }), { status: 200 })
  t.match(await call('PATCH', `/${own}`, { disabled: false }), { status: 200 })
  await keys.changes.disable(own)
  const entry = { at: Date.now(), actor: 'shop', address: '', action: 'key.disable', target: own, details: {} }
  await records.audit.add(entry)
  t.match(await call('PATCH', `/${own}`, { disabled: false }), {
    status: 409,
    json: { error: { message: /reseller/ } },
  })
  t.match(await call('PATCH', `/${own}`, { name: 'new', disabled: false }), { status: 409 })
  t.match(await records.keys.get(own), { name: '' }, 'a refused change changes nothing')
  t.match(await call('PATCH', `/${own}`, { disabled: true }), { status: 200 })
  t.match(await call('PATCH', `/${own}`, { disabled: false }), { status: 409 }, 'nor after disabling it once more')
  t.match(await call('DELETE', `/${own}`), { status: 200 })
  t.match(await call('POST', '', {}), {
    status: 409,
    json: { error: { message: /created and deleted within a day/ } },
  })
})

t.test('a managing key that is deleted while its request arrives creates nothing', async t => {
  const { g, id, secret } = await managing(t)
  let send = (): void => {}
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(Buffer.from('{'))
      send = () => {
        controller.enqueue(Buffer.from('}'))
        controller.close()
      }
    },
  })
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
  const reply = fetch(`${g.url}${PATH}`, { method: 'POST', headers, body, duplex: 'half' })
  await until(() => g.gateway.running > 0)
  await g.gateway.keys.changes.remove(id)
  send()
  t.equal((await reply).status, 401)
  t.equal((await g.gateway.records.keys.list({ account: id, now: Date.now(), count: 9 })).length, 0)
})

t.test('a key that was created by one that is valid from its first use on ends as well', async t => {
  const { g } = await managing(t)
  const wish = { type: 'famC', name: '', credits: NANO, expiresAt: undefined, manage: true, lifetimeMs: 86_400_000 }
  const { secret } = await g.gateway.keys.changes.create(wish)
  const { json } = await callerOf(g, secret)('POST', '', { expires_in: '3650d' })
  t.ok(Date.parse(json.expires_at) <= Date.now() + 86_400_000, json.expires_at)
})

t.test('a key that was made by another ends with it at the latest', async t => {
  const { g, id, call } = await managing(t)
  const expiresAt = Date.now() + 86_400_000
  await g.gateway.keys.changes.edit(id, { expiresAt })
  const ends = new Date(expiresAt).toISOString()
  t.match(await call('POST', '', { expires_in: '30d' }), { json: { expires_at: ends } })
  t.match(await call('POST', '', {}), { json: { expires_at: ends, name: '', type: 'famC' } })
  await g.gateway.keys.changes.edit(id, { expiresAt: Date.now() - 1 })
  t.match(await call('POST', '', {}), { status: 401 })
  t.match(await call('GET'), { status: 200 }, 'an expired key may still look')
})

t.test('without key types in `manages` no key is made, and changes are limited', async t => {
  const { call } = await managing(t, file => file.stage('own-keys', { perMinute: 1 }))
  t.match(await call('POST', '', {}), { status: 403, json: { error: { message: /allows no new keys/ } } })
  t.match(await call('POST', '', {}), { status: 429 })
})
