import { setImmediate as turn } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { FORMATS } from '../../core/formats/index.ts'
import { parseDecimal } from '../../core/money/credits.ts'
import { expireHolds, holdsOf, startGateway, type TestGateway, until } from '../gateway.ts'
import { json, type Script, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { CHUNK_TOKENS, DONE } from '../stream-events.ts'

/** Text of one delta: 30 bytes, ten tokens by the estimate. */
const PIECE = 'thirty bytes of one long tale '
const CHAT = '/v1/chat/completions'
/** Prices of the models in this file, in nano-credits per token. */
const OUTPUT = 15_000n

/** A provider whose stream never ends by itself: first `opening`, then `delta` again and again. */
function endless(opening: readonly object[], delta: object, typed: boolean): Script {
  return async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const write = (event: object): boolean =>
      res.write(`${typed ? `event: ${(event as { type: string }).type}\n` : ''}data: ${JSON.stringify(event)}\n\n`)
    for (const event of opening) write(event)
    while (!res.destroyed) {
      write(delta)
      await turn()
    }
  }
}

const chunk = (delta: object, index = 0): object => ({
  id: 'c1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'm',
  choices: [{ index, delta, finish_reason: null }],
})
const chatTale = endless([chunk({ role: 'assistant', content: '' })], chunk({ content: PIECE }), false)

const response = {
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  status: 'in_progress',
  model: 'm',
  output: [],
  tools: [],
  usage: null,
}
const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
const responsesTale = endless(
  [
    { type: 'response.created', sequence_number: 0, response },
    {
      type: 'response.output_item.added',
      sequence_number: 1,
      output_index: 0,
      item: { id: 'msg_1', type: 'message', status: 'in_progress', role: 'assistant', content: [] },
    },
    {
      type: 'response.content_part.added',
      sequence_number: 2,
      ...place,
      part: { type: 'output_text', text: '', annotations: [] },
    },
  ],
  { type: 'response.output_text.delta', sequence_number: 3, ...place, delta: PIECE, logprobs: [] },
  true,
)

const message = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  content: [],
  stop_reason: null,
  stop_sequence: null,
}
const messagesTale = endless(
  [
    { type: 'message_start', message: { ...message, usage: { input_tokens: 10, output_tokens: 1 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  ],
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: PIECE } },
  true,
)

/** Starts a gateway with this `holdAhead`, and creates a key with these credits. */
async function thin(
  t: Test,
  type: string,
  credits: string,
  { ahead = 4096, settings = {} } = {},
): Promise<{ g: TestGateway; upstream: ScriptedUpstream; key: string }> {
  const upstream = await ScriptedUpstream.start(t)
  const edit: Edit = file =>
    file
      .setAll('keyTypes.famA', { holdAhead: undefined, clampOutput: undefined })
      .everyKeyType({ holdAhead: ahead, ...settings })
  const g = await startGateway(t, { upstream: upstream.url, edit })
  const key = await g.keyOfNano(type, parseDecimal(credits) as bigint)
  return { g, upstream, key }
}

/** Fails if a stream has taken its key further below zero than one chunk, and what the model may have done in its silence. */
async function owesLittle(t: Test, g: TestGateway, key: string): Promise<void> {
  const [entry] = await g.settled(key)
  const { exact } = await g.balance(key)
  const { silent_ms: silentMs, output_tokens: tokens } = entry ?? {}
  const most = CHUNK_TOKENS + BigInt(Math.ceil(150 * (Number(silentMs) / 1000 + 1)))
  const seen = `${exact.balance} after ${tokens} tokens and ${silentMs} ms of silence`
  t.ok(BigInt(exact.balance) > -most * OUTPUT, `less than one chunk is owed: ${seen}`)
}

/** Checks what a stream that used up its balance has left behind. */
async function usedUp(t: Test, g: TestGateway, key: string, output: number | undefined): Promise<void> {
  const [entry] = await g.settled(key)
  t.match(entry, { type: 'settle', status: 'budget', usage_source: 'estimated', output_tokens: output ?? Number })
  const { exact } = await g.balance(key)
  t.ok(BigInt(exact.balance) <= 0n, 'nothing is left')
  await owesLittle(t, g, key)
}

t.test(
  'a chat stream whose balance runs out ends by its length; the SDK keeps the text and throws nothing',
  async t => {
    const { g, upstream, key } = await thin(t, 'famC', '0.3')
    upstream.script = chatTale
    const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
    const messages = [{ role: 'user' as const, content: 'a tale' }]
    const stream = client.chat.completions.stream({
      model: 'acme/famC-5.5',
      max_tokens: 64_000,
      messages,
      stream_options: { include_usage: true },
    })
    const final = await stream.finalChatCompletion()
    t.equal(final.choices[0]?.finish_reason, 'length')
    t.match(final.choices[0]?.message.content, new RegExp(`^(${PIECE})+$`))
    await usedUp(t, g, key, final.usage?.completion_tokens)
    t.equal((await g.call(CHAT, { key, body: { model: 'acme/famC-5.5', messages, stream: true } })).status, 429)
  },
)

t.test(
  'a stream that begins without text, on a model with a large maxOutput, ends when the balance is used up',
  async t => {
    const { g, upstream, key } = await thin(t, 'famC', '0.07')
    const piece = `data: ${JSON.stringify(chunk({ content: PIECE }))}\n\n`
    let begun = false
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(`data: ${JSON.stringify(chunk({ role: 'assistant', content: '' }))}\n\n`)
      await until(() => begun)
      while (!res.destroyed) {
        res.write(piece)
        await turn()
      }
    }
    const response = await g.open(CHAT, { key, body: { model: 'acme/famC-5.5', messages: [], stream: true } })
    begun = true
    t.match(await response.text(), '"finish_reason":"length"')
    await usedUp(t, g, key, undefined)
  },
)

