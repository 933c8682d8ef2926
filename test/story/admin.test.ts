import { readFileSync } from 'node:fs'
import t from 'tap'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { TestGateway } from '../gateway.ts'
import { type Edit, edited } from '../gateway-file.ts'
import { operate } from '../admin.ts'

/** The admin API: what operators and shops do, what is refused, and what a repeated request changes. */

t.test('a shop makes a batch of keys, and each key buys at once', async t => {
  const { gateway, api } = await operate(t)
  const { status, json } = await api('POST', '/keys', {
    type: 'famC',
    credits: '2.5',
    count: 3,
    batch: 'summer',
    label: 'Summer offer',
  })
  t.equal(status, 201)
  t.equal(json.keys.length, 3)
  t.match(json.keys[0], {
    key: /^sk-\w{48}$/,
    label: 'Summer offer',
    batch: 'summer',
    credits: '2.5',
    expires_at: null,
  })
  for (const { key } of json.keys) {
    const reply = await gateway.call('/v1/chat/completions', {
      key,
      body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 20 },
    })
    t.equal(reply.status, 200)
  }
  const list = await api('GET', '/keys?batch=summer')
  t.equal(list.json.data.length, 3)
  t.notMatch(list.text, /"sk-\w{20}/, 'a list has no secret')
  const totals = await api('GET', '/keys/totals?batch=summer')
  t.match(totals.json, { keys: 3, granted: '7.5' })
})

