import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { until, upstreamEnv } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { DONE, STOP, text } from '../stream-events.ts'

const NO_REDIS = findServer(process.env) === undefined && 'no redis-server on PATH'
const STREAM = { model: 'acme/famC-5.5', messages: [], stream: true }

t.test(
  'SIGTERM lets running streams end, refuses new connections, and ends late streams with an error in their format',
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    const finish: (() => void)[] = []
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(text('x'))
      finish.push(() => res.end(STOP + DONE))
    }
    const place = new Place(t, file => file.set('limits.drain', '400ms'))
    const running = await place.startProcess(t, upstreamEnv(upstream.url))
    const { key, id } = await place.key('famC', '5')
    const open = (): Promise<Response> => running.chat(key, STREAM)
    const [short, long] = [await open(), await open()]
    running.child.kill('SIGTERM')
    await running.saw(/Draining 2 running requests/)
    finish[0]?.()
    t.match(await short.text(), /\[DONE\]/)
    await t.rejects(open(), 'nobody new is let in')
    t.match(await long.text(), /data: \{"error":\{"message":"The gateway is restarting\. Try again\."/)
    t.equal(await running.closed, 0)
    const history = await place.run('audit', '--key', id)
    t.match(history, { code: 0, out: /1 accounts, 2 entries, 0 with drift/ }, 'both were settled before the end')
  },
)

t.test('after kill -9 the next start finds the store, and releases what was held', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(text('x'))
  }
  const edit: Edit = file => file.set('ledger.lease', '300ms').set('ledger.reapEvery', '50ms')
  const place = new Place(t, edit, {}, true)
  const first = await place.startProcess(t, upstreamEnv(upstream.url))
  const { key } = await place.key('famC', '5')
  t.equal((await first.chat(key, STREAM)).status, 200)
  await first.stop('SIGKILL')
  const second = await place.startProcess(t, upstreamEnv(upstream.url))
  await until(async () => (await second.held(key)) === '0')
  t.match(await place.run('audit'), { code: 0 })
  t.match((await second.lookUp('key-info/history', key)).json.data, [{ type: 'reaped', usage_source: 'estimated' }])
})

t.test('a managed store that is slow to answer is not started a second time', { skip: NO_REDIS }, async t => {
  const place = new Place(t, file => file, {}, true)
  const running = await place.startProcess(t)
  const { id, key } = await place.key('famC', '1')
  const redis = new Redis({ path: join(place.folder, 'data', 'redis.sock') })
  const pid = Number(/process_id:(\d+)/.exec(await redis.info('server'))?.[1])
  redis.disconnect()
  process.kill(pid, 'SIGSTOP')
  const topup = place.run('keys', 'topup', id, '10')
  await new Promise(resolve => setTimeout(resolve, 2500))
  process.kill(pid, 'SIGCONT')
  t.match(await topup, { code: 0, out: /now has 11 credits/ })
  // The gateway connects again to a store that did not answer.
  const balance = async (): Promise<unknown> => (await running.lookUp('keys/lookup/balance', key)).json.balance
  await until(async () => (await balance()) !== undefined)
  t.equal(await balance(), 11, 'the gateway and the command speak to the same server')
})

t.test('a command never starts a second store on the files of a running gateway', { skip: NO_REDIS }, async t => {
  // The path is too long for a socket.
  const place = new Place(t, file => file.set('store.data', 'd'.repeat(100)), {}, true)
  const running = await place.startProcess(t)
  const { id, key } = await place.key('famC', '1')
  const topup = ['keys', 'topup', id, '10']
  const elsewhere = { TMPDIR: place.folder }
  t.match(await place.execute(topup, elsewhere), { code: 0, out: /now has 11 credits/ })
  rmSync(join(place.folder, 'd'.repeat(100), 'redis.sock'))
  const refused = await place.execute(topup, elsewhere)
  t.match(refused, { code: 1, err: /the gateway runs, but its store does not listen on .*; restart the gateway/ })
  t.equal((await running.lookUp('keys/lookup/balance', key)).json.balance, 11)
  const log = readFileSync(join(place.folder, 'd'.repeat(100), 'redis.log'), 'utf8')
  t.equal(log.match(/ready to accept connections/gi)?.length, 1)
  await running.stop('SIGTERM')
  t.match(await place.run(...topup), { code: 0, out: /now has 21 credits/ })
})

t.test('a gateway whose log has no reader keeps serving, and stops on a signal', async t => {
  const running = await new Place(t).startProcess(t)
  running.child.stdout?.destroy()
  // A batch of lines, and lines after it has failed.
  for (let line = 0; line < 100; line++) await fetch(`${running.url}/health`)
  t.equal((await fetch(`${running.url}/health`)).status, 200)
  t.equal(await running.stop('SIGTERM'), 0)
})

t.test('a slow reader gets the last lines of the log', async t => {
  const running = await new Place(t).startProcess(t)
  const { url, child } = running
  child.stdout?.pause()
  // More than the pipe and the reader buffer.
  const path = `/${'x-'.repeat(99)}`
  const asked = 1000
  for (let line = 0; line < asked; line++) await fetch(url + path).then(reply => reply.arrayBuffer())
  child.kill('SIGTERM')
  // Only the log could show when everything else is done, so this waits a moment.
  setTimeout(() => child.stdout?.resume(), 500)
  t.equal(await running.closed, 0)
  t.equal(running.output.split(path).length - 1, asked)
})
