import t from 'tap'
import { until } from '../gateway.ts'
import { startWorkers } from '../process.ts'
import { begun, ScriptedUpstream } from '../upstream.ts'
import { text } from '../stream-events.ts'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const DELTA = text('x')
const FINISH =
  'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9}}\n\ndata: [DONE]\n\n'

t.test(
  'a killed worker is replaced, and its streams are charged for what was received',
  { skip: process.platform !== 'linux' && 'needs /proc' },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    const replies = begun(upstream, DELTA)
    const { place, running } = await startWorkers(t, upstream.url, '2s')
    const one = await place.key('famC', '1')
    const streams = await Promise.all(Array.from({ length: 8 }, () => running.chat(one.key, { ...BODY, stream: true })))
    const ends = streams.map(stream =>
      stream.text().then(
        text => text.includes('[DONE]'),
        () => false,
      ),
    )
    const [victim = 0, other] = running.workers()
    process.kill(victim, 'SIGKILL')
    await running.saw(/"by":"SIGKILL","msg":"a worker ended; starting another one"/)
    await running.saw(/started a worker in place of one that ended/)
    t.ok(running.workers().includes(other ?? 0), 'the other one runs on')
    for (const res of replies) res.end(FINISH)
    if ((await Promise.all(ends)).includes(false)) await running.saw(/"holds":\d+,.*ended expired holds/)
    await until(async () => (await running.held(one.key)) === '0')
    t.match(await place.run('audit', '--key', one.id), { code: 0, out: /8 entries, 0 with drift/ })
  },
)

t.test('log lines of a worker survive the end of its host', async t => {
  const { place, running } = await startWorkers(t, 'http://127.0.0.1:1')
  await fetch(`${running.url}/v1/gone`).then(reply => reply.arrayBuffer())
  await running.stop('SIGKILL')
  t.match(running.output, /"path":"\/v1\/gone"/)
  // Its end stops the store as well.
  await place.startProcess(t)
})
