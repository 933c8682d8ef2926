import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { differenceOf } from '../../core/ledger/opinions.ts'
import { bytesOfId } from '../../core/lib/ids.ts'
import { parseDecimal } from '../../core/money/credits.ts'
import type { FormatName } from '../../core/formats/index.ts'
import { type Answer, until } from '../gateway.ts'
import { type Edit, rewrite } from '../gateway-file.ts'
import {
  CALLS,
  CHAT,
  FACTORS,
  FORMATS,
  INPUT,
  MESSAGES,
  PLACES,
  PLAIN_COST,
  priced,
  reply,
  request,
  RESPONSES,
} from '../metering/exchanges.ts'
import { CHUNK_TOKENS, typed } from '../stream-events.ts'
import { json, sse } from '../upstream.ts'
import { scene, type Scene } from '../scene.ts'
import { gate, leavesAfter, readsOn } from '../leaving.ts'

/**
 * What providers bill beside tokens, from the client to the history: a story for each member. test/metering/ has the rules
 * in every format.
 */

/** @param price settings for the price of all models in this file */
function pricedScene(t: Test, price?: string, edit: Edit = file => file): Promise<Scene> {
  return scene(t, file => edit(priced(price)(file)), { script: ({ path }, res) => json(res, reply(path)) })
}

async function ask({ g }: Scene, format: FormatName, more: object, key: string): Promise<Answer> {
  const { path, model } = PLACES[format]
  return g.call(path, { key, body: request(format, model, more) })
}

/** Sends one request. Returns its charge in nano-credits, with its entry. */
async function charged(
  place: Scene,
  format: FormatName,
  more: object,
): Promise<{ answer: Answer; cost: bigint; entry: Record<string, any> }> {
  const key = await place.g.key(PLACES[format].type, 1000n)
  const answer = await ask(place, format, more, key)
  const [entry = {}] = await place.g.settled(key)
  return { answer, cost: BigInt(entry['cost_nano'] ?? 0), entry }
}

t.test('a refused member is named in the error of each format, and a dropped one in a header', async t => {
  const place = await pricedScene(t)
  for (const format of FORMATS) {
    const key = await place.g.key(PLACES[format].type)
    const before = place.upstream.requests.length
    const refused = await ask(place, format, { route: 'fallback' }, key)
    t.equal(refused.status, 400)
    t.equal(refused.headers.get('x-should-retry'), 'false')
    const { error } = refused.json
    t.match(error.message, /^"route" is refused\. .+\.$/)
    if (format === 'messages') t.equal(error.type, 'policy_blocked')
    else t.match(error, { code: 'unsupported_parameter', param: 'route' })
    t.equal(place.upstream.requests.length, before)
    const dropped = await ask(place, format, { service_tier: 'priority', speed: 'fast' }, key)
    t.equal(dropped.headers.get('x-tollgate-dropped'), 'service_tier, speed')
    t.equal(dropped.status, 200)
  }
})

t.test('a translated request carries a tier only between formats that both have tiers', async t => {
  const { g, upstream } = await pricedScene(t, FACTORS, file => file.set('upstreams.famC.speaks', ['responses']))
  const key = await g.key('famC')
  upstream.script = ({ path }, res) => json(res, reply(path, {}, { service_tier: 'priority' }))
  await g.call(CHAT, { key, body: request('chat-completions', 'acme/famC-5.5', { service_tier: 'priority' }) })
  t.equal(upstream.last.json['service_tier'], 'priority')
  t.equal(BigInt((await g.settled(key))[0]?.['cost_nano']), (PLAIN_COST * 25n) / 10n)
})

t.test('fifty background requests on a key with 0.02 credits reach no provider and cost nothing', async t => {
  const { g, upstream } = await pricedScene(t)
  const key = await g.keyOfNano('famC', parseDecimal('0.02') as bigint)
  const answers = await Promise.all(
    Array.from({ length: 50 }, () =>
      g.call(RESPONSES, { key, body: { model: 'acme/famC-5.5', input: 'hi', background: true } }),
    ),
  )
  t.ok(answers.every(({ status }) => status === 400))
  t.equal(upstream.requests.length, 0)
  t.equal((await g.balance(key)).exact.balance, '20000000')
})

