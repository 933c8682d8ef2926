import { timedId } from '../../core/lib/ids.ts'
import t from 'tap'
import { operate } from '../admin.ts'
import { holdsOf, until } from '../gateway.ts'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import { CommitInDoubt } from '../../core/records/database.ts'

/** What happens when operators, shops and failures meet at the same moment. */

t.test('a change that was begun before another one never undoes it', async t => {
  const { api, gateway } = await operate(t)
  const { keys } = gateway.gateway.records
  const get = keys.get.bind(keys)
  /** Holds back the read of a record from which a change is made until `meanwhile` has run. */
  const late = async (meanwhile: () => Promise<unknown>, change: () => Promise<{ status: number }>) => {
    let reads = 0
    keys.get = async (id, sql) => {
      const found = await get(id, sql)
      // The operation itself looks at the key first.
      if (++reads === 2) await meanwhile()
      return found
    }
    const reply = await change()
    keys.get = get
    return reply.status
  }
  for (const path of ['', '/enable'] as const) {
    const secret = await gateway.key('famC')
    const id = await gateway.id(secret)
    const method = path === '' ? 'PATCH' : 'POST'
    await late(
      () => api('DELETE', `/keys/${id}`),
      () => api(method, `/keys/${id}${path}`, path === '' ? { name: 'x' } : undefined),
    )
    t.match((await api('GET', `/keys/${id}`)).json, { status: 'deleted' }, `${method}${path} during a deletion`)
    t.equal((await gateway.call('/api/v1/key-info', { key: secret })).status, 401)
  }
  const secret = await gateway.key('famC')
  const id = await gateway.id(secret)
  let rotated = ''
  await late(
    async () => (rotated = (await api('POST', `/keys/${id}/rotate`)).json.key),
    () => api('PATCH', `/keys/${id}`, { name: 'x' }),
  )
  t.match([(await gateway.call('/api/v1/key-info', { key: rotated })).status], [200], 'the new secret works')
  t.match([(await gateway.call('/api/v1/key-info', { key: secret })).status], [401], 'the old one does not')
})

t.test('many changes of one key at once leave one consistent key', async t => {
  const { api, gateway } = await operate(t)
  const secret = await gateway.key('famC')
  const id = await gateway.id(secret)
  const calls = Array.from({ length: 30 }, (_, n) => {
    if (n === 7) return api('DELETE', `/keys/${id}`)
    return n % 3 === 0 ? api('POST', `/keys/${id}/rotate`) : api('PATCH', `/keys/${id}`, { name: `n${n}` })
  })
  const replies = await Promise.all(calls)
  for (const { status } of replies) t.ok(status === 200 || status === 409, `status ${status}`)
  t.match((await api('GET', `/keys/${id}`)).json, { status: 'deleted', balance: '10' })
  for (const { json } of replies)
    if (json.key) t.equal((await gateway.call('/api/v1/key-info', { key: json.key })).status, 401)
  t.same((await audit(gateway.gateway.ledger)).drifts, [])
})

t.test('secrets are shown again only to the token or the session that made them', async t => {
  const office = await operate(t)
  const { api } = office
  const [one, two] = [await office.signIn(), await office.signIn()]
  const once = { 'idempotency-key': 'order-1' }
  const body = { type: 'famC', credits: 1 }
  const first = await api('POST', '/keys', body, { ...one.headers, ...once })
  t.equal(first.status, 201)
  t.same((await api('POST', '/keys', body, { ...one.headers, ...once })).json, first.json)
  for (const headers of [two.headers, {}]) {
    const other = await api('POST', '/keys', body, { ...headers, ...once })
    t.match([other.status, other.json.error.message], [409, /only to the same token, or to the same session/])
  }
  const [{ id }] = first.json.keys
  const add = { 'idempotency-key': 'order-2' }
  t.match((await api('POST', `/keys/${id}/topup`, { credits: 2 }, { ...one.headers, ...add })).json, { balance: '3' })
  const again = await api('POST', `/keys/${id}/topup`, { credits: 2 }, add)
  t.match([again.status, again.json], [200, { balance: '3', credited: '2' }], 'a top-up has no secret')
})

