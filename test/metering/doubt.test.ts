import { readFileSync } from 'node:fs'
import t from 'tap'
import { GatewayError } from '../../core/errors.ts'
import { CHAT, Exchanges, INPUT, LEFT, MESSAGES, OUTPUT, reply, RESPONSES } from './exchanges.ts'
import { typed } from '../stream-events.ts'
import { NOW } from '../plugins/facts.ts'
import type { Edit } from '../gateway-file.ts'

/** Reports that are hard to believe, and what replies to other keys have shown: neither makes a charge wrong. */

const MODEL = 'acme/famC-5.5'
const outsideLimit: Edit = file => file.model('famC', MODEL, { reasoningInLimit: false })
const WEEK_MS = 7 * 86_400_000
/** A key that others learn from. */
const TEACHER = { createdAt: NOW - WEEK_MS, settled: 1_000_000_000n }
const left = { outcome: LEFT }
const chunk = (content: string): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`

t.test('reasoning outside the limit is charged as reported, however often and to however many keys', async t => {
  const place = await Exchanges.load(outsideLimit)
  for (const [what, tokens, elapsedMs, encryptedBytes] of [
    ['145 tokens a second', 4350, 30_000, 0],
    ['600 tokens a second', 9000, 15_000, 0],
    ['almost eight times the rate', 8 * 150 * 15 + 4096, 15_000, 0],
    ['as much as was encrypted', 20_000 + 4096, 1000, 40_000],
  ] as const)
    for (let nth = 0; nth < 5; nth++) {
      const usage = { input_tokens: 10, output_tokens: tokens }
      const { cost, notes } = await place.ask(
        'responses',
        { max_output_tokens: 100, reasoning: { effort: 'high' } },
        { reply: reply(RESPONSES, usage), elapsedMs, encryptedBytes, key: { id: `key_${nth}` } },
      )
      t.equal(cost, 10n * INPUT + BigInt(tokens) * OUTPUT, `${what}: ${nth}`)
      t.equal(notes.quarantined, undefined)
    }
  t.equal(place.meter.implausibleAlarms, 0)
})

t.test('an alarm about reports that are not plausible changes no charge', async t => {
  const place = await Exchanges.load(outsideLimit)
  const most = 8 * 150 * 10 + 4096
  const ask = (key: string) =>
    place.ask(
      'responses',
      {},
      { reply: reply(RESPONSES, { output_tokens: 9_000_000 }), elapsedMs: 10_000, key: { id: key } },
    )
  for (const [key, alarms] of [
    ['a', 0],
    ['a', 0],
    ['a', 0],
    ['b', 0],
    ['c', 1],
    ['d', 1],
  ] as const) {
    const { cost, notes } = await ask(key)
    t.equal(cost, 10n * INPUT + BigInt(most) * OUTPUT, 'the plausible part')
    t.equal(notes.quarantined, true)
    t.equal(place.meter.implausibleAlarms, alarms, key)
  }
})

t.test('what an upstream added to the prompts of others is held, and not charged', async t => {
  const place = await Exchanges.load(file => file.model('famC', MODEL, { reasoning: 'none' }))
  const hi = { messages: [{ role: 'user', content: 'hi' }], stream: true }
  const ask = () =>
    place.ask('chat-completions', hi, { reply: chunk('Hello'), elapsedMs: 100, ...left, key: { id: 'honest' } })
  const before = await ask()
  for (let nth = 0; nth < 21; nth++)
    await place.ask('chat-completions', hi, {
      reply: reply(CHAT, { prompt_tokens: 1400 }),
      key: { ...TEACHER, id: `key_${nth}` },
    })
  const after = await ask()
  t.equal(after.cost, before.cost)
  t.ok(after.held > before.held + 1000n * INPUT, `${after.held} is held instead of ${before.held}`)
})

t.test('fast replies to others are held for, and not charged', async t => {
  const place = await Exchanges.load()
  const silent = { reply: chunk(''), silentMs: 10_000, elapsedMs: 10_000, ...left, key: { id: 'honest' } }
  const ask = () => place.ask('chat-completions', { stream: true, max_tokens: 64_000 }, silent)
  const before = await ask()
  for (let nth = 0; nth < 22; nth++)
    await place.ask(
      'chat-completions',
      {},
      {
        reply: reply(CHAT, { completion_tokens: nth < 4 ? 6000 : 1000 }),
        elapsedMs: 10_000,
        key: { ...TEACHER, id: `key_${nth}` },
      },
    )
  t.equal((await ask()).cost, before.cost)
  const { learned } = place.meter
  t.equal(learned.heldRate(`famC ${MODEL}`, 'honest', 150), 600)
  t.equal(learned.ownRate(`famC ${MODEL}`, 'honest', 150), 150)
})

t.test('what an upstream added to the prompts of a key itself is charged, so that leaving is not cheaper', async t => {
  const place = await Exchanges.load(file => file.model('famC', MODEL, { reasoning: 'none' }))
  const asked = { stream: true }
  const going = { reply: chunk('Hello'), elapsedMs: 100, ...left }
  const before = await place.ask('chat-completions', asked, going)
  await place.ask('chat-completions', asked, { reply: reply(CHAT, { prompt_tokens: 1400 }) })
  const after = await place.ask('chat-completions', asked, going)
  t.ok(after.cost >= 1400n * INPUT && after.cost > before.cost, `${after.cost}`)
})

t.test(
  'a stream over a limit of the gateway is charged for what may have been generated, and a JSON reply that the client did not get is free',
  async t => {
    const place = await Exchanges.load()
    const attempt = { upstream: 'u', account: 'a', status: 200 }
    const going = { reply: '', elapsedMs: 60_000, silentMs: 60_000 }
    const error = new GatewayError('upstream_failed')
    const json = await place.ask(
      'chat-completions',
      { max_tokens: 400, n: 20 },
      { ...going, outcome: { kind: 'failed', error, attempts: [{ ...attempt, failure: 'too large' }] } },
    )
    t.equal(json.cost, 0n)
    const broken = { kind: 'broken', by: 'gateway', status: 200, attempts: [attempt] } as const
    const text = chunk('x'.repeat(3000))
    const stream = await place.ask(
      'chat-completions',
      { stream: true, max_tokens: 64_000 },
      { ...going, reply: text, outcome: broken },
    )
    t.ok(stream.cost >= 60n * 150n * OUTPUT, `${stream.cost}: with what was generated unseen`)
    const stopped = await place.ask(
      'chat-completions',
      { stream: true, max_tokens: 64_000 },
      { ...going, reply: text, outcome: { ...broken, by: 'drain' } },
    )
    t.ok(stopped.cost <= 1200n * OUTPUT, `${stopped.cost}: a restart costs what was delivered`)
  },
)

t.test('a JSON request with tools never gets a higher limit than its own', async t => {
  const place = await Exchanges.load(file => file, 900_000_000n)
  for (const [format, more, limit] of [
    ['messages', { max_tokens: 100, tools: [{ type: 'web_search_20250305', name: 'w' }] }, 'max_tokens'],
    ['responses', { max_output_tokens: 100, tools: [{ type: 'web_search' }] }, 'max_output_tokens'],
  ] as const) {
    const { sent } = await place.ask(format, more)
    t.equal(sent[limit], 100)
  }
})

t.test('a JSON request without a limit gets none above that of its model', async t => {
  const place = await Exchanges.load(file => file, 4_000_000_000n)
  const text = 'x'.repeat(1_500_000)
  const { sent } = await place.send('famB', RESPONSES, {
    model: 'acme/famB-4.3',
    input: text,
    tools: [{ type: 'web_search' }],
  })
  t.ok((sent.max_output_tokens ?? 0) <= 64_000, `${sent.max_output_tokens}`)
})

t.test('a search for tools, and a compaction, are followed by a pass that is held and charged', async t => {
  const place = await Exchanges.load()
  const said = { messages: [{ role: 'user', content: 'x'.repeat(100_000) }], stream: true, max_tokens: 100 }
  const start = typed({ type: 'message_start', message: { type: 'message', usage: { input_tokens: 25_000 } } })
  const again = (content_block: object): string => typed({ type: 'content_block_start', index: 0, content_block })
  const search = { type: 'server_tool_use', id: 's', name: 'tool_search_tool_regex', input: {} }
  const plain = await place.ask('messages', said, { reply: start, elapsedMs: 1000, ...left })
  for (const [more, block] of [
    [{ tools: [{ type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' }] }, search],
    [{ context_management: { edits: [{ type: 'compact_20260112' }] } }, { type: 'compaction' }],
    [{ compaction: { type: 'compaction_20260112' } }, { type: 'compaction' }],
  ] as const) {
    const { held, cost } = await place.ask(
      'messages',
      { ...said, ...more },
      { reply: start + again(block), elapsedMs: 1000, ...left },
    )
    t.ok(held >= plain.held + 50_000n * INPUT, `${held} is held, and ${plain.held} without it`)
    t.ok(cost >= plain.cost + 25_000n * INPUT, `${cost} is charged, and ${plain.cost} without it`)
    t.ok(cost <= plain.cost + 27_000n * INPUT, `${cost}: one pass more`)
    const unshown = await place.ask('messages', { ...said, ...more }, { reply: start, elapsedMs: 1000, ...left })
    t.ok(unshown.cost < plain.cost + 1000n * INPUT, `${unshown.cost}: none was shown`)
  }
})

t.test('a member that chooses the prompt cache makes it another one', async t => {
  const place = await Exchanges.load(file => file.model('famC', MODEL, { reasoning: 'none' }))
  const said = { input: [{ role: 'user', content: 'word '.repeat(8000) }] }
  const usage = { input_tokens: 10_000, output_tokens: 1, input_tokens_details: { cached_tokens: 9000 } }
  await place.ask('responses', { ...said, user: 'a' }, { reply: reply(RESPONSES, usage) })
  const leaves = { reply: typed({ type: 'response.created', response: {} }), elapsedMs: 100, ...left }
  const [same, other] = [
    await place.ask('responses', { ...said, user: 'a', stream: true }, leaves),
    await place.ask('responses', { ...said, user: 'b', stream: true }, leaves),
  ]
  t.ok(same.cost < 10_000n * INPUT, `${same.cost}`)
  t.ok(other.cost >= 10_000n * INPUT, `${other.cost}`)
})

t.test('requests with a search hold as much as docs/charging.md states', async t => {
  const page = readFileSync(new URL('../../docs/charging.md', import.meta.url), 'utf8')
  const place = await Exchanges.load(file => file)
  const chat = await place.send('famC', CHAT, {
    model: MODEL,
    messages: [{ role: 'user', content: 'What is new?' }],
    max_tokens: 1,
    web_search_options: {},
  })
  t.match(page, `with a search holds ${(Number(chat.held) / 1e9).toFixed(1)} credits and its output`)
  const body = { model: 'acme/famA-large-5', max_tokens: 1, stream: true }
  const tools = [{ type: 'web_search_20250305', name: 'web_search' }]
  // The text of the messages is what weighs 1000 bytes.
  const stream = async (length: number): Promise<{ held: bigint }> =>
    place.send('famA', MESSAGES, { ...body, tools, messages: [{ role: 'user', content: 'x'.repeat(length) }] })
  t.ok(page.includes('0.325 credits'))
  const [one, other] = [await stream(1000), await stream(3000)]
  t.equal(other.held - one.held, 2n * 1000n * 15_000n, 'the input is held twice')
  t.ok(one.held >= 325_000_000n && one.held < 345_000_000n, `${one.held}: with a few tokens for the rest of the body`)
})

t.test('a limit of calls that providers take in different ways is refused by its name', async t => {
  const place = await Exchanges.load()
  for (const limit of [0, -1, 1.5, '5', 1e300, true]) {
    const search = { type: 'web_search_20250305', name: 'web_search' }
    for (const [param, asked] of [
      ['max_tool_calls', place.ask('responses', { tools: [{ type: 'web_search' }], max_tool_calls: limit })],
      ['tools[0].max_uses', place.ask('messages', { tools: [{ ...search, max_uses: limit }] })],
    ] as const)
      t.match((await asked).error, {
        code: 'invalid_body',
        details: { param, message: /must be a whole number above 0/ },
      })
  }
  t.match(await place.ask('responses', { max_tool_calls: null }), { error: undefined }, 'no limit')
})
