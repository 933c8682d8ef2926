import t from 'tap'
import { Place } from '../process.ts'

t.test('a command refuses to work on another store than the running gateway', async t => {
  const place = new Place(t)
  await place.start(t)
  const child = place.spawn(['keys', 'create', '--type', 'famC', '--credits', '1'], {
    REDIS_URL: 'redis://127.0.0.1:1',
  })
  let err = ''
  child.stderr?.on('data', (part: Buffer) => (err += part.toString()))
  t.equal(await new Promise(resolve => child.on('close', resolve)), 1)
  t.match(err, /the running gateway uses .+ and .+, but this command would use redis at 127\.0\.0\.1:1 /)
})
