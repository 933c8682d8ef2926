import t from 'tap'
import { startGateway } from '../gateway.ts'

/** Pages of other sites that call the gateway. */

const ORIGIN = 'https://app.example.com'

t.test('a browser may call from an allowed origin, and reads every reply, also errors', async t => {
  const g = await startGateway(t, { edit: file => file.insertBefore('access-log', { cors: { origins: [ORIGIN] } }) })
  const from = (origin: string) => ({ headers: { origin } })
  const preflight = await g.call('/v1/messages', {
    method: 'OPTIONS',
    headers: {
      origin: ORIGIN,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-api-key, content-type',
    },
  })
  t.equal(preflight.status, 204)
  t.equal(preflight.headers.get('access-control-allow-origin'), ORIGIN)
  t.equal(preflight.headers.get('access-control-allow-headers'), 'x-api-key, content-type')
  for (const method of ['POST', 'PATCH', 'DELETE'])
    t.match(preflight.headers.get('access-control-allow-methods'), method)
  const key = await g.key('famC')
  const body = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], stream: true }
  for (const [path, options, status] of [
    ['/v1/chat/completions', { key, body }, 200],
    ['/v1/chat/completions', { key: 'sk-wrong', body }, 401],
    ['/v1/chat/completions', { key, body: '{' }, 400],
    ['/nothing', {}, 404],
    ['/v1/chat/completions', { key }, 405],
    ['/v1/models', {}, 200],
  ] as const) {
    const reply = await g.call(path, { ...options, ...from(ORIGIN) })
    t.match([reply.status, reply.headers.get('access-control-allow-origin')], [status, ORIGIN], path)
    t.match(reply.headers.get('vary'), 'origin')
    t.equal(reply.headers.get('access-control-expose-headers'), '*', 'a page may read all that belongs to its key')
  }
  const other = await g.call('/v1/models', from('https://evil.example'))
  t.equal(other.headers.get('access-control-allow-origin'), null)
  t.equal((await g.call('/nothing')).status, 404, 'an unknown path stays unknown')
})

t.test('by default every origin may call, without the browser’s credentials', async t => {
  const g = await startGateway(t, { edit: file => file.insertBefore('access-log', 'cors') })
  const { headers } = await g.call('/v1/models', { headers: { origin: ORIGIN } })
  t.equal(headers.get('access-control-allow-origin'), '*')
  t.equal(headers.get('access-control-allow-credentials'), null)
})

t.test('without the plugin there are no CORS headers, and OPTIONS is not answered', async t => {
  const g = await startGateway(t)
  const { status, headers } = await g.call('/v1/messages', { method: 'OPTIONS', headers: { origin: ORIGIN } })
  t.match([status, headers.get('access-control-allow-origin')], [405, null])
})
