import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { Client } from 'undici'
import { CHUNK_BYTES, UpstreamBody } from '../../core/upstream/connection/reply-body.ts'

const BODY_BYTES = 16 * 1024 * 1024
/** More than a socket has buffered when it is read: undici hands over all of that before a pause counts. */
const READ_AT_ONCE_BYTES = 256 * 1024

t.test('a body that is read slowly leaves its provider waiting, and keeps little itself', async t => {
  const server = createServer((_req, res) => res.end(Buffer.alloc(BODY_BYTES))).listen(0, '127.0.0.1')
  t.teardown(() => server.close())
  await once(server, 'listening')
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  t.teardown(() => client.close())
  let [taken, emitted, mostWaiting, longest] = [0, 0, 0, 0]
  const ended = Promise.withResolvers<void>()
  let body: UpstreamBody
  client.dispatch(
    { path: '/', method: 'GET' },
    {
      onRequestStart(controller) {
        body = new UpstreamBody(controller)
        body.on('data', (chunk: Buffer) => {
          emitted += chunk.length
          longest = Math.max(longest, chunk.length)
          body.pause()
          setImmediate(() => body.resume())
        })
        body.on('end', ended.resolve)
      },
      onResponseStart: () => {},
      onResponseData(_controller, chunk) {
        taken += chunk.length
        mostWaiting = Math.max(mostWaiting, taken - emitted)
        body.take(chunk)
      },
      onResponseEnd: () => body.conclude('ended'),
      onResponseError: (_controller, error) => ended.reject(error),
    },
  )
  await ended.promise
  t.equal(emitted, BODY_BYTES)
  t.ok(longest <= CHUNK_BYTES, `${longest} bytes at once`)
  t.ok(mostWaiting <= READ_AT_ONCE_BYTES, `${mostWaiting} bytes were waiting`)
})
