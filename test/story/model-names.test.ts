import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'

/** A reply has the model name that the client sent. No other byte of it changes. */

const UPSTREAM_NAME = 'vendor/snapshot-2026-10-01'
const TOOL = { type: 'tool_use', id: 't', name: 'f', input: { big: 0, model: UPSTREAM_NAME } }

async function start(t: Test): Promise<{ g: TestGateway; upstream: ScriptedUpstream }> {
  const upstream = await ScriptedUpstream.start(t)
  return { upstream, g: await startGateway(t, { upstream: upstream.url }) }
}

const CASES = [
  { type: 'famB', path: '/v1/chat/completions', asked: 'acme/famB-4.5-latest' },
  { type: 'famC', path: '/v1/responses', asked: 'acme/famC-5.5' },
  { type: 'famA', path: '/v1/messages', asked: 'acme/famA-medium-5[1M]' },
]

for (const { type, path, asked } of CASES) {
  t.test(`${path}: in a JSON reply and in every event of a stream`, async t => {
    const { g, upstream } = await start(t)
    const key = await g.key(type)
    const body = { model: asked, messages: [], input: '', max_tokens: 10 }
    const reply = {
      id: 'r',
      ...(path.includes('responses') ? { object: 'response', status: 'completed', output: [TOOL] } : {}),
      ...(path.includes('messages') ? { type: 'message', content: [TOOL] } : {}),
      ...(path.includes('chat')
        ? { choices: [{ index: 0, message: { content: `"model":"${UPSTREAM_NAME}"` }, finish_reason: 'stop' }] }
        : {}),
      model: UPSTREAM_NAME,
      service_tier: 'default',
    }
    const text = JSON.stringify(reply).replace('"big":0', '"big":9007199254740993')
    upstream.script = (_received, res) => json(res, text)
    const whole = await g.call(path, { key, body })
    const last = text.lastIndexOf(UPSTREAM_NAME)
    t.equal(
      whole.text,
      text.slice(0, last) + asked + text.slice(last + UPSTREAM_NAME.length),
      'only the member itself, whatever else bears its name',
    )
    const named = (name: string): string =>
      path.includes('chat')
        ? `data: {"choices":[],"model":""}\n\ndata: {"model" : "${name}","choices":[{"index":0,"delta":{"content":"${UPSTREAM_NAME}"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`
        : path.includes('responses')
          ? `event: response.created\ndata: {"type":"response.created","response":{"model":"${name}"}}\n\nevent: response.completed\ndata: {"type":"response.completed","response":{"output":[],"model":"${name}"}}\n\n`
          : `event: message_start\ndata: {"type":"message_start","message":{"model":"${name}","usage":{"input_tokens":1,"output_tokens":1}}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\"model\\":\\"${UPSTREAM_NAME}\\""}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n`
    upstream.script = (_received, res) => sse(res, named(UPSTREAM_NAME))
    const stream = await g.call(path, { key, body: { ...body, stream: true, stream_options: { include_usage: true } } })
    t.equal(stream.text, named(asked).replace('"model":""', `"model":"${asked}"`))
  })
}

t.test('the member is found in any spelling and at any position', async t => {
  const { g, upstream } = await start(t)
  const key = await g.key('famA')
  const text = String.raw`{"type":"message","content":[{"type":"tool_use","input":{"model":"up/x","message":{"model":"up/x"}}}],"message_batch":{"model":1}, "model" : "up\/x", "usage":{"input_tokens":1,"output_tokens":1}}`
  upstream.script = (_received, res) => json(res, text)
  const answer = await g.call('/v1/messages', {
    key,
    body: { model: 'acme/famA-medium-5', messages: [], max_tokens: 5 },
  })
  t.equal(answer.text, text.replace(String.raw`"up\/x"`, '"acme/famA-medium-5"'))
})

t.test('renaming the model parses no events: a stream of 200 deltas has at most five calls of JSON.parse', async t => {
  const { g, upstream } = await start(t)
  const key = await g.key('famB')
  const chunk = (members: object): string =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: UPSTREAM_NAME, ...members })}\n\n`
  const parse = JSON.parse
  t.teardown(() => (JSON.parse = parse))
  let parsed = 0
  JSON.parse = (...args) => {
    // The test parses as well.
    if (/\/core\/|\/plugins\//.test(new Error().stack ?? '')) parsed++
    return parse(...args)
  }
  const parsedIn = async (deltas: number): Promise<number> => {
    const events = Array.from({ length: deltas }, () => chunk({ choices: [{ index: 0, delta: { content: 'word' } }] }))
    const last = chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })
    const usage = chunk({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } })
    upstream.script = (_received, res) => sse(res, `${events.join('')}${last}${usage}data: [DONE]\n\n`)
    parsed = 0
    const body = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Hi' }], stream: true }
    const { text } = await g.call('/v1/chat/completions', { key, body })
    t.equal(text.split('"model":"acme/famB-4.5"').length, deltas + 2)
    t.notMatch(text, UPSTREAM_NAME)
    return parsed
  }
  await parsedIn(1)
  // The gateway's work in the background parses as well, now and then.
  const least = Math.min(await parsedIn(200), await parsedIn(200), await parsedIn(200))
  t.ok(least <= 5, `${least} calls of JSON.parse`)
})
