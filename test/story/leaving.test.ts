import { spawnSync } from 'node:child_process'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { begun, chatReply, json, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { DONE, STOP, text, usage } from '../stream-events.ts'
import { typed } from '../stream-events.ts'
import { leavesAfter } from '../leaving.ts'
import { scene } from '../scene.ts'

/** Clients that leave while their upstream is read on for its usage. */

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }] }
const DELTA = text('Hello')
const FINISH = STOP + usage(9, 700) + DONE

interface Scene {
  readonly g: TestGateway
  readonly key: string
  readonly upstream: ScriptedUpstream
  /** Streams that the upstream has begun. */
  readonly replies: ServerResponse[]
}

async function finishing(t: Test, upstreamSettings = {}, typeSettings = {}): Promise<Scene> {
  const upstream = await ScriptedUpstream.start(t)
  const replies = begun(upstream, DELTA)
  const edit: Edit = file =>
    file.setAll('upstreams.famC', { onDisconnect: 'finish', ...upstreamSettings }).setAll('keyTypes.famC', typeSettings)
  const g = await startGateway(t, { upstream: upstream.url, edit })
  return { g, key: await g.key('famC'), upstream, replies }
}

/** Reads the first event of a stream and leaves. Resolves when the gateway has closed its side, too. */
async function leaves({ g, key }: Scene): Promise<void> {
  const socket = connect(g.gateway.port, '127.0.0.1')
  socket.write(streamRequest(key))
  for await (const part of socket) if (String(part).includes('Hello')) socket.end()
}

function streamRequest(key: string): string {
  const body = JSON.stringify({ ...BODY, stream: true })
  return `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}

t.test(
  'a client that leaves after the last event, as SDKs do, has its reply, and the upstream connection is kept',
  async t => {
    const { g, upstream } = await scene(t)
    const replies = begun(upstream, DELTA)
    const key = await g.key('famC')
    const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1` })
    const ports = new Set<number | undefined>()
    for (const _time of [1, 2]) {
      const stream = await client.chat.completions.create({
        ...BODY,
        messages: [{ role: 'user', content: 'hi' }],
        stream: true,
      })
      const [reply] = replies.splice(0)
      ports.add(reply?.socket?.remotePort)
      reply?.write(FINISH)
      for await (const _chunk of stream);
      t.match((await g.settled(key))[0], { status: 'ok', client_disconnected: false, output_tokens: 700 })
      t.notOk(reply?.destroyed)
      // The upstream ends whenever it likes.
      reply?.end(': as late as that\n\n')
      await upstream.last.closed
    }
    t.equal(ports.size, 1)
  },
)

t.test('a stream that its client left is read to its end, and its true usage is charged', async t => {
  const scene = await finishing(t)
  await leaves(scene)
  await until(() => scene.g.gateway.running > 0)
  scene.replies[0]?.write(DELTA.repeat(1000))
  scene.replies[0]?.end(FINISH)
  matchAll(t, await scene.g.settled(scene.key), [
    { status: 'client_gone', usage_source: 'upstream', input_tokens: 9, output_tokens: 700 },
  ])
})

t.test('a JSON reply whose client left before the upstream answered is read to its end and charged', async t => {
  const { g, key, upstream } = await finishing(t)
  const leave = new AbortController()
  let gone = (): void => {}
  const left = new Promise<void>(resolve => (gone = resolve))
  upstream.script = async (_received, res) => {
    leave.abort()
    await left
    json(res, chatReply(9, 8, 'Hello'))
  }
  await t.rejects(g.open(CHAT, { key, body: BODY, signal: leave.signal }))
  gone()
  matchAll(t, await g.settled(key), [
    { status: 'client_gone', usage_source: 'upstream', input_tokens: 9, output_tokens: 8 },
  ])
})

t.test('above abandoned, the reply that was left first is ended', async t => {
  const scene = await finishing(t, {}, { abandoned: 1 })
  await leaves(scene)
  const [first] = scene.upstream.requests
  await leaves(scene)
  await first?.closed
  t.match(
    scene.replies.map(({ destroyed }) => destroyed),
    [true, false],
  )
  scene.replies[1]?.end(FINISH)
  const entries = await scene.g.settled(scene.key)
  t.match(entries.map(({ usage_source: source }) => source).sort(), ['estimated', 'upstream'])
  await leaves(scene)
  await until(() => scene.g.gateway.running > 0)
  scene.replies[2]?.end(FINISH)
  t.match((await scene.g.settled(scene.key))[0], { usage_source: 'upstream' }, 'its place is free again')
})

