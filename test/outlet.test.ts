import t from 'tap'
import { Outlet } from '../core/client/outlet.ts'
import type { ClientReply } from '../core/client/reply.ts'

/** A client that listens, as far as an outlet needs it. */
function listener() {
  const closes = new Set<() => void>()
  const res = {
    writableEnded: false,
    destroyed: false,
    headersSent: false,
    destroy() {
      res.destroyed = true
      for (const close of closes) close()
    },
    on: (_event: 'close', close: () => void) => closes.add(close),
  }
  const reply = { res, gone: false, begin() {}, sendHead() {}, write: () => true }
  return { res, reply: reply as unknown as ClientReply }
}

/** The outlet of a request that may be sent again, whose client has left. @param hasBegun whether it was sent anything */
function left(hasBegun = true): Outlet {
  const first = listener()
  const outlet = new Outlet(first.reply, { allClientsLeft() {}, clientJoined() {} })
  outlet.keep(1000, { bytes: 1000 })
  if (hasBegun) {
    outlet.begin(200, {})
    outlet.write(Buffer.from('the beginning'))
  }
  first.reply.onLeave?.(first.reply)
  return outlet
}

t.test('a client that joins a reply at its last moment is disconnected when nothing more comes', async t => {
  const outlet = left()
  const { res, reply } = listener()
  const joined = outlet.join(reply)
  res.headersSent = true
  outlet.close()
  await joined
  t.equal(res.destroyed, true)
})

t.test('one that joins before the reply has begun is refused, and may send its request again', async t => {
  const outlet = left(false)
  const { res, reply } = listener()
  const joined = outlet.join(reply)
  outlet.close()
  await t.rejects(joined, { code: 'unavailable', retry: true })
  t.equal(res.destroyed, false, 'so that it gets the error')
})

t.test('a reply that is over without its end cannot be joined', async t => {
  const outlet = left()
  outlet.close()
  t.equal(outlet.joinable, false)
  await t.rejects(outlet.join(listener().reply), { code: 'request_conflict' })
})
