import t, { type Test } from 'tap'
import { type Answer, startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const MESSAGES = [{ role: 'user', content: 'hi' }]
const CHAT = '/v1/chat/completions'

let g: TestGateway
let upstream: ScriptedUpstream

t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    json(res, { choices: [{ finish_reason: 'stop' }], output: [], usage: { prompt_tokens: 1, completion_tokens: 1 } })
  g = await startGateway(t, { upstream: upstream.url })
})

function isOpenai(t: Test, answer: Answer, status: number, type: string, code: string, final = true): void {
  t.equal(answer.status, status, code)
  t.match(answer.json, { error: { type, code, message: String } })
  t.equal(answer.headers.get('x-should-retry'), final ? 'false' : null)
  t.ok(answer.headers.get('x-request-id'))
}

t.test('missing, unknown, malformed and disabled keys get the same error, in the format of the path', async t => {
  const disabled = await g.key('famC')
  await g.gateway.keys.changes.disable(await g.id(disabled))
  await g.gateway.keys.refind(disabled)
  const body = { model: 'acme/famC-5.5', messages: MESSAGES }
  const unknown = await g.call(CHAT, { key: 'sk-unknown', body })
  isOpenai(t, unknown, 401, 'invalid_request_error', 'invalid_api_key')
  t.equal((await g.call(CHAT, { key: disabled, body })).text, unknown.text)
  t.equal((await g.call(CHAT, { key: 'no-prefix', body })).text, unknown.text)
  t.equal((await g.call(CHAT, { headers: { authorization: 'Basic abc' }, body })).text, unknown.text)
  isOpenai(t, await g.call(CHAT, { body }), 401, 'invalid_request_error', 'invalid_api_key')
  const messages = await g.call('/v1/messages', { key: 'sk-unknown', body })
  t.equal(messages.status, 401)
  t.match(messages.json, {
    type: 'error',
    error: { type: 'authentication_error' },
    request_id: messages.headers.get('request-id'),
  })
  isOpenai(t, await g.call('/api/v1/key-info', { key: disabled }), 401, 'invalid_request_error', 'invalid_api_key')
})

t.test('two different credentials in one request are refused; the same one twice is not', async t => {
  const [one, other] = [await g.key('famC'), await g.key('famC')]
  const call = (key: string): Promise<Answer> => g.call('/api/v1/key-info', { key: one, headers: { 'x-api-key': key } })
  t.equal((await call(other)).status, 401)
  t.equal((await call(one)).status, 200)
})

t.test('expired and exhausted keys may look up and may not buy', async t => {
  const expired = await g.key('famC', 1n, Date.now() - 1000)
  const exhausted = await g.key('famC', 0n)
  const body = { model: 'acme/famC-5.5', messages: MESSAGES }
  const answer = await g.call(CHAT, { key: expired, body })
  isOpenai(t, answer, 401, 'invalid_request_error', 'invalid_api_key')
  t.match(answer.json.error.message, 'expired')
  isOpenai(t, await g.call(CHAT, { key: exhausted, body }), 429, 'insufficient_quota', 'insufficient_quota')
  t.match(await g.balance(expired), { isValid: false, status: 'expired', invalidMessage: String })
  t.match(await g.balance(exhausted), { isValid: false, status: 'exhausted', balance: 0 })
  for (const key of [expired, exhausted]) {
    const history = await g.call('/api/v1/key-info/history', { key })
    t.equal(history.status, 200)
    t.equal(history.headers.get('cache-control'), 'no-store')
    t.notOk(history.text.includes(key), 'the key is not echoed')
  }
})

t.test('an exhausted key gets a final billing error in the messages format', async t => {
  const key = await g.key('famA', 0n)
  const answer = await g.call('/v1/messages', {
    key,
    body: { model: 'acme/famA-medium-5', max_tokens: 10, messages: MESSAGES },
  })
  t.equal(answer.status, 429)
  t.match(answer.json, { type: 'error', error: { type: 'billing_error' } })
  t.equal(answer.headers.get('x-should-retry'), 'false')
})