t.test('a change whose idempotency key is no longer kept is refused, and not reported as done', async t => {
  const { api, gateway } = await operate(t)
  const id = await gateway.id(await gateway.key('famC', 1n))
  const headers = { 'idempotency-key': 'order-3' }
  const calls = [
    ['topup', { credits: 2 }],
    ['plan/extend', {}],
  ] as const
  const plan = { windows: [{ credits: '1', per: 'day' }], until: '30d' }
  t.match(await api('POST', `/balances/${id}/plan`, { plan }), { status: 200 })
  for (const [name, body] of calls) {
    const path = name === 'topup' ? `/keys/${id}/topup` : `/balances/${id}/${name}`
    t.equal((await api('POST', path, body, { 'idempotency-key': name })).status, 200, name)
    await gateway.gateway.records.database.all('DELETE FROM requests')
    const again = await api('POST', path, body, { 'idempotency-key': name })
    t.match([again.status, again.json.error.code], [409, 'request_conflict'], `${name}, after its replay was deleted`)
  }
  t.match((await api('GET', `/keys/${id}`)).json, { balance: '3' }, 'it was credited once')
  t.equal(
    (await api('POST', `/keys/${id}/topup`, { credits: 2 }, headers)).status,
    200,
    'another key is another change',
  )
})

t.test('the secret of a session is no token, even when both are looked up at the same time', async t => {
  const office = await operate(t)
  const { headers } = await office.signIn()
  const secret = /tollgate_admin=([^;]+)/.exec(headers['cookie'] ?? '')?.[1] ?? ''
  t.match(secret, /^tgs-/)
  const as = (own: Record<string, string>) => fetch(`${office.base}/admin/api/keys`, { headers: own })
  const replies = await Promise.all([as(headers), as({ authorization: `Bearer ${secret}` }), as(headers)])
  t.same(
    replies.map(({ status }) => status),
    [200, 401, 200],
  )
  await Promise.all(replies.map(reply => reply.text()))
})

t.test('deductions at once take no more than what is left, and nothing of what is held', async t => {
  const { api, gateway } = await operate(t)
  const secret = await gateway.key('famC', 10n)
  const id = await gateway.id(secret)
  const { ledger } = gateway.gateway
  const { version = '' } = (await gateway.gateway.keys.refind(secret)) ?? {}
  const notes = { endpoint: '/v1/messages', model: 'm', stream: true }
  const floor = () => ({ charge: 0n, notes })
  const amount = 6n * NANO
  const held = await ledger.hold({ account: id, id: timedId(Date.now()), amount, least: amount, version, notes, floor })
  t.equal(held.kind, 'held')
  t.equal((await holdsOf(ledger, id)).size, 1)
  const replies = await Promise.all(
    Array.from({ length: 8 }, () => api('POST', `/keys/${id}/deduct`, { credits: 4, reason: 'x' })),
  )
  t.same(replies.map(({ status }) => status).sort(), [200, 409, 409, 409, 409, 409, 409, 409])
  t.match((await api('GET', `/keys/${id}`)).json, { balance: '0', held: '6' })
  if (held.kind === 'held') ledger.settle(held.hold, { charge: 0n, kind: 'void', notes })
  await gateway.settled(secret)
  t.match((await api('GET', `/keys/${id}`)).json, { balance: '6', held: '0' })
  t.same((await audit(ledger)).drifts, [])
})