t.test('a provider that sends everything at once delivers no more than one chunk beyond what is held', async t => {
  // The key covers a first extension in part, and no second one.
  const { g, upstream, key } = await thin(t, 'famC', '0.07')
  const pieces = 20_000
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(`data: ${JSON.stringify(chunk({ role: 'assistant', content: '' }))}\n\n`)
    res.write(`data: ${JSON.stringify(chunk({ content: PIECE }))}\n\n`.repeat(pieces))
  }
  const { text } = await g.call(CHAT, { key, body: { model: 'acme/famC-5.5', messages: [], stream: true } })
  t.match(text, '"finish_reason":"length"')
  await usedUp(t, g, key, undefined)
})

t.test(
  'a responses stream whose balance runs out ends incomplete; the SDK keeps the text and throws nothing',
  async t => {
    const { g, upstream, key } = await thin(t, 'famC', '0.3')
    upstream.script = responsesTale
    const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
    const final = await client.responses
      .stream({ model: 'acme/famC-5.5', max_output_tokens: 64_000, input: 'a tale' })
      .finalResponse()
    t.match(final, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
    t.match(final.output_text, new RegExp(`^(${PIECE})+$`))
    await usedUp(t, g, key, final.usage?.output_tokens)
  },
)

t.test(
  'a messages stream whose balance runs out ends by max_tokens; the SDK keeps the text and throws nothing',
  async t => {
    const { g, upstream, key } = await thin(t, 'famA', '0.3')
    upstream.script = messagesTale
    const client = new Anthropic({ apiKey: key, baseURL: g.url, maxRetries: 0 })
    const messages = [{ role: 'user' as const, content: 'a tale' }]
    const final = await client.messages
      .stream({ model: 'acme/famA-medium-5', max_tokens: 64_000, messages })
      .finalMessage()
    t.equal(final.stop_reason, 'max_tokens')
    t.match(final.content, [{ type: 'text', text: new RegExp(`^(${PIECE})+$`) }])
    await usedUp(t, g, key, final.usage.output_tokens)
  },
)

t.test(
  'a chat client that did not ask for usage gets none at the end either, and each of several choices ends',
  async t => {
    const { g, upstream, key } = await thin(t, 'famC', '0.3')
    upstream.script = endless(
      [chunk({ role: 'assistant' }), chunk({ role: 'assistant' }, 1)],
      chunk({ content: PIECE }, 1),
      false,
    )
    const { text } = await g.call(CHAT, { key, body: { model: 'acme/famC-5.5', n: 2, stream: true, messages: [] } })
    t.notMatch(text, 'usage')
    t.match(
      text,
      /"index":0,"delta":\{\},"finish_reason":"length"[^\n]*\n\ndata: [^\n]*"index":1,"delta":\{\},"finish_reason":"length"[^\n]*\n\ndata: \[DONE\]\n\n$/,
    )
  },
)

t.test('a long stream of a customer with credits is extended in time and never cut', async t => {
  const { g, upstream, key } = await thin(t, 'famC', '1', { ahead: 100 })
  let held = 0n
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    for (let piece = 0; piece < 500; piece++) {
      res.write(`data: ${JSON.stringify(chunk({ content: PIECE }))}\n\n`)
      await turn()
      if (piece % 50 !== 49) continue
      // Never more is delivered than is held.
      await until(async () => BigInt((await g.balance(key)).exact.held) > BigInt(piece) * 10n * OUTPUT)
      const now = BigInt((await g.balance(key)).exact.held)
      t.ok(now > held, `held ${now}`)
      held = now
    }
    res.write(
      `data: ${JSON.stringify({ ...chunk({}), choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: { prompt_tokens: 10, completion_tokens: 4000 } })}\n\n`,
    )
    res.end(DONE)
  }
  const { text } = await g.call(CHAT, { key, body: { model: 'acme/famC-5.5', stream: true, messages: [] } })
  t.match(text, '[DONE]')
  matchAll(t, await g.settled(key), [{ status: 'ok', output_tokens: 4000, usage_source: 'upstream' }])
})