t.test('each key type accepts exactly its models and formats', async t => {
  const famB = await g.key('famB')
  const famC = await g.key('famC')
  const editor = await g.key('editor')
  const ask = (key: string, model: unknown, path = CHAT): Promise<Answer> =>
    g.call(path, { key, body: { model, messages: MESSAGES, input: 'x' } })
  const refused = await ask(famC, 'acme/famB-4.5')
  isOpenai(t, refused, 404, 'invalid_request_error', 'model_not_found')
  t.match(refused.json.error, { param: 'model', message: /acme\/famB-4\.5.*acme\/famC-5\.6-sol/ })
  t.equal((await ask(famC, 'acme/famA-large-5')).status, 404)
  t.equal((await ask(famC, 'acme/famC-5.5')).status, 200)
  t.equal((await ask(famB, 'acme/famB-4.6')).status, 404, 'an editor model is none of famB')
  t.equal((await ask(editor, 'acme/famB-4.6')).status, 200)
  t.equal((await ask(editor, 'acme/famB-build-0.1')).status, 404)
  for (const model of ['acme/famc-5.5', 'acme/famC-5.5 ', 'аcme/famC-5.5', 'toString', '__proto__', ''])
    t.equal((await ask(famC, model)).status, 404, `"${model}" is no model`)
  const long = await ask(famC, 'x'.repeat(100_000))
  t.equal(long.status, 404)
  t.ok(long.text.length < 1000, 'a long name is not repeated')
  const messages = await ask(famB, 'acme/famB-4.5', '/v1/messages')
  t.equal(messages.status, 404, 'a famB key does not serve famA clients')
  t.match(messages.json, { type: 'error', error: { type: 'not_found_error' } })
  t.match(messages.json.error.message, /They may use POST \/v1\/chat\/completions, POST \/v1\/responses/)
})

t.test(
  'a request without a model gets the default of a famB key; other key types get an error that names the default',
  async t => {
    const answer = await g.call(CHAT, { key: await g.key('famB'), body: '{"messages":[]}' })
    t.equal(answer.status, 200)
    t.equal(upstream.last.body, '{"model":"acme/famB-4.5","messages":[]}')
    const refused = await g.call(CHAT, { key: await g.key('famC'), body: { messages: [] } })
    isOpenai(t, refused, 400, 'invalid_request_error', 'invalid_request_body')
    t.match(refused.json.error, { param: 'model', message: /acme\/famC-5\.5/ })
    for (const model of [null, 5, ['acme/famB-4.5']])
      t.equal((await g.call(CHAT, { key: await g.key('famB'), body: { model, messages: [] } })).status, 400)
  },
)

