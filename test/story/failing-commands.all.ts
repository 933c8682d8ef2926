import net from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { recordsEnv, upstreamEnv } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { listening } from '../upstream.ts'

/** What a command prints when its store fails. A test can make only a redis-server of its own fail. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** A proxy to a Redis that loses the first answer to a top-up. */
async function lossy(t: Test, redis: RealRedis): Promise<string> {
  let lost = false
  const server = net.createServer(client => {
    const store = net.connect(redis.port, '127.0.0.1')
    const end = (): void => {
      client.destroy()
      store.destroy()
    }
    let asked = false
    client.on('data', part => {
      asked = !lost && part.includes('\ngrant\r')
      store.write(part)
    })
    store.on('data', part => {
      if (!asked) return client.write(part)
      lost = true
      return end()
    })
    for (const side of [client, store]) side.on('error', end).on('close', end)
  })
  t.teardown(() => server.close())
  return (await listening(server)).replace('http:', 'redis:')
}

t.test('a top-up whose answer is lost is done once, by the command that is then printed', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { ...upstreamEnv('http://127.0.0.1:1'), ...recordsEnv() }
  const make = new Place(t, ownPrefix, { ...env, REDIS_URL: redis.url })
  const { id, key } = await make.key('famC', '1')
  const shared: Edit = file => ownPrefix(file).set('store.data', join(make.folder, 'data'))
  const place = new Place(t, shared, { ...env, REDIS_URL: await lossy(t, redis) })
  const { code, err } = await place.run('keys', 'topup', key, '10')
  t.equal(code, 1)
  t.match(err, /^tollgate: the store failed: .*; the change may or may not have been made/)
  t.notMatch(err, key)
  const [, again = ''] = /\n {2}npx tollgate (.*)\n$/.exec(err) ?? []
  t.match(again, `-c ${place.file} keys topup ${id} 10 --idempotency-key `)
  for (const _time of [1, 2]) t.match(await place.run(...again.split(' ')), { code: 0, out: /now has 11 credits/ })
  t.match(
    (await place.run(...again.split(' '))).out,
    /This idempotency key was already used, so nothing was changed\.\n$/,
  )
  t.match(JSON.parse((await place.run(...again.split(' '), '--json')).out), { balance: '11', added: false })
  t.match(await place.run(...again.replace(' 10 ', ' 20 ').split(' ')), {
    code: 1,
    err: /this idempotency key was already used to add 10 credits/,
  })
  t.match(await place.run('keys', 'topup', id, '2', '--idempotency-key', 'payment&1'), {
    code: 2,
    err: /letters, digits and/,
  })
  t.match(await place.run('keys', 'topup', id, '2', '--idempotency-key', 'payment-1'), {
    code: 0,
    out: /now has 13 credits/,
  })
  t.match(await place.run('audit'), { code: 0, out: /0 with drift/ })
})

t.test('a key is disabled in the store while the database does not answer', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const place = new Place(t, ownPrefix, { REDIS_URL: redis.url })
  const [one, other] = [await place.key('famC', '1'), await place.key('famC', '1')]
  const away = new Place(t, ownPrefix, { REDIS_URL: redis.url, DATABASE_URL: 'postgres://me@127.0.0.1:1/gone' })
  for (const key of [one.id, other.key])
    t.match(await away.run('keys', 'disable', key), {
      code: 0,
      err: /disabled in the store\. The records do not answer/,
    })
  for (const { id } of [one, other]) {
    const [account = ''] = (await redis.command('KEYS', `*:a:${id}`)) as string[]
    t.equal(await redis.command('HGET', account, 'st'), 'disabled')
  }
  t.match(await away.run('keys', 'disable', 'key_none'), { code: 2, err: /no such key/ })
  t.match(await away.run('keys', 'enable', one.id), { code: 1, err: /cannot be reached/ })
})
