import { spawnSync } from 'node:child_process'
import t from 'tap'
import { upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { text } from '../stream-events.ts'

t.test('the embedded store is refused in production, and filled from the records when it starts again', async t => {
  const place = new Place(t)
  const env = { PATH: '/nonexistent', REDIS_URL: '' }
  const refused = place.spawn(['start'], { ...env, NODE_ENV: 'production', ...upstreamEnv('https://provider.example') })
  let complaint = ''
  refused.stderr?.on('data', (part: Buffer) => (complaint += part.toString()))
  t.equal(await new Promise(resolve => refused.on('close', resolve)), 1)
  t.match(complaint, /production does not allow the embedded store/)
  const running = await place.startProcess(t, env)
  await running.saw(/lookup\/balance.*\n/)
  t.match(running.output, /EMBEDDED, for a look: slow, for one process, .*`apt install redis-server`/)
  t.match(await (await fetch(`${running.url}/health`)).json(), {
    status: 'ok',
    store: 'embedded (for a first try only)',
  })
  const [curl = ''] = running.output.split('\n').filter(line => line.startsWith('curl '))
  t.match(spawnSync('sh', ['-c', `${curl} -s`], { encoding: 'utf8' }).stdout, /simulated provider/)
  const [, key = ''] = /Bearer (sk-\w+)/.exec(curl) ?? []
  const models = (await (
    await fetch(`${running.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
  ).json()) as { data: { id: string }[] }
  const body = JSON.stringify({
    model: models.data[0]?.id,
    max_tokens: 10,
    messages: [{ role: 'user', content: 'hi' }],
  })
  const ask = async (): Promise<string> =>
    (
      await fetch(`${running.url}/v1/messages`, {
        method: 'POST',
        body,
        headers: { authorization: `Bearer ${key}`, 'idempotency-key': 'once' },
      })
    ).text()
  t.equal(await ask(), await ask(), 'every operation of the ledger is known to it')
  await running.stop('SIGTERM')
  const again = await place.startProcess(t, env)
  await again.saw(/Customers call/)
  const history = await again.lookUp('key-info/history', key)
  t.equal(history.json.data.length, 2)
  t.match((await again.lookUp('keys/lookup/balance', key)).json, { total: 5, used: 0.000867 })
  await again.stop('SIGKILL')
  const third = await place.startProcess(t, env)
  t.same((await third.lookUp('key-info/history', key)).json.data, history.json.data, 'also after kill -9')
})

t.test('with the embedded store, requests that run when the gateway is killed are not charged', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(text('x'))
  }
  const place = new Place(t)
  const env = { PATH: '/nonexistent', REDIS_URL: '', ...upstreamEnv(upstream.url) }
  const running = await place.startProcess(t, env)
  const made = JSON.parse(
    (await place.execute(['keys', 'create', '--type', 'famC', '--credits', '5', '--json'], env)).out,
  )
  const stream = await running.chat(made.key, { model: 'acme/famC-5.5', messages: [], stream: true })
  t.equal(stream.status, 200)
  t.not(await running.held(made.key), '0')
  await running.stop('SIGKILL')
  const again = await place.startProcess(t, env)
  t.match((await again.lookUp('keys/lookup/balance', made.key)).json, { balance: 5, used: 0, held: 0 })
})

t.test('a data folder has one gateway, and no command takes the store of a killed one for its own', async t => {
  const place = new Place(t)
  const env = { PATH: '/nonexistent', REDIS_URL: '' }
  const running = await place.startProcess(t, env)
  t.match(await place.execute(['start'], env), { code: 1, err: /another gateway uses .+data; set another store\.data/ })
  t.match(await place.execute(['keys', 'list'], env), { code: 0 })
  await running.stop('SIGKILL')
  t.match(await place.execute(['keys', 'list'], env), { code: 1, err: /there is no store/ })
  await place.startProcess(t, env)
})
