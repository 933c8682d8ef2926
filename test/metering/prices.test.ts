import t from 'tap'
import type { FormatName } from '../../core/formats/index.ts'
import { greatestFactor, type Price } from '../../core/money/price.ts'
import type { KeyType } from 'tollgate/plugin'
import { mostBelowZero } from '../ledger/below-zero.ts'
import type { Edit } from '../gateway-file.ts'
import {
  CALLS,
  CHAT,
  type Ended,
  Exchanges,
  FACTORS,
  FORMATS,
  FUNCTION,
  INPUT,
  LEFT,
  MESSAGES,
  OUTPUT,
  PLACES,
  PLAIN_COST,
  priced,
  reply,
  RESPONSES,
  say,
} from './exchanges.ts'
import { typed } from '../stream-events.ts'

/** What replies report beside plain tokens is charged at the prices of the file, and held for before. */

/** Nano-credits of one search, under `CALLS`. */
const SEARCH = 10_000_000n
const SEARCHES = { tools: [{ type: 'web_search_20250305', name: 'w' }] }

const pathOf = (format: FormatName): string => PLACES[format].path

t.test('with a factor, the tier that the reply reports is charged, whatever was requested', async t => {
  const place = await Exchanges.load(priced(FACTORS))
  const cases: readonly (readonly [asked: string, told: string | undefined, factor: bigint])[] = [
    ['priority', 'priority', 25n],
    ['priority', 'default', 10n],
    ['priority', undefined, 25n],
    ['flex', 'flex', 5n],
    ['flex', undefined, 10n],
    ['auto', 'priority', 25n],
    ['auto', 'default', 10n],
  ]
  for (const format of FORMATS)
    for (const [asked, told, factor] of cases) {
      const tier = told === undefined ? {} : { service_tier: told }
      const given = format === 'messages' ? reply(MESSAGES, tier) : reply(pathOf(format), {}, tier)
      const { cost, notes, dropped, sent } = await place.ask(format, { service_tier: asked }, { reply: given })
      t.equal(dropped, undefined)
      t.equal(sent['service_tier'], asked)
      t.equal(cost, (PLAIN_COST * factor) / 10n, `${format}: ${asked}, reported ${told}`)
      t.equal(notes.unpriced, undefined)
    }
})

t.test('factors multiply exactly, and the hold uses the dearest ones requested', async t => {
  const place = await Exchanges.load(priced(FACTORS))
  const more = { service_tier: 'priority', speed: 'fast', inference_geo: 'us' }
  const dear = await place.ask('messages', more, { reply: reply(MESSAGES, more) })
  t.equal(dear.cost, (PLAIN_COST * 25n * 60n * 11n) / 1000n)
  const plain = await place.ask('messages', { service_tier: 'standard_only' })
  t.ok(dear.held * 1000n >= plain.held * 25n * 60n * 11n, `${dear.held} where ${plain.held} is the standard`)
})

t.test('what was reported without a price and without a request is charged plainly and marked', async t => {
  const place = await Exchanges.load()
  const tier = { service_tier: 'priority' }
  for (const format of FORMATS) {
    const { cost, notes } = await place.ask(format, {}, { reply: reply(pathOf(format), tier, tier) })
    t.equal(cost, PLAIN_COST)
    t.same(notes.unpriced, ['serviceTier.priority'])
  }
  t.equal(place.meter.unpriced, FORMATS.length)
  const unknown = {
    prompt_tokens_details: { video_tokens: 5 },
    input_tokens_details: { video_tokens: 5 },
    server_tool_use: { dream_requests: 2 },
    queue_time: 0.5,
  }
  const counters = ['prompt_tokens_details.video_tokens', 'input_tokens_details.video_tokens']
  for (const format of ['chat-completions', 'messages'] as const) {
    const { cost, notes } = await place.ask(format, {}, { reply: reply(pathOf(format), unknown) })
    t.equal(cost, PLAIN_COST)
    t.same(notes.unpriced, ['calls.otherTools'])
    t.same(notes.unread, counters)
  }
})

let items = 0
const item = (type: string, more: object = {}): object => ({
  type,
  id: `item_${items++}`,
  status: 'completed',
  ...more,
})
/** A reply of the responses format with further items. */
const whole = (listed: object[], more: object = {}): object => {
  const { output, ...rest } = reply(RESPONSES) as { output: object[] }
  return { ...rest, output: [...listed, ...output], ...more }
}
const search = (id?: string, action = 'search'): object => ({
  type: 'web_search_call',
  ...(id !== undefined && { id }),
  action: { type: action },
})

