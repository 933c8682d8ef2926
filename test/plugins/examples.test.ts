/** The plugins in examples/: each alone, and all of them in a real gateway. */
import { fileURLToPath } from 'node:url'
import t from 'tap'
import maskWords from '../../examples/plugins/mask-words.ts'
import quietHours from '../../examples/plugins/quiet-hours.ts'
import replyHeaders from '../../examples/plugins/reply-headers.ts'
import { GatewayError } from 'tollgate/plugin'
import { drive } from 'tollgate/testing'
import { json } from '../upstream.ts'
import { scene } from '../scene.ts'

const FOLDER = fileURLToPath(new URL('../../examples/plugins', import.meta.url))
const at = (hour: number): { now: () => number } => ({ now: () => Date.UTC(2030, 0, 1, hour) })

t.test('quiet-hours refuses the named types within the hours, also across midnight', async t => {
  const options = { types: ['editor'], from: 22, to: 6 }
  for (const [type, hour, refused] of [
    ['editor', 22, true],
    ['editor', 5, true],
    ['editor', 6, false],
    ['editor', 21, false],
    ['famC', 23, false],
  ] as const) {
    const { thrown } = await drive(quietHours, { options, facts: { key: { type } as never }, host: at(hour) })
    t.equal(thrown instanceof GatewayError, refused, `${type} at ${hour}`)
    if (thrown instanceof GatewayError) t.match(thrown, { code: 'rate_limited', retry: false, message: /before 6:00/ })
  }
})

t.test('quiet-hours and the others refuse options that they do not know', async t => {
  await t.rejects(drive(quietHours, { options: { type: ['editor'] } }))
  await t.rejects(drive(replyHeaders, { options: { headers: { 'x-a': 'ü' } } }))
  await t.rejects(drive(maskWords, { options: { words: [] } }))
})

t.test('the examples work together in a gateway, for JSON and for streams', async t => {
  const { g, upstream } = await scene(t, file =>
    file
      .set('plugins', [FOLDER])
      .insertBefore('lookup-limit', { 'quiet-hours': { types: ['editor'], from: 0, to: 0 } })
      .insertBefore(
        'request-policy',
        { 'reply-headers': { headers: { 'x-model': '{model}' } } },
        { 'mask-words': { words: ['secret'] } },
      ),
  )
  upstream.script = (_received, res) =>
    json(res, {
      choices: [{ index: 0, message: { role: 'assistant', content: 'the secret word' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 1, completion_tokens: 3 },
    })
  const key = await g.key('famB')
  const body = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Tell me.' }] }
  const reply = await g.call('/v1/chat/completions', { key, body })
  t.match(reply.json.choices[0].message.content, 'the ****** word')
  t.equal(reply.headers.get('x-model'), 'acme/famB-4.5')
  const refused = await g.call('/v1/chat/completions', { key: await g.key('editor'), body })
  t.match(refused, { status: 429, json: { error: { message: 'editor keys are not served before 0:00 UTC.' } } })
})