t.test('a JSON request that the balance does not cover is refused, or limited if the operator allows it', async t => {
  const body = { model: 'acme/famC-5.5', max_tokens: 64_000, messages: [] }
  const refusing = await thin(t, 'famC', '0.02')
  const no = await refusing.g.call(CHAT, { key: refusing.key, body })
  t.match(no, { status: 429, json: { error: { code: 'insufficient_quota' } } })
  t.match(await refusing.g.call(CHAT, { key: refusing.key, body: { ...body, max_tokens: undefined } }), {
    status: 429,
    json: { error: { message: /may need 0\.06\d+\. A lower output limit, or a stream, needs less\./ } },
  })
  t.equal(refusing.upstream.requests.length, 0)

  const { g, upstream, key } = await thin(t, 'famC', '0.02', { settings: { clampOutput: true } })
  upstream.script = ({ json: asked }, res) =>
    json(res, {
      choices: [{ message: { content: 'x' }, finish_reason: 'length' }],
      usage: { prompt_tokens: 4, completion_tokens: asked['max_tokens'] ?? asked['max_completion_tokens'] },
    })
  const limited = await g.call(CHAT, { key, body })
  t.equal(limited.status, 200)
  t.equal(limited.headers.get('x-tollgate-output-limit'), String(upstream.last.json['max_tokens']))
  t.ok((upstream.last.json['max_tokens'] as number) > 1000 && (upstream.last.json['max_tokens'] as number) < 1334)
  await g.settled(key)
  t.ok(BigInt((await g.balance(key)).exact.balance) >= 0n, 'what was let through was paid for')
  const rich = await g.key('famC')
  t.equal((await g.call(CHAT, { key: rich, body })).headers.get('x-tollgate-output-limit'), null)
  t.equal(upstream.last.json['max_tokens'], 64_000, 'who can pay is not limited')
})

t.test('a stream whose input alone used up the balance is charged for it', async t => {
  const { g, upstream, key } = await thin(t, 'famA', '0.1')
  upstream.script = endless(
    [{ type: 'message_start', message: { ...message, usage: { input_tokens: 200_000, output_tokens: 1 } } }],
    { type: 'ping' },
    true,
  )
  const { text } = await g.call('/v1/messages', {
    key,
    body: { model: 'acme/famA-medium-5', max_tokens: 1000, stream: true, messages: [] },
  })
  t.match(text, /"stop_reason":"max_tokens"[^]*"input_tokens":200000/)
  matchAll(t, await g.settled(key), [{ type: 'settle', status: 'budget', input_tokens: 200_000 }])
})