/** Tools with a price: a request, its reply, and the fees beside the tokens, in nano-credits. */
const TOOLS: readonly (readonly [what: string, FormatName, asked: object, answered: object, fees: bigint])[] = [
  ['three searches and free fetches', 'messages', SEARCHES, reply(MESSAGES, { server_tool_use: { web_search_requests: 3, web_fetch_requests: 7 } }), 3n * SEARCH], // prettier-ignore
  ['code, and a search for tools', 'messages', { tools: [{ type: 'code_execution_20250825', name: 'c' }] }, reply(MESSAGES, { server_tool_use: { code_execution_requests: 1, tool_search_requests: 9 } }), 30_000_000n], // prettier-ignore
  ['searches beside a function', 'responses', { tools: [{ type: 'web_search' }] }, whole([item('web_search_call'), item('web_search_call'), item('function_call', { call_id: 'x', name: 'f', arguments: '{}' })]), 2n * SEARCH], // prettier-ignore
  ['a search of files', 'responses', { tools: [{ type: 'file_search', vector_store_ids: [] }] }, whole([item('file_search_call')]), 2_500_000n], // prettier-ignore
  ['two containers in three calls', 'responses', { tools: [{ type: 'code_interpreter', container: { type: 'auto' } }] }, whole([item('code_interpreter_call', { container_id: 'a' }), item('code_interpreter_call', { container_id: 'a' }), item('code_interpreter_call', { container_id: 'b' })]), 60_000_000n], // prettier-ignore
  ['an image with tokens of its own', 'responses', { tools: [{ type: 'image_generation' }] }, whole([item('image_generation_call', { result: 'x' })], { tool_usage: { image_gen: { input_tokens: 100, output_tokens: 1000 } } }), 40_000_000n + 100n * INPUT + 1000n * 40_000n], // prettier-ignore
  ['calls of MCP', 'responses', { tools: [{ type: 'mcp', server_label: 'l', server_url: 'https://example.com' }] }, whole([item('mcp_call'), item('mcp_list_tools')]), 0n], // prettier-ignore
  ['an unknown tool', 'responses', { tools: [{ type: 'dream' }] }, whole([item('dream_call')]), 500_000_000n],
  ['counters of the usage', 'responses', { tools: [{ type: 'x_search' }] }, { ...whole([]), usage: { input_tokens: 10, output_tokens: 20, server_side_tool_usage_details: { x_search_calls: 2, web_search_calls: 1 }, num_server_side_tools_used: 3 } }, 3n * SEARCH], // prettier-ignore
  ['a search that nobody reports', 'chat-completions', { web_search_options: {} }, reply(CHAT), SEARCH],
  ['sources', 'chat-completions', { search_parameters: { mode: 'on' } }, reply(CHAT, { num_sources_used: 4 }), 4n * SEARCH], // prettier-ignore
  ['no sources', 'chat-completions', { search_parameters: { mode: 'auto' } }, reply(CHAT, { num_sources_used: 0 }), 0n],
  ['a tool beside a function, in a format that reports no calls', 'chat-completions', { tools: [{ type: 'web_search' }, FUNCTION['chat-completions']] }, reply(CHAT), SEARCH], // prettier-ignore
  ['a counter in a format that reports no calls', 'chat-completions', { tools: [{ type: 'web_search' }] }, reply(CHAT, { server_tool_use: { web_search_requests: 5 } }), 5n * SEARCH], // prettier-ignore
  ['more sources than a limit that the format does not have', 'chat-completions', { search_parameters: { mode: 'on' }, max_tool_calls: 1 }, reply(CHAT, { num_sources_used: 50 }), 50n * SEARCH], // prettier-ignore
  ['more calls than a limit that the format does not have', 'responses', { tools: [{ type: 'web_search', max_uses: 1 }] }, reply(RESPONSES, { server_side_tool_usage_details: { web_search_calls: 40 } }), 40n * SEARCH], // prettier-ignore
  ['code of two kinds beside a counter of searches', 'messages', { tools: [{ type: 'code_execution_20250825', name: 'c' }] }, reply(MESSAGES, { server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 } }, { content: [{ type: 'server_tool_use', id: 'a', name: 'bash_code_execution', input: {} }, { type: 'server_tool_use', id: 'b', name: 'code_execution', input: {} }, { type: 'mcp_tool_use', id: 'c', name: 'x', input: {} }, { type: 'text', text: 'x' }] }), 30_000_000n], // prettier-ignore
  ['shells without a container', 'responses', { tools: [{ type: 'shell', environment: { type: 'container_auto' } }] }, reply(RESPONSES, {}, { output: [{ type: 'shell_call', id: 's0' }, { type: 'shell_call', id: 's1' }] }), 30_000_000n], // prettier-ignore
  ['shells in one container', 'responses', { tools: [{ type: 'shell', environment: { type: 'container_auto' } }] }, reply(RESPONSES, {}, { output: [0, 1].map(index => ({ type: 'shell_call', id: `s${index}`, environment: { type: 'container_reference', container_id: 'a' } })) }), 30_000_000n], // prettier-ignore
  ["shells of the client's own", 'responses', { tools: [{ type: 'shell', environment: { type: 'local' } }] }, reply(RESPONSES, {}, { output: [{ type: 'shell_call', id: 's0' }, { type: 'shell_call', id: 's1', environment: { type: 'local' } }] }), 0n], // prettier-ignore
  ['items without ids', 'responses', { tools: [{ type: 'web_search' }] }, reply(RESPONSES, {}, { output: [search(), search(), search()] }), 3n * SEARCH], // prettier-ignore
  ['items with empty ids', 'responses', { tools: [{ type: 'web_search' }] }, reply(RESPONSES, {}, { output: [search(''), search(''), search('')] }), 3n * SEARCH], // prettier-ignore
]

