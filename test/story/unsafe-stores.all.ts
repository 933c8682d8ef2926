import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { recordsEnv, upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import type { Edit } from '../gateway-file.ts'

/** A test can configure only a redis-server of its own badly. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

t.test('stores that may lose balances cause a warning, and are refused in production', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { ...upstreamEnv('http://127.0.0.1:1'), REDIS_URL: redis.url, ...recordsEnv() }
  const data = t.testdir({})
  const shared: Edit = file => ownPrefix(file).set('store.data', data)
  const production: Edit = file => shared(file).set('production', true)
  await redis.command('CONFIG', 'SET', 'appendonly', 'no')
  await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
  const weak = /has no append-only file[^]*evicts balances[^]*has no memory limit/
  t.match(await new Place(t, production, env).execute(['start']), { code: 1, err: weak })
  const warned = await new Place(t, shared, env).start(t)
  await warned.saw(weak)
  await warned.stop('SIGTERM')
  t.match(await new Place(t, file => production(file).set('store.replicas', 1), env).execute(['start']), {
    code: 1,
    err: /0 of the 1 replicas[^]*set min-replicas-to-write 1/,
  })
  await redis.command('CONFIG', 'SET', 'appendonly', 'yes')
  await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
  await redis.command('CONFIG', 'SET', 'maxmemory', '100mb')
  const sound = await new Place(t, production, env).start(t)
  t.equal((await fetch(`${sound.url}/health/ready`)).status, 200)
  t.notMatch(sound.output, 'weakness of the store')
})
