import t from 'tap'
import { Outlet } from '../core/client/outlet.ts'
import type { ClientReply } from '../core/client/reply.ts'

/** A client that listens, as far as an outlet needs it. */
function listener() {
  const closes = new Set<() => void>()
  const res = {
    writableEnded: false,
    destroyed: false,
    destroy() {
      res.destroyed = true
      for (const close of closes) close()
    },
    on: (_event: 'close', close: () => void) => closes.add(close),
  }
  const reply = { res, gone: false, begin() {}, sendHead() {}, write: () => true }
  return { res, reply: reply as unknown as ClientReply }
}

/** The outlet of a request that may be sent again, whose client has left. */
function left(): Outlet {
  const first = listener()
  const outlet = new Outlet(first.reply, { allClientsLeft() {}, clientJoined() {} })
  outlet.keep(1000, { bytes: 1000 })
  outlet.begin(200, {})
  outlet.write(Buffer.from('the beginning'))
  first.reply.onLeave?.(first.reply)
  return outlet
}

t.test('a client that joins a reply at its last moment is disconnected when nothing more comes', async t => {
  const outlet = left()
  const { res, reply } = listener()
  const joined = outlet.join(reply)
  outlet.close()
  await joined
  t.equal(res.destroyed, true)
})

t.test('a reply that is over without its end cannot be joined', async t => {
  const outlet = left()
  outlet.close()
  t.equal(outlet.joinable, false)
  await t.rejects(outlet.join(listener().reply), { code: 'request_conflict' })
})