t.test('each reported call is charged once, whether usage, an item or a block reports it', async t => {
  const place = await Exchanges.load(priced(CALLS))
  for (const [what, format, asked, answered, fees] of TOOLS) {
    const { error, sent, cost, notes } = await place.ask(format, asked, { reply: answered })
    t.equal(error, undefined, what)
    if (!('max_uses' in asked) && !('max_tool_calls' in asked)) t.match(sent, asked)
    t.equal(cost, PLAIN_COST + fees, what)
    t.equal(notes.unpriced, undefined)
    t.equal(notes.quarantined, undefined)
  }
})

const done = (index: number, id = `w${index}`): string =>
  typed({ type: 'response.output_item.done', output_index: index, item: search(id) })
const ends = (output: object[], status = 'completed'): string =>
  typed({
    type: `response.${status}`,
    response: { id: 'r', object: 'response', status, output, usage: { input_tokens: 10, output_tokens: 20 } },
  })
const CREATED = typed({ type: 'response.created', response: { id: 'r', object: 'response' } })

t.test('each call of a stream is charged once, whatever events report it', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const changed = (name: string, id: string): string =>
    typed({ type: `response.output_item.${name}`, output_index: 0, item: search(id) })
  for (const [text, calls, what] of [
    [CREATED + done(0) + done(1) + done(2) + ends([]), 3n, 'the last event lists none of them'],
    [done(0) + done(0) + ends([search('w0'), search('w0'), search('w1')]), 2n, 'a call is reported several times'],
    [changed('added', 'a1') + changed('done', 'b2') + ends([search('c3')]), 1n, 'its id changes between events'],
    [done(0) + done(1) + done(2) + ends([search('w0')], 'incomplete'), 3n, 'a shorter list removes none'],
  ] as const) {
    const { cost } = await place.ask('responses', { tools: [{ type: 'web_search' }], stream: true }, { reply: text })
    t.equal(cost, PLAIN_COST + calls * SEARCH, what)
  }
})

t.test('implausible calls are quarantined, and charged only as far as they are plausible', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const [none, two, any] = [[], [{ type: 'web_search_20250305', name: 'w', max_uses: 2 }], SEARCHES.tools]
  for (const [tools, count, most] of [
    [none, 5_000_000, 10n],
    [two, 1001, 20n],
    [two, 21, 20n],
    [any, 9e15, 1000n],
  ] as const) {
    const answered = reply(MESSAGES, { server_tool_use: { web_search_requests: count } })
    const { cost, notes } = await place.ask(
      'messages',
      { tools, stream: tools.length > 0 && count > 1e6 },
      { reply: answered },
    )
    t.equal(notes.quarantined, true)
    const least = most * SEARCH
    t.ok(cost >= least && cost <= least + 40_000_000n, `${count}: ${cost}`)
  }
  const answered = reply(MESSAGES, {
    input_tokens: 1000,
    output_tokens: 100,
    server_tool_use: { web_search_requests: 21 },
  })
  const { cost } = await place.ask('messages', { tools: two }, { reply: answered })
  t.equal(cost, 1000n * INPUT + 100n * OUTPUT + 20n * SEARCH, 'the tokens are charged as reported all the same')
  for (const count of [-1, 1.5, '3', null]) {
    const strange = reply(MESSAGES, { server_tool_use: { web_search_requests: count } })
    const { notes } = await place.ask('messages', {}, { reply: strange })
    t.same(notes.unread, count === null ? undefined : ['server_tool_use.web_search_requests'], String(count))
    t.equal(notes.quarantined, undefined)
  }
})

