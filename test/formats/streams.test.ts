import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { STREAMS, type RecordedStream } from 'tollgate/testing'
import { bodyOf } from 'tollgate/testing'

const LAYOUTS: [string, (events: readonly string[]) => string][] = [
  ['as the vendor sends it', events => `${events.join('\n\n')}\n\n`],
  ['with CRLF', events => `${events.join('\n\n')}\n\n`.replaceAll('\n', '\r\n')],
  ['with lone CR', events => `${events.join('\n\n')}\n\n`.replaceAll('\n', '\r')],
  ['with comments and a byte order mark', events => `\ufeff: hello\n\n${events.join('\n\n: ping\n\n')}\n\n`],
  ['without the last blank line', events => events.join('\n\n')],
  ['with its end said twice', events => `${[...events, events.at(-1)].join('\n\n')}\n\n`],
]

let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url })
})

/** Sends the stream through the gateway. The client asks for usage, so every byte must be the upstream's. */
async function relayed(
  { type, path }: RecordedStream,
  send: (write: (bytes: Buffer) => void) => Promise<void>,
): Promise<{ text: string; entry: Record<string, any> }> {
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    await send(bytes => res.write(bytes))
    res.end()
  }
  const key = await g.key(type)
  const model = type === 'famA' ? 'acme/famA-medium-5' : 'acme/famC-5.5'
  const body = {
    model,
    max_tokens: 100,
    messages: [],
    input: '',
    stream: true,
    ...(path.includes('chat') && { stream_options: { include_usage: true } }),
  }
  const { text } = await g.call(path, { key, body })
  return { text, entry: (await g.settled(key))[0] as Record<string, any> }
}

for (const stream of STREAMS) {
  t.test(stream.name, async t => {
    const { input, output, cacheRead = 0 } = stream.usage
    const usage = {
      type: 'settle',
      status: 'ok',
      usage_source: 'upstream',
      input_tokens: input,
      output_tokens: output,
      cache_read_tokens: cacheRead,
    }
    for (const [layout, lay] of LAYOUTS) {
      const text = lay(stream.events)
      const whole = await relayed(stream, async write => write(Buffer.from(text)))
      t.equal(whole.text, text.replace(/^\ufeff/, ''), `${layout}: byte for byte`)
      t.match(whole.entry, usage, `${layout}: metered`)
      const bytewise = await relayed(stream, async write => {
        for (const byte of Buffer.from(text)) {
          write(Buffer.from([byte]))
          await turn()
        }
      })
      t.equal(bytewise.text, whole.text, `${layout}: the same when every byte comes alone`)
      t.match(bytewise.entry, usage)
    }
  })
}

t.test(
  'a client that did not ask for usage sees neither the extra chunk nor the null members, wherever the bytes are cut',
  async t => {
    const [first] = STREAMS as [RecordedStream]
    const text = `${first.events.join('\n\n')}\n\n`
    const expected = text
      .replaceAll(',"usage":null', '')
      .replace(/data: \{[^\n]*"choices":\[\],"usage":\{[^\n]*\n\n/, '')
    t.notMatch(expected, 'usage')
    const bytes = Buffer.from(text)
    const key = await g.key('famC')
    for (const size of [1, 7, 64, 1000, bytes.length]) {
      upstream.script = async (_received, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' })
        for (let at = 0; at < bytes.length; at += size) {
          res.write(bytes.subarray(at, at + size))
          await turn()
        }
        res.end()
      }
      const answer = await g.call('/v1/chat/completions', {
        key,
        body: { model: 'acme/famC-5.5', messages: [], stream: true },
      })
      t.equal(answer.text, expected, `in pieces of ${size}`)
    }
  },
)

t.test('a body changes only in the places that are replaced', t => {
  const cases: [string, Record<string, unknown>, string][] = [
    ['{"model":"a"}', { model: 'b' }, '{"model":"b"}'],
    ['{ "model" : "a" , "n":1}', { model: 'b' }, '{ "model" : "b" , "n":1}'],
    ['{}', { model: 'b' }, '{"model":"b"}'],
    ['{"a":{"model":"x"},"b":[{"model":"y"}]}', { model: 'b' }, '{"model":"b","a":{"model":"x"},"b":[{"model":"y"}]}'],
    ['{"x":"\\"model\\":1","model":null}', { model: 'b' }, '{"x":"\\"model\\":1","model":"b"}'],
    [
      '{"stream_options":{"a":1},"model":"ü"}',
      { model: 'b', stream_options: { a: 1, b: true } },
      '{"stream_options":{"a":1,"b":true},"model":"b"}',
    ],
    ['{"n":1}', { model: 'b', max_tokens: 5 }, '{"model":"b","max_tokens":5,"n":1}'],
  ]
  for (const [text, edits, expected] of cases) {
    const body = bodyOf(Buffer.from(text))
    for (const [name, value] of Object.entries(edits)) body.set(name, value)
    t.equal(body.bytes().toString(), expected)
  }
  t.end()
})
