import { spawnSync } from 'node:child_process'
import t from 'tap'
import { Place } from '../process.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { upstreamEnv } from '../gateway.ts'

const SHELL = { encoding: 'utf8' } as const

t.test('the first start prints keys and curl lines that work when pasted; the second does not', async t => {
  const place = new Place(t)
  const first = await place.start(t)
  await first.saw(/lookup\/balance.*\n/)
  t.match(first.output, /key types: famA \(6 models\), famB \(11 models\), famC \(4 models\), editor \(24 models\)/)
  t.match(first.output, /SIMULATED PROVIDER answers for famA, famB, famC, editor/)
  const lines = first.output.split('\n').filter(line => line.startsWith('curl '))
  t.equal(lines.length, 3)
  const [reply, stream, balance] = lines.map(line => spawnSync('sh', ['-c', `${line} -s`], SHELL).stdout) as [string, string, string]
  t.match(JSON.parse(reply), { type: 'message', content: [{ text: /Hello/ }] })
  t.match(stream, /^data: .*\n\n[^]*data: \[DONE\]\n\n$/)
  t.match(JSON.parse(balance), { isValid: true, used: /^0\.0001/ })
  t.equal(await first.stop('SIGTERM'), 0)
  const second = await place.start(t)
  t.notMatch(second.output, 'first start')
  t.equal((await place.run('keys', 'list')).out.trim().split('\n').length, 4, 'the store remembers')
  await second.stop('SIGINT')
})

t.test('no key and no credential is in anything the gateway prints', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const credential = 'upstream-credential-4711'
  upstream.script = (_received, res) =>
    void res.writeHead(500, { 'content-type': 'application/json' }).end(JSON.stringify({ error: { message: `bad ${credential}` } }))
  const place = new Place(t)
  const running = await place.start(t, upstreamEnv(upstream.url, credential))
  const { key } = await place.key('famC', '5')
  for (const path of ['/v1/chat/completions', `/v1/${key}`, `/v1/models/${key}`]) {
    await fetch(running.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: 'acme/famC-5.5', messages: [{ content: `say ${key}` }] }),
    })
  }
  await running.stop('SIGTERM')
  t.match(running.output, /"outcome":"failed"/)
  t.notMatch(running.output, key)
  t.notMatch(running.output, credential)
  t.notMatch(running.output, 'say sk-')
})

t.test('a store that is first look only says so, and is refused in production', async t => {
  const place = new Place(t)
  const env = { PATH: '/nonexistent', REDIS_URL: '' }
  const refused = place.spawn(['start'], { ...env, NODE_ENV: 'production', ...upstreamEnv('https://provider.example') })
  let complaint = ''
  refused.stderr?.on('data', (part: Buffer) => (complaint += part.toString()))
  t.equal(await new Promise(resolve => refused.on('close', resolve)), 1)
  t.match(complaint, /embedded store is refused in production/)
  const running = await place.start(t, env)
  await running.saw(/lookup\/balance.*\n/)
  t.match(running.output, /EMBEDDED, for a first look only/)
  t.match(await (await fetch(`${running.url}/health`)).json(), { status: 'ok', store: 'embedded (first look only)' })
  const [curl = ''] = running.output.split('\n').filter(line => line.startsWith('curl '))
  t.match(spawnSync('sh', ['-c', `${curl} -s`], SHELL).stdout, /simulated provider/)
  await running.stop('SIGTERM')
  const again = await place.start(t, env)
  await again.saw(/This is the first start[^]*lookup\/balance/)
  t.notMatch(again.output, 'rebuild', 'what it has forgotten is not missed')
})