t.test('the entry of a request shows the factors that it was charged by', async t => {
  const place = await pricedScene(t, FACTORS)
  place.upstream.script = (_received, res) =>
    json(res, reply(MESSAGES, { service_tier: 'priority', speed: 'fast', inference_geo: 'us' }))
  const more = { service_tier: 'priority', speed: 'fast', inference_geo: 'us' }
  const { cost, entry } = await charged(place, 'messages', more)
  t.equal(cost, (PLAIN_COST * 25n * 60n * 11n) / 1000n)
  t.match(entry['unit_prices'], [
    {
      input: '3',
      output: '15',
      factors: {
        service_tier: { name: 'priority', factor: '2.5' },
        speed: { factor: '6' },
        inference_geo: { factor: '1.1' },
      },
    },
  ])
})

t.test('calls that a stream has reported are charged, even if its client leaves early', async t => {
  const place = await pricedScene(t, CALLS, file => file.everyUpstream({ onDisconnect: 'cancel' }))
  const { g, upstream } = place
  const item = (event: string, index: number, type?: string): string =>
    typed({
      type: `response.output_item.${event}`,
      output_index: index,
      item: { type: 'web_search_call', id: `w${index}`, ...(type && { action: { type } }) },
    })
  const opening: Readonly<Record<string, string>> = {
    [RESPONSES]:
      typed({
        type: 'response.created',
        sequence_number: 0,
        response: { id: 'r', object: 'response', status: 'in_progress' },
      }) +
      item('added', 1) +
      item('done', 1, 'search') +
      item('added', 2, 'search') +
      // The found text is free.
      item('added', 3) +
      item('done', 3, 'open_page') +
      typed({ type: 'response.output_text.delta', delta: 'seen' }),
    [MESSAGES]:
      typed({
        type: 'message_start',
        message: {
          type: 'message',
          content: [],
          usage: { input_tokens: 10, output_tokens: 1, server_tool_use: { web_search_requests: 0 } },
        },
      }) +
      [0, 1]
        .map(index =>
          typed({
            type: 'content_block_start',
            index,
            content_block: { type: 'server_tool_use', id: `s${index}`, name: 'web_search', input: {} },
          }),
        )
        .join('') +
      typed({ type: 'content_block_delta', index: 2, delta: { type: 'text_delta', text: 'seen' } }),
  }
  for (const [format, tools] of [
    ['responses', [{ type: 'web_search' }]],
    ['messages', [{ type: 'web_search_20250305', name: 'web_search' }]],
  ] as const) {
    const { type, model, path } = PLACES[format]
    const key = await g.key(type)
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(opening[path])
    }
    await leavesAfter(g, 'seen', path, { key, body: request(format, model, { tools, stream: true }) })
    const [entry] = await g.settled(key)
    t.match(
      entry,
      { status: 'client_gone', unit_prices: [{ calls: { web_search: { count: 2, price: '0.01' } } }] },
      path,
    )
  }
  // The count at the end of the reply is charged: one of the two searches failed.
  upstream.script = (_received, res) =>
    sse(res, opening[MESSAGES] + typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 20, server_tool_use: { web_search_requests: 1 } } }) + typed({ type: 'message_stop' })) // prettier-ignore
  const { cost } = await charged(place, 'messages', {
    tools: [{ type: 'web_search_20250305', name: 'web_search' }],
    stream: true,
  })
  t.equal(cost, PLAIN_COST + 10_000_000n)
})

t.test('an advisor is sent under its upstream name, and charged as its own model', async t => {
  const place = await pricedScene(t, undefined, file =>
    file.model('famA', 'acme/famA-large-5', { sends: 'vendor-large' }),
  )
  const { upstream } = place
  const tool = { type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }
  const iterations = [
    { type: 'message', model: 'vendor-medium', input_tokens: 10, output_tokens: 20 },
    { type: 'advisor_message', model: 'vendor-large-20261001', input_tokens: 30, output_tokens: 40 },
  ]
  upstream.script = (_received, res) => json(res, reply(MESSAGES, { iterations }))
  const { cost, entry } = await charged(place, 'messages', { tools: [tool] })
  t.match(
    upstream.last.json,
    { tools: [{ type: 'advisor_20260301', model: 'vendor-large' }] },
    'it goes upstream by the name there',
  )
  t.equal(cost, PLAIN_COST + 30n * 15_000n + 40n * 75_000n)
  t.match(entry, {
    input_tokens: 40,
    output_tokens: 60,
    unpriced: [],
    unit_prices: [{ input: '3' }, { model: 'vendor-large-20261001', input: '15', output: '75' }],
  })
})

