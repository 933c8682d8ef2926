import { spawnSync } from 'node:child_process'
import { createServer } from 'node:net'
import { resolve } from 'node:path'
import t from 'tap'
import { fileOption } from '../../core/commands/shared.ts'
import { Place } from '../process.ts'
import { freePort } from '../ports.ts'
import { listening, ScriptedUpstream } from '../upstream.ts'
import { upstreamEnv } from '../gateway.ts'

const SHELL = { encoding: 'utf8' } as const

t.test('the first start prints keys and curl lines that work when pasted; the second does not', async t => {
  const place = new Place(t)
  const first = await place.startProcess(t)
  await first.saw(/lookup\/balance.*\n/)
  t.match(
    first.output,
    /limits: {4}[\d,]+ connections(?: \([\d,]+ open files are too few for 10,000; raise `ulimit -n` or LimitNOFILE\))?; [\d,]+ MiB for requests and replies\n/,
  )
  t.match(first.output, /key types: famA \(6 models\), famB \(11 models\), famC \(4 models\), editor \(24 models\)/)
  t.match(first.output, /SIMULATED PROVIDER answers for famA, famB, famC, editor/)
  const lines = first.output.split('\n').filter(line => line.startsWith('curl '))
  t.equal(lines.length, 3)
  const [reply, stream, balance] = lines.map(line => spawnSync('sh', ['-c', `${line} -s`], SHELL).stdout) as [
    string,
    string,
    string,
  ]
  t.match(JSON.parse(reply), { type: 'message', content: [{ text: /Hello/ }] })
  t.match(stream, /^data: .*\n\n[^]*data: \[DONE\]\n\n$/)
  t.match(JSON.parse(balance), { isValid: true, used: /^0\.0001/ })
  t.equal(await first.stop('SIGTERM'), 0)
  const second = await place.startProcess(t)
  t.notMatch(second.output, 'first start')
  await second.saw(/Customers call http:\S+ with their keys\. `npx tollgate keys list` prints the keys\./)
  t.equal((await place.run('keys', 'list')).out.trim().split('\n').length, 4, 'the store remembers')
  await second.stop('SIGINT')
})

t.test('printed commands name the file that the gateway uses', async t => {
  t.equal(fileOption('gateway.yaml'), '')
  t.equal(fileOption(resolve('gateway.yaml')), '')
  t.equal(fileOption('/etc/my shop/gateway.yaml'), " -c '/etc/my shop/gateway.yaml'")
})

t.test('a first start with real providers says how to create a key', async t => {
  const place = new Place(t, file => file, upstreamEnv('http://127.0.0.1:1'))
  const running = await place.start(t)
  await running.saw(
    /There are no keys yet\. Create one:\n {2}npx tollgate keys create --type famA --credits 25(?: -c \S+)?\n/,
  )
  await running.stop('SIGTERM')
})

t.test('nothing that the gateway prints contains a key or a credential', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const credential = 'upstream-credential-4711'
  upstream.script = (_received, res) =>
    void res
      .writeHead(500, { 'content-type': 'application/json' })
      .end(JSON.stringify({ error: { message: `bad ${credential}` } }))
  const place = new Place(t)
  const running = await place.start(t, upstreamEnv(upstream.url, credential))
  const { key } = await place.key('famC', '5')
  const hidden = [
    `/v1/${key.replace('-', '%252D')}`,
    `/v1/models/x_${key}`,
    `/v1/models/%73${key.slice(1)}`,
    `/v1/models/${key.replace('-', '%2d')}`,
  ]
  for (const path of ['/v1/chat/completions', `/v1/${key}`, `/v1/models/${key}`, ...hidden]) {
    await fetch(running.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model: 'acme/famC-5.5', messages: [{ content: `say ${key}` }] }),
    })
  }
  await running.stop('SIGTERM')
  t.match(running.output, /"outcome":"failed"/)
  t.notMatch(running.output, key.slice(3))
  t.notMatch(running.output, credential)
  t.notMatch(running.output, 'say sk-')
})

t.test('what customers send is not in the log, even if an upstream repeats it', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const said = 'nobody else is to hear of this'
  const messages = [
    `Invalid value: '${said}'`,
    `"${said}" isn't allowed`,
    `Why? [\`${said}\nand more\`]`,
    `Input: "${said}${' and more'.repeat(99)}" is too long`,
    `Blocked “${said}”`,
    `not parsed: {\\"prompt\\":\\"${said}\\"}`,
    `b'${said}'`,
  ]
  let status = 0
  let message = ''
  upstream.script = (_received, res) =>
    void res
      .writeHead(status, { 'content-type': 'application/json' })
      .end(JSON.stringify({ error: { message, type: 'some_type', code: `"${said}"` } }))
  const place = new Place(t)
  const running = await place.start(t, upstreamEnv(upstream.url))
  const { key } = await place.key('famC', '5')
  for (status of [400, 500, 503])
    for (message of messages) await running.chat(key, { model: 'acme/famC-5.5', messages: [] })
  await running.stop('SIGTERM')
  t.match(running.output, /"reason":"upstream status 500 some_type Invalid value: …"/)
  t.match(running.output, /"reason":"upstream status 400 some_type"/, 'whose request was at fault is told the words')
  t.notMatch(running.output, 'nobody else')
})

t.test('the log says in one line why a request failed', async t => {
  const place = new Place(t)
  const running = await place.start(t, upstreamEnv(`http://127.0.0.1:${await freePort()}`))
  const { key } = await place.key('famC', '5')
  t.equal((await running.chat(key, { model: 'acme/famC-5.5', messages: [] })).status, 502)
  await running.saw(/"code":"upstream_failed","reason":"connect ECONNREFUSED [\d.]+:\d+","msg":"failed"}\n/)
  t.notMatch(running.output, 'node:', 'a stack is for defects')
})

t.test('a start whose workers cannot listen ends with the reason', async t => {
  const taken = createServer()
  t.teardown(() => taken.close())
  const { port } = new URL(await listening(taken))
  const second = new Place(t, file => file.set('workers', 2).set('listen.port', Number(port)))
  t.match(await second.execute(['start']), { code: 1, err: /is in use; set another listen\.port/ })
})