t.test('a JSON request holds for as many calls as it allows, and a stream for one', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const tools = (max_uses?: number): object[] => [
    { type: 'web_search_20250305', name: 'web_search', ...(max_uses !== undefined && { max_uses }) },
  ]
  // The results of a call cost as much as six searches, in each pass that reads them. The request costs a thirtieth.
  for (const stream of [true, false]) {
    const asked: Ended[] = []
    for (const times of [1, 4, 30, undefined]) asked.push(await place.ask('messages', { tools: tools(times), stream }))
    const [one, ...others] = asked.map(({ held }) => held) as [bigint, ...bigint[]]
    t.same(
      others.map(each => Math.round(Number(each - one) / Number(SEARCH))),
      stream ? [0, 0, 0] : [3 + 6 * 9, 30 + 6 * 464, 9 + 6 * 54],
    )
    t.same(asked.at(-1)?.sent['tools'], stream ? tools() : tools(10))
    // A few bytes of the requests differ.
    const leasts = new Set(asked.map(({ least }) => least / SEARCH))
    t.equal(leasts.size, 1, 'a balance that covers one call is enough')
  }
})

t.test('a balance that covers fewer calls than a JSON request allows lowers its limit', async t => {
  const tool = { type: 'web_search_20250305', name: 'web_search', max_uses: 30 }
  for (const [thousandths, calls] of [
    [200, 1],
    [400, 2],
    [2000, 7],
    [90_000, 30],
  ] as const) {
    const place = await Exchanges.load(priced(CALLS), BigInt(thousandths) * 1_000_000n)
    const asked = { messages: say('hi'), max_tokens: 64_000 }
    const { sent, held } = await place.ask('messages', { ...asked, tools: [tool] })
    t.equal(sent.tools[0].max_uses, calls, `${thousandths} thousandths`)
    t.ok(sent.max_tokens >= 4096, `${thousandths}: ${sent.max_tokens}`)
    t.ok(held > 0n)
    const other = await place.ask('responses', { tools: [{ type: 'web_search' }], max_tool_calls: 30 })
    t.equal(other.sent.max_tool_calls, calls, `${thousandths} thousandths`)
  }
  const poor = await Exchanges.load(priced(CALLS), 50_000_000n)
  t.match((await poor.ask('messages', { tools: [tool] })).error, { code: 'allocation_exhausted' })
  const chat = await poor.ask('chat-completions', { web_search_options: {} })
  t.match(chat.error, { code: 'allocation_exhausted' }, 'this format cannot limit its calls')
})

t.test('long input is charged at its own rates from its first token, cached input included', async t => {
  const tiers =
    'tiers: [{ above: 1000, input: 6, output: 22.5, cacheRead: 0.6 }, { above: 2000, input: 12, output: 45, cacheRead: 1.2 }]'
  const place = await Exchanges.load(file =>
    priced(tiers)(file).setAll('prices.medium', { cacheWrite5m: undefined, cacheWrite1h: undefined }),
  )
  for (const [total, input, output, cached] of [
    [1000, 3000n, 15_000n, 300n],
    [1001, 6000n, 22_500n, 600n],
    [2000, 6000n, 22_500n, 600n],
    [2001, 12_000n, 45_000n, 1200n],
  ] as const)
    for (const format of FORMATS) {
      const answered = reply(pathOf(format), {
        prompt_tokens: total,
        completion_tokens: 20,
        prompt_tokens_details: { cached_tokens: 400 },
        input_tokens: format === 'messages' ? total - 400 : total,
        input_tokens_details: { cached_tokens: 400 },
        cache_read_input_tokens: 400,
      })
      const { cost } = await place.ask(format, {}, { reply: answered })
      t.equal(cost, BigInt(total - 400) * input + 400n * cached + 20n * output, `${format}: ${total}`)
    }
})