t.test('allowed fallbacks are sent under their upstream names, and the model that served is charged', async t => {
  const place = await pricedScene(t, undefined, file =>
    file.set('keyTypes.famC.policy', { models: 'allow' }).model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-sol' }),
  )
  const { upstream } = place
  upstream.script = ({ path }, res) => json(res, reply(path, {}, { model: 'vendor-sol' }))
  const { cost } = await charged(place, 'chat-completions', { models: ['acme/famC-5.6-sol', 'acme/famC-5.5'] })
  t.same(upstream.last.json['models'], ['vendor-sol', 'acme/famC-5.5'])
  t.equal(cost, 10n * 15_000n + 20n * 75_000n)
  const { answer } = await charged(place, 'chat-completions', { models: ['acme/famA-large-5'] })
  t.equal(answer.status, 400)
})

t.test('streams report tiers, media and calls as JSON replies do', async t => {
  const place = await pricedScene(t, `${FACTORS}, calls: { webSearch: 0.01 }`)
  const { g, upstream } = place
  const streams: Readonly<Record<string, string>> = {
    [CHAT]: `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content: 'x' }, finish_reason: 'stop' }], service_tier: 'priority' })}\n\ndata: ${JSON.stringify({ id: 'c', choices: [], usage: { prompt_tokens: 10, completion_tokens: 20 } })}\n\ndata: [DONE]\n\n`,
    [RESPONSES]:
      typed({
        type: 'response.created',
        sequence_number: 0,
        response: { id: 'r', object: 'response', service_tier: 'auto' },
      }) +
      typed({
        type: 'response.completed',
        sequence_number: 1,
        response: { ...reply(RESPONSES), service_tier: 'priority' },
      }),
    [MESSAGES]:
      typed({
        type: 'message_start',
        message: {
          type: 'message',
          content: [],
          usage: { input_tokens: 10, output_tokens: 1, service_tier: 'priority' },
        },
      }) +
      typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 20 } }) +
      typed({ type: 'message_stop' }),
  }
  upstream.script = ({ path }, res) => sse(res, streams[path] ?? '')
  for (const format of FORMATS) {
    const { cost } = await charged({ g, upstream }, format, { stream: true })
    t.equal(cost, (PLAIN_COST * 25n) / 10n, format)
  }
})

t.test(
  "cost is recorded beside the charge, from the upstream's prices or its report, and a lower charge is counted",
  async t => {
    const prices: Edit = file =>
      file.setAll('prices', {
        wholesale: { input: 2, output: 10, tiers: [] },
        dear: { input: 30, output: 150, tiers: [] },
      })
    const place = await pricedScene(t, undefined, file =>
      prices(file).setAll('upstreams.famC', { cost: { 'acme/famC-5.5': 'wholesale', '*': 'dear' }, dollar: 1 }),
    )
    const { g, upstream } = place
    const cost = async (more: object = {}): Promise<string | undefined> => {
      const key = await g.key('famC')
      await ask(place, 'chat-completions', more, key)
      t.notMatch(JSON.stringify(await g.settled(key)), /"cost":0\.\d+,[^}]*"cost":/)
      const [entry] = await g.gateway.ledger.reads.history({ account: await g.id(key) }, { count: 1 })
      return entry?.notes.cost
    }
    t.equal(await cost(), String(10n * 2000n + 20n * 10_000n))
    t.equal(g.gateway.meter.belowCost, 0)
    t.equal(await cost({ model: 'acme/famC-5.6-terra' }), String(10n * 30_000n + 20n * 150_000n))
    t.equal(g.gateway.meter.belowCost, 1)
    upstream.script = (_received, res) => json(res, reply(CHAT, { cost: 0.000_123 }))
    t.equal(await cost(), '123000', 'what the upstream reports counts first')
    upstream.script = (_received, res) => json(res, { error: { message: 'no' } }, 400)
    t.equal(await cost(), undefined)
  },
)

