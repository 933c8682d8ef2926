import t from 'tap'
import { UpstreamClock } from '../../core/exchange/upstream-clock.ts'

t.test('pauses between the tokens of a text are no silence; longer ones are', t => {
  let now = 0
  const clock = new UpstreamClock(() => now)
  t.equal(clock.silentMs, 0, 'nothing was sent yet')
  clock.start()
  now = 1000
  t.equal(clock.silentMs, 1000)
  clock.output()
  now = 1200
  t.equal(clock.silentMs, 1000)
  clock.output()
  now = 1451
  t.equal(clock.silentMs, 1251)
  clock.output(40)
  t.equal(clock.silentMs, 0, 'encrypted reasoning accounts for the silence before it')
  t.equal(clock.encryptedBytes, 40)
  t.equal(clock.elapsedMs, 1451)
  t.end()
})

t.test('the silence before the end of a reply counts, however short it is', t => {
  let now = 0
  const clock = new UpstreamClock(() => now)
  clock.start()
  now = 100
  clock.output()
  now = 280
  t.equal(clock.silentMs, 0, 'a text may go on')
  clock.stop()
  now = 9000
  t.equal(clock.silentMs, 180)
  t.equal(clock.elapsedMs, 280)
  t.end()
})
