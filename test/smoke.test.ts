import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { audit } from '../core/ledger/audit.ts'
import { holdsOf, until } from './gateway.ts'
import { chatReply, json, ScriptedUpstream } from './upstream.ts'
import { withVictims } from './victims.ts'
import { text } from './stream-events.ts'

/** The command as an operator runs it. `npm run test:all` has more processes, workers and kills. */

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const DELTA = text('thirty bytes of one long tale ')

t.test('after a gateway is killed in a stream, each request is charged once, and right', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ json: { stream } }, res) => {
    if (stream === true) res.writeHead(200, { 'content-type': 'text/event-stream' }).write(DELTA)
    else json(res, chatReply(10, 60))
  }
  const { survivor, place } = await withVictims(t, upstream, file =>
    file.setAll('ledger', { lease: '2s', reapEvery: '50ms' }),
  )
  const victim = await place.startProcess(t)
  const key = await survivor.key('famC', 1n)
  const account = await survivor.id(key)
  t.match(await (await victim.chat(key, BODY)).json(), chatReply(10, 60))
  const stream = await victim.chat(key, { ...BODY, stream: true })
  const read = stream.text().catch(() => undefined)
  const { ledger } = survivor.gateway
  // A renewal has written down what was delivered.
  await until(async () => [...(await holdsOf(ledger, account)).values()].some(hold => Number(hold.split(' ')[1]) > 0))
  await victim.stop('SIGKILL')
  await read
  await until(async () => (await ledger.reads.balance(account)).held === 0n)
  const [reaped, whole] = await ledger.reads.history({ account }, { count: 10 })
  t.match(whole, { kind: 'settle', charge: 10n * 3000n + 60n * 15_000n })
  const bodyBytes = JSON.stringify({ ...BODY, stream: true }).length
  t.match(reaped, { kind: 'reaped', charge: BigInt(Math.ceil(bodyBytes / 3)) * 3000n + 10n * 15_000n })
  t.same((await audit(ledger, undefined, 'charges')).drifts, [])
})

/** Loaded into a process: prints at its end how many modules it has loaded. */
const COUNTER = `
  import { registerHooks } from 'node:module'
  let modules = 0
  registerHooks({ load: (url, context, next) => (modules += url.startsWith('node:') ? 0 : 1, next(url, context)) })
  process.on('exit', () => console.error(modules))`

t.test('a command loads its own code only', t => {
  const main = fileURLToPath(new URL('../core/main.ts', import.meta.url))
  const modules = (...args: string[]): number => {
    const counter = `data:text/javascript,${encodeURIComponent(COUNTER)}`
    const { stderr } = spawnSync(process.execPath, ['--import', counter, main, ...args], { encoding: 'utf8' })
    return Number(stderr.trim().split('\n').at(-1))
  }
  for (const args of [['--version'], ['--help'], ['keys', '--help'], ['nonsense']]) {
    const count = modules(...args)
    t.ok(count > 5 && count <= 20, `${args.join(' ')} loads ${count} modules`)
  }
  t.end()
})