t.test('free failures are recorded one by one up to a number a minute, and counted beyond it', async t => {
  const { g, upstream } = await pricedScene(t, undefined, file => file.set('ledger.freeEntries', 3))
  upstream.script = (_received, res) => json(res, { error: { message: 'no' } }, 400)
  const key = await g.key('famC', 1000n)
  const account = await g.id(key)
  const { scripts } = g.gateway.ledger
  const answers = await Promise.all(
    Array.from({ length: 40 }, () =>
      g.call(CHAT, { key, body: request('chat-completions', 'acme/famC-5.5', { max_tokens: 10 }) }),
    ),
  )
  t.ok(answers.every(({ status }) => status === 400))
  const entries = await g.settled(key)
  const minute = Math.ceil(entries.length / 3)
  t.ok(entries.length >= 3 && minute <= 2, `${entries.length} entries`)
  const { usage } = (await g.call('/api/v1/key-info', { key })).json
  t.equal(usage.unlisted_free_requests, 40 - entries.length)
  t.equal((await g.balance(key)).exact.balance, '1000000000000')
  const buckets = await scripts.redis.keys(scripts.keys.of(account).account.replace(/[^}]+$/, ':o:*'))
  const outcomes = await Promise.all(buckets.map(bucket => scripts.redis.hlen(bucket)))
  t.equal(
    outcomes.reduce((sum, count) => sum + count, 0),
    entries.length,
    'only what has an entry is remembered',
  )
  // A charged request always has an entry.
  upstream.script = ({ path }, res) => json(res, reply(path))
  await g.call(CHAT, { key, body: request('chat-completions', 'acme/famC-5.5') })
  t.equal((await g.settled(key)).length, entries.length + 1)
})

t.test(
  'every charge can be recomputed from its entry, even after its price changed, and a forged entry is found',
  async t => {
    const place = await pricedScene(t, `${FACTORS}, calls: { webSearch: 0.01 }, audioInput: 40, audioOutput: 80`)
    const { g, upstream } = place
    const key = await g.key('famA', 1000n)
    const chat = await g.key('famC', 1000n)
    const iterations = [
      { type: 'message', input_tokens: 11, output_tokens: 7 },
      { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 3, output_tokens: 5 },
    ]
    upstream.script = ({ path }, res) =>
      json(
        res,
        path === MESSAGES
          ? reply(path, { service_tier: 'priority', server_tool_use: { web_search_requests: 2 }, iterations })
          : reply(path, { prompt_tokens_details: { audio_tokens: 4 } }),
      )
    await ask(
      place,
      'messages',
      {
        service_tier: 'auto',
        tools: [
          { type: 'web_search_20250305', name: 'w' },
          { type: 'advisor_20260301', model: 'acme/famA-large-5' },
        ],
      },
      key,
    )
    await ask(place, 'chat-completions', {}, chat)
    await g.settled(key)
    await g.settled(chat)
    const before = (await g.settled(key))[0]
    rewrite(g.file, file => file.set('prices.medium.output', 16).set('prices.medium.serviceTier.priority', 3))
    t.ok(await g.gateway.reload())
    await ask(place, 'messages', {}, key)
    const [after, ...rest] = await g.settled(key)
    t.not(after?.['price_version'], before?.['price_version'])
    t.same(rest, [before], 'an old entry shows the prices that it was charged at')
    const { ledger } = g.gateway
    const accounts = [await g.id(key), await g.id(chat)]
    t.match(await audit(ledger, accounts, 'charges'), { repriced: 3, unversioned: 0, drifts: { length: 0 } })
    // A charge that does not follow from its usage.
    const { database } = ledger.records
    const [account = ''] = accounts
    await ledger.background.archiveAll()
    const [entry] = await ledger.reads.history({ account: account }, { count: 1 })
    await database.transaction(sql =>
      sql.all('UPDATE exchanges SET charge = charge + 1 WHERE id = ?', [bytesOfId(entry?.id ?? '')]),
    )
    const { drifts } = await audit(ledger, [account], 'charges')
    t.match(drifts, [
      {
        account,
        findings: [/the sum of the recorded entries/, /its usage costs \d+ nano-credits, but \d+ were charged/],
      },
    ])
  },
)