t.test('every reply is what the OpenAPI says, and every operation is called here', async t => {
  const office = await operate(t)
  const { gateway, api } = office
  const { json: openapi } = await api('GET', '/openapi.json')
  t.equal(openapi.openapi, '3.1.0')
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  ajv.addSchema({ $id: 'api', ...openapi })
  const called = new Set<string>()
  const checked = async (method: string, path: string, body?: unknown, headers?: Record<string, string>) => {
    const bare = path.replace(/\?.*/, '')
    const template = Object.keys(openapi.paths).find(
      each =>
        openapi.paths[each][method.toLowerCase()] && new RegExp(`^${each.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(bare),
    )
    t.ok(template, `${method} ${path} is described`)
    const reply = await api(method, path, body, headers)
    called.add(`${method} ${template}`)
    const pointer = (...names: string[]) =>
      names.map(name => name.replaceAll('~', '~0').replaceAll('/', '~1')).join('/')
    const responses = openapi.paths[template ?? ''][method.toLowerCase()].responses
    const told = responses[reply.status] ? String(reply.status) : 'default'
    if (told === 'default') t.fail(`${method} ${path} answered ${reply.status}: ${reply.text}`)
    if (reply.text === '' || !responses[told].content['application/json']) return reply
    const ref = `api#/${pointer('paths', template ?? '', method.toLowerCase(), 'responses', told, 'content', 'application/json', 'schema')}`
    const valid = ajv.compile({ $ref: encodeURI(ref).replaceAll('%23', '#') })
    t.ok(valid(reply.json), `${method} ${path}: ${JSON.stringify(valid.errors)} ${reply.text.slice(0, 300)}`)
    return reply
  }
  const made = await checked('POST', '/keys', { type: 'famC', credits: 5, name: 'Ann', expires_at: '2100-01-01' })
  const [{ id, key }] = made.json.keys
  await gateway.call('/v1/chat/completions', {
    key,
    body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 20 },
  })
  await gateway.call('/v1/chat/completions', { key, body: { model: 'none', messages: [] } })
  await gateway.settled(key)
  await gateway.gateway.ledger.background.archiveAll()
  await checked('GET', '/keys?search=ann&type=famC&status=active&sort=-balance&limit=10')
  await checked('GET', '/keys/totals?type=famC')
  await checked('POST', '/keys/find', { key })
  await checked('GET', `/keys/${id}`)
  await checked('PATCH', `/keys/${id}`, { name: 'Anna', label: 'mine', expires_at: null })
  await checked('POST', `/keys/${id}/topup`, { credits: '1.5' })
  await checked('POST', `/keys/${id}/deduct`, { credits: '0.5', reason: 'given by mistake' })
  const grants = await checked('GET', `/keys/${id}/grants`)
  t.match(grants.json.data, [{ credits: '5' }, { credits: '1.5' }, { credits: '-0.5', note: 'given by mistake' }])
  await checked('POST', `/keys/${id}/disable`)
  await checked('POST', `/keys/${id}/enable`)
  await checked('POST', `/keys/${id}/rotate`)
  const days = await checked('GET', `/keys/${id}/usage`)
  t.match(days.json.data, [{ requests: 2, models: [{ model: 'acme/famC-5.5', requests: 1 }] }])
  t.match((await checked('GET', `/keys/${id}/history`)).json.data, [
    { key: id, upstream: /famC/, address: '127.0.0.1' },
  ])
  t.match((await checked('GET', `/history?account=famC/1&limit=5`)).json.data, [{ key: id }])
  const [{ id: request }] = (await checked('GET', `/keys/${id}/history`)).json.data
  t.match((await checked('GET', `/requests/${request}`)).json, { key: id, who: null, sentences: [/^The request /] })
  t.match((await checked('POST', `/entries/${request}/refund`, { reason: 'slow' })).json, {
    key: id,
    refunded: /^0\.0/,
  })
  t.match((await checked('POST', `/entries/${request}/refund`, { reason: 'slow' })).json, { refunded: '0' }, 'once')
  t.match((await checked('GET', `/failures?key=${id}`)).json.data, [{ who: 'client', code: 'model_not_found' }])
  t.match((await checked('GET', `/keys/${id}/statement`)).json.data, [{ type: 'refund' }])
  await checked('GET', '/usage?by=key')
  await checked('GET', '/overview')
  t.match((await checked('GET', '/overview/trend')).json, { days: [{ requests: 2 }], running_out: [], unread: [] })
  await checked('GET', '/key-types')
  await checked('GET', '/config')
  const codes = await checked('POST', '/codes', { kind: 'key', type: 'famC', credits: '3', key_days: 30, count: 2 })
  t.match(codes.json.codes[0], { code: /^TG(?:-[0-9A-Z]{5}){5}$/, status: 'unused', key_days: 30 })
  await checked('GET', '/codes?status=unused')
  const [{ hint }] = codes.json.codes
  t.match((await checked('GET', `/codes?search=${hint.slice(-4)}`)).json.data, [{ hint }])
  await checked('POST', `/codes/${codes.json.codes[0].id}/cancel`)
  await checked('POST', '/codes', { kind: 'credits', credits: '3', batch: 'b' })
  t.match((await checked('POST', '/codes/cancel', { batch: 'b' })).json, { cancelled: 1 })
  const accounts = await checked('GET', '/accounts')
  const [{ account }] = accounts.json.data
  await checked('POST', `/accounts/${account}/disable`)
  t.match((await checked('POST', `/accounts/${account}/enable`)).json, { account, health: 'ok' })
  await checked('POST', `/accounts/${account}/reset`)
  t.match((await checked('POST', `/accounts/${account}/test`)).json, { account, failure: null, simulated: true })
  const token = await checked('POST', '/tokens', { name: 'shop', scope: 'keys' })
  await checked('GET', '/tokens')
  await checked('DELETE', `/tokens/${token.json.id}`)
  const shop = { name: 'Ann', external_id: 'customer 7', credits: '4', metadata: { plan: 'team' } }
  const { id: balance } = (await checked('POST', '/balances', shop)).json
  const member = await checked('POST', '/keys', { type: 'famC', balance_id: balance, cap: '1.5', name: 'Bob' })
  t.match(member.json.keys, [{ balance_id: balance, credits: '0' }])
  t.match((await checked('GET', '/balances?external_id=customer+7')).json.data, [
    { id: balance, keys: 1, balance: '4' },
  ])
  t.match((await checked('GET', '/balances?search=bob&limit=1')).json.data, [
    { id: balance, metadata: { plan: 'team' } },
  ])
  t.match((await checked('PATCH', `/balances/${balance}`, { external_id: '' })).json, { external_id: '', name: 'Ann' })
  t.match((await checked('POST', `/balances/${balance}/topup`, { credits: 2 })).json, { balance: '6', credited: '2' })
  await checked('POST', `/balances/${balance}/deduct`, { credits: 1, reason: 'x' })
  const plan = { windows: [{ requests: 5, per: 'day' }], until: '30d' }
  t.match((await checked('POST', `/balances/${balance}/plan`, { plan })).json, { plan: { valid: true } })
  for (const [change, body] of [
    ['extend', {}],
    ['reset', { window: 1, reason: 'x' }],
    ['add', { window: 1, amount: 2, reason: 'x' }],
    ['end', { reason: 'x' }],
  ] as const)
    t.match((await checked('POST', `/balances/${balance}/plan/${change}`, body)).json, { id: balance, plan: {} })
  t.match((await checked('GET', `/balances/${balance}/grants`)).json.data, [
    { credits: '4' },
    {},
    { credits: '-1' },
    { reason: 'plan set' },
    {},
    {},
    {},
    {},
  ])
  t.match((await checked('POST', `/keys/${id}/move`, { balance_id: balance })).json, {
    balance_id: balance,
    balance: '5',
  })
  t.match((await checked('GET', `/balances/${balance}/keys`)).json.data, [{ id }, { name: 'Bob', cap: '1.5' }])
  t.match((await checked('GET', `/balances/${id}`)).json, { id, keys: 0 }, 'the balance that the key has left')
  t.match((await checked('GET', `/balances/${id}/history`)).json.data, [{ key: id }])
  await checked('GET', `/balances/${id}/usage`)
  t.match((await checked('GET', `/balances/${id}/statement`)).json.data, [{ type: 'refund' }])
  await checked('POST', `/keys/${id}/move`, { balance_id: id })
  const imported = { keys: [{ secret: `sk-old${'x'.repeat(20)}`, credits: '1' }], type: 'famC' }
  t.match((await checked('POST', '/keys/import', imported)).json, { imported: 1, refused: [] })
  await checked('DELETE', `/keys/${id}`)
  t.match((await checked('GET', `/keys/${id}/history`)).json.data, [{ key: id }], 'the history of a deleted key stays')
  const audit = await checked('GET', '/audit?limit=500')
  t.match(
    new Set(audit.json.data.map((entry: any) => entry.action)),
    new Set(
      ['create', 'edit', 'topup', 'deduct', 'disable', 'enable', 'rotate', 'delete']
        .map(each => `key.${each}`)
        .concat([
          'codes.create',
          'codes.cancel',
          'account.disable',
          'account.enable',
          'account.reset',
          'account.test',
          'key.refund',
        ])
        .concat(['token.create', 'token.revoke', 'key.move', 'key.import'])
        .concat(['create', 'edit', 'topup', 'deduct'].map(each => `balance.${each}`))
        .concat(['set', 'extend', 'reset', 'add', 'end'].map(each => `plan.${each}`)),
    ),
    'every change has a line',
  )
  t.notMatch(audit.text, /sk-\w{20}|tga-\w{20}|TG-\w{5}-/, 'the audit log has no secret')
  await checked('GET', '/openapi.json')
  const session = await office.signIn()
  t.equal(session.status, 200)
  called.add('POST /session')
  await checked('GET', '/session', undefined, session.headers)
  await checked('DELETE', '/session', undefined, session.headers)
  const all = Object.entries<object>(openapi.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path}`),
  )
  t.same(all.filter(name => !called.has(name)).sort(), ['GET /overview/stream'], 'which has a test of its own')
})

t.test('a repeated request with the same idempotency key changes nothing and gets the same secrets', async t => {
  const { api, gateway } = await operate(t)
  const twice = async (path: string, body: object, more: object | undefined) => {
    const headers = { 'idempotency-key': `k${Math.random()}` }
    const replies = await Promise.all([1, 2, 3].map(() => api('POST', path, body, headers)))
    replies.push(await api('POST', path, body, headers))
    for (const reply of replies) t.same(reply.json, replies[0]?.json, path)
    t.equal(replies.filter(({ headers }) => headers.get('idempotent-replayed') === 'true').length, 3)
    const other = more && (await api('POST', path, { ...body, ...more }, headers))
    if (other) t.match([other.status, other.json.error.code], [409, 'request_conflict'])
    const [name] = Object.keys(more ?? {})
    if (other) t.match(other.json.error.message, `was used for another request: "${name}" differs.`)
    return replies[0]?.json
  }
  const { keys } = await twice('/keys', { type: 'famC', credits: 5, count: 4 }, { count: 5 })
  t.equal(new Set(keys.map((each: any) => each.key)).size, 4)
  t.equal((await api('GET', '/keys')).json.data.length, 4, 'four keys were made, not sixteen')
  t.equal((await gateway.balance(keys[3].key))['balance'], 5)
  const [{ id }] = keys
  t.match(await twice(`/keys/${id}/topup`, { credits: 1 }, { credits: 2 }), { balance: '6', credited: '1' })
  t.match(await twice(`/keys/${id}/deduct`, { credits: 2, reason: 'x' }, { credits: 3 }), { balance: '4' })
  const [lasting] = (await twice('/keys', { type: 'famC', credits: 1, expires_in: '30d' }, { expires_in: '31d' })).keys
  const expiry = Date.parse(lasting.expires_at)
  const more = { credits: 1, extend_by: '30d' }
  const extended = await twice(`/keys/${lasting.id}/topup`, more, { extend_by: '60d' })
  t.match(extended, { balance: '2', expires_at: new Date(expiry + 30 * 86_400_000).toISOString() })
  t.match(await gateway.call('/api/v1/key-info', { key: lasting.key }), { json: { expires_at: extended.expires_at } })
  const { key } = await twice(`/keys/${id}/rotate`, {}, undefined)
  t.equal((await gateway.balance(key))['balance'], 4, 'the new secret works')
  t.equal((await twice('/codes', { kind: 'credits', credits: 1, count: 3 }, { count: 1 })).codes.length, 3)
  t.match(await twice('/tokens', { name: 'a', scope: 'read' }, { scope: 'all' }), { token: /^tga-/ })
  t.equal((await api('GET', '/tokens')).json.data.length, 2)
})

t.test('what is wrong is refused by name, and nothing is changed', async t => {
  const { api } = await operate(t)
  const { json } = await api('POST', '/keys', { type: 'famC', credits: 5 })
  const [{ id, key }] = json.keys
  const wrong: [string, string, unknown, number, RegExp][] = [
    ['POST', '/keys', { type: 'famX', credits: 1 }, 400, /no key type "famX"/],
    ['POST', '/keys', { type: 'famC' }, 400, /Send either "credits" or "balance_id"/],
    ['POST', '/keys', { type: 'famC', credits: -1 }, 400, /"credits" must be an amount of credits above zero/],
    ['POST', '/keys', { type: 'famC', credits: '1e3' }, 400, /"credits" must be an amount/],
    ['POST', '/keys', { type: 'famC', credits: '0' }, 400, /"credits" must be an amount/],
    ['POST', '/keys', { type: 'famC', credits: 9999999 }, 400, /"credits" is too large/],
    ['POST', '/keys', { type: 'famC', credits: 1, count: 10_001 }, 400, /"count" must be/],
    ['POST', '/keys', { type: 'famC', credits: 1, cuont: 2 }, 400, /no member "cuont"; did you mean count/],
    [
      'POST',
      '/keys',
      { type: 'famC', credits: 1, expires_at: '2001-01-01' },
      400,
      /"expires_at" must be a time in the future/,
    ],
    ['POST', '/keys', { type: 'famC', credits: 1, name: 'n'.repeat(201) }, 400, /"name" must be a text/],
    ['POST', '/keys', '{', 400, /not valid JSON/],
    ['POST', '/keys', [], 400, /The body must be a mapping/],
    ['POST', '/keys', { type: 'famC', credits: 1, balance_id: id }, 400, /Send either "credits" or "balance_id"/],
    ['POST', '/keys', { type: 'famC', balance_id: 'bal_0' }, 409, /no balance bal_0/],
    ['POST', `/keys/${id}/move`, { balance_id: 'bal_0' }, 409, /no balance bal_0/],
    ['POST', `/keys/${id}/topup`, { credits: 1, extend_by: '30d' }, 409, /never expires/],
    ['POST', `/keys/${id}/topup`, { credits: 1, extend_by: 'long' }, 400, /extend_by/],
    ['PATCH', `/keys/${id}`, { expires_at: null, expires_in: '30d' }, 400, /Send either/],
    ['GET', '/balances/bal_0', undefined, 404, /no balance bal_0/],
    ['GET', `/balances/${key}`, undefined, 404, /no balance with this id/],
    ['POST', '/balances', { metadata: { a: 1 } }, 400, /"metadata/],
    ['PATCH', `/balances/${id}`, {}, 400, /must be an object with name, external_id or metadata/],
    [
      'PATCH',
      `/keys/${id}`,
      {},
      400,
      /must be an object with name, label, type, expires_at, expires_in, cap, limits, manage or metadata/,
    ],
    ['GET', '/keys/key_000000000000000000', undefined, 404, /no key key_0/],
    ['GET', `/keys/${key}`, undefined, 404, /There is no key with this id/],
    ['GET', `/keys?search=${key}`, undefined, 400, /must not stand in a URL/],
    ['GET', '/codes?search=TG-7K3QF-7K3QF-7K3QF-7K3QF-7K3QF', undefined, 400, /must not stand in a URL/],
    ['GET', '/keys?sort=name', undefined, 400, /"sort" must be one of created/],
    ['GET', '/keys?limit=501', undefined, 400, /"limit" must be/],
    ['GET', '/keys?limit=1&limit=2', undefined, 400, /"limit" appears twice/],
    ['GET', '/keys?serach=x', undefined, 400, /no member "serach"; did you mean search/],
    ['POST', `/keys/${id}/deduct`, { credits: 6, reason: 'x' }, 409, /The balance has less than 6 credits/],
    ['POST', `/keys/${id}/deduct`, { credits: 1 }, 400, /"reason" is missing/],
    ['POST', '/codes', { kind: 'key', credits: 1 }, 400, /"type" is missing/],
    ['POST', '/codes', { kind: 'credits', credits: 1, key_days: 3 }, 400, /Only a new key/],
    ['DELETE', '/tokens/tok_0', undefined, 404, /no valid token tok_0/],
    ['POST', '/accounts/famC/9/disable', undefined, 404, /no account/],
    ['GET', '/nothing', undefined, 404, /nothing at this path/],
    ['PATCH', '/keys', {}, 405, /does not support this method/],
    ['GET', '/usage?from=2026-01-02&to=2026-01-01', undefined, 400, /"from" is later/],
    ['GET', '/usage?from=2020-01-02', undefined, 400, /at most 400 days/],
    ['GET', '/history?cursor=x', undefined, 400, /"cursor" must be/],
  ]
  for (const [method, path, body, status, message] of wrong) {
    const reply = await api(method, path, body)
    t.match([reply.status, reply.json?.error?.message], [status, message], `${method} ${path} ${JSON.stringify(body)}`)
    t.notMatch(reply.text, key)
  }
  await api('DELETE', `/keys/${id}`)
  for (const [action, body] of [
    ['topup', { credits: 1 }],
    ['deduct', { credits: 1, reason: 'x' }],
    ['enable', undefined],
    ['disable', undefined],
    ['rotate', undefined],
  ] as const) {
    const reply = await api('POST', `/keys/${id}/${action}`, body)
    t.match([reply.status, reply.json.error.message], [409, /The key key_\w+ is deleted/], `a deleted key: ${action}`)
  }
  t.equal((await api('GET', '/keys')).json.data.length, 0)
  t.match((await api('GET', '/keys?status=deleted')).json.data, [{ id, status: 'deleted', balance: '5' }])
})

t.test('a scope allows what it says and nothing else', async t => {
  const { api, as } = await operate(t)
  const { json } = await api('POST', '/keys', { type: 'famC', credits: 5 })
  const [{ id }] = json.keys
  const token = async (scope: string) => (await api('POST', '/tokens', { name: scope, scope })).json.token
  const [reader, shop] = [as(await token('read')), as(await token('keys'))]
  for (const path of ['/keys', '/audit', '/config', '/tokens', '/overview', '/accounts', '/openapi.json'])
    t.equal((await reader('GET', path)).status, 200, path)
  for (const [who, calls] of [
    [reader, ['POST /keys', `POST /keys/${id}/topup`, `DELETE /keys/${id}`, 'POST /codes', 'POST /tokens']],
    [shop, ['POST /tokens', 'DELETE /tokens/tok_1', 'POST /accounts/famC/1/disable']],
  ] as const)
    for (const call of calls) {
      const [method = '', path = ''] = call.split(' ')
      const reply = await who(method, path, {})
      t.match([reply.status, reply.json.error.code], [403, 'forbidden'], call)
    }
  t.equal((await shop('POST', '/keys', { type: 'famC', credits: 1 })).status, 201)
})

t.test('strangers, customers and ended sessions get nothing, and wrong tokens are limited', async t => {
  const office = await operate(t, { failedSignInsPerMinute: 5 })
  const { api, as, gateway, base } = office
  const key = await gateway.key('famC')
  const bare = async (path: string, headers: Record<string, string>, method = 'GET') => {
    const response = await fetch(base + path, { method, headers })
    return { status: response.status, text: await response.text() }
  }
  const paths = [
    '/admin/api/keys',
    '/admin/api/openapi.json',
    '/admin/api/session',
    '/admin/api/overview/stream',
    '/admin/api/x',
  ]
  for (const path of paths) t.match(await bare(path, {}), { status: 401, text: /sign_in_required/ }, path)
  t.match(await bare('/admin/api/keys', { authorization: `Bearer ${key}` }), { status: 401 }, 'a customer’s key')
  t.match(await bare('/v1/models', {}), { status: 404 }, 'customers are not served here')
  t.match(await gateway.call('/admin/api/keys'), { status: 404 }, 'the API is not where customers call')
  const session = await office.signIn()
  t.equal((await bare('/admin/api/keys', session.headers)).status, 200)
  await api('DELETE', '/session', undefined, session.headers)
  t.equal((await bare('/admin/api/keys', session.headers)).status, 401, 'after signing out')
  const other = await office.signIn()
  const { json } = await api('GET', '/tokens')
  const spare = (await api('POST', '/tokens', { name: 'spare', scope: 'all' })).json.token
  t.equal((await as(spare)('DELETE', `/tokens/${json.data[0].id}`)).status, 200)
  t.equal((await bare('/admin/api/keys', other.headers)).status, 401, 'after its token was revoked')
  for (let tries = 0; tries < 6; tries++) await bare('/admin/api/keys', { authorization: 'Bearer tga-wrong' })
  t.match(await bare('/admin/api/keys', { authorization: 'Bearer tga-wrong' }), { status: 429 })
  t.match(await bare('/admin/api/keys', { authorization: `Bearer ${spare}` }), { status: 200 }, 'the shop goes on')
  const fresh = (await as(spare)('POST', '/tokens', { name: 'fresh', scope: 'read' })).json.token
  t.match(await bare('/admin/api/keys', { authorization: `Bearer ${fresh}` }), { status: 429 }, 'nobody can guess on')
})

t.test(
  'wrong tokens and cookies sent at the same time all count, and an ended session does not prevent signing in',
  async t => {
    const { base, signIn } = await operate(t, { failedSignInsPerMinute: 5 })
    const statuses = async (count: number, headersOf: (nth: number) => Record<string, string>): Promise<number[]> => {
      const ask = (_: unknown, nth: number): Promise<Response> =>
        fetch(`${base}/admin/api/keys`, { headers: headersOf(nth) })
      const replies = await Promise.all(Array.from({ length: count }, ask))
      await Promise.all(replies.map(reply => reply.text()))
      return replies.map(({ status }) => status)
    }
    const limited = (all: readonly number[]): number => all.filter(status => status === 429).length
    t.equal(limited(await statuses(60, nth => ({ cookie: `tollgate_admin=tgs-over${nth}` }))), 10)
    const { headers } = await signIn()
    t.same(await statuses(60, () => headers), Array(60).fill(200))
    t.equal(limited(await statuses(20, nth => ({ authorization: `Bearer tga-wrong${nth}` }))), 15)
  },
)

t.test('the tables of operations and of bodies in docs/admin.md match the OpenAPI', async t => {
  const { api } = await operate(t)
  const { paths } = (await api('GET', '/openapi.json')).json
  const text = readFileSync(new URL('../../docs/admin.md', import.meta.url), 'utf8')
  const rows = text.split('\n').filter(line => /^\| `(?:GET|POST|PATCH|DELETE) /.test(line))
  const cells = rows.map(row => row.split('|').map(cell => cell.trim()))
  const named = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name ?? '').sort()
  const operations = Object.entries<any>(paths).flatMap(([path, methods]) =>
    Object.entries<any>(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation })),
  )
  const listed = cells.filter(row => row.length === 5).map(([, name]) => named(name)[0])
  t.same(listed.sort(), operations.map(({ name }) => name).sort())
  const bodies = new Map(cells.filter(row => row.length === 4).map(([, name, members]) => [named(name)[0], members]))
  for (const { name, operation } of operations) {
    const schema = operation.requestBody?.content['application/json'].schema
    t.same(named(bodies.get(name)), Object.keys(schema?.properties ?? {}).sort(), name)
    t.same(named((bodies.get(name) ?? '').replace(/optionally.*/, '')), [...(schema?.required ?? [])].sort(), name)
  }
})