t.test(
  'an abandoned reply that takes too long is cancelled, and charged what its model may have produced by then',
  async t => {
    const scene = await finishing(t, { timeouts: { finish: '50ms' } })
    await leaves(scene)
    await scene.upstream.last.closed
    const [entry] = await scene.g.settled(scene.key)
    t.match(entry, { status: 'client_gone', usage_source: 'estimated' })
    // Five bytes of text, and a second in which the upstream may go on.
    t.ok(entry?.output_tokens >= 153 && entry?.output_tokens < 1000, `${entry?.output_tokens} tokens`)
  },
)

t.test('a stopping gateway waits for abandoned replies as for others, and no longer', async t => {
  const scene = await finishing(t)
  await leaves(scene)
  await until(() => scene.g.gateway.running > 0)
  const stopped = scene.g.gateway.stop()
  scene.replies[0]?.end(FINISH)
  await stopped
  t.equal(scene.g.gateway.running, 0)
})

t.test(
  'a client that leaves during the look-up of its key does not delay the requests behind it on the connection',
  async t => {
    const { g, upstream } = await scene(t, file => file.set('limits.bodyIdle', '1h'))
    begun(upstream, DELTA)
    for (const key of await Promise.all(Array.from({ length: 10 }, () => g.key('famC')))) {
      const socket = connect(g.gateway.port, '127.0.0.1')
      socket.write(streamRequest(key).repeat(3), () => socket.destroy())
    }
    // By then the gateway has read everything that they sent.
    await g.call('/v1/models')
    await until(() => g.gateway.running === 0)
    t.equal(g.gateway.ledger.live, 0)
  },
)

t.test(
  'a client that leaves while summaries of reasoning arrive pays for the time, and not for the summaries',
  async t => {
    const { g, upstream } = await scene(t)
    const key = await g.key('famA', 10n)
    const startedMs = performance.now()
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(typed({ type: 'message_start', message: { type: 'message', content: [], usage: { input_tokens: 9 } } }))
      res.write(typed({ type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: '' } }))
      const delta = { type: 'thinking_delta', thinking: 'Hm. ' }
      for (let nth = 0; nth < 20 && !res.destroyed; nth++) {
        res.write(typed({ type: 'content_block_delta', index: 0, delta }))
        await sleep(50)
      }
      res.write(typed({ type: 'content_block_delta', index: 0, delta: { ...delta, thinking: 'Enough.' } }))
    }
    const body = { model: 'acme/famA-medium-5', max_tokens: 32_000, stream: true, messages: BODY.messages }
    await leavesAfter(g, 'Enough', '/v1/messages', { key, body })
    const seconds = (performance.now() - startedMs) / 1000
    const [entry] = await g.settled(key)
    t.ok(entry?.['output_tokens'] >= 150 * seconds + 75, `${entry?.['output_tokens']} tokens in ${seconds} s`)
  },
)

/** Sends requests, each on its own connection, and closes or resets the connections. */
const HASTY = `
  const [port, text, how] = process.argv.slice(1)
  for (let nth = 0; nth < 10; nth++) {
    const socket = require('node:net').connect(Number(port), '127.0.0.1', () =>
      socket.write(text, () => (how === 'closes' ? socket.destroy() : socket.resetAndDestroy())))
  }
`

for (const how of ['closes', 'resets'])
  t.test(
    `a client that ${how} its connection before the gateway accepts it is not served, and pays nothing`,
    async t => {
      const { g, upstream } = await scene(t)
      upstream.script = (_received, res) => json(res, chatReply(5, 5))
      const key = await g.key('famC')
      // The key is known then, so that nothing delays the next requests.
      await g.call(CHAT, { key, body: BODY })
      const body = JSON.stringify(BODY)
      const head = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n`
      // The gateway runs in this process, so it accepts the connections when the clients have finished.
      const { port } = new URL(g.url)
      const { stderr } = spawnSync(process.execPath, ['-e', HASTY, port, `${head}\r\n${body}`, how])
      t.equal(String(stderr), '')
      await until(async () => (await g.history(key)).length === 11)
      await until(() => g.gateway.running === 0)
      t.equal(upstream.requests.length, 1)
      const [first, ...others] = (await g.settled(key)).toReversed()
      t.match(first, { type: 'settle' })
      for (const entry of others) t.match(entry, { type: 'void', status: 'client_gone', cost_nano: '0' })
    },
  )