t.test('an audit shows where upstreams report other sums than those that were charged', async t => {
  const place = await pricedScene(t)
  const { g, upstream } = place
  const key = await g.key('famC')
  const usage = (more: object) => ({ prompt_tokens: 100, completion_tokens: 100, total_tokens: 200, ...more })
  const report = async (): Promise<string[]> => {
    await g.settled(key)
    const { opinions } = await audit(g.gateway.ledger, [await g.id(key)], 'charges')
    return opinions.map(opinion => differenceOf(opinion) ?? 'the same')
  }
  const answer = async (reported: object): Promise<void> => {
    upstream.script = (_received, res) => json(res, reply(CHAT, reported))
    t.equal((await ask(place, 'chat-completions', {}, key)).status, 200)
  }
  await answer(usage({}))
  t.same(await report(), ['the same'])
  await answer(usage({ cost: 0.0009 }))
  t.same(await report(), ['the same'])
  await answer(usage({ cost: 0.0036 }))
  const spread = 'famC acme/famC-5.5: a dollar that it reports was charged 0.5 to 2 credits'
  t.same(await report(), [spread])
  await answer(usage({ total_tokens: 150 }))
  t.same(await report(), [spread.replace(': a', ': 1 of 4 charges differ: charged 200 tokens, reported 150; a')])
  const [entry] = await g.settled(key)
  t.notMatch(JSON.stringify(entry), 'reported', 'customers do not see it')
})

t.test(
  'an advisor that was not used is free; one that was costs its input and an answer, even if the balance ends',
  async t => {
    const place = await pricedScene(t)
    const { g, upstream } = place
    const tools = [{ type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }]
    const asks = typed({
      type: 'content_block_start',
      index: 0,
      content_block: { type: 'server_tool_use', id: 's', name: 'advisor', input: {} },
    })
    for (const advised of [false, true]) {
      upstream.script = async (_received, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' })
        res.write(
          typed({
            type: 'message_start',
            message: { type: 'message', content: [], usage: { input_tokens: 10, output_tokens: 1 } },
          }),
        )
        if (advised) res.write(asks)
        const word = typed({
          type: 'content_block_delta',
          index: 1,
          delta: { type: 'text_delta', text: 'x'.repeat(400) },
        })
        for (; !res.destroyed; await sleep(2)) res.write(word)
      }
      const key = await g.keyOfNano('famA', 1_000_000_000n)
      const { text } = await g.call(MESSAGES, {
        key,
        body: request('messages', 'acme/famA-medium-5', { tools, stream: true, max_tokens: 1_000_000 }),
      })
      t.match(text, /"stop_reason":"max_tokens"/)
      const [entry] = await g.settled(key)
      const left = BigInt((await g.balance(key)).exact.balance)
      t.ok(left > -CHUNK_TOKENS * 15_000n && left <= 0n, `${left} is left`)
      t.equal(entry?.['unit_prices'].length, advised ? 2 : 1)
      if (advised)
        t.match(entry?.['unit_prices'][1], { model: 'acme/famA-large-5', tokens: { input: 10, output: 1000 } })
    }
  },
)

t.test('a small balance is never sent upstream as a limit of zero', async t => {
  const { g, upstream } = await pricedScene(t, CALLS)
  for (const credits of [80_000_000n, 120_000_000n, 200_000_000n, 300_000_000n]) {
    const key = await g.keyOfNano('famC', credits)
    const { status } = await g.call(RESPONSES, {
      key,
      body: request('responses', 'acme/famC-5.5', { tools: [{ type: 'web_search' }] }),
    })
    if (status === 200) t.ok(Number(upstream.last.json['max_output_tokens']) >= 4096, `${credits}`)
    else t.equal(status, 429)
    await g.settled(key)
  }
})