const MEDIA = {
  prompt_tokens_details: { audio_tokens: 4, image_tokens: 3 },
  completion_tokens_details: { audio_tokens: 15, image_tokens: 2, reasoning_tokens: 1 },
}

t.test('media have rates of their own, as input and as output; without them they are marked', async t => {
  const place = await Exchanges.load(
    priced('tiers: [], audioInput: 40, audioOutput: 80, imageInput: 5, imageOutput: 60'),
  )
  const asked = {
    messages: say([{ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }]),
    modalities: ['text', 'audio'],
    audio: { voice: 'v', format: 'wav' },
  }
  const heard = await place.ask('chat-completions', asked, { reply: reply(CHAT, MEDIA) })
  t.equal(heard.cost, 3n * INPUT + 4n * 40_000n + 3n * 5000n + 3n * OUTPUT + 15n * 80_000n + 2n * 60_000n)
  t.equal(heard.notes.unpriced, undefined)
  const bare = await Exchanges.load()
  const told = await bare.ask('chat-completions', {}, { reply: reply(CHAT, MEDIA) })
  t.equal(told.cost, PLAIN_COST)
  t.same(told.notes.unpriced, ['audioInput', 'audioOutput', 'imageOutput'])
})

t.test('rejected predictions are charged once, as output or at a rate of their own', async t => {
  const details = { completion_tokens_details: { accepted_prediction_tokens: 5, rejected_prediction_tokens: 8 } }
  for (const [price, rate] of [
    [undefined, OUTPUT],
    ['tiers: [], rejected: 7', 7000n],
  ] as const) {
    const place = await Exchanges.load(priced(price))
    const asked = { prediction: { type: 'content', content: 'x'.repeat(40) } }
    const { error, cost } = await place.ask('chat-completions', asked, { reply: reply(CHAT, details) })
    t.equal(error, undefined)
    t.equal(cost, 10n * INPUT + 12n * OUTPUT + 8n * rate)
  }
})

const ADVISED = { tools: [{ type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }] }
const ADVICE = { type: 'advisor_message', model: 'vendor-large-20261001', input_tokens: 30, output_tokens: 40 }
const ADVICE_COST = 30n * 15_000n + 40n * 75_000n

t.test('an advisor is charged as its own model, held for, and marked if it is none of the file', async t => {
  const place = await Exchanges.load(file =>
    priced()(file).model('famA', 'acme/famA-large-5', { sends: 'vendor-large' }),
  )
  const own = { type: 'message', model: 'vendor-medium', input_tokens: 10, output_tokens: 20 }
  const advised = await place.ask('messages', ADVISED, { reply: reply(MESSAGES, { iterations: [own, ADVICE] }) })
  t.equal(advised.cost, PLAIN_COST + ADVICE_COST)
  t.equal(advised.notes.unpriced, undefined)
  const plain = await place.ask('messages')
  t.ok(advised.held > 5n * plain.held, 'the advisor costs five times as much')
  const strange = { ...ADVICE, model: 'vendor-strange' }
  const { notes } = await place.ask('messages', ADVISED, { reply: reply(MESSAGES, { iterations: [own, strange] }) })
  t.same(notes.unpriced, ['model vendor-strange'])
  const alone = await place.ask('messages', {}, { reply: reply(MESSAGES, { iterations: [ADVICE] }) })
  t.equal(alone.cost, PLAIN_COST + ADVICE_COST, 'iterations without the model itself do not hide its own usage')
  const start = { input_tokens: 10, output_tokens: 1, iterations: [{ type: 'message', input_tokens: 1, output_tokens: 1 }] } // prettier-ignore
  const stream =
    typed({ type: 'message_start', message: { type: 'message', content: [], usage: start } }) +
    typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 20 } }) +
    typed({ type: 'message_stop' })
  t.equal((await place.ask('messages', { stream: true }, { reply: stream })).cost, PLAIN_COST)
})

const FALLBACKS: Edit = file =>
  priced()(file)
    .set('keyTypes.famC.policy', { models: 'allow' })
    .model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-sol' })

t.test('a fallback is charged as itself under a dated name too, and an unknown one is marked', async t => {
  const place = await Exchanges.load(FALLBACKS)
  for (const [model, dear, told] of [
    ['vendor-sol', true, undefined],
    ['vendor-sol-2026-10-01', true, undefined],
    ['vendor-sol-ultra', false, ['model vendor-sol-ultra']],
    ['acme/famC-5.5-20261001', false, undefined],
  ] as const) {
    const asked = { models: ['acme/famC-5.6-sol'] }
    const { cost, notes } = await place.ask('chat-completions', asked, { reply: reply(CHAT, {}, { model }) })
    t.equal(cost, dear ? 5n * PLAIN_COST : PLAIN_COST, model)
    t.same(notes.unpriced, told)
  }
})

