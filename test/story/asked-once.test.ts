import t from 'tap'
import { startGateway } from '../gateway.ts'
import { rawUpstream } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [] }

t.test('a request that broke a new connection is not sent again: the provider may have taken it', async t => {
  const upstream = await rawUpstream(t, socket => socket.end())
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC')
  for (let asked = 1; asked <= 5; asked++) {
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
    t.equal(upstream.requests.length, asked)
  }
})
