import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { Place } from '../process.ts'
import { freePort } from '../ports.ts'
import { ownPrefix, RealRedis } from '../redis.ts'

/** A test can make only a redis-server of its own refuse. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

t.test('every command reports an unreachable store at once', { skip }, async t => {
  const node = await RealRedis.start(t, '--cluster-enabled', 'yes')
  const nowhere = `127.0.0.1:${await freePort()}`
  const locked = await RealRedis.start(t)
  await locked.command('CONFIG', 'SET', 'requirepass', 'another')
  const cases = [
    [`redis://${nowhere}`, 'connect ECONNREFUSED'],
    [`redis+sentinel://${nowhere}/mine`, 'no sentinel names its master'],
    [`redis+cluster://${nowhere}`, 'no node of the cluster answers'],
    [`redis+cluster://127.0.0.1:${node.port}`, 'the cluster is not in order'],
    [`redis://:top-secret@127.0.0.1:${locked.port}`, 'WRONGPASS'],
  ] as const
  for (const [url, why] of cases) {
    const place = new Place(t, ownPrefix, { REDIS_URL: url })
    for (const { code, out, err } of await Promise.all([place.run('audit'), place.execute(['start'])])) {
      t.notMatch(out + err, 'top-secret')
      t.equal(code, 1, url)
      t.match(err, `tollgate: the store cannot be reached: ${why}`)
    }
  }
})