t.test('a stream whose provider goes on searching ends when the searches have used up the balance', async t => {
  const { g, upstream } = await pricedScene(t, CALLS)
  const key = await g.keyOfNano('famC', 250_000_000n)
  let [searches, text] = [0, '']
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(
      typed({ type: 'response.created', sequence_number: 0, response: { id: 'r', object: 'response', output: [] } }),
    )
    // A search begins when the client has the one before.
    for (; !res.destroyed && searches < 200; await until(() => res.destroyed || text.includes(`"w${searches - 1}"`))) {
      res.write(
        typed({
          type: 'response.output_item.done',
          output_index: searches,
          item: { type: 'web_search_call', id: `w${searches}`, action: { type: 'search' } },
        }),
      )
      res.write(typed({ type: 'response.output_text.delta', delta: '.' }))
      searches++
    }
    res.end()
  }
  const body = request('responses', 'acme/famC-5.5', { tools: [{ type: 'web_search' }], stream: true })
  const { body: events } = await g.open(RESPONSES, { key, body })
  for await (const part of (events as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) text += part
  t.match(text, 'response.incomplete')
  const [entry] = await g.settled(key)
  t.equal(entry?.['status'], 'budget')
  const left = BigInt((await g.balance(key)).exact.balance)
  // The balance covers two searches. The third has begun, and the pass that reads it has 60,000 tokens.
  t.ok(left > -200_000_000n, `${left} is left after ${searches} searches`)
})

t.test('a stream with an advisor or audio is read on when its client leaves, and charged by its report', async t => {
  const none: Edit = file => file.model('famC', 'acme/famC-5.5', { reasoning: 'none' })
  const { g, upstream } = await pricedScene(t, 'tiers: [], audioOutput: 80', none)
  const iterations = [
    { type: 'message', input_tokens: 10, output_tokens: 20 },
    { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 30, output_tokens: 40 },
  ]
  const chunk = (more: object): string =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [], ...more })}\n\n`
  const cases: readonly (readonly [format: FormatName, more: object, begins: string, ends: string, cost: bigint])[] = [
    [
      'messages',
      { tools: [{ type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }] },
      typed({
        type: 'message_start',
        message: { type: 'message', content: [], usage: { input_tokens: 10, output_tokens: 1 } },
      }) + typed({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'seen' } }),
      typed({
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: { output_tokens: 20, iterations },
      }) + typed({ type: 'message_stop' }),
      PLAIN_COST + 30n * 15_000n + 40n * 75_000n,
    ],
    [
      'chat-completions',
      { modalities: ['text', 'audio'], audio: { voice: 'v', format: 'pcm16' } },
      chunk({ choices: [{ index: 0, delta: { audio: { transcript: 'seen' } }, finish_reason: null }] }),
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }) +
        chunk({
          usage: { prompt_tokens: 10, completion_tokens: 20, completion_tokens_details: { audio_tokens: 20 } },
        }),
      10n * INPUT + 20n * 80_000n,
    ],
  ]
  for (const [format, more, begins, ends, cost] of cases) {
    const { type, model, path } = PLACES[format]
    const key = await g.key(type, 1000n)
    const { opens, open } = gate()
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(begins)
      await opens
      res.end(ends)
    }
    await leavesAfter(g, 'seen', path, { key, body: request(format, model, { ...more, stream: true }) })
    await readsOn(g, key)
    open()
    const [entry] = await g.settled(key)
    t.match(entry, { status: 'client_gone', usage_source: 'upstream', cost_nano: String(cost) }, format)
  }
})

t.test('images that a tool may create are held, and charged to a client that leaves', async t => {
  const place = await pricedScene(t, CALLS, file => file.everyUpstream({ onDisconnect: 'cancel' }))
  const { g, upstream } = place
  const poor = await g.keyOfNano('famC', 300_000_000n)
  t.equal(
    (await ask(place, 'responses', { tools: [{ type: 'image_generation' }] }, poor)).status,
    429,
    'not even one image of 7000 tokens',
  )
  const key = await g.key('famC', 1000n)
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(
      typed({ type: 'response.created', sequence_number: 0, response: { id: 'r', object: 'response', output: [] } }),
    )
    res.write(
      typed({ type: 'response.output_item.added', output_index: 0, item: { type: 'image_generation_call', id: 'i' } }),
    )
    res.write(typed({ type: 'response.output_text.delta', delta: 'seen' }))
  }
  const body = request('responses', 'acme/famC-5.5', { tools: [{ type: 'image_generation' }], stream: true })
  await leavesAfter(g, 'seen', RESPONSES, { key, body })
  const [entry] = await g.settled(key)
  t.ok(BigInt(entry?.['cost_nano']) >= 40_000_000n + 7000n * 40_000n, entry?.['cost_nano'])
  t.match(await ask(place, 'responses', { tools: [{ type: 'image_generation', model: 'dear' }] }, key), {
    status: 400,
    json: { error: { message: /It asks for another model/ } },
  })
})