t.test('a session ends by itself', async t => {
  let ahead = 0
  const office = await operate(t, { sessionHours: 1 }, { environment: { now: () => Date.now() + ahead } })
  const session = await office.signIn()
  t.equal((await office.api('GET', '/session', undefined, session.headers)).status, 200)
  ahead = 3_600_001
  const reply = await office.api('GET', '/session', undefined, session.headers)
  t.equal(reply.status, 401)
  t.match(reply.headers.get('set-cookie'), /Max-Age=0/)
})

t.test('another site cannot use a session', async t => {
  const office = await operate(t)
  const { cookie, csrf } = await office.signIn()
  const post = async (headers: Record<string, string>) =>
    (
      await fetch(`${office.base}/admin/api/keys`, {
        method: 'POST',
        headers: { cookie, 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ type: 'famC', credits: 1 }),
      })
    ).status
  t.equal(await post({}), 403, 'without the proof')
  t.equal(await post({ 'x-csrf-token': 'wrong' }), 403)
  t.equal(await post({ 'x-csrf-token': csrf, origin: 'https://evil.example' }), 403)
  t.equal(await post({ 'x-csrf-token': csrf, 'sec-fetch-site': 'cross-site' }), 403)
  t.equal(await post({ 'x-csrf-token': csrf, 'sec-fetch-site': 'same-site' }), 403)
  t.equal(await post({ 'x-csrf-token': csrf, origin: office.base, 'sec-fetch-site': 'same-origin' }), 201)
  const plain = await office.signIn()
  t.match(plain.setCookie, /HttpOnly; SameSite=Strict$/)
  const behindTls = await office.signIn({ 'x-forwarded-proto': 'https' })
  t.match(behindTls.setCookie, /; Secure$/)
  t.equal((await office.signIn({ 'sec-fetch-site': 'cross-site' })).status, 403, 'nor sign somebody in')
})

