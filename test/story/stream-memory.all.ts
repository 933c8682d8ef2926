import t from 'tap'
import { startCounting, streamOf } from '../counting.ts'
import { ScriptedUpstream } from '../upstream.ts'

const STREAMS = 20
const CONVERSATION_BYTES = 1_000_000
/** What a stream may keep of its request, with all other buffers of the process. */
const KEPT_BYTES_MAX = 50_000

for (const [path, member] of [
  ['/v1/chat/completions', 'messages'],
  ['/v1/responses', 'input'],
] as const)
  t.test(`a stream at ${path} keeps nothing of its conversation once its content comes`, async t => {
    const upstream = await ScriptedUpstream.start(t)
    const ends: (() => void)[] = []
    const [first = '', ...rest] = streamOf(1).split(/(?<=\n\n)/)
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write(first)
      ends.push(() => res.end(rest.join('')))
    }
    const { place, running, counts } = await startCounting(t, upstream)
    const { key } = await place.key('famB', '100')
    const content = 'word '.repeat(CONVERSATION_BYTES / 5)
    const body = { model: 'acme/famB-4.5', [member]: [{ role: 'user', content }], stream: true }
    const ask = (): Promise<Response> => running.post(path, key, body)
    const finish = async (replies: readonly Response[]): Promise<void> => {
      for (const end of ends.splice(0)) end()
      for (const reply of replies) t.match(await reply.text(), /"stop"|response.completed/)
    }
    // What the process needs for the first request stays.
    await finish([await ask()])
    const before = await counts()
    const replies = await Promise.all(Array.from({ length: STREAMS }, ask))
    const open = await counts()
    const kept = (open.bufferBytes - before.bufferBytes) / STREAMS
    t.ok(kept < KEPT_BYTES_MAX, `${Math.round(kept)} bytes a stream`)
    await finish(replies)
  })
