import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { until } from '../gateway.ts'
import { BIN, Place } from '../process.ts'

/** Commands as an operator runs them, each in a process of its own, beside a gateway with a redis-server of its own. */

t.test('a command prints and returns the same in a process of its own as in the process of the tests', async t => {
  const place = new Place(t, file => file, {}, true)
  const running = await place.startProcess(t)
  const made = await place.execute(['keys', 'create', '--type', 'famC', '--credits', '5', '--json'])
  t.match(made, { code: 0, err: '' })
  const { id, key } = JSON.parse(made.out) as { id: string; key: string }
  t.equal((await running.chat(key, { model: 'acme/famC-5.5', messages: [], max_tokens: 9 })).status, 200)
  // What the gateway records in the background comes first.
  await until(async () => /last_used_at \d/.test((await place.run('keys', 'show', id)).out))
  for (const args of [
    ['keys', 'show', id],
    ['keys', 'list', '--json'],
    ['check'],
    ['--help'],
    ['--version'],
    ['nonsense'],
    ['keys', 'topup', id, 'much'],
    ['keys', 'show', 'key_none'],
    ['check', 'nothing.yaml'],
  ]) {
    const [here, there] = [await place.run(...args), await place.execute(args)]
    t.same(there, here, args.join(' '))
  }
  t.match(running.output, /managed (?:redis|valkey)-server, files in /)
  t.equal(await running.stop('SIGTERM'), 0)
  t.match(await place.execute(['audit']), { code: 0, out: /0 with drift/ }, 'a command starts the store by itself')
})

t.test('a command that ends with an error waits until its output has been read', async t => {
  const place = new Place(t)
  appendFileSync(place.file, Array.from({ length: 4000 }, (_, nth) => `\n${'x'.repeat(100)}${nth}: 1`).join(''))
  const child = place.spawn(['check'])
  let text = ''
  child.stdout?.resume()
  child.stderr?.setEncoding('utf8').on('data', (part: string) => (text += part))
  const [code] = (await once(child, 'close')) as [number]
  t.equal(code, 78)
  t.match(text, /\n4000 problems\n$/)
})

t.test('a start that fails ends although nobody reads what it prints', async t => {
  const taken = createServer().listen(0, '127.0.0.1')
  t.teardown(() => taken.close())
  await once(taken, 'listening')
  const place = new Place(t)
  const reader = spawn('sleep', ['86400'], { stdio: ['pipe', 'ignore', 'ignore'] })
  t.teardown(() => reader.kill('SIGKILL'))
  reader.stdin.on('error', () => {}).write(Buffer.alloc(2 ** 20))
  const child = spawn(process.execPath, [BIN, 'start'], {
    cwd: place.folder,
    env: { ...process.env, ...place.env, PORT: String((taken.address() as AddressInfo).port), NODE_OPTIONS: '' },
    stdio: ['ignore', reader.stdin, 'ignore'],
  })
  t.same(await once(child, 'close'), [1, null])
})

t.test('a command reports a promise that nobody handles', async t => {
  const place = new Place(t)
  mkdirSync(join(place.folder, 'plugins'))
  writeFileSync(
    join(place.folder, 'plugins', 'lost.ts'),
    `void Promise.reject(new Error('nobody'))\nexport default 1\n`,
  )
  t.match(await place.execute(['check']), { err: /unhandled rejection: nobody/ })
})