t.test('a model is not mistaken for one whose name continues its own', async t => {
  const place = await Exchanges.load(file =>
    priced()(file)
      .set('keyTypes.famC.policy', { models: 'allow' })
      .model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-4' })
      .model('famC', 'acme/famC-5.5', { sends: 'vendor-4-5' }),
  )
  const asked = { fallbacks: [{ model: 'acme/famC-5.6-sol' }] }
  const answered = reply(CHAT, {}, { model: 'vendor-4-5-20251101' })
  const { cost, notes } = await place.ask('chat-completions', asked, { reply: answered })
  t.equal(cost, PLAIN_COST)
  t.equal(notes.unpriced, undefined)
})

t.test('a request without a tier holds for the dearest one, and is charged as the reply says', async t => {
  const place = await Exchanges.load(priced(FACTORS))
  const standard = await place.ask('responses', { max_output_tokens: 1000, service_tier: 'default' })
  const unsaid = await place.ask('responses', { max_output_tokens: 1000 })
  t.ok(unsaid.held > 2n * standard.held, `${unsaid.held} where ${standard.held} is the standard`)
  t.same([standard.cost, unsaid.cost], [PLAIN_COST, PLAIN_COST])
})

t.test(
  'a failure that reports usage costs what was delivered, in every format, and nothing if nothing was',
  async t => {
    const place = await Exchanges.load()
    const error = { message: 'no', type: 'server_error' }
    const chat = { error, usage: { prompt_tokens: 10, completion_tokens: 20 } }
    const response = reply(RESPONSES, {}, { status: 'failed', error, output: [] })
    for (const [format, failed] of [
      ['chat-completions', chat],
      ['responses', response],
    ] as const) {
      // prettier-ignore
      t.equal((await place.ask(format, {}, { reply: failed })).cost, 0n, format)
      t.equal((await place.ask(format, {}, { reply: failed, delivered: 9 })).cost, PLAIN_COST, format)
    }
  },
)

t.test('several passes are checked one by one: advice, images and research are plausible usage', async t => {
  const place = await Exchanges.load(file =>
    priced(CALLS)(file)
      .model('famA', 'acme/famA-medium-5', { context: 200_000 })
      .model('famC', 'acme/famC-5.5', { context: 200_000 }),
  )
  const own = { type: 'message', input_tokens: 140_000, output_tokens: 20 }
  const advice = { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 142_000, output_tokens: 900 }
  const passes = reply(MESSAGES, { iterations: [own, advice, own, advice, own] })
  const advised = await place.ask('messages', ADVISED, { reply: passes })
  t.match(advised.notes, { quarantined: undefined, usageSource: 'upstream' })
  t.equal(advised.cost, 3n * (140_000n * INPUT + 20n * OUTPUT) + 2n * (142_000n * 15_000n + 900n * 75_000n))
  const images = Array.from({ length: 10 }, () => item('image_generation_call', { result: 'x' }))
  const usage = { tool_usage: { image_gen: { input_tokens: 100, output_tokens: 62_400 } } }
  const asked = { tools: [{ type: 'image_generation' }], max_output_tokens: 300 }
  const drawn = await place.ask('responses', asked, { reply: reply(RESPONSES, {}, { output: images, ...usage }) })
  t.equal(drawn.notes.quarantined, undefined)
  t.equal(drawn.cost, PLAIN_COST + 10n * 40_000_000n + 100n * INPUT + 62_400n * 40_000n)
  const searches = Array.from({ length: 60 }, (_, index) => search(`w${index}`))
  const found = reply(RESPONSES, { input_tokens: 3_600_000 }, { output: searches })
  const research = await place.ask('responses', { tools: [{ type: 'web_search' }] }, { reply: found })
  t.equal(research.notes.quarantined, undefined)
  t.equal(research.cost, 3_600_000n * INPUT + 20n * OUTPUT + 60n * SEARCH)
})

