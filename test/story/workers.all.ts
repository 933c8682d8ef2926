import t from 'tap'
import { until } from '../gateway.ts'
import { startWorkers } from '../process.ts'
import { begun, chatReply, json, ScriptedUpstream } from '../upstream.ts'
import { text } from '../stream-events.ts'

/** Workers of one gateway. */

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
/** The hold of such a request, in nano-credits. */
const HELD = Math.ceil(JSON.stringify(BODY).length / 2) * 3000 + 100 * 15_000
const DELTA = text('x')
const FINISH =
  'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9}}\n\ndata: [DONE]\n\n'

t.test('two workers on one port admit what the balance pays for, and no more', async t => {
  const upstream = await ScriptedUpstream.start(t)
  let release = (): void => {}
  const gate = new Promise<void>(resolve => (release = resolve))
  upstream.script = async (_received, res) => {
    await gate
    json(res, chatReply(10, 10))
  }
  const { place, running } = await startWorkers(t, upstream.url)
  const one = await place.key('famC', String((HELD * 10) / 1e9))
  let refused = 0
  const calls = Array.from({ length: 100 }, async () => {
    const { status } = await running.chat(one.key, BODY)
    if (status === 429) refused++
    return status
  })
  await until(() => refused === 90)
  release()
  t.equal((await Promise.all(calls)).filter(status => status === 200).length, 10)
  await until(async () => (await running.held(one.key)) === '0')
  t.match(await place.run('audit', '--key', one.id), { code: 0, out: /10 entries, 0 with drift/ })
})

t.test('a changed file reaches every worker, an invalid one none; a stop drains them all', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const replies = begun(upstream, DELTA)
  const { place, running } = await startWorkers(t, upstream.url)
  const one = await place.key('famC', '1')
  place.edit(file => file.set('keyTypes.famC.upstream', 'famX'))
  await running.saw(/there is no upstream "famX"/)
  place.edit(file => file.set('keyTypes.famC.upstream', 'famC').model('famC', 'acme/famC-5.5', { price: 'small' }))
  await running.saw(/"generation":2[^]*"generation":2/)
  t.notMatch(running.output, '"generation":3')
  t.equal(running.output.match(/there is no upstream/g)?.length, 1, 'told once')
  const streams = await Promise.all(Array.from({ length: 4 }, () => running.chat(one.key, { ...BODY, stream: true })))
  running.child.kill('SIGTERM')
  await running.saw(/Draining 2 workers/)
  for (const res of replies) res.end(FINISH)
  for (const stream of streams) t.match(await stream.text(), '[DONE]')
  t.equal(await running.closed, 0)
  t.match(await place.run('audit', '--key', one.id), { code: 0, out: /4 entries, 0 with drift/ })
})

t.test('log lines are whole, with several writers and a slow reader', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const { running } = await startWorkers(t, upstream.url)
  const { url, child } = running
  child.stdout?.pause()
  const path = `/${'x-'.repeat(99)}`
  const asked = 1500
  // Each connection belongs to one worker.
  const ask = async (): Promise<void> =>
    fetch(url + path, { headers: { connection: 'close' } }).then(async reply => void (await reply.arrayBuffer()))
  for (let at = 0; at < asked; at += 10) await Promise.all(Array.from({ length: 10 }, ask))
  child.stdout?.resume()
  await running.stop('SIGTERM')
  const lines = running.output.split('\n').filter(line => line.includes(path))
  t.equal(lines.length, asked)
  for (const line of lines) if (!/^\{"level":"info",.*\}$/.test(line)) t.fail(line)
})
