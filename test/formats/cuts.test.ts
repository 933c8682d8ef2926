import { setImmediate as turn } from 'node:timers/promises'
import { eachReply } from './replies.ts'

eachReply(async (t, upstream, { sse }, clients) => {
  const bytes = Buffer.from(sse)
  upstream.script = async (_received, res) => {
    // With a known length, bytes come without a chunk header of their own.
    res.writeHead(200, { 'content-type': 'text/event-stream', 'content-length': bytes.length })
    for (const byte of bytes) {
      res.write(Buffer.from([byte]))
      await turn()
    }
    res.end()
  }
  await Promise.all(
    clients.map(async ({ ask, told }) => t.equal(await ask(true), told.sse, 'the same when every byte comes alone')),
  )
})
