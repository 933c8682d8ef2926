import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parseDecimal } from '../../core/money/credits.ts'
import { type TestGateway, until } from '../gateway.ts'
import { chatReply, json, type Script } from '../upstream.ts'
import type { Edit, GatewayFile } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { gate, leavesAfter, readsOn } from '../leaving.ts'
import { scene, type Scene } from '../scene.ts'
import { typed } from '../stream-events.ts'

/**
 * Ways to pay less than the provider bills, all of which fail, and requests that must not cost an honest customer more.
 */

const CHAT = '/v1/chat/completions'
const RESPONSES = '/v1/responses'
const MESSAGES = '/v1/messages'
/** Prices of the models in this file, in nano-credits per token. */
const [INPUT, CACHED, OUTPUT] = [3000n, 300n, 15_000n]
const say = (content: unknown): object[] => [{ role: 'user', content }]
const FAMC = { model: 'acme/famC-5.5', messages: say('hi') }
const FAMA = { model: 'acme/famA-medium-5', max_tokens: 32_000, messages: say('hi') }

const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
const chatUsage = (usage: object): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [], usage })}\n\ndata: [DONE]\n\n`

/** A gateway that makes keys with any number of credits. */
interface Sold extends Scene {
  key(type: string, credits: string): Promise<string>
}

async function sold(t: Test, edit: Edit = file => file, now: () => number = Date.now): Promise<Sold> {
  // Rates for long input have tests of their own.
  const started = await scene(t, file => edit(file.set('prices.medium.tiers', [])), { environment: { now } })
  const key = async (type: string, credits: string): Promise<string> => {
    const wish = { type, name: '', credits: parseDecimal(credits) as bigint, expiresAt: undefined }
    return (await started.g.gateway.keys.changes.create(wish)).secret
  }
  return { ...started, key }
}

/** Changes settings of the model in this file. */
const famC =
  (settings: Readonly<Record<string, unknown>>) =>
  (file: GatewayFile): GatewayFile =>
    file.model('famC', 'acme/famC-5.5', settings)

/** Answers with a stream in pieces. The pieces after a pause are sent when the test opens it. */
function stream(...pieces: (string | Promise<unknown>)[]): Script {
  return async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const piece of pieces) {
      if (typeof piece !== 'string') await piece
      else if (!res.destroyed) res.write(piece)
    }
    res.end()
  }
}

const nano = async (g: TestGateway, key: string): Promise<bigint> => BigInt((await g.balance(key)).exact.balance)

t.test('a client that leaves between the last content and the usage pays what the provider bills', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  // Each reply has 4000 hidden tokens, of which nothing was delivered.
  for (const onlyText of [true, false]) {
    const { opens, open } = gate()
    const key = await place.key('famC', '10')
    upstream.script = stream(
      chunk({ content: 'The answer.' }) + (onlyText ? chunk({}, 'stop') : ''),
      opens,
      (onlyText ? '' : chunk({}, 'stop')) + chatUsage({ prompt_tokens: 9, completion_tokens: 4003 }),
    )
    await leavesAfter(g, onlyText ? '"stop"' : 'answer', CHAT, { key, body: { ...FAMC, stream: true } })
    open()
    matchAll(t, await g.settled(key), [
      { status: 'client_gone', usage_source: 'upstream', output_tokens: 4003, input_tokens: 9 },
    ])
  }
  const { opens, open } = gate()
  const key = await place.key('famC', '10')
  const response = {
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    output: [],
    usage: { input_tokens: 100_000, output_tokens: 4003 },
  }
  upstream.script = stream(
    typed({
      type: 'response.created',
      sequence_number: 0,
      response: { id: 'resp_1', object: 'response', status: 'in_progress' },
    }) +
      typed({ type: 'response.output_text.delta', delta: 'The answer.' }) +
      typed({ type: 'response.output_text.done', text: 'The answer.' }),
    opens,
    typed({ type: 'response.completed', sequence_number: 9, response }),
  )
  await leavesAfter(g, 'output_text.done', RESPONSES, { key, body: { model: FAMC.model, input: 'hi', stream: true } })
  open()
  matchAll(t, await g.settled(key), [{ usage_source: 'upstream', output_tokens: 4003, input_tokens: 100_000 }])
})

t.test('a hundred and fifty clients that leave at once are all charged', async t => {
  const place = await sold(t, file =>
    famC({ reasoning: 'none' })(file)
      .everyUpstream({ timeouts: { usage: '2m' } })
      .set('limits.keepalive', '1s'),
  )
  const { g, upstream } = place
  const { opens, open } = gate()
  upstream.script = stream(
    chunk({ content: 'The answer.' }) + chunk({}, 'stop'),
    opens,
    chatUsage({ prompt_tokens: 9, completion_tokens: 4000 }),
  )
  const keys = await Promise.all(Array.from({ length: 5 }, () => place.key('famC', '100')))
  await Promise.all(
    keys.flatMap(key =>
      Array.from({ length: 30 }, () => leavesAfter(g, '"stop"', CHAT, { key, body: { ...FAMC, stream: true } })),
    ),
  )
  open()
  const reported = { output_tokens: 4000, usage_source: 'upstream' }
  for (const key of keys) {
    matchAll(
      t,
      await g.settled(key),
      Array.from({ length: 30 }, () => reported),
    )
  }
})

t.test(
  'a client that leaves after the last delta of a messages stream pays the reported usage, not an estimate',
  async t => {
    const place = await sold(t)
    const { g, upstream } = place
    const key = await place.key('famA', '10')
    upstream.script = stream(
      typed({
        type: 'message_start',
        message: { type: 'message', content: [], usage: { input_tokens: 200, output_tokens: 1 } },
      }) +
        typed({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x'.repeat(900) } }) +
        typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 200 } }),
      new Promise(() => {}),
    )
    await leavesAfter(g, 'message_delta', MESSAGES, { key, body: { ...FAMA, stream: true } })
    matchAll(t, await g.settled(key), [
      {
        usage_source: 'upstream',
        input_tokens: 200,
        output_tokens: 200,
        cost_nano: String(200n * INPUT + 200n * OUTPUT),
      },
    ])
  },
)

t.test(
  'a stream with hidden reasoning ends when time has used up the balance, as its format ends by length',
  async t => {
    const place = await sold(t, famC({ outputRate: 6000 }))
    const { g, upstream } = place
    const body = { ...FAMC, stream: true, max_tokens: 100_000 }
    for (const opening of ['', chunk({ role: 'assistant', content: '' })]) {
      const key = await place.key('famC', '0.1')
      upstream.script = opening === '' ? () => {} : stream(opening, new Promise(() => {}))
      const answer = await g.call(CHAT, { key, body })
      if (opening === '') t.match(answer, { status: 429, json: { error: { code: 'insufficient_quota' } } })
      else t.match(answer.text, /"finish_reason":"length"[^]*\[DONE\]/)
      const [entry] = await g.settled(key)
      t.match(entry, { status: 'budget' })
      // 6000 tokens a second are 0.09 credits. There is a check each second, and one second for the upstream to stop.
      const left = await nano(g, key)
      t.ok(left <= 0n && left >= -3n * 6000n * OUTPUT, `${left}`)
    }
  },
)

t.test('a stream whose reasoning could be shown and is not ends when its time has used up the balance', async t => {
  const place = await sold(t, file => file.model('famA', 'acme/famA-medium-5', { outputRate: 6000 }))
  const { g, upstream } = place
  const key = await place.key('famA', '0.1')
  const opening = typed({
    type: 'message_start',
    message: { type: 'message', content: [], usage: { input_tokens: 10, output_tokens: 1 } },
  })
  upstream.script = stream(opening, new Promise(() => {}))
  const { text } = await g.call(MESSAGES, {
    key,
    body: { ...FAMA, stream: true, thinking: { type: 'adaptive', display: 'omitted' } },
  })
  t.match(text, /"stop_reason":"max_tokens"/)
  await g.settled(key)
  t.ok((await nano(g, key)) >= -3n * 6000n * OUTPUT)
})

t.test('a client that does not read pays for what its upstream produced', async t => {
  const place = await sold(t, file => famC({ outputRate: 100_000 })(file).set('limits.writeIdle', '4s'))
  const { g, upstream } = place
  const key = await place.key('famC', '100')
  const body = JSON.stringify({ ...FAMC, stream: true })
  const { opens: hasBegun, open: begins } = gate()
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(chunk({ role: 'assistant', content: '' }))
    await hasBegun
    await sleep(400)
    while (!res.destroyed)
      if (!res.write(chunk({ content: 'x', padding: 'x'.repeat(100_000) }))) {
        // A provider gives up a connection on which nothing moves.
        const giveUp = setTimeout(() => res.destroy(), 3000)
        await new Promise(resolve => res.once('drain', resolve).once('close', resolve))
        clearTimeout(giveUp)
      }
  }
  const deaf = connect(g.gateway.port, '127.0.0.1')
  deaf.once('data', () => {
    deaf.pause()
    begins()
  })
  deaf.write(
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  await until(() => upstream.requests.length === 1)
  await upstream.last.closed
  const [entry] = await g.settled(key)
  deaf.destroy()
  t.match(entry, { status: 'client_gone' })
  t.ok(entry?.output_tokens > 40_000, `${entry?.output_tokens} tokens, reasoning included`)
})

t.test('a customer with a small balance is not refused because of an output limit that is never used', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  const key = await place.key('famC', '0.05')
  upstream.script = stream(chunk({ content: 'x' }, 'stop') + chatUsage({ prompt_tokens: 9, completion_tokens: 5 }))
  t.match((await g.call(CHAT, { key, body: { ...FAMC, stream: true, max_tokens: 100_000 } })).text, '[DONE]')
  matchAll(t, await g.settled(key), [{ status: 'ok', output_tokens: 5 }])
})

t.test('a hold covers what a request refers to, not only its own text', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  upstream.script = (_received, res) => json(res, chatReply(1, 1))
  const least = async (messages: object[]): Promise<number> => {
    const key = await place.key('famC', '0.00001')
    const { json: no } = await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 1, messages } })
    return Number(/may need ([\d.]+)\./.exec(no.error.message)?.[1])
  }
  const image = (url: string): object[] => say([{ type: 'image_url', image_url: { url } }])
  const file = (members: object): object[] => say([{ type: 'file', file: members }])
  const price = (tokens: number): number => (tokens * 3) / 1e6
  t.ok((await least(image('https://example.com/a.png'))) > price(3000), 'an image behind a URL')
  t.ok((await least(image(`data:image/png;base64,${'A'.repeat(400_000)}`))) < price(4000), 'an image is not its base64')
  t.ok(
    (await least(file({ file_data: 'https://example.com/a.pdf' }))) > price(999_000),
    'a document behind a URL may fill the window',
  )
  const text = 'a long text that is no image '.repeat(10_000)
  for (const name of ['data', 'url'])
    t.ok((await least(say([{ type: 'text', text: 'x', [name]: text }]))) > price(140_000), `text in a member "${name}"`)
  t.ok((await least(image(text))) > price(140_000), 'text in the place of an image')
  const hidden = Buffer.from(`%PDF-1.4\n${'<< /Type /Page >>\n'.repeat(600)}`).toString('base64')
  for (const name of ['data:Application/pdf', 'data:application/octet-stream'])
    t.ok((await least(file({ file_data: `${name};base64,${hidden}` }))) > price(600 * 3000), name)
  t.ok(
    (await least(image(`data:image/png;base64,${hidden}`))) > price(600 * 3000),
    'a document in the place of an image',
  )
  const pdf = (pages: number): string =>
    `data:application/pdf;base64,${Buffer.from(`%PDF-1.4\n${'<< /Type /Page >>\n'.repeat(pages)}<< /Type /Pages /Count ${pages} >>`).toString('base64')}`
  t.ok((await least(file({ file_data: pdf(600) }))) > price(600 * 3000), 'a document by its pages')
  t.ok((await least(file({ file_data: pdf(1) }))) < price(4000))
  t.ok(
    (await least(file({ file_data: pdf(0) }))) > price(999_000),
    'one that does not show its pages may fill the window',
  )
  const secret = say([{ type: 'redacted_thinking', data: 'A'.repeat(300_000) }])
  const famA = await place.key('famA', '0.01')
  t.match(await g.call(MESSAGES, { key: famA, body: { ...FAMA, max_tokens: 1, messages: secret } }), {
    status: 429,
    json: { error: { message: /may need 0\.45/ } },
  })
  t.equal(upstream.requests.length, 0)
})

t.test('of several members that limit the output, the largest is held, and all are sent as the largest', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  const body = { ...FAMC, max_completion_tokens: 1, max_tokens: 16_000 }
  t.equal((await g.call(CHAT, { key: await place.key('famC', '0.05'), body })).status, 429)
  upstream.script = ({ json: asked }, res) =>
    json(res, {
      choices: [{ message: { content: 'x' } }],
      usage: {
        prompt_tokens: 9,
        completion_tokens: Math.max(Number(asked['max_tokens']), Number(asked['max_completion_tokens'])),
      },
    })
  const key = await place.key('famC', '1')
  t.equal((await g.call(CHAT, { key, body })).status, 200)
  t.match(upstream.last.json, { max_tokens: 16_000, max_completion_tokens: 16_000 })
  await g.settled(key)
  t.ok((await nano(g, key)) > 0n)
})

t.test(
  'the tokens that an upstream adds to each prompt are held once they are known: from the file, or from the key',
  async t => {
    for (const stated of [undefined, 1000]) {
      const place = await sold(t, famC({ reasoning: 'none', ...(stated !== undefined && { overhead: stated }) }))
      const { g, upstream } = place
      upstream.script = (_received, res) => json(res, chatReply(1010, 1))
      const ask = async (key: string): Promise<number> =>
        (await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 1 } })).status
      const key = await place.key('famC', '0.01')
      const answers: number[] = []
      for (let time = 0; time < 5; time++) answers.push(await ask(key))
      t.same(answers, [200, 200, 200, 429, 429])
      t.ok((await nano(g, key)) >= 0n)
      for (let other = 0; other < 20; other++) await ask(await place.key('famC', '0.01'))
      const expected = stated === undefined ? 200 : 429
      t.equal(await ask(await place.key('famC', '0.002')), expected, 'new keys teach others nothing')
    }
  },
)

t.test('plausible usage is charged, implausible usage is capped, and an entry can be refunded', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  const key = await place.key('famC', '100')
  const reports: [string, object, object, bigint][] = [
    [
      'output far above the limit',
      { max_tokens: 10 },
      { prompt_tokens: 9, completion_tokens: 4096 },
      9n * INPUT + 4096n * OUTPUT,
    ],
    [
      'input above two windows, by tools that the provider runs',
      { tools: [{ type: 'web_search' }] },
      { prompt_tokens: 2_100_000, completion_tokens: 5 },
      // And one search.
      2_100_000n * INPUT + 5n * OUTPUT + 10_000_000n,
    ],
  ]
  for (const [what, more, usage, bill] of reports) {
    upstream.script = (_received, res) => json(res, { choices: [{ message: { content: 'x' } }], usage })
    await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 100, ...more } })
    const [entry] = await g.settled(key)
    t.match(entry, { quarantined: false, cost_nano: String(bill) }, what)
  }
  for (let time = 0; time < 2; time++) {
    upstream.script = (_received, res) => json(res, chatReply(50_000_000, 5))
    await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 100 } })
  }
  upstream.script = (_received, res) => json(res, chatReply(50_000_000, 5))
  const bytes = BigInt(JSON.stringify({ ...FAMC, max_tokens: 100 }).length)
  await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 100 } })
  const [entry] = await g.settled(key)
  t.match(entry, { quarantined: true, cost_nano: String(bytes * INPUT + 5n * OUTPUT) }, 'a token has at least a byte')
  t.equal(g.gateway.meter.implausibleAlarms, 0, 'one key raises no alarm')

  const account = await g.id(key)
  const given = await g.gateway.ledger.reads.entry(entry?.id, account)
  const before = await nano(g, key)
  for (const amount of [bytes * INPUT + 5n * OUTPUT, 0n])
    t.match(await g.gateway.ledger.credit(account, given as never, 'a mistake of the provider'), { credits: amount })
  t.equal((await nano(g, key)) - before, bytes * INPUT + 5n * OUTPUT, 'once')
  const [credit] = await g.settled(key)
  t.match(credit, {
    type: 'credit',
    request_id: entry?.request_id,
    credits_entry: entry?.id,
    credit_reason: 'a mistake of the provider',
    cost_nano: String(-(bytes * INPUT + 5n * OUTPUT)),
  })
  const refund = await g.gateway.ledger.reads.entry(credit?.id, account)
  await t.rejects(g.gateway.ledger.credit(account, refund as never, 'again'), /charged nothing/)
})

t.test('a client that interrupts a cached conversation pays the cached price for its cached part', async t => {
  const soon: Edit = file => file.everyUpstream({ timeouts: { usage: '200ms' } })
  const place = await sold(t, file => soon(famC({ reasoning: 'none' })(file)))
  const { g, upstream } = place
  const cases = [
    [
      'famC',
      CHAT,
      FAMC,
      (cached: number): object => ({
        prompt_tokens: 200_010,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: cached },
      }),
    ],
    [
      'famA',
      MESSAGES,
      FAMA,
      (cached: number): object => ({
        input_tokens: 200_010 - cached,
        cache_read_input_tokens: cached,
        output_tokens: 5,
      }),
    ],
  ] as const
  for (const [type, path, body, usage] of cases) {
    const key = await place.key(type, '100')
    const talk = [...say('All that has been said so far. '.repeat(26_000))]
    const whole = type === 'famC' ? { choices: [{ message: { content: 'x' } }] } : { type: 'message', content: [] }
    upstream.script = (_received, res) => json(res, { ...whole, usage: usage(198_000) })
    await g.call(path, { key, body: { ...body, messages: talk } })
    upstream.script =
      type === 'famC'
        ? stream(chunk({ content: 'x' }), new Promise(() => {}))
        : stream(': nothing yet\n\n', new Promise(() => {}))
    const leave = new AbortController()
    const going = g
      .open(path, {
        key,
        body: { ...body, stream: true, messages: [...talk, { role: 'assistant', content: 'x' }, ...say('go on')] },
        signal: leave.signal,
      })
      .catch(() => undefined)
    await until(() => upstream.requests.length % 2 === 0)
    await sleep(20)
    leave.abort()
    await going
    const [entry] = await g.settled(key)
    t.match(entry, { status: 'client_gone', usage_source: 'estimated' })
    t.ok(entry?.cache_read_tokens > 195_000, `${entry?.cache_read_tokens} tokens from the cache`)
    t.ok(entry?.cost > 0.059 && entry?.cost < 0.11, `${entry?.cost} credits`)
    // A thief who appends text and leaves pays for all of it.
    upstream.script = stream(': nothing yet\n\n', new Promise(() => {}))
    const thief = new AbortController()
    const stealing = g
      .open(path, {
        key,
        body: { ...body, stream: true, messages: [...talk, ...say('0123456789'.repeat(40_000))] },
        signal: thief.signal,
      })
      .catch(() => undefined)
    await until(() => upstream.requests.length % 3 === 0)
    await sleep(20)
    thief.abort()
    await stealing
    const [stolen] = await g.settled(key)
    t.ok(BigInt(stolen?.cost_nano) >= 198_000n * CACHED + 200_000n * INPUT, `${stolen?.cost} credits`)
    upstream.requests.splice(0)
  }
})

t.test('a messages stream that is left before it began is read until its input is known, and no further', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  const key = await place.key('famA', '10')
  const { opens, open } = gate()
  const usage = { input_tokens: 10, cache_read_input_tokens: 5000, output_tokens: 1 }
  upstream.script = stream(
    opens,
    typed({ type: 'message_start', message: { type: 'message', content: [], usage } }),
    new Promise(() => {}),
  )
  const leave = new AbortController()
  const call = g.open(MESSAGES, { key, body: { ...FAMA, stream: true }, signal: leave.signal }).catch(() => undefined)
  await until(() => upstream.requests.length === 1)
  leave.abort()
  await call
  open()
  await upstream.last.closed
  const [entry] = await g.settled(key)
  t.match(entry, { status: 'client_gone', input_tokens: 5010, cache_read_tokens: 5000 })
  t.ok(entry?.output_tokens <= 400, `${entry?.output_tokens} tokens by the clock`)
})

t.test('text of a request counts as text, whatever it looks like', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  upstream.script = (_received, res) =>
    json(res, { type: 'message', content: [], usage: { input_tokens: 1, output_tokens: 1 } })
  const key = await place.key('famA', '1')
  const input = { type: 'image', file_id: 'mine', source: { type: 'base64', data: 'A'.repeat(3_000_000) } }
  const called = [...say('hi'), { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'draw', input }] }]
  t.match(await g.call(MESSAGES, { key, body: { ...FAMA, max_tokens: 1, messages: called } }), {
    status: 429,
    json: { error: { message: /may need 4\.5/ } },
  })
  const small = { type: 'document', file_id: 'mine', source: { type: 'url', url: 'https://example.com/a.pdf' } }
  const talk = [
    ...say('hi'),
    { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'read', input: small }] },
  ]
  t.equal(
    (await g.call(MESSAGES, { key, body: { ...FAMA, max_tokens: 1, messages: talk } })).status,
    200,
    'a tool may be given what it likes',
  )
})

t.test('disabling, expiry and rotation of a key end its running streams within one renewal', async t => {
  const place = await sold(t, file => file.set('ledger.lease', '900ms'))
  const { g, upstream } = place
  const off: [string, (id: string) => Promise<unknown>, RegExp][] = [
    ['disabled', id => g.gateway.keys.changes.disable(id), /has been disabled/],
    ['rotated', id => g.gateway.keys.changes.rotate(id), /has been disabled/],
    [
      'expired',
      id => g.gateway.ledger.scripts.redis.hset(g.gateway.ledger.scripts.keys.of(id).account, 'ex', '1'),
      /has expired/,
    ],
  ]
  for (const [what, turn, words] of off) {
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      for (let nth = 0; nth < 500 && !res.destroyed; nth++) {
        res.write(chunk({ content: 'x'.repeat(30) }))
        await sleep(20)
      }
      res.end()
    }
    const key = await place.key('famC', '10')
    const id = await g.id(key)
    const response = await g.open(CHAT, { key, body: { ...FAMC, stream: true } })
    await turn(id)
    t.match(await response.text(), words, what)
    await upstream.last.closed
    await until(() => g.gateway.ledger.live === 0)
    const [entry] = await g.gateway.ledger.reads.history({ account: id }, { count: 1 })
    t.equal(entry?.notes.status, 'disabled')
    t.ok((entry?.charge ?? 0n) > 0n)
  }
})

t.test('with onDisabled: finish such streams run on, as far as their holds', async t => {
  const place = await sold(t, file =>
    famC({ reasoning: 'none' })(file).set('ledger.lease', '900ms').set('keyTypes.famC.onDisabled', 'finish'),
  )
  const { g, upstream } = place
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    while (!res.destroyed) {
      res.write(chunk({ content: 'x'.repeat(300) }))
      await sleep(2)
    }
  }
  const key = await place.key('famC', '1')
  const id = await g.id(key)
  const response = await g.open(CHAT, { key, body: { ...FAMC, stream: true } })
  await g.gateway.keys.changes.disable(id)
  t.match(await response.text(), /"finish_reason":"length"/)
  await until(() => g.gateway.ledger.live === 0)
  const { balance } = await g.gateway.ledger.reads.balance(id)
  t.ok(balance > 900_000_000n, `${balance}: no more than was held before is used`)
})

t.test('token counting checks status and expiry, and has a rate limit of its own', async t => {
  let ahead = 0
  const now = (): number => Date.now() + ahead
  const place = await sold(t, file => file.stage('count-tokens', { perMinute: 3 }), now)
  const { g, upstream } = place
  upstream.script = (_received, res) => json(res, { input_tokens: 5 })
  const count = async (key: string): Promise<number> =>
    (await g.call('/v1/messages/count_tokens', { key, body: FAMA })).status
  const key = await place.key('famA', '1')
  const expired = await g.key('famA', 0n, now() + 60_000)
  t.equal(await count(expired), 200)
  ahead = 60_000
  t.equal(await count(expired), 401)
  const answers = [await count(key), await count(key), await count(key), await count(key)]
  t.same(answers, [200, 200, 200, 429])
  const other = await place.key('famA', '1')
  t.equal(await count(other), 200)
  await g.gateway.keys.changes.disable(await g.id(other))
  t.equal(await count(other), 401, 'at once, though the key was in use')
})

t.test('a JSON request takes half of a small balance, but not less than it needs for some output', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  upstream.script = (_received, res) =>
    json(res, { type: 'message', content: [], usage: { input_tokens: 9, output_tokens: 5 } })
  const body = { ...FAMA, max_tokens: 100_000, thinking: { type: 'enabled', budget_tokens: 60_000 } }
  const limited = await g.call(MESSAGES, { key: await place.key('famA', '0.5'), body })
  const limit = Number(limited.headers.get('x-tollgate-output-limit'))
  t.ok(limit > 16_000 && limit < 16_667, `${limit} of 33 333 tokens that the balance pays for`)
  t.match(upstream.last.json, { max_tokens: limit, thinking: { budget_tokens: Math.floor(limit / 2) } })
  const thin = await g.call(MESSAGES, { key: await place.key('famA', '0.07'), body })
  t.ok(Number(thin.headers.get('x-tollgate-output-limit')) >= 4096)
  t.equal((await g.call(MESSAGES, { key: await place.key('famA', '0.06'), body })).status, 429)
  t.equal(
    (await g.call(MESSAGES, { key: await place.key('famA', '4'), body })).headers.get('x-tollgate-output-limit'),
    null,
  )
})

t.test('a request above the concurrency of its key waits for another one to end', async t => {
  const place = await sold(t, file => file.setAll('keyTypes.famC', { limits: { concurrency: 1, queue: '10s' } }))
  const { g, upstream } = place
  const { opens, open } = gate()
  let running = 0
  let most = 0
  upstream.script = async (_received, res) => {
    most = Math.max(most, ++running)
    await opens
    running--
    json(res, chatReply(1, 1))
  }
  const key = await place.key('famC', '10')
  const first = g.call(CHAT, { key, body: FAMC })
  await until(() => upstream.requests.length === 1)
  const second = g.call(CHAT, { key, body: FAMC })
  await until(() => g.gateway.running === 2)
  open()
  for (const answer of await Promise.all([first, second])) t.equal(answer.status, 200)
  t.equal(most, 1)
})

t.test('a reply without a client does not count for concurrency, and is never read beyond its hold', async t => {
  const place = await sold(t, file =>
    famC({ outputRate: 1 })(file).setAll('keyTypes.famC', { limits: { concurrency: 1, queue: '0s' } }),
  )
  const { g, upstream } = place
  let tell = (_text: string): void => {}
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(chunk({ content: 'x' }))
    tell = text => void res.write(text)
  }
  const key = await place.key('famC', '10')
  await leavesAfter(g, '"x"', CHAT, { key, body: { ...FAMC, stream: true } })
  await readsOn(place.g, key)
  const left = upstream.last
  const { held } = (await g.balance(key)).exact
  const more = tell
  upstream.script = (_received, res) => json(res, chatReply(1, 1))
  t.equal(
    (await g.call(CHAT, { key, body: { ...FAMC, max_tokens: 10 } })).status,
    200,
    'the next prompt is not blocked',
  )
  for (let piece = 0; piece < 20; piece++) more(chunk({ content: 'y'.repeat(1000) }))
  await left.closed
  const entries = await g.settled(key)
  const entry = entries.find(({ status }) => status === 'client_gone')
  t.ok(
    BigInt(entry?.cost_nano) >= BigInt(held) && BigInt(entry?.cost_nano) < 2n * BigInt(held) + 20_000n * OUTPUT,
    `${entry?.cost_nano} of ${held}`,
  )
})

t.test('stored state belongs to the key that created it, and its size is held', async t => {
  const place = await sold(t)
  const { g, upstream } = place
  let made = 0
  upstream.script = ({ json: asked }, res) => {
    const id = `resp_${++made}`
    const output = [{ type: 'message', id: `msg_${made}`, content: [] }]
    const response = {
      id,
      object: 'response',
      status: 'completed',
      output,
      usage: { input_tokens: 90_000, output_tokens: 10_000 },
    }
    if (asked['stream'] !== true) return json(res, response)
    res.writeHead(200, { 'content-type': 'text/event-stream' }).end(typed({ type: 'response.completed', response }))
  }
  const [mine, other] = [await place.key('famC', '10'), await place.key('famC', '10')]
  const ask = (key: string, more: object): ReturnType<TestGateway['call']> =>
    g.call(RESPONSES, { key, body: { model: FAMC.model, max_output_tokens: 10_000, input: 'hi', ...more } })
  for (const stream of [false, true]) {
    t.equal((await ask(mine, { stream })).status, 200)
    const [id, item] = [`resp_${made}`, `msg_${made}`]
    const references = [
      { previous_response_id: id },
      { input: [{ type: 'item_reference', id: item }] },
      { input: [{ id: item }] },
    ]
    for (const reference of references) {
      t.match(await ask(other, reference), {
        status: 400,
        json: { error: { param: /previous_response_id|input\.id/, message: /this key did not create/ } },
      })
      t.equal((await ask(mine, reference)).status, 200)
    }
  }
  const strangers = [
    { conversation: 'conv_1' },
    { conversation: { id: 'conv_1' } },
    { prompt: { id: 'pmpt_1' } },
    { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file_1' }] }] },
    { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file_1' }] }] },
    ...['', 0, null, 'mine'].map(hides => ({
      input: [{ role: 'user', content: [{ type: 'input_file', file_id: hides, file: { file_id: 'file_1' } }] }],
    })),
    {
      input: [
        { role: 'user', content: [{ type: 'document', file_id: '', source: { type: 'file', file_id: 'file_1' } }] },
      ],
    },
    { tools: [{ type: 'code_interpreter', container: 'cntr_1' }] },
    { tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }] },
    { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }] }] },
    { input: [{ type: 'additional_tools', tools: [{ type: 'code_interpreter', container: 'cntr_1' }] }] },
    { input: [{ type: 'function_call', id: 'fc_1' }] },
    { input: [{ type: 'image_generation_call', id: 'ig_1', result: null }] },
    { input: [{ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: '' }] },
  ]
  for (const reference of strangers) t.match(await ask(mine, reference), { status: 400 }, JSON.stringify(reference))
  t.equal((await ask(mine, { store: false })).status, 200)
  t.equal(
    (await ask(mine, { previous_response_id: `resp_${made}` })).status,
    400,
    'what is not stored cannot be referred to',
  )
  const famA = await place.key('famA', '10')
  for (const more of [
    { container: 'c_1' },
    { messages: say([{ type: 'document', source: { type: 'file', file_id: 'file_1' } }]) },
  ]) {
    t.match(await g.call(MESSAGES, { key: famA, body: { ...FAMA, ...more } }), { status: 400 })
  }
  // 100,000 tokens of an earlier reply are 0.3 credits.
  const poor = await place.key('famC', '0.45')
  t.equal((await ask(poor, {})).status, 200)
  await g.settled(poor)
  t.match(await ask(poor, { previous_response_id: `resp_${made}` }), { status: 429 })
})
