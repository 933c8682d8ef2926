import { setImmediate as turn } from 'node:timers/promises'
import { eachReply } from './replies.ts'

eachReply(async (t, upstream, { sse }, clients) => {
  const bytes = Buffer.from(sse)
  upstream.script = async (_received, res) => {
    // With its length, each byte comes without a frame of its own.
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