t.test('pages of a sorted list skip no key while balances change, and end', async t => {
  const { api } = await operate(t)
  const ids: string[] = []
  for (const credits of [20, 18, 16, 14, 12, 10, 8, 6])
    ids.push((await api('POST', '/keys', { type: 'famC', credits })).json.keys[0].id)
  const seen: string[] = []
  let cursor = ''
  for (let page = 0; page < 10; page++) {
    const { json } = await api('GET', `/keys?sort=-balance&limit=2${cursor && `&cursor=${cursor}`}`)
    seen.push(...json.data.map((key: any) => key.id))
    cursor = json.next_cursor ?? ''
    if (!json.has_more) break
    // The last key of the page falls to the end of the list.
    await api('POST', `/keys/${seen.at(-1)}/deduct`, { credits: 5.5, reason: 'x' })
  }
  for (const id of ids) t.ok(seen.includes(id), id)
  t.equal(cursor, '', 'the list has an end')
  t.equal((await api('GET', '/keys?cursor=key_unknown')).status, 400)
  t.equal((await api('GET', '/codes?cursor=code_unknown')).status, 400)
})

t.test('an open stream ends when a new configuration is in force', async t => {
  const office = await operate(t)
  const response = await fetch(`${office.base}/admin/api/overview/stream`, {
    headers: { authorization: `Bearer ${office.token}` },
  })
  const ended = response.text()
  t.ok(await office.gateway.gateway.reload(office.gateway.gateway.config.text))
  t.match(await ended, /event: overview/)
})

t.test('a code whose commit is in doubt gives no key that may not exist', async t => {
  const { api, gateway } = await operate(t)
  const [{ code }] = (await api('POST', '/codes', { kind: 'key', type: 'famC', credits: 1 })).json.codes
  const { database } = gateway.gateway.records
  const transaction = database.transaction.bind(database)
  let failing = 0
  database.transaction = async use => {
    if (failing-- > 0) throw new CommitInDoubt('the answer was lost')
    return transaction(use)
  }
  failing = 2
  const reply = await gateway.call('/api/v1/redeem', { body: { code } })
  database.transaction = transaction
  t.equal(reply.status, 503)
  t.notMatch(reply.text, /sk-/)
  t.equal((await gateway.call('/api/v1/redeem', { body: { code } })).status, 200, 'it can be redeemed afterwards')
})

t.test('an empty store shows the balances of the records', async t => {
  const { api, gateway } = await operate(t)
  const key = await gateway.key('famC', 5n)
  const id = await gateway.id(key)
  const { ledger, store } = gateway.gateway
  const { redis } = store
  await redis.unlink(await redis.keys(`${gateway.gateway.config.store.prefix}:*`))
  await until(() => !ledger.continuity.open)
  t.match((await api('GET', `/keys/${id}`)).json, { status: 'active', granted: '5', balance: '5' })
  t.match((await api('GET', '/keys')).json.data, [{ status: 'active', balance: '5' }])
})

t.test('hostile members of queries and bodies are refused by name', async t => {
  const { api, base } = await operate(t)
  const wrong: [string, string, unknown, number][] = [
    ['POST', '/keys', { type: 'famC', credits: 1, name: 'a\0b' }, 400],
    ['GET', '/keys?search=%00', undefined, 400],
    ['GET', '/audit?cursor=9007199254740991', undefined, 400],
    ['GET', '/history?cursor=------------------------------------', undefined, 400],
    ['GET', '/keys?__proto__=1', undefined, 400],
    ['POST', '/keys', { type: 'famC', credits: 1, expires_at: '2090-02-31' }, 400],
    ['GET', '/usage?from=2026-02-31&to=2026-03-05', undefined, 400],
    ['POST', '/keys/find', { key: 'sk-\0' }, 404],
  ]
  for (const [method, path, body, status] of wrong) t.equal((await api(method, path, body)).status, status, path)
  const session = await fetch(`${base}/admin/api/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: 'null',
  })
  t.equal(session.status, 400)
  t.equal(session.headers.get('x-content-type-options'), 'nosniff')
  t.equal(session.headers.get('cache-control'), 'no-store')
})

t.test('ten thousand large keys can be added up', async t => {
  const { api } = await operate(t)
  await api('POST', '/keys', { type: 'famC', credits: '999999', count: 10_000 })
  t.match((await api('GET', '/keys/totals')).json, { keys: 10_000, granted: '9999990000', used: '0' })
})
