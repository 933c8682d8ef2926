import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'

/** A test can lose the contents only of a redis-server of its own. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

t.test('rebuild accepts only an empty store and complete files', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const place = new Place(t, ownPrefix, { ...upstreamEnv('http://127.0.0.1:1'), REDIS_URL: redis.url })
  await place.key('famC', '1')
  const trail = join(place.folder, 'data', 'grants.jsonl')
  const exported = join(place.folder, 'export.jsonl')
  writeFileSync(exported, (await place.run('export')).out)
  const torn = join(place.folder, 'torn.jsonl')
  writeFileSync(torn, readFileSync(exported, 'utf8').trimEnd().slice(0, -1))
  const rebuild = (...files: string[]): Promise<unknown> => place.run('rebuild', '--from', ...files)
  t.match(await rebuild(trail, exported), { code: 1, err: /the store has accounts/ })

  await redis.command('FLUSHALL')
  const early = await place.start(t)
  await early.saw(
    /The store is EMPTY, but \S+grants\.jsonl lists keys.*:\n {2}npx tollgate -c \S+gateway\.yaml rebuild --from \S+grants\.jsonl\n/,
  )
  t.notMatch(early.output, 'sk-', 'no keys of a first start among them')
  t.match(await rebuild(trail, exported), { code: 1, err: /a gateway uses this store; stop it first/ })
  await early.stop('SIGTERM')
  t.match(await rebuild(trail), {
    code: 2,
    err: /every key would get its whole allocation back; add the last export, or use --forget-usage/,
  })
  t.match(
    await Promise.all([
      rebuild(trail, torn),
      rebuild(join(place.folder, 'nothing')),
      rebuild(trail, exported, exported),
    ]),
    [
      { code: 2, err: /torn\.jsonl is an incomplete export/ },
      { code: 2, err: /cannot read/ },
      { code: 1, err: /two exports contain the history/ },
    ],
  )
  // As a killed gateway leaves it.
  await redis.command('SET', 't:rebuilding', '1')
  const interrupted = { code: 1, err: /was interrupted: empty the store/ }
  t.match(await rebuild(trail, exported), interrupted)
  t.match(await place.run('start'), interrupted)
  await redis.command('FLUSHALL')
  t.match(await rebuild(trail, '--forget-usage'), { code: 0, out: /1 accounts, 1 grants and 0 entries/ })
})