t.test('an image that the usage does not count is charged as `imageTokens`, and marked', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const tools = { tools: [{ type: 'image_generation' }] }
  const image = 40_000_000n + 7000n * 40_000n
  const images = (count: number): object[] =>
    Array.from({ length: count }, () => item('image_generation_call', { result: 'x' }))
  for (const count of [1, 2, 3]) {
    const drawn = await place.ask('responses', tools, { reply: whole(images(count)) })
    t.equal(drawn.cost, PLAIN_COST + BigInt(count) * image)
    t.same(drawn.notes.unread, ['images'])
  }
  const streamed = await place.ask('responses', { ...tools, stream: true }, { reply: CREATED + ends(images(1)) })
  t.equal(streamed.cost, PLAIN_COST + image, 'a stream')
  const { usage: _usage, ...silent } = whole(images(1)) as { usage: object }
  const estimated = await place.ask('responses', tools, { reply: silent })
  t.ok(estimated.cost > image, 'a reply without any usage')
  const counted = whole(images(1), { tool_usage: { image_gen: { input_tokens: 0, output_tokens: 1000 } } })
  const known = await place.ask('responses', tools, { reply: counted })
  t.equal(known.cost, PLAIN_COST + 40_000_000n + 1000n * 40_000n)
  t.equal(known.notes.unread, undefined)
  const none = await place.ask('responses', tools, { reply: whole([]) })
  t.equal(none.cost, PLAIN_COST, 'a tool that was not run')
})

t.test('a reply by another model of the same upstream is charged at the cheaper price, without a mark', async t => {
  const place = await Exchanges.load(priced())
  for (const [model, cost, served] of [
    ['acme/famA-large-5', PLAIN_COST, 'acme/famA-large-5'],
    ['acme/famA-medium-5-20260101', PLAIN_COST, undefined],
    ['acme/famA-small-4.5', 10n * 1000n + 20n * 5000n, 'acme/famA-small-4.5'],
    ['something-else', PLAIN_COST, undefined],
    ['acme/famC-5.6-sol', PLAIN_COST, undefined],
  ] as const) {
    const asked = await place.ask('messages', {}, { reply: reply(MESSAGES, {}, { model }) })
    t.equal(asked.cost, cost, model)
    t.same([asked.notes.served, asked.notes.unread], [served, undefined], model)
  }
})

t.test('a reply of several passes by another model is never charged above the model that was asked for', async t => {
  const other = { context: 1_000_000, maxOutput: 1000, reasoning: 'none' }
  const place = await Exchanges.load(file =>
    file
      .set('prices.flat', { input: 4, output: 15, tiers: [] })
      .set('prices.wordy', { input: 1, output: 30, tiers: [] })
      .insertModel('famA', { id: 'flat', price: 'flat', ...other })
      .insertModel('famA', { id: 'wordy', price: 'wordy', ...other }),
  )
  // Both together are long input, at which the asked price is higher than the flat one. Each alone is not.
  const long = { type: 'message', input_tokens: 140_000, output_tokens: 20 }
  const compacts = { context_management: { edits: [{ type: 'compact_20260112' }] } }
  const advised = { tools: [{ type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }] }
  const words = { type: 'message', input_tokens: 100, output_tokens: 90 }
  const advice = { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 2000, output_tokens: 100 }
  for (const [what, body, iterations, model] of [
    ['a compaction', compacts, [{ ...long, type: 'compaction' }, long], 'flat'],
    ['two passes', advised, [long, long], 'flat'],
    ['advice', advised, [words, advice], 'wordy'],
  ] as const) {
    const by = (name: string) =>
      place.ask('messages', body, { reply: reply(MESSAGES, { iterations }, { model: name }) })
    const asked = await by('acme/famA-medium-5')
    const served = await by(model)
    t.equal(served.cost, asked.cost, what)
    t.equal(served.notes.served, model, `${what}: both names are known`)
  }
})

t.test('the output of a JSON request with tools is limited at the rates for all of its input', async t => {
  const place = await Exchanges.load(file => file, 3_300_000_000n)
  const text = 'x'.repeat(160_000)
  const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 3 }]
  const asked = { messages: say(text), max_tokens: 128_000, tools }
  const { sent } = await place.ask('messages', asked)
  // 80,000 tokens and three results are read in four passes: 440,000 tokens, which is long input.
  const read = 440_000n * 2n * INPUT
  const output = (BigInt(sent.max_tokens) * OUTPUT * 3n) / 2n
  t.ok(read + output + 3n * SEARCH <= 3_300_000_000n, `${sent.max_tokens} tokens`)
  t.ok(sent.max_tokens > 4096)
})