t.test('the live overview streams what happens, and ends with its session', async t => {
  const office = await operate(t)
  const { headers, csrf } = await office.signIn()
  const response = await fetch(`${office.base}/admin/api/overview/stream`, { headers })
  t.match(response.headers.get('content-type'), 'text/event-stream')
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  const until = async (pattern: RegExp) => {
    for (let text = ''; ;) {
      if (pattern.test(text)) return text
      const { value, done } = await reader.read()
      if (done) return `${text} END`
      text += value
    }
  }
  t.match(await until(/"requests":0/), /event: overview\ndata: \{"at"/)
  await spend(office.gateway)
  t.match(await until(/"today":\{"requests":1/), /"minute"/)
  await fetch(`${office.base}/admin/api/session`, { method: 'DELETE', headers: { ...headers, 'x-csrf-token': csrf } })
  t.match(await until(/event: over/), /event: over/)
})

async function spend(gateway: TestGateway): Promise<string> {
  const key = await gateway.key('famC')
  await gateway.call('/v1/chat/completions', {
    key,
    body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 20 },
  })
  await gateway.settled(key)
  return key
}

t.test('lists come as CSV in full, and no cell is a formula', async t => {
  const { api } = await operate(t)
  await api('POST', '/keys', { type: 'famC', credits: 1, count: 1200, batch: 'b', name: '=HYPERLINK("x")' })
  const csv = await api('GET', '/keys?batch=b&format=csv')
  t.match(csv.headers.get('content-type'), 'text/csv')
  const lines = csv.text
    .replace(/^\ufeff/, '')
    .trimEnd()
    .split('\n')
  t.equal(lines.length, 1201)
  t.match(lines[0]?.replaceAll('"', ''), /^id,type,name,label,hint,batch,status,granted,balance/)
  t.match(lines[1], /"'=HYPERLINK\(""x""\)"/)
  t.equal(new Set(lines.slice(1).map(line => line.split(',')[0])).size, 1200, 'no key twice, none left out')
})

t.test('the configuration is shown without a credential', async t => {
  const { api } = await operate(
    t,
    {},
    {
      env: { METRICS: 'metrics-token-0123456789', FAMC_URL: 'http://127.0.0.1:9', FAMC_KEY: 'upstream-key-0123456789' },
      edit: file =>
        file.set('upstreams.famA', {
          url: 'http://127.0.0.1:9',
          speaks: ['messages'],
          accounts: [{ name: 'a', key: 'literal-credential-1' }],
        }),
    },
  )
  const { text, json } = await api('GET', '/config')
  t.notMatch(text, /literal-credential|upstream-key-0123/)
  t.match(json.text, /key: \*{8}/)
  t.match(json.text, /key: !env FAMC_KEY simulated/, 'a variable keeps its name')
  t.match(json.text, /bytesPerToken: 3/)
})

t.test('the address can change while the gateway runs, and a bad one leaves the old one in force', async t => {
  const office = await operate(t)
  const { gateway } = office.gateway
  const reload = (edit: Edit): Promise<boolean> => gateway.reload(edited(gateway.config.text, edit))
  t.equal(await reload(file => file.stage('admin', { listen: { port: gateway.port } })), false)
  t.equal((await office.api('GET', '/keys')).status, 200)
  t.equal(await reload(file => file.stage('admin', { listen: { port: 0, host: 'localhost' } })), true)
  t.not(gateway.sidePorts.get('admin'), Number(new URL(office.base).port))
  t.equal(await reload(file => file.remove('admin')), true)
  t.equal(gateway.sidePorts.size, 0)
  await t.rejects(fetch(`${office.base}/admin/api/keys`))
})