t.test('an invalid body is refused, and the error names the cause', async t => {
  const key = await g.key('famC')
  const before = upstream.requests.length
  const cases: [string, string | Buffer, RegExp][] = [
    ['no JSON', '{"model":', /not valid JSON/],
    ['an array', '[1]', /JSON object/],
    ['empty', ' ', /not valid JSON/],
    ['no messages', '{"model":"acme/famC-5.5"}', /"messages" is missing/],
    ['messages of the wrong type', '{"model":"acme/famC-5.5","messages":"x"}', /must be an array/],
    ['stream of the wrong type', '{"model":"acme/famC-5.5","messages":[],"stream":"yes"}', /"stream"/],
    ['a negative limit', '{"model":"acme/famC-5.5","messages":[],"max_tokens":-1}', /"max_tokens"/],
    ['a fractional limit', '{"model":"acme/famC-5.5","messages":[],"max_tokens":1.5}', /"max_tokens"/],
    ['two models', '{"model":"acme/famC-5.5","messages":[],"model":"acme/famC-5.6-sol"}', /"model" twice/],
    ['two models, one escaped', '{"model":"acme/famC-5.5","messages":[],"mod\\u0065l":"x"}', /"model" twice/],
    ['deep nesting', `{"model":"acme/famC-5.5","messages":${'['.repeat(100_000)}${']'.repeat(100_000)}}`, /64 levels/],
    ['a number beyond all bounds', '{"model":"acme/famC-5.5","messages":[],"seed":1e400}', /out of range/],
    ['bad UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), /UTF-8/],
    ['a byte order mark', '\ufeff{"model":"acme/famC-5.5","messages":[]}', /not valid JSON/],
  ]
  for (const [name, body, message] of cases) {
    const answer = await g.call(CHAT, { key, body })
    t.match(
      answer,
      { status: 400, json: { error: { type: 'invalid_request_error', code: 'invalid_request_body', message } } },
      name,
    )
  }
  t.equal(upstream.requests.length, before, 'nothing of it reached the upstream')
  t.equal((await g.call('/v1/responses', { key, body: { model: 'acme/famC-5.5' } })).json.error.param, 'input')
  t.equal(
    (await g.call('/v1/responses', { key, body: { model: 'acme/famC-5.5', input: null } })).status,
    200,
    'input may be any JSON value',
  )
})

t.test('compressed and oversized bodies are refused', async t => {
  const key = await g.key('famC')
  isOpenai(
    t,
    await g.call(CHAT, { key, body: {}, headers: { 'content-encoding': 'compress' } }),
    415,
    'invalid_request_error',
    'unsupported_encoding',
  )
  const answer = await g.call(CHAT, { key, body: Buffer.alloc(33 * 1024 * 1024, 32) })
  isOpenai(t, answer, 413, 'invalid_request_error', 'body_too_large')
  t.equal(answer.headers.get('connection'), 'close')
})

t.test('only the exact paths and methods of the table are served', async t => {
  for (const path of [
    '/v1/nothing',
    '/V1/models',
    '/v1/models/',
    '/v1/%6dodels',
    '/v1/models;x',
    '/api/v1/key-info/',
  ]) {
    isOpenai(t, await g.call(path), 404, 'invalid_request_error', 'not_found')
  }
  const wrong = await g.call(CHAT)
  isOpenai(t, wrong, 405, 'invalid_request_error', 'method_not_allowed')
  t.equal(wrong.headers.get('allow'), 'POST')
  t.match((await g.call('/v1/messages')).json, { type: 'error' }, 'an error at a path has the shape of its format')
  t.equal((await g.call('/health', { method: 'HEAD' })).status, 200)
  t.equal((await g.call('/v1/models?limit=1', { method: 'DELETE' })).status, 405)
})

t.test('a path that lacks /v1, has it twice or ends in a slash gets a 404 that names the endpoint', async t => {
  const g = await startGateway(t)
  for (const [path, meant] of [
    ['/chat/completions', '/v1/chat/completions'],
    ['/responses', '/v1/responses'],
    ['/v1/v1/messages', '/v1/messages'],
    ['/v1/responses/', '/v1/responses'],
  ] as const) {
    const { status, json } = await g.call(path, { body: {} })
    t.match([status, json.error.message], [404, `Did you mean ${meant}?`])
  }
  t.equal(
    (await g.call('/other', { body: {} })).json.error.message,
    'There is nothing at this path. Check the base URL of your client.',
  )
})

t.test('an address that tries too many wrong keys gets a 429', async t => {
  const g = await startGateway(t, { edit: file => file.set('limits.anonymous', 3) })
  const known = await g.key('famC')
  t.equal((await g.call('/api/v1/key-info', { key: known })).status, 200)
  for (let tries = 0; tries < 3; tries++) t.equal((await g.call('/api/v1/key-info', { key: 'sk-guess' })).status, 401)
  const answer = await g.call('/api/v1/key-info', { key: 'sk-guess' })
  isOpenai(t, answer, 429, 'rate_limit_exceeded', 'rate_limit_exceeded', false)
  t.ok(Number(answer.headers.get('retry-after')) > 0)
  const customer = await g.call('/api/v1/key-info', { key: known })
  t.equal(customer.status, 200, 'who has a key is not held up by a neighbour who guesses')
})