t.test('the greatest factor between two prices counts what a request is held for', async t => {
  const price = async (text: string): Promise<Price> => {
    const { config } = await Exchanges.load(priced(text))
    return (config.keyTypes.get('famC') as KeyType).models.get('acme/famC-5.5')!.price
  }
  const sold = await price('tiers: []')
  const factor = async (text: string): Promise<number> => Number(greatestFactor(await price(text), sold)) / 1e9
  t.equal(await factor('tiers: [], input: 1.5, output: 7.5, cacheWrite5m: 1, cacheWrite1h: 1'), 0.5)
  t.equal(await factor('tiers: [], cacheRead: 3'), 1, 'input is held as if none came from a cache')
  t.equal(await factor('tiers: [], output: 30'), 2)
  t.equal(
    await factor('tiers: [{ above: 1000, input: 12, output: 15, cacheRead: 1, cacheWrite5m: 1, cacheWrite1h: 1 }]'),
    4,
    'long input',
  )
  t.equal(await factor('tiers: [], serviceTier: { priority: 2.5 }'), 2.5, 'a condition that costs the customer nothing')
  const cheap = await price('tiers: [], serviceTier: { flex: 0.5 }')
  t.equal(await factor('tiers: [], audioInput: 30'), 10, 'audio that costs the customer what text does')
  t.equal(Number(greatestFactor(sold, cheap)) / 1e9, 2, 'a condition for which only the customer pays less')
  const audio = await price('tiers: [], audioInput: 1')
  t.equal(Number(greatestFactor(sold, audio)) / 1e9, 3, 'audio that costs the operator what text does')
})

t.test('as many images of a tool are allowed as the balance covers', async t => {
  for (const [thousandths, images] of [
    [10_000, 10],
    [1100, 3],
  ] as const) {
    const place = await Exchanges.load(priced(CALLS), BigInt(thousandths) * 1_000_000n)
    const { sent } = await place.ask('responses', { tools: [{ type: 'image_generation' }] })
    t.equal(sent.max_tool_calls, images)
  }
  const poor = await Exchanges.load(priced(CALLS), 300_000_000n)
  t.match((await poor.ask('responses', { tools: [{ type: 'image_generation' }] })).error, {
    code: 'allocation_exhausted',
  })
})

t.test('what tool searches have found is no limit of a conversation', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const functions = Array.from({ length: 40 }, (_, index) => ({ type: 'function', name: `f${index}`, parameters: {} }))
  const found = Array.from({ length: 30 }, (_, index) => ({
    type: 'tool_search_output',
    call_id: `c${index}`,
    tools: [{ type: 'namespace', name: `n${index}`, tools: functions }],
  }))
  t.equal((await place.ask('responses', { input: [{ role: 'user', content: 'hi' }, ...found] })).error, undefined)
})

t.test('predicted text counts as output of a stream that the client left', async t => {
  const place = await Exchanges.load(file => priced()(file).model('famC', 'acme/famC-5.5', { reasoning: 'none' }))
  const seen = { id: 'c', choices: [{ index: 0, delta: { content: 'seen' }, finish_reason: null }] }
  const left = {
    reply: `data: ${JSON.stringify(seen)}\n\n`,
    elapsedMs: 60_000,
    outcome: LEFT,
  }
  const prediction = { type: 'content', content: 'y'.repeat(2000) }
  const [plain, predicted] = [
    await place.ask('chat-completions', { stream: true }, left),
    await place.ask('chat-completions', { stream: true, prediction }, left),
  ]
  t.ok((predicted.notes.usage?.output ?? 0) >= (plain.notes.usage?.output ?? 0) + 1000)
})

t.test('how far a key can fall below zero counts the dearest tier, long input and the dearest class', async t => {
  const most = async (price?: string): Promise<bigint> => {
    const { config } = await Exchanges.load(priced(price))
    return mostBelowZero(config.keyTypes.get('famC') as KeyType, 150)
  }
  const plain = await most()
  // The dearest price of the type has none of these: 75 a million.
  t.equal(await most('tiers: [], serviceTier: { priority: 2 }'), plain)
  t.equal(await most('tiers: [], serviceTier: { priority: 10 }'), 2n * plain)
  t.equal(await most('tiers: [], speed: { fast: 2 }, serviceTier: { flex: 0.5, priority: 10 }'), 4n * plain)
  t.equal(await most('audioOutput: 150, tiers: []'), 2n * plain)
})
