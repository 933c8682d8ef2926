import t from 'tap'
import { until, upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { hooked, Receiver } from './webhook-receiver.ts'

t.test('notices survive kill -9, and a command sends a test', async t => {
  const receiver = await Receiver.start(t)
  const place = new Place(t, hooked(receiver, { lowCredits: 1 }), upstreamEnv('http://127.0.0.1:9'))
  const none = await place.run('keys', 'list')
  t.equal(none.code, 0)
  let running = await place.startProcess(t)
  t.match(await place.run('webhooks', 'test'), { code: 0, out: /The test was delivered \(msg_/ })
  receiver.status = 500
  t.match(await place.run('webhooks', 'test'), { code: 1, err: /the test was not delivered: status 500/ })
  await running.stop('SIGKILL')
  receiver.status = 200
  running = await place.start(t)
  t.match(await place.run('webhooks', 'test'), { code: 0 })
  await until(() => receiver.got.filter(({ type }) => type === 'test').length >= 3)
})
