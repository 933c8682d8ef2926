import { randomUUID } from 'node:crypto'
import t from 'tap'
import { operate } from '../admin.ts'
import { audit } from '../../core/ledger/audit.ts'

/** Redeem codes as customers use them. */

async function office(t: Parameters<typeof operate>[0], wrongPerMinute = 100) {
  const { api, gateway } = await operate(t, {}, { edit: file => file.stage('redeem', { wrongPerMinute }) })
  const codes = async (wish: object): Promise<string[]> =>
    (await api('POST', '/codes', wish)).json.codes.map((each: any) => each.code)
  const redeem = (code: string, key?: string, headers: Record<string, string> = {}) =>
    gateway.call('/api/v1/redeem', { key, body: { code }, headers })
  return { api, gateway, codes, redeem }
}

t.test('a code is redeemed once, however many customers send it at the same time', async t => {
  const { gateway, codes, redeem, api } = await office(t)
  const keys = await Promise.all(Array.from({ length: 10 }, () => gateway.key('famC', 1n)))
  const [code = ''] = await codes({ kind: 'credits', credits: '2.5' })
  const replies = await Promise.all([...keys, ...keys].map(key => redeem(code, key)))
  t.equal(replies.filter(({ status }) => status === 200).length, 1)
  t.match(replies.find(({ status }) => status === 200)?.json, { kind: 'credits', credits: '2.5', balance: '3.5' })
  for (const { status, json } of replies)
    if (status !== 200) t.match([status, json.error.message], [409, /^This code was used on 2/])
  const balances = await Promise.all(keys.map(key => gateway.balance(key)))
  t.equal(
    balances.reduce((sum, { balance }) => sum + balance, 0),
    12.5,
  )
  const [used] = (await api('GET', '/codes')).json.data
  t.match(used, { status: 'used', used_by: /^key_/ })
  t.same((await audit(gateway.gateway.ledger)).drifts, [])
})

t.test('a code becomes one new key, and who repeats the request gets the same key', async t => {
  const { gateway, codes, redeem, api } = await office(t)
  const [code = ''] = await codes({ kind: 'key', type: 'famC', credits: 5, key_days: 30, batch: 'cards' })
  const mine = { 'idempotency-key': randomUUID() }
  const replies = await Promise.all([1, 2, 3].map(() => redeem(code, undefined, mine)))
  const others = await Promise.all([1, 2].map(() => redeem(code, undefined, { 'idempotency-key': randomUUID() })))
  const won = replies[0]?.status === 200 ? replies : others.filter(({ status }) => status === 200)
  t.equal(new Set(won.map(({ json }) => json.key)).size, 1)
  t.equal((await api('GET', '/keys')).json.data.length, 1, 'one key was made')
  const { key, expires_at: expires } = won[0]?.json ?? {}
  t.ok(Date.parse(expires) > Date.now() + 29 * 86_400_000)
  t.equal((await gateway.balance(key))['balance'], 5)
  t.match(await redeem(code), { status: 409 }, 'the code alone gets nothing')
  t.match((await api('GET', '/keys')).json.data, [{ batch: 'cards', type: 'famC' }])
})

t.test('a repeated request for credits adds nothing', async t => {
  const { gateway, codes, redeem } = await office(t)
  const key = await gateway.key('famC', 1n)
  const [code = ''] = await codes({ kind: 'credits', credits: 1 })
  const mine = { 'idempotency-key': randomUUID() }
  t.match((await redeem(code, key, mine)).json, { repeated: false, balance: '2' })
  t.match((await redeem(code, key, mine)).json, { repeated: true, balance: '2' })
})

t.test('a code may be typed as people type', async t => {
  const { gateway, codes, redeem } = await office(t)
  const key = await gateway.key('famC', 1n)
  const all = await codes({ kind: 'credits', credits: 1, count: 2 })
  const [spaced, confused] = all.map((code, index) =>
    index === 0 ? ` ${code.toLowerCase().replaceAll('-', ' ')} ` : code.replaceAll('0', 'o').replaceAll('1', 'l'),
  )
  t.equal((await redeem(spaced ?? '', key)).status, 200)
  t.equal((await redeem(confused ?? '', key)).status, 200)
})

t.test('what cannot be redeemed says why, and guessing is limited', async t => {
  const { gateway, codes, redeem, api } = await office(t, 9)
  const key = await gateway.key('famC', 1n)
  const refused = async (code: string, message: RegExp, own?: string): Promise<void> => {
    const { status, json } = await redeem(code, own)
    t.match([status, json.error.code, json.error.message], [409, 'code_refused', message])
  }
  const [credits = '', cancelled = ''] = await codes({
    kind: 'credits',
    credits: 1,
    count: 2,
    type: 'famB',
    batch: 'b',
  })
  await refused(credits, /for keys of the type "famB"/, key)
  await refused(credits, /Use it together with your key/)
  t.match((await api('POST', '/codes/cancel', { batch: 'b' })).json, { cancelled: 2 })
  await refused(cancelled, /cancelled/, key)
  await refused('TG-00000-00000-00000-00000-00000', /no such code/, key)
  t.match(await redeem('x', 'sk-unknown'), { status: 401 })
  t.match(await gateway.call('/api/v1/redeem', { body: {} }), {
    status: 400,
    json: { error: { message: '"code" is missing.' } },
  })
  t.match(await gateway.call('/api/v1/redeem', { body: '{' }), { status: 400 })
  t.match(await redeem('x', key, { 'idempotency-key': 'short' }), { status: 400 })
  t.match(await gateway.call('/api/v1/redeem', { body: '{"code":"a","code":"b"}' }), {
    status: 400,
    json: { error: { message: '"code" appears twice.' } },
  })
  for (let times = 0; times < 10; times++) await redeem('TG-wrong', key)
  t.match(await redeem('TG-wrong', key), { status: 429, json: { error: { message: /Too many wrong codes/ } } })
})

t.test('wrong codes that are sent at the same time count, and a code that is right does not', async t => {
  const { gateway, codes, redeem } = await office(t, 12)
  const key = await gateway.key('famC', 1n)
  const [code = ''] = await codes({ kind: 'credits', credits: 1 })
  t.match(await redeem(code, key), { status: 200 })
  const answers = await Promise.all(Array.from({ length: 30 }, () => redeem('TG-wrong', key)))
  t.equal(answers.filter(({ status }) => status === 429).length, 18)
})

t.test('a disabled key gets no credits, and the code stays unused', async t => {
  const { gateway, codes, redeem, api } = await office(t)
  const key = await gateway.key('famC', 1n)
  const [code = ''] = await codes({ kind: 'credits', credits: 1 })
  await api('POST', `/keys/${await gateway.id(key)}/disable`)
  t.equal((await redeem(code, key)).status, 401)
  t.match((await api('GET', '/codes')).json.data, [{ status: 'unused' }])
})