t.test(
  'a stream with several choices ends with the last one, and a choice without an end marks it as broken',
  async t => {
    const { g, upstream, key } = await thin(t, 'famC', '0.3')
    const ended = { ...chunk({}), choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }
    upstream.script = endless([chunk({ role: 'assistant' }), ended], chunk({ content: PIECE }, 1), false)
    const body = { model: 'acme/famC-5.5', n: 2, stream: true, messages: [] }
    t.match((await g.call(CHAT, { key, body })).text, /"index":1,"delta":\{\},"finish_reason":"length"/)
    await usedUp(t, g, key, undefined)
    const rich = await g.key('famC')
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.end(`data: ${JSON.stringify(ended)}\n\ndata: ${JSON.stringify(chunk({ content: PIECE }, 1))}\n\n`)
    }
    t.match((await g.call(CHAT, { key: rich, body })).text, /data: \{"error":/)
    matchAll(t, await g.settled(rich), [{ status: 'broken' }])
  },
)

t.test('more choices than any provider gives are refused; requested choices count in limits and holds', async t => {
  const { g, upstream, key } = await thin(t, 'famC', '1', { settings: { clampOutput: true } })
  for (const n of [0, 129, 2 ** 53, 1.5])
    t.match(await g.call(CHAT, { key, body: { model: 'acme/famC-5.5', n, messages: [] } }), { status: 400 })
  upstream.script = ({ json: asked }, res) => {
    const tokens = Number(asked['max_tokens']) * Number(asked['n'])
    json(res, {
      choices: [{ message: { content: 'x'.repeat(tokens) }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 4, completion_tokens: tokens },
    })
  }
  const answer = await g.call(CHAT, {
    key,
    body: { model: 'acme/famC-5.5', n: 20, max_tokens: 64_000, messages: [] },
  })
  t.equal(answer.headers.get('x-tollgate-output-limit'), String(upstream.last.json['max_tokens']))
  await g.settled(key)
  const { exact } = await g.balance(key)
  t.ok(BigInt(exact.balance) >= 0n && BigInt(exact.balance) < 10_000_000n, `paid for, to the last: ${exact.balance}`)
})

t.test('usage that a format writes is read back as the same usage', t => {
  const tokens = fc.nat({ max: 1_000_000 })
  const usage = fc
    .record({
      input: tokens,
      cacheRead: tokens,
      cacheWrite5m: tokens,
      cacheWrite1h: tokens,
      output: tokens,
      share: tokens,
    })
    .map(({ share, ...rest }) => ({ ...rest, reasoning: Math.min(share, rest.output) }))
  for (const format of Object.values(FORMATS)) {
    fc.assert(
      fc.property(usage, one =>
        isDeepStrictEqual(format.decodeUsage(format.encodeUsage(one)), { usage: one, complete: true }),
      ),
    )
  }
  t.end()
})

t.test('output beyond the limit is charged as far as the balance goes', async t => {
  const { g, upstream, key } = await thin(t, 'famC', '0.3')
  upstream.script = chatTale
  const { text } = await g.call(CHAT, {
    key,
    body: { model: 'acme/famC-5.5', max_tokens: 1000, stream: true, messages: [] },
  })
  t.match(text, '"finish_reason":"length"')
  const [entry] = await g.settled(key)
  t.match(entry, { status: 'budget' })
  const pieces = text.split(PIECE).length - 1
  t.ok(
    entry?.output_tokens >= (pieces * PIECE.length) / 12,
    `${entry?.output_tokens} tokens for ${pieces * PIECE.length} bytes`,
  )
  await owesLittle(t, g, key)
})

t.test('a hold that was lost in the middle of a stream is restored, and still limits the stream', async t => {
  const { g, upstream, key } = await thin(t, 'famC', '0.3')
  let go = (): void => {}
  const gone = new Promise<void>(resolve => (go = resolve))
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(`data: ${JSON.stringify(chunk({ content: PIECE }))}\n\n`)
    await gone
    while (!res.destroyed) {
      res.write(`data: ${JSON.stringify(chunk({ content: PIECE }))}\n\n`)
      await turn()
    }
  }
  const response = await g.open(CHAT, { key, body: { model: 'acme/famC-5.5', stream: true, messages: [] } })
  const { ledger } = g.gateway
  const id = await g.id(key)
  // Its gateway may renew it at any time.
  await until(async () => {
    await expireHolds(ledger, id)
    await ledger.background.reap()
    return (await holdsOf(ledger, id)).size === 0
  })
  go()
  t.match(await response.text(), '"finish_reason":"length"')
  matchAll(t, await g.settled(key), [{ type: 'late', status: 'budget' }])
  t.ok(BigInt((await g.balance(key)).exact.balance) <= 0n)
  await owesLittle(t, g, key)
})
