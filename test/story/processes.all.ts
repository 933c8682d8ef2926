import t from 'tap'
import { until } from '../gateway.ts'
import { Place } from '../process.ts'

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
