import net from 'node:net'
import t from 'tap'
import { startGateway } from '../gateway.ts'
import { json, sse } from '../upstream.ts'
import { scene } from '../scene.ts'

const MESSAGES = { model: 'acme/famA-medium-5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const REPLY = { type: 'message', content: [{ type: 'text', text: 'x' }], usage: { input_tokens: 1, output_tokens: 1 } }

/** Sends raw bytes, and returns the first line of the answer. */
function firstLine(url: string, request: string): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(request))
  return new Promise((resolve, reject) => {
    socket.once('data', data => {
      resolve(data.toString().split('\r\n')[0] ?? '')
      socket.destroy()
    })
    socket.once('error', reject)
  })
}

t.test('an agent that opens a WebSocket is told at once to use HTTP', async t => {
  const g = await startGateway(t)
  const upgrade = (path: string): string =>
    `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n`
  t.equal(await firstLine(g.url, upgrade('/v1/responses')), 'HTTP/1.1 426 Upgrade Required')
  t.match(await firstLine(g.url, upgrade('/v1/nothing')), / 404 /)
  t.match(await firstLine(g.url, 'GET /v1/responses HTTP/1.1\r\nhost: x\r\n\r\n'), / 405 /)
})

t.test('Codex can read the list of models, and people see their names', async t => {
  const g = await startGateway(t, {
    edit: file => file.model('famC', 'acme/famC-5.5', { name: 'Family C 5.5' }),
  })
  const { json: list } = await g.call('/v1/models?client_version=0.169.0')
  t.same(list.models, [])
  t.match(
    list.data.find(({ id }: { id: string }) => id === 'acme/famC-5.5'),
    { display_name: 'Family C 5.5' },
  )
  t.equal((await g.call('/v1/models')).json.models, undefined)
})

t.test('headers and the query of Claude Code reach its provider, and no credential does', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, REPLY)
  const key = await g.key('famA')
  const headers = {
    'anthropic-beta': 'a-2025-01-01',
    'anthropic-new-thing': 'yes',
    'x-claude-code-agent-id': 'agent-1',
    'anthropic-api-key': 'sk-ant-of-the-client',
    'anthropic-organization-id': 'org-of-the-client',
  }
  const path = `/v1/messages?beta=true&api_key=${key}&x=%20y`
  t.equal((await g.call(path, { key, headers, body: MESSAGES })).status, 200)
  t.equal(upstream.last.path, '/v1/messages?beta=true')
  t.match(upstream.last.headers, {
    'anthropic-beta': 'a-2025-01-01',
    'anthropic-new-thing': 'yes',
    'x-claude-code-agent-id': 'agent-1',
  })
  t.notMatch(JSON.stringify(upstream.last.headers), /of-the-client/)
  await g.call('/v1/chat/completions?beta=true', { key, body: MESSAGES })
  t.equal(upstream.last.path, '/v1/messages', 'a translated request has no query of its own')
  await g.settled(key)
})

t.test('an upstream that says that a retry is useless is believed', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famA')
  for (const [status, expected] of [
    [500, 502],
    [529, 529],
    [504, 504],
  ] as const) {
    upstream.script = (_received, res) => json(res, {}, status, { 'x-should-retry': 'false' })
    const answer = await g.call('/v1/messages', { key, body: MESSAGES })
    t.equal(answer.status, expected)
    t.equal(answer.headers.get('x-should-retry'), 'false')
  }
  await g.settled(key)
})

t.test("a failed response has a code of the vendor's list", async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) =>
    sse(
      res,
      'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x"}\n\nevent: response.failed\ndata: {"type":"response.failed","response":{"id":"r","error":{"code":"account_trouble","message":"org-1"}}}\n\n',
    )
  const key = await g.key('famC')
  const body = { model: 'acme/famC-5.5', input: 'hi', stream: true }
  t.match((await g.call('/v1/responses', { key, body })).text, /"error":\{"code":"server_error"/)
  await g.settled(key)
})
