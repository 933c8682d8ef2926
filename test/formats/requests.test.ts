import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { bodyOf } from 'tollgate/testing'
import { become } from './become.ts'
import { refusalOf } from './provider-rules.ts'

/**
 * Requests as clients of each format send them, in the words of the other two. A case is a folder: `from.<format>.json`
 * is the client's request, with `headers.json`; `to.<format>.json` is the upstream's; `dropped.<format>.txt` is the
 * header with the dropped members, and `refused.<format>.txt` the reason of a refusal.
 */
const CASES = new URL('requests/', import.meta.url)

function read(name: string, file: string): string | undefined {
  try {
    return readFileSync(new URL(`${name}/${file}`, CASES), 'utf8')
  } catch {
    return undefined
  }
}

for (const name of readdirSync(CASES).sort()) {
  const from = Object.keys(FORMATS).find(format => read(name, `from.${format}.json`) !== undefined) as FormatName
  for (const to of Object.keys(FORMATS) as FormatName[]) {
    if (to === from) continue
    t.test(`${name}, to ${to}`, async t => {
      const text = read(name, `from.${from}.json`) as string
      const headers = JSON.parse(read(name, 'headers.json') ?? '{}')
      const { sent, dropped, refused } = become(from, to, text, headers)
      const pretty = sent === undefined ? undefined : `${JSON.stringify(JSON.parse(sent), null, 2)}\n`
      t.equal(pretty, read(name, `to.${to}.json`), 'what the upstream gets')
      t.equal(dropped, read(name, `dropped.${to}.txt`)?.trim(), 'what was dropped')
      t.equal(refused, read(name, `refused.${to}.txt`)?.trim(), 'why it was refused')
      t.equal(become(from, to, text, headers).sent, sent, 'the same history gives the same bytes')
      if (sent !== undefined) t.equal(refusalOf(to, JSON.parse(sent)), undefined, 'the provider accepts it')
    })
  }
}

t.test('integers that no double can hold survive in tool arguments and tool definitions', t => {
  const big = '9007199254740993'
  const chat = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\\"id\\":${big}}"}}]},{"role":"tool","tool_call_id":"c","content":""}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"id":{"maximum":${big}}}}}}]}`
  const { sent = '' } = become('chat-completions', 'messages', chat, {})
  t.match(sent, `"input":{"id":${big}}`)
  t.match(sent, `"maximum":${big}`)
  const messages = `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"id":${big}}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}]}`
  t.match(become('messages', 'responses', messages, {}).sent, `"arguments":"{\\"id\\":${big}}"`)
  t.end()
})

t.test('a lowered output limit leaves room for reasoning below it', t => {
  const lowered = (tokens: number, budget: number): unknown => {
    const body = bodyOf(
      Buffer.from(JSON.stringify({ max_tokens: 40_000, thinking: { type: 'enabled', budget_tokens: budget } })),
    )
    FORMATS.messages.limitOutput(body, tokens)
    return JSON.parse(body.bytes().toString())
  }
  t.same(lowered(3000, 30_000), { max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 1500 } })
  t.same(lowered(1300, 30_000), { max_tokens: 1300, thinking: { type: 'disabled' } })
  t.same(lowered(3000, 2000), { max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 2000 } })
  t.end()
})

t.test('a request whose conversation is released keeps its other members, as they arrived and as they are sent', t => {
  const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }]
  const text = 'word '.repeat(4000)
  const sent = { stream: true, messages: [{ role: 'user', content: text }], tools, n: 2, user: 'a', top_p: 0.5 }
  const body = bodyOf(Buffer.from(JSON.stringify(sent)))
  body.set('model', 'renamed')
  body.set('top_p', 1)
  body.remove('user')
  const conversation = body.conversation('messages')
  t.equal(body.conversationBytes, JSON.stringify(sent.messages).length)
  body.release('messages')
  t.equal(body.conversationBytes, 0)
  t.strictSame(['stream', 'tools', 'n', 'user', 'top_p', 'model'].map(name => body.get(name)), [true, tools, 2, undefined, 1, 'renamed']) // prettier-ignore
  t.strictSame([...body.names], Object.keys(sent))
  t.equal(body.has('messages'), true)
  t.equal(body.has('user'), false)
  t.equal(body.receivedView('top_p')?.json, 0.5)
  t.equal(body.receivedView('model'), undefined)
  t.equal(body.conversation('messages'), conversation)
  t.strictSame(body.contents.providerTools, [])
  t.equal(conversation?.said[0]?.bytes, JSON.stringify(sent.messages[0]).length)
  for (const read of [() => body.get('messages'), () => body.view('messages'), () => body.bytes(), () => body.received])
    t.throws(read, { message: 'the conversation of this request has been released' })
  t.end()
})
