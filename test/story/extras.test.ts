import { setTimeout as sleep } from 'node:timers/promises'
import { parse } from 'yaml'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { bytesOfId } from '../../core/lib/ids.ts'
import { mostBelowZero } from '../ledger/below-zero.ts'
import { parseDecimal } from '../../core/money/credits.ts'
import type { FormatName } from '../../core/formats/index.ts'
import type { KeyType } from '../../core/plugin.ts'
import { type Answer, startGateway, type TestGateway, until } from '../gateway.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'
import { type Edit, rewrite } from '../gateway-file.ts'

/**
 * Everything that providers bill beside tokens is refused, dropped or priced, in every format and through translation.
 */

const CHAT = '/v1/chat/completions'
const RESPONSES = '/v1/responses'
const MESSAGES = '/v1/messages'
const [INPUT, OUTPUT] = [3000n, 15_000n]

/** A model whose upstream speaks the format, and its endpoint. */
const PLACES: Readonly<Record<FormatName, { type: string; model: string; path: string }>> = {
  'chat-completions': { type: 'famC', model: 'acme/famC-5.5', path: CHAT },
  responses: { type: 'famC', model: 'acme/famC-5.5', path: RESPONSES },
  messages: { type: 'famA', model: 'acme/famA-medium-5', path: MESSAGES },
}
const FORMATS = Object.keys(PLACES) as FormatName[]

const say = (content: unknown = 'hi'): object[] => [{ role: 'user', content }]
const FUNCTION: Readonly<Record<FormatName, object>> = {
  'chat-completions': { type: 'function', function: { name: 'f', parameters: { type: 'object' } } },
  responses: { type: 'function', name: 'f', parameters: { type: 'object' }, strict: false },
  messages: { name: 'f', input_schema: { type: 'object' } },
}

function request(format: FormatName, model: string, more: object = {}): object {
  return {
    model,
    ...(format === 'responses' ? { input: 'hi' } : { messages: say() }),
    ...(format === 'messages' && { max_tokens: 100 }),
    ...more,
  }
}

/** A complete reply with ten input and twenty output tokens. */
function reply(path: string, usage: object = {}, more: object = {}): object {
  if (path === CHAT)
    return {
      id: 'c',
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 10, completion_tokens: 20, ...usage },
      ...more,
    }
  const counted = { input_tokens: 10, output_tokens: 20, ...usage }
  if (path === MESSAGES)
    return {
      type: 'message',
      id: 'm',
      role: 'assistant',
      content: [{ type: 'text', text: 'x' }],
      stop_reason: 'end_turn',
      usage: counted,
      ...more,
    }
  const item = {
    type: 'message',
    id: 'i',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'x', annotations: [] }],
  }
  return { id: 'r', object: 'response', status: 'completed', output: [item], usage: counted, ...more }
}

const PLAIN = 10n * INPUT + 20n * OUTPUT

interface Scene {
  readonly g: TestGateway
  readonly upstream: ScriptedUpstream
}

const settingsOf = (text: string): Readonly<Record<string, unknown>> =>
  parse(`{ ${text} }`) as Readonly<Record<string, unknown>>

/** @param price settings for the price of all models in this file */
async function scene(t: Test, price = '', edit: Edit = file => file): Promise<Scene> {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = ({ path }, res) => json(res, reply(path))
  const priced: Edit = file =>
    file
      .setAll('prices.medium', { calls: undefined, tiers: undefined })
      .setAll('prices.medium', settingsOf(price === '' ? 'tiers: []' : price))
  const g = await startGateway(t, { upstream: upstream.url, edit: file => edit(priced(file)) })
  return { g, upstream }
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

/** Members that are refused in every format if they have no price. */
const REFUSED: readonly (readonly [member: string, more: object])[] = [
  ['background', { background: true }],
  ['deferred', { deferred: true }],
  ['inference_geo', { inference_geo: 'us' }],
  ['modalities', { modalities: ['text', 'audio'] }],
  ['modalities', { modalities: ['image'] }],
  ['audio', { audio: { voice: 'v', format: 'wav' } }],
  ['models', { models: ['acme/famC-5.6-sol'] }],
  ['fallbacks', { fallbacks: [{ model: 'acme/famA-large-5' }] }],
  ['route', { route: 'fallback' }],
  ['provider', { provider: { order: ['dear'] } }],
  ['plugins', { plugins: [{ id: 'web' }] }],
  ['transforms', { transforms: ['middle-out'] }],
  ['preset', { preset: 'dear' }],
  ['api_base', { api_base: 'https://example.com' }],
  ['base_url', { base_url: 'https://example.com' }],
  ['api_key', { api_key: 'x' }],
  ['api_version', { api_version: '1' }],
  ['custom_llm_provider', { custom_llm_provider: 'dear' }],
  ['extra_body', { extra_body: { service_tier: 'priority' } }],
  ['extra_headers', { extra_headers: { x: 'y' } }],
  ['mock_response', { mock_response: 'x' }],
  ['web_search_options', { web_search_options: { search_context_size: 'high' } }],
  ['search_parameters', { search_parameters: { mode: 'on' } }],
  ['mcp_servers', { mcp_servers: [{ type: 'url', url: 'https://example.com', name: 'n' }] }],
]

t.test(
  'members without a price, and members that change model or address, are refused by name in every format',
  async t => {
    const place = await scene(t)
    const { g, upstream } = place
    for (const format of FORMATS) {
      const key = await g.key(PLACES[format].type)
      for (const [member, more] of REFUSED) {
        const answer = await ask(place, format, more, key)
        t.equal(answer.status, 400, `${format}: ${member}`)
        const { error } = answer.json
        t.match(error.message, new RegExp(`^"${member}" is refused\\. .+\\.$`))
        if (format === 'messages') t.equal(error.type, 'policy_blocked')
        else t.match(error, { code: 'unsupported_parameter', param: member })
        t.equal(answer.headers.get('x-should-retry'), 'false')
      }
    }
    t.equal(upstream.requests.length, 0)
  },
)

t.test('fifty background requests on a key with 0.02 credits reach no provider and cost nothing', async t => {
  const { g, upstream } = await scene(t)
  const { secret: key } = await g.gateway.keys.create({
    type: 'famC',
    name: '',
    credits: parseDecimal('0.02') as bigint,
    expiresAt: undefined,
  })
  const answers = await Promise.all(
    Array.from({ length: 50 }, () =>
      g.call(RESPONSES, { key, body: { model: 'acme/famC-5.5', input: 'hi', background: true } }),
    ),
  )
  t.ok(answers.every(({ status }) => status === 400))
  t.equal(upstream.requests.length, 0)
  t.equal((await g.balance(key)).exact.balance, '20000000')
})

t.test('members that ask for nothing or cost nothing pass unchanged', async t => {
  const place = await scene(t)
  const { g, upstream } = place
  const nothing = Object.fromEntries(REFUSED.flatMap(([member]) => (member === 'modalities' ? [] : [[member, null]])))
  for (const format of FORMATS) {
    const key = await g.key(PLACES[format].type)
    const more = {
      ...nothing,
      background: false,
      plugins: [],
      modalities: ['text'],
      store: false,
      include: [],
      prompt_cache_key: 'k',
      n: 1,
      logprobs: false,
      service_tier: format === 'messages' ? 'standard_only' : 'default',
      speed: 'standard',
      something_new: { a: 1 },
    }
    const answer = await ask(place, format, more, key)
    t.equal(answer.status, 200, answer.text)
    t.equal(answer.headers.get('x-tollgate-dropped'), null)
    t.match(upstream.last.json, more)
  }
})

t.test('a member in another spelling, which some upstreams accept, is refused', async t => {
  const place = await scene(t)
  for (const format of FORMATS) {
    const key = await place.g.key(PLACES[format].type)
    for (const [name, meant] of [
      ['Background', 'background'],
      ['SERVICE_TIER', 'service_tier'],
      ['\u017fpeed', 'speed'],
      ['Max_Tokens', 'max_tokens'],
      ['bac\u212aground', 'background'],
    ] as const) {
      t.match(
        await ask(place, format, { [name]: true }, key),
        { status: 400, json: { error: { message: new RegExp(`Did you mean "${meant}"`) } } },
        name,
      )
    }
    t.match(await ask(place, format, { tools: [{ ...FUNCTION[format], Type: 'web_search' }] }, key), { status: 400 })
  }
  t.equal(place.upstream.requests.length, 0)
})

t.test('a tier or a speed without a price becomes the standard one, and the reply names it', async t => {
  const place = await scene(t)
  for (const format of FORMATS) {
    for (const service_tier of ['priority', 'flex', 'scale', 'fast', 'auto']) {
      const { answer, cost } = await charged(place, format, { service_tier, speed: 'fast' })
      t.equal(answer.headers.get('x-tollgate-dropped'), 'service_tier, speed')
      t.equal(place.upstream.last.json['service_tier'], format === 'messages' ? 'standard_only' : 'default')
      t.notOk('speed' in place.upstream.last.json)
      t.equal(cost, PLAIN)
    }
  }
})

const FACTORS = 'tiers: [], serviceTier: { flex: 0.5, priority: 2.5 }, speed: { fast: 6 }, inferenceGeo: { us: 1.1 }'

t.test('with a factor, the tier that the reply reports is charged, whatever was requested', async t => {
  const place = await scene(t, FACTORS)
  const { upstream } = place
  const cases: readonly (readonly [asked: string, told: string | undefined, factor: number])[] = [
    ['priority', 'priority', 25],
    ['priority', 'default', 10],
    ['priority', undefined, 25],
    ['flex', 'flex', 5],
    ['flex', undefined, 10],
    ['auto', 'priority', 25],
    ['auto', 'default', 10],
  ]
  for (const format of FORMATS) {
    for (const [asked, told, factor] of cases) {
      upstream.script = ({ path }, res) =>
        json(
          res,
          path === MESSAGES
            ? reply(path, told === undefined ? {} : { service_tier: told })
            : reply(path, {}, told === undefined ? {} : { service_tier: told }),
        )
      const { cost, entry, answer } = await charged(place, format, { service_tier: asked })
      t.equal(answer.headers.get('x-tollgate-dropped'), null)
      t.equal(upstream.last.json['service_tier'], asked)
      t.equal(cost, (PLAIN * BigInt(factor)) / 10n, `${format}: ${asked}, reported ${told}`)
      t.same(entry['unpriced'], [])
    }
    // A tier without a factor, beside tiers with one.
    upstream.script = ({ path }, res) => json(res, reply(path))
    const { answer } = await charged(place, format, { service_tier: 'scale' })
    t.equal(answer.headers.get('x-tollgate-dropped'), 'service_tier')
  }
})

t.test('factors multiply exactly, and the hold uses the dearest one requested', async t => {
  const place = await scene(t, FACTORS)
  place.upstream.script = (_received, res) =>
    json(res, reply(MESSAGES, { service_tier: 'priority', speed: 'fast', inference_geo: 'us' }))
  const more = { service_tier: 'priority', speed: 'fast', inference_geo: 'us' }
  const { cost, entry } = await charged(place, 'messages', more)
  t.equal(cost, (PLAIN * 25n * 60n * 11n) / 1000n)
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
  const { secret: poor } = await place.g.gateway.keys.create({
    type: 'famA',
    name: '',
    credits: PLAIN * 10n,
    expiresAt: undefined,
  })
  const refused = await ask(place, 'messages', more, poor)
  t.match(refused, { status: 429, json: { error: { message: /may need/ } } })
})

t.test('a reported tier without a price that was not requested is charged plainly, marked and counted', async t => {
  const place = await scene(t)
  place.upstream.script = ({ path }, res) =>
    json(res, reply(path, { service_tier: 'priority' }, { service_tier: 'priority' }))
  for (const format of FORMATS) {
    const { cost, entry } = await charged(place, format, {})
    t.equal(cost, PLAIN)
    t.same(entry['unpriced'], ['serviceTier.priority'])
  }
  t.equal(place.g.gateway.meter.unpriced, FORMATS.length)
})

t.test('an unknown counter is charged plainly, marked and counted', async t => {
  const place = await scene(t)
  const unknown = {
    prompt_tokens_details: { video_tokens: 5 },
    input_tokens_details: { video_tokens: 5 },
    server_tool_use: { dream_requests: 2 },
    queue_time: 0.5,
  }
  place.upstream.script = ({ path }, res) => json(res, reply(path, unknown))
  const counters = ['calls.otherTools', 'prompt_tokens_details.video_tokens', 'input_tokens_details.video_tokens']
  t.same((await charged(place, 'chat-completions', {})).entry['unpriced'], counters)
  t.same((await charged(place, 'messages', {})).entry['unpriced'], counters)
})

/** Types of tools that providers run, by the formats that have them. */
const TOOLS: readonly (readonly [FormatName, string, string])[] = [
  ['responses', 'web_search', 'webSearch'],
  ['responses', 'web_search_preview_2025_03_11', 'webSearch'],
  ['responses', 'x_search', 'webSearch'],
  ['responses', 'file_search', 'fileSearch'],
  ['responses', 'code_interpreter', 'codeExecution'],
  ['responses', 'image_generation', 'imageGeneration'],
  ['responses', 'mcp', 'mcp'],
  ['responses', 'dream', 'otherTools'],
  ['messages', 'web_search_20250305', 'webSearch'],
  ['messages', 'web_fetch_20250910', 'webFetch'],
  ['messages', 'code_execution_20250825', 'codeExecution'],
  ['messages', 'mcp_toolset', 'mcp'],
  ['chat-completions', 'web_search', 'webSearch'],
  ['chat-completions', 'dream', 'otherTools'],
]

t.test(
  "a provider's tool without a price is dropped beside others, and refused alone, inside another tool, or if it is required",
  async t => {
    const place = await scene(t)
    const { g, upstream } = place
    for (const [format, type] of TOOLS) {
      const key = await g.key(PLACES[format].type)
      const tool = { type, name: 'that' }
      const beside = await ask(place, format, { tools: [tool, FUNCTION[format], tool] }, key)
      t.equal(beside.status, 200, beside.text)
      t.equal(beside.headers.get('x-tollgate-dropped'), `tools.${type}`)
      t.same(upstream.last.json['tools'], [FUNCTION[format]])
      const before = upstream.requests.length
      t.match(await ask(place, format, { tools: [tool] }, key), {
        status: 400,
        json: { error: { message: new RegExp(`"tools\\[0\\] \\(${type}\\)" is refused`) } },
      })
      const choice = format === 'messages' ? { type: 'tool', name: 'that' } : { type }
      t.equal((await ask(place, format, { tools: [tool, FUNCTION[format]], tool_choice: choice }, key)).status, 400)
      t.equal(upstream.requests.length, before)
    }
    const key = await g.key('famC')
    for (const more of [
      { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'web_search' }] }] },
      {
        input: [
          { role: 'user', content: 'hi' },
          { type: 'additional_tools', tools: [{ type: 'web_search' }] },
        ],
      },
      { tools: [{ type: 'shell', environment: { type: 'container_auto' } }] },
    ])
      t.match(await ask(place, 'responses', more, key), {
        status: 400,
        json: { error: { code: 'unsupported_parameter' } },
      })
  },
)

const CALLS =
  'tiers: [], calls: { webSearch: 0.01, webFetch: 0, fileSearch: 0.0025, codeExecution: 0.03, imageGeneration: 0.04, mcp: 0, otherTools: 0.5 }, imageOutput: 40'

t.test('tools with a price pass, and each reported call is charged', async t => {
  const place = await scene(t, CALLS)
  const { upstream } = place
  let items = 0
  const item = (type: string, more: object = {}): object => ({
    type,
    id: `item_${items++}`,
    status: 'completed',
    ...more,
  })
  const whole = (items: object[], more: object = {}): object => {
    const { output, ...rest } = reply(RESPONSES) as { output: object[] }
    return { ...rest, output: [...items, ...output], ...more }
  }
  const cases: readonly (readonly [FormatName, object, object, bigint])[] = [
    [
      'messages',
      { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
      reply(MESSAGES, { server_tool_use: { web_search_requests: 3, web_fetch_requests: 7 } }),
      30_000_000n,
    ],
    [
      'messages',
      { tools: [{ type: 'code_execution_20250825', name: 'c' }] },
      reply(MESSAGES, { server_tool_use: { code_execution_requests: 1, tool_search_requests: 9 } }),
      30_000_000n,
    ],
    [
      'responses',
      { tools: [{ type: 'web_search' }] },
      whole([
        item('web_search_call'),
        item('web_search_call'),
        item('function_call', { call_id: 'x', name: 'f', arguments: '{}' }),
      ]),
      20_000_000n,
    ],
    [
      'responses',
      { tools: [{ type: 'file_search', vector_store_ids: [] }] },
      whole([item('file_search_call')]),
      2_500_000n,
    ],
    ['responses', { tools: [{ type: 'code_interpreter', container: { type: 'auto' } }] }, whole([item('code_interpreter_call', { container_id: 'a' }), item('code_interpreter_call', { container_id: 'a' }), item('code_interpreter_call', { container_id: 'b' })]), 60_000_000n], // prettier-ignore
    ['responses', { tools: [{ type: 'image_generation' }] }, whole([item('image_generation_call', { result: 'x' })], { tool_usage: { image_gen: { input_tokens: 100, output_tokens: 1000 } } }), 40_000_000n + 100n * INPUT + 1000n * 40_000n], // prettier-ignore
    [
      'responses',
      { tools: [{ type: 'mcp', server_label: 'l', server_url: 'https://example.com' }] },
      whole([item('mcp_call'), item('mcp_list_tools')]),
      0n,
    ],
    ['responses', { tools: [{ type: 'dream' }] }, whole([item('dream_call')]), 500_000_000n],
    ['responses', { tools: [{ type: 'x_search' }] }, { ...whole([]), usage: { input_tokens: 10, output_tokens: 20, server_side_tool_usage_details: { x_search_calls: 2, web_search_calls: 1 }, num_server_side_tools_used: 3 } }, 30_000_000n], // prettier-ignore
    ['chat-completions', { web_search_options: {} }, reply(CHAT), 10_000_000n],
    ['chat-completions', { search_parameters: { mode: 'on' } }, reply(CHAT, { num_sources_used: 4 }), 40_000_000n],
    ['chat-completions', { search_parameters: { mode: 'auto' } }, reply(CHAT, { num_sources_used: 0 }), 0n],
  ]
  for (const [format, more, answered, fees] of cases) {
    upstream.script = (_received, res) => json(res, answered)
    const { answer, cost, entry } = await charged(place, format, more)
    t.equal(answer.status, 200, answer.text)
    t.match(upstream.last.json, more)
    t.equal(cost, PLAIN + fees, `${format}: ${JSON.stringify(more)}`)
    t.same(entry['unpriced'], [])
  }
})

t.test('calls that a stream has reported are charged, even if its client leaves early', async t => {
  const place = await scene(t, CALLS, file => file.everyUpstream({ onDisconnect: 'cancel' }))
  const { g, upstream } = place
  const typed = (event: { type: string; [name: string]: unknown }): string =>
    `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
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
    const leave = new AbortController()
    const response = await g.open(path, {
      key,
      body: request(format, model, { tools, stream: true }),
      signal: leave.signal,
    })
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    for (let text = ''; !text.includes('seen');) text += Buffer.from((await reader.read()).value ?? []).toString()
    leave.abort()
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
  t.equal(cost, PLAIN + 10_000_000n)
})

t.test('a hold covers as many calls as the request allows, and a balance that covers one call is enough', async t => {
  const place = await scene(t, CALLS)
  const held: bigint[] = []
  place.upstream.script = async ({ path }, res) => {
    held.push((await place.g.gateway.ledger.balance(account)).held)
    json(res, reply(path))
  }
  const { secret: key } = await place.g.gateway.keys.create({
    type: 'famA',
    name: '',
    credits: 10_000_000_000n,
    expiresAt: undefined,
  })
  const account = await place.g.id(key)
  const tools = (max_uses?: number): object[] => [
    { type: 'web_search_20250305', name: 'web_search', ...(max_uses !== undefined && { max_uses }) },
  ]
  // A stream ends with its balance. A JSON reply is held in full, and limited if it has no limit.
  for (const stream of [true, false]) {
    held.splice(0)
    for (const times of [1, 4, 30, undefined]) await ask(place, 'messages', { tools: tools(times), stream }, key)
    const [one = 0n, ...others] = held
    t.same(
      others.map(each => Math.round(Number(each - one) / 10_000_000)),
      stream ? [3, 9, 9] : [3, 29, 9],
    )
    t.same(place.upstream.last.json['tools'], stream ? tools() : tools(10))
  }
  place.upstream.script = ({ path }, res) => json(res, reply(path))
  const chat = await place.g.key('famC')
  await ask(place, 'responses', { tools: [{ type: 'web_search' }] }, chat)
  t.equal(place.upstream.last.json['max_tool_calls'], 10)
  await ask(place, 'responses', { tools: [{ type: 'web_search' }], max_tool_calls: 3 }, chat)
  t.equal(place.upstream.last.json['max_tool_calls'], 3)
})

t.test('long input is charged at its own rates from its first token, cached input included', async t => {
  const place = await scene(
    t,
    'tiers: [{ above: 1000, input: 6, output: 22.5, cacheRead: 0.6 }, { above: 2000, input: 12, output: 45, cacheRead: 1.2 }]',
    file => file.setAll('prices.medium', { cacheWrite5m: undefined, cacheWrite1h: undefined }),
  )
  for (const [total, input, output, cached] of [
    [1000, 3000n, 15_000n, 300n],
    [1001, 6000n, 22_500n, 600n],
    [2000, 6000n, 22_500n, 600n],
    [2001, 12_000n, 45_000n, 1200n],
  ] as const) {
    const usage = { prompt_tokens: total, completion_tokens: 20, prompt_tokens_details: { cached_tokens: 400 } }
    place.upstream.script = ({ path }, res) =>
      json(
        res,
        reply(path, {
          ...usage,
          input_tokens: path === MESSAGES ? total - 400 : total,
          input_tokens_details: { cached_tokens: 400 },
          cache_read_input_tokens: 400,
        }),
      )
    for (const format of FORMATS) {
      const { cost } = await charged(place, format, {})
      t.equal(cost, BigInt(total - 400) * input + 400n * cached + 20n * output, `${format}: ${total}`)
    }
  }
})

t.test('media have rates of their own, as input and as output', async t => {
  const place = await scene(t, 'tiers: [], audioInput: 40, audioOutput: 80, imageInput: 5, imageOutput: 60')
  const sound = { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }
  place.upstream.script = ({ path }, res) =>
    json(
      res,
      reply(path, {
        prompt_tokens_details: { audio_tokens: 4, image_tokens: 3 },
        completion_tokens_details: { audio_tokens: 15, image_tokens: 2, reasoning_tokens: 1 },
      }),
    )
  const { cost, entry } = await charged(place, 'chat-completions', {
    messages: say([sound]),
    modalities: ['text', 'audio'],
    audio: { voice: 'v', format: 'wav' },
  })
  t.equal(cost, 3n * INPUT + 4n * 40_000n + 3n * 5000n + 3n * OUTPUT + 15n * 80_000n + 2n * 60_000n)
  t.same(entry['unpriced'], [])
  const bare = await scene(t)
  t.match((await charged(bare, 'chat-completions', { messages: say([sound]) })).answer, {
    status: 400,
    json: { error: { message: /Sound has no price here/ } },
  })
  bare.upstream.script = place.upstream.script
  const told = await charged(bare, 'chat-completions', {})
  t.equal(told.cost, 10n * INPUT + 20n * OUTPUT)
  t.same(told.entry['unpriced'], ['audioInput', 'audioOutput', 'imageOutput'])
})

t.test('rejected predictions are charged once, as output or at a rate of their own', async t => {
  for (const [price, rate] of [
    ['', OUTPUT],
    ['tiers: [], rejected: 7', 7000n],
  ] as const) {
    const place = await scene(t, price)
    place.upstream.script = (_received, res) =>
      json(
        res,
        reply(CHAT, { completion_tokens_details: { accepted_prediction_tokens: 5, rejected_prediction_tokens: 8 } }),
      )
    const { cost, answer } = await charged(place, 'chat-completions', {
      prediction: { type: 'content', content: 'x'.repeat(40) },
    })
    t.equal(answer.status, 200)
    t.equal(cost, 10n * INPUT + 12n * OUTPUT + 8n * rate)
  }
})

t.test('an advisor is charged as its own model, and must be a model of the key type', async t => {
  const place = await scene(t, '', file => file.model('famA', 'acme/famA-large-5', { sends: 'vendor-large' }))
  const { g, upstream } = place
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
  t.equal(cost, PLAIN + 30n * 15_000n + 40n * 75_000n)
  t.match(entry, {
    input_tokens: 40,
    output_tokens: 60,
    unpriced: [],
    unit_prices: [{ input: '3' }, { model: 'vendor-large-20261001', input: '15', output: '75' }],
  })
  const key = await g.key('famA')
  for (const model of ['acme/famC-5.6-sol', 'vendor-other', undefined])
    t.match(await ask(place, 'messages', { tools: [{ ...tool, model }, FUNCTION.messages] }, key), {
      status: 400,
      json: { error: { message: /advisor_20260301.*(?:model that this key may not use|It names no model)/ } },
    })
  upstream.script = (_received, res) =>
    json(res, reply(MESSAGES, { iterations: [iterations[0], { ...iterations[1], model: 'vendor-strange' }] }))
  const strange = await charged(place, 'messages', { tools: [tool] })
  t.same(strange.entry['unpriced'], ['model vendor-strange'])
})

t.test('allowed fallbacks are sent under their upstream names, and the model that served is charged', async t => {
  const place = await scene(t, '', file =>
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

t.test('the policy of a key type applies even if the member has a price', async t => {
  const place = await scene(t, FACTORS, file =>
    file.set('keyTypes.famC.policy', {
      service_tier: 'refuse',
      background: 'drop',
      store: 'drop',
      provider: 'allow',
      prediction: 'refuse',
    }),
  )
  const { g, upstream } = place
  const key = await g.key('famC')
  t.match(await ask(place, 'responses', { service_tier: 'priority' }, key), { status: 400 })
  t.match(await ask(place, 'responses', { prediction: { type: 'content', content: 'x' } }, key), { status: 400 })
  const { status, headers } = await ask(
    place,
    'responses',
    { background: true, store: true, provider: { order: ['a'] } },
    key,
  )
  t.equal(status, 200)
  t.equal(headers.get('x-tollgate-dropped'), 'background, store')
  t.match(upstream.last.json, { store: false, provider: { order: ['a'] } })
  t.notOk('background' in upstream.last.json)
})

t.test('dropping a member leaves all other bytes unchanged', async t => {
  const place = await scene(t)
  const { g, upstream } = place
  const key = await g.key('famC')
  const send = async (body: string): Promise<string> => {
    const { status, text } = await g.call(CHAT, { key, body })
    t.equal(status, 200, text)
    return upstream.last.body
  }
  const said = '"messages": [ {"role":"user","content":"h\\u0069 1.0"} ]'
  t.equal(
    await send(`{ "speed": "fast" , "model":"acme/famC-5.5", ${said}, "seed": 1.00 }`),
    `{"model":"acme/famC-5.5",${said},"seed": 1.00}`,
  )
  t.equal(await send(`{"model":"acme/famC-5.5",${said},"speed":"fast"}`), `{"model":"acme/famC-5.5",${said}}`)
  t.equal(
    await send(`{"model":"acme/famC-5.5","a":1,"speed":"fast","b":2,"speed2":0,${said}}`),
    `{"model":"acme/famC-5.5","a":1,"b":2,"speed2":0,${said}}`,
  )
})

t.test('translation passes no member without a price: only the tier is carried, and charged as reported', async t => {
  const place = await scene(t, `${FACTORS}, calls: { webSearch: 0.01, mcp: 0 }`)
  const { g, upstream } = place
  // Each client on a model that speaks another format.
  const pairs = [
    ['messages', 'famC', 'acme/famC-5.5'],
    ['responses', 'famA', 'acme/famA-medium-5'],
    ['chat-completions', 'famA', 'acme/famA-medium-5'],
  ] as const
  for (const [format, type, model] of pairs) {
    const key = await g.key(type, 1000n)
    const { path } = PLACES[format]
    const send = (more: object): Promise<Answer> => g.call(path, { key, body: request(format, model, more) })
    for (const [member, more] of REFUSED) {
      const before = upstream.requests.length
      const { status } = await send(more)
      if (status !== 200) t.equal(upstream.requests.length, before, `${format}: ${member} is refused`)
      else t.notOk(member in upstream.last.json, `${format}: ${member} is dropped`)
    }
    const tool = format === 'messages' ? { type: 'web_search_20250305', name: 'web_search' } : { type: 'web_search' }
    const searched = await send({ tools: [tool, FUNCTION[format]] })
    t.match(searched.headers.get('x-tollgate-dropped'), /web_search/)
    t.equal((await send({ tools: [tool] })).status, 400)
    const before = (await g.settled(key)).length
    await send({
      service_tier: 'priority',
      speed: 'fast',
      inference_geo: 'us',
      prediction: { type: 'content', content: 'x' },
    })
    t.notOk('service_tier' in upstream.last.json)
    const entries = await g.settled(key)
    t.equal(entries.length, before + 1)
    t.equal(BigInt(entries[0]?.['cost_nano']), PLAIN, `${format}: nothing of it reached the upstream`)
  }
  // A request for the standard tier is carried to every format.
  for (const [format, type, model, wish, carried] of [
    ['messages', 'famC', 'acme/famC-5.5', 'standard_only', 'default'],
    ['responses', 'famA', 'acme/famA-medium-5', 'default', 'standard_only'],
  ] as const) {
    const answer = await g.call(PLACES[format].path, {
      key: await g.key(type),
      body: request(format, model, { service_tier: wish }),
    })
    t.equal(answer.headers.get('x-tollgate-dropped'), null)
    t.equal(upstream.last.json['service_tier'], carried)
  }
  // Between the two formats that both have tiers, the tier is carried.
  const other = await startGateway(t, {
    upstream: upstream.url,
    edit: file =>
      file
        .set('upstreams.famC.speaks', ['responses'])
        .set('prices.medium.calls', undefined)
        .setAll('prices.medium', settingsOf(FACTORS)),
  })
  const key = await other.key('famC')
  upstream.script = ({ path }, res) => json(res, reply(path, {}, { service_tier: 'priority' }))
  await other.call(CHAT, { key, body: request('chat-completions', 'acme/famC-5.5', { service_tier: 'priority' }) })
  t.equal(upstream.last.json['service_tier'], 'priority')
  t.equal(BigInt((await other.settled(key))[0]?.['cost_nano']), (PLAIN * 25n) / 10n)
})

t.test('streams report tiers, media and calls as JSON replies do', async t => {
  const place = await scene(t, `${FACTORS}, calls: { webSearch: 0.01 }`)
  const { g, upstream } = place
  const typed = (event: { type: string; [name: string]: unknown }): string =>
    `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
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
    t.equal(cost, (PLAIN * 25n) / 10n, format)
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
    const place = await scene(t, '', file =>
      prices(file).setAll('upstreams.famC', { cost: { 'acme/famC-5.5': 'wholesale', '*': 'dear' }, dollar: 1 }),
    )
    const { g, upstream } = place
    const cost = async (more: object = {}): Promise<string | undefined> => {
      const key = await g.key('famC')
      await ask(place, 'chat-completions', more, key)
      t.notMatch(JSON.stringify(await g.settled(key)), /"cost":0\.\d+,[^}]*"cost":/)
      const [entry] = await g.gateway.ledger.history(await g.id(key), { count: 1 })
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
  const { g, upstream } = await scene(t, '', file => file.set('ledger.freeEntries', 3))
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
  const buckets = await scripts.redis.keys(`*{${scripts.keys.of(account).shard}}:o:*`)
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
    const place = await scene(t, `${FACTORS}, calls: { webSearch: 0.01 }, audioInput: 40, audioOutput: 80`)
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
    t.match(await audit(ledger, accounts, 'charges'), { repriced: 3, unversioned: 0, drifts: [] })
    // A charge that does not follow from its usage.
    const { database } = ledger.records
    const [account = ''] = accounts
    await ledger.background.archiveAll()
    const [entry] = await ledger.history(account, { count: 1 })
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

/** An event of a stream of the messages or responses format. */
const typed = (event: { type: string; [name: string]: unknown }): string =>
  `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`

t.test(
  'an advisor that was not used is free; one that was costs its input and an answer, even if the balance ends',
  async t => {
    const place = await scene(t)
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
      const { secret: key } = await g.gateway.keys.create({
        type: 'famA',
        name: '',
        credits: 1_000_000_000n,
        expiresAt: undefined,
      })
      const { text } = await g.call(MESSAGES, {
        key,
        body: request('messages', 'acme/famA-medium-5', { tools, stream: true, max_tokens: 1_000_000 }),
      })
      t.match(text, /"stop_reason":"max_tokens"/)
      const [entry] = await g.settled(key)
      const left = BigInt((await g.balance(key)).exact.balance)
      t.ok(left > -60_000_000n && left <= 0n, `${left} is left`)
      t.equal(entry?.['unit_prices'].length, advised ? 2 : 1)
      if (advised)
        t.match(entry?.['unit_prices'][1], { model: 'acme/famA-large-5', tokens: { input: 10, output: 1000 } })
    }
  },
)

t.test('a hold covers the other models that may be used', async t => {
  const place = await scene(t)
  const held: bigint[] = []
  const key = await place.g.key('famA', 100n)
  const account = await place.g.id(key)
  place.upstream.script = async ({ path }, res) => {
    held.push((await place.g.gateway.ledger.balance(account)).held)
    json(res, reply(path))
  }
  for (const tools of [[], [{ type: 'advisor_20260301', name: 'a', model: 'acme/famA-large-5' }]])
    await ask(place, 'messages', { tools }, key)
  const [plain = 0n, advised = 0n] = held
  // The advisor costs five times as much.
  t.ok(advised > 5n * plain, `${advised} where ${plain} was held`)
})

t.test('implausible calls are quarantined, and charged only as far as they are plausible', async t => {
  const place = await scene(t, CALLS)
  for (const [tools, count, most] of [
    [[], 5_000_000, 10n],
    [[{ type: 'web_search_20250305', name: 'w', max_uses: 2 }], 1001, 20n],
    [[{ type: 'web_search_20250305', name: 'w' }], 9e15, 1000n],
  ] as const) {
    place.upstream.script = (_received, res) =>
      json(res, reply(MESSAGES, { server_tool_use: { web_search_requests: count } }))
    const { cost, entry } = await charged(place, 'messages', { tools, stream: tools.length > 0 && count > 1e6 })
    t.equal(entry['quarantined'], true)
    t.ok(cost >= most * 10_000_000n && cost <= most * 10_000_000n + 40_000_000n, `${count}: ${cost}`)
  }
  place.upstream.script = (_received, res) =>
    json(res, reply(MESSAGES, { input_tokens: 1000, output_tokens: 100, server_tool_use: { web_search_requests: 21 } }))
  const { cost } = await charged(place, 'messages', {
    tools: [{ type: 'web_search_20250305', name: 'w', max_uses: 2 }],
  })
  t.equal(cost, 1000n * INPUT + 100n * OUTPUT + 200_000_000n, 'the tokens are charged as reported all the same')
  for (const count of [-1, 1.5, '3', null]) {
    place.upstream.script = (_received, res) =>
      json(res, reply(MESSAGES, { server_tool_use: { web_search_requests: count } }))
    const { entry } = await charged(place, 'messages', {})
    t.equal(entry['quarantined'], count !== null, String(count))
  }
})

t.test('calls are charged once each, whether usage, an item or a block reports them', async t => {
  const place = await scene(t, CALLS)
  const { upstream } = place
  const search = (index: number): string =>
    typed({
      type: 'response.output_item.done',
      output_index: index,
      item: { type: 'web_search_call', id: `w${index}`, action: { type: 'search' } },
    })
  const ends = (output: object[]): string =>
    typed({
      type: 'response.completed',
      response: {
        id: 'r',
        object: 'response',
        status: 'completed',
        output,
        usage: { input_tokens: 10, output_tokens: 20 },
      },
    })
  const stream = { tools: [{ type: 'web_search' }], stream: true }
  upstream.script = (_received, res) =>
    sse(
      res,
      typed({ type: 'response.created', response: { id: 'r', object: 'response' } }) +
        search(0) +
        search(1) +
        search(2) +
        ends([]),
    )
  t.equal(
    (await charged(place, 'responses', stream)).cost,
    PLAIN + 30_000_000n,
    'though the last event lists none of them',
  )
  upstream.script = (_received, res) =>
    sse(
      res,
      search(0) +
        search(0) +
        ends([0, 0, 1].map(index => ({ type: 'web_search_call', id: `w${index}`, action: { type: 'search' } }))),
    )
  t.equal(
    (await charged(place, 'responses', stream)).cost,
    PLAIN + 20_000_000n,
    'a call that is reported several times counts once',
  )
  const block = (type: string, name: string): object => ({ type, id: `${name}_${Math.random()}`, name, input: {} })
  const content = [
    block('server_tool_use', 'bash_code_execution'),
    block('server_tool_use', 'code_execution'),
    block('mcp_tool_use', 'x'),
    { type: 'text', text: 'x' },
  ]
  upstream.script = (_received, res) =>
    json(res, reply(MESSAGES, { server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 } }, { content }))
  const tools = [{ type: 'code_execution_20250825', name: 'c' }]
  t.equal(
    (await charged(place, 'messages', { tools })).cost,
    PLAIN + 30_000_000n,
    'a counter of searches says nothing of containers',
  )
  upstream.script = ({ path }, res) => json(res, reply(path))
  t.equal(
    (await charged(place, 'chat-completions', { tools: [{ type: 'web_search' }, FUNCTION['chat-completions']] })).cost,
    PLAIN + 10_000_000n,
  )
  upstream.script = ({ path }, res) => json(res, reply(path, { server_tool_use: { web_search_requests: 5 } }))
  t.equal((await charged(place, 'chat-completions', { tools: [{ type: 'web_search' }] })).cost, PLAIN + 50_000_000n)
  const shell = { type: 'shell', environment: { type: 'container_auto' } }
  const call = (index: number, more: object = {}): object => ({ type: 'shell_call', id: `s${index}`, ...more })
  for (const [asked, output, fee] of [
    [[shell], [call(0), call(1)], 30_000_000n],
    [
      [shell],
      [
        call(0, { environment: { type: 'container_reference', container_id: 'a' } }),
        call(1, { environment: { type: 'container_reference', container_id: 'a' } }),
      ],
      30_000_000n,
    ],
    [[{ type: 'shell', environment: { type: 'local' } }], [call(0), call(1, { environment: { type: 'local' } })], 0n],
  ] as const) {
    upstream.script = (_received, res) => json(res, reply(RESPONSES, {}, { output }))
    t.equal((await charged(place, 'responses', { tools: asked })).cost, PLAIN + fee)
  }
})

t.test('duplicates, other spellings and odd shapes, which upstreams may read differently, are refused', async t => {
  const place = await scene(t)
  const { g, upstream } = place
  const chat = (text: string): string => `{"model":"acme/famC-5.5","messages":[{"role":"user","content":"hi"}],${text}}`
  const bodies: readonly (readonly [path: string, body: string])[] = [
    [CHAT, chat('"tools":[{"type":"image_generation","type":"function","function":{"name":"f"}}]')],
    [CHAT, chat('"tools":[{"type":"function","t\\u0079pe":"image_generation","function":{"name":"f"}}]')],
    [
      RESPONSES,
      '{"model":"acme/famC-5.5","input":[{"role":"user","content":[{"type":"input_file","file_id":"of-another","file_id":null}]}]}',
    ],
    [
      RESPONSES,
      '{"model":"acme/famC-5.5","input":[{"role":"user","content":[{"type":"input_file","file":{"File_ID":"of-another"}}]}]}',
    ],
    [
      CHAT,
      '{"model":"acme/famC-5.5","messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"JVBE","FILE_ID":"of-another"}}]}]}',
    ],
    [
      CHAT,
      '{"model":"acme/famC-5.5","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"TTL":"1h"}}]}]}',
    ],
    ...[
      '"container":{"type":"auto","memory_limit":"64g","memory_limit":"1g"}',
      '"environment":{"skills":[{"skill_id":"of-another"}],"skills":[]}',
      '"input_image_mask":{"file_id":"of-another"},"input_image_mask":{}',
      '"tools":[{"type":"web_search"}],"tools":[]',
      '"max_uses":100,"max_uses":1',
      '"cache_control":{"type":"ephemeral","ttl":"1h","ttl":"5m"}',
      '"file":{"file_id":"of-another"},"file":{}',
    ].map(
      twice =>
        [RESPONSES, `{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"code_interpreter",${twice}}]}`] as const,
    ),
    [RESPONSES, '{"model":"acme/famC-5.5","input":[{"Type":"item_reference","ID":"of-another"}]}'],
    [
      RESPONSES,
      '{"model":"acme/famC-5.5","input":[{"role":"user","content":[{"type":"input_file","File_ID":"of-another"}]}]}',
    ],
    [
      RESPONSES,
      '{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"name":"x","Type":"web_search"}]}]}',
    ],
    [CHAT, '{"model":"acme/famC-5.5","messages":[{"role":"user","content":[{"Type":"input_audio"}]}]}'],
    [CHAT, chat('"serviceTier":"priority"')],
    [CHAT, chat('"service-tier":"priority"')],
    [CHAT, chat('"webSearchOptions":{}')],
    [CHAT, chat('"providerOptions":{}')],
    [CHAT, chat('"servicetier":"priority"')],
    [CHAT, chat('"service__tier":"priority"')],
    [CHAT, '{"model":"acme/famC-5.5","messages":[{"role":"user","Content":[{"type":"input_audio"}]}]}'],
    [RESPONSES, '{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"memory_search"}]}'],
    [CHAT, chat('"tools":{"0":{"type":"web_search"}}')],
    [CHAT, chat('"tools":[[{"type":"web_search"}]]')],
    [CHAT, chat('"tools":[{"googleSearch":{}}]')],
    [CHAT, chat('"tools":[{"type":["web_search"]}]')],
    [CHAT, chat('"modalities":[{"toString":1,"valueOf":1}]')],
    [CHAT, chat('"enable_search":true')],
    [CHAT, chat('"data_sources":[{}]')],
    [
      CHAT,
      '{"model":"acme/famC-5.5","messages":[{"role":"user","content":[{"type":"audio_url","audio_url":{"url":"https://example.com/a.wav"}}]}]}',
    ],
    [
      CHAT,
      '{"model":"acme/famC-5.5","messages":[{"role":"user","content":{"type":"input_audio","input_audio":{"data":"AAAA"}}}]}',
    ],
  ]
  const key = await g.key('famC')
  for (const [path, body] of bodies) t.equal((await g.call(path, { key, body })).status, 400, body)
  t.equal(upstream.requests.length, 0)
  for (const more of [
    { tools: [{ type: 'shell', environment: { type: 'local' } }] },
    { search_parameters: { mode: 'off' } },
    { tools: [{ type: 'function', name: 'f', parameters: { properties: { Type: {}, ID: {} } } }] },
  ])
    t.equal((await ask(place, 'responses', more, key)).status, 200, JSON.stringify(more))
})

t.test('a container larger than the one with a price is refused', async t => {
  const place = await scene(t, CALLS)
  const key = await place.g.key('famC', 1000n)
  const tool = (memory_limit?: string): object => ({
    tools: [
      { type: 'code_interpreter', container: { type: 'auto', ...(memory_limit !== undefined && { memory_limit }) } },
    ],
  })
  t.match(await ask(place, 'responses', tool('64g'), key), {
    status: 400,
    json: { error: { message: /a larger container/ } },
  })
  for (const size of ['1g', undefined]) t.equal((await ask(place, 'responses', tool(size), key)).status, 200)
})

t.test('the error for a refused member with a price does not say that it has none', async t => {
  const place = await scene(t, `${FACTORS}, calls: { webSearch: 0.01 }`, file =>
    file.set('keyTypes.famC.policy', { service_tier: 'refuse', webSearch: 'drop' }),
  )
  const key = await place.g.key('famC')
  t.match(
    (await ask(place, 'responses', { service_tier: 'priority' }, key)).json.error.message,
    'It is not offered to this key. Omit the member',
  )
  t.match(
    (await ask(place, 'responses', { tools: [{ type: 'web_search' }] }, key)).json.error.message,
    'It is not offered to this key.',
  )
})

t.test('auto passes only if a dearer tier has a price, and a request without a tier holds for the dearest', async t => {
  const cheap = await scene(t, 'tiers: [], serviceTier: { flex: 0.5 }')
  t.equal(
    (await charged(cheap, 'responses', { service_tier: 'auto' })).answer.headers.get('x-tollgate-dropped'),
    'service_tier',
  )
  const { g, upstream } = await scene(t, FACTORS)
  const held: bigint[] = []
  const key = await g.key('famC', 1000n)
  const account = await g.id(key)
  upstream.script = async ({ path }, res) => {
    held.push((await g.gateway.ledger.balance(account)).held)
    json(res, reply(path))
  }
  for (const more of [{ service_tier: 'default' }, {}])
    await g.call(RESPONSES, {
      key,
      body: request('responses', 'acme/famC-5.5', { max_output_tokens: 1000, ...more }),
    })
  const [standard = 0n, unsaid = 0n] = held
  t.ok(unsaid > 2n * standard, `${unsaid} where ${standard} is the standard`)
  const entries = await g.settled(key)
  t.same(
    entries.map(({ cost_nano: nano }) => BigInt(nano)),
    [PLAIN, PLAIN],
    'what is charged is what the reply says',
  )
})

t.test('a failure that reports usage is charged in every format', async t => {
  const place = await scene(t)
  place.upstream.script = (_received, res) =>
    json(res, { error: { message: 'no', type: 'server_error' }, usage: { prompt_tokens: 10, completion_tokens: 20 } })
  t.equal((await charged(place, 'chat-completions', {})).cost, PLAIN)
  place.upstream.script = (_received, res) =>
    json(res, {
      id: 'r',
      object: 'response',
      status: 'failed',
      error: { message: 'no' },
      output: [],
      usage: { input_tokens: 10, output_tokens: 20 },
    })
  t.equal((await charged(place, 'responses', {})).cost, PLAIN)
})

t.test('iterations without the model itself do not hide its own usage', async t => {
  const place = await scene(t)
  const advice = { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 30, output_tokens: 40 }
  place.upstream.script = (_received, res) => json(res, reply(MESSAGES, { iterations: [advice] }))
  t.equal((await charged(place, 'messages', {})).cost, PLAIN + 30n * 15_000n + 40n * 75_000n)
  place.upstream.script = (_received, res) =>
    sse(res, typed({ type: 'message_start', message: { type: 'message', content: [], usage: { input_tokens: 10, output_tokens: 1, iterations: [{ type: 'message', input_tokens: 1, output_tokens: 1 }] } } }) + typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 20 } }) + typed({ type: 'message_stop' })) // prettier-ignore
  t.equal((await charged(place, 'messages', { stream: true })).cost, PLAIN)
})

t.test('a fallback is charged as itself under a dated name too, and an unknown one is marked', async t => {
  const place = await scene(t, '', file =>
    file.set('keyTypes.famC.policy', { models: 'allow' }).model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-sol' }),
  )
  for (const [model, dear, told] of [
    ['vendor-sol-2026-10-01', true, []],
    ['vendor-sol-ultra', false, ['model vendor-sol-ultra']],
    ['acme/famC-5.5-20261001', false, []],
  ] as const) {
    place.upstream.script = ({ path }, res) => json(res, reply(path, {}, { model }))
    const { cost, entry } = await charged(place, 'chat-completions', { models: ['acme/famC-5.6-sol'] })
    t.equal(cost, dear ? 5n * PLAIN : PLAIN, model)
    t.same(entry['unpriced'], told)
  }
})

t.test(
  'nothing is stored at the provider if the key type forbids it, even if the request does not mention it',
  async t => {
    const place = await scene(t, '', file => file.set('keyTypes.famC.policy', { store: 'refuse' }))
    const key = await place.g.key('famC')
    t.equal((await ask(place, 'responses', {}, key)).headers.get('x-tollgate-dropped'), 'store')
    t.equal(place.upstream.last.json['store'], false)
    t.equal((await ask(place, 'responses', { store: true }, key)).status, 400)
    await ask(place, 'chat-completions', {}, key)
    t.notOk('store' in place.upstream.last.json, 'chat completions are not stored unless they ask for it')
  },
)

t.test('dropping tools keeps the bytes of the others, and the header names only as many as fit', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  const kept = '{ "type":"function","name":"f","parameters":{"maximum":18446744073709551615,"x":1.0} }'
  const many = Array.from({ length: 900 }, (_, index) => `{"type":"dream_${index}"}`).join(',')
  const { status, headers } = await g.call(RESPONSES, {
    key,
    body: `{"model":"acme/famC-5.5","input":"hi","tools":[${many}, ${kept} ,{"type":"web_fetch"}]}`,
  })
  t.equal(status, 200)
  t.match(upstream.last.body, `"tools":[${kept}]`)
  t.match(headers.get('x-tollgate-dropped'), /^tools\.dream_0, .*, and 881 more$/)
})

t.test('a tool_choice or a caller that requires a dropped tool is refused', async t => {
  const place = await scene(t)
  const key = await place.g.key('famC')
  const both = [{ type: 'file_search' }, FUNCTION.responses]
  for (const more of [
    { tools: both, tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'file_search' }] } },
    {
      tools: [
        { type: 'code_interpreter', container: { type: 'auto' } },
        { ...FUNCTION.responses, allowed_callers: ['code_interpreter'] },
      ],
    },
  ])
    t.equal((await ask(place, 'responses', more, key)).status, 400)
})

t.test('a small balance is never sent upstream as a limit of zero', async t => {
  const { g, upstream } = await scene(t, CALLS)
  for (const credits of [80_000_000n, 120_000_000n, 200_000_000n, 300_000_000n]) {
    const { secret: key } = await g.gateway.keys.create({ type: 'famC', name: '', credits, expiresAt: undefined })
    const { status } = await g.call(RESPONSES, {
      key,
      body: request('responses', 'acme/famC-5.5', { tools: [{ type: 'web_search' }] }),
    })
    if (status === 200) t.ok(Number(upstream.last.json['max_output_tokens']) >= 4096, `${credits}`)
    else t.equal(status, 429)
    await g.settled(key)
  }
})

t.test('predicted text counts as output of a stream that the client left', async t => {
  const place = await scene(t, '', file =>
    file.everyUpstream({ onDisconnect: 'cancel' }).model('famC', 'acme/famC-5.5', { reasoning: 'none' }),
  )
  const { g, upstream } = place
  const outputs: number[] = []
  for (const more of [{}, { prediction: { type: 'content', content: 'y'.repeat(2000) } }]) {
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(
        `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content: 'seen' }, finish_reason: null }] })}\n\n`,
      )
    }
    const key = await g.key('famC')
    const leave = new AbortController()
    const response = await g.open(CHAT, {
      key,
      body: request('chat-completions', 'acme/famC-5.5', { stream: true, ...more }),
      signal: leave.signal,
    })
    await (response.body as ReadableStream<Uint8Array>).getReader().read()
    leave.abort()
    const [entry] = await g.settled(key)
    outputs.push(entry?.['output_tokens'])
  }
  t.ok((outputs[1] ?? 0) >= (outputs[0] ?? 0) + 1000, String(outputs))
})

t.test('a stream whose provider goes on searching ends when the searches have used up the balance', async t => {
  const { g, upstream } = await scene(t, CALLS)
  const { secret: key } = await g.gateway.keys.create({
    type: 'famC',
    name: '',
    credits: 250_000_000n,
    expiresAt: undefined,
  })
  let searches = 0
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(
      typed({ type: 'response.created', sequence_number: 0, response: { id: 'r', object: 'response', output: [] } }),
    )
    for (; !res.destroyed && searches < 200; await sleep(10)) {
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
  const { text } = await g.call(RESPONSES, {
    key,
    body: request('responses', 'acme/famC-5.5', { tools: [{ type: 'web_search' }], stream: true }),
  })
  t.match(text, 'response.incomplete')
  const [entry] = await g.settled(key)
  t.equal(entry?.['status'], 'budget')
  const left = BigInt((await g.balance(key)).exact.balance)
  t.ok(left > -60_000_000n, `${left} is left after ${searches} searches`)
})

t.test('a stream with an advisor or audio is read on when its client leaves, and charged by its report', async t => {
  const none: Edit = file => file.model('famC', 'acme/famC-5.5', { reasoning: 'none' })
  const { g, upstream } = await scene(t, 'tiers: [], audioOutput: 80', none)
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
      PLAIN + 30n * 15_000n + 40n * 75_000n,
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
    let finish = (): void => {}
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(begins)
      await new Promise<void>(resolve => (finish = resolve))
      res.end(ends)
    }
    const leave = new AbortController()
    const response = await g.open(path, {
      key,
      body: request(format, model, { ...more, stream: true }),
      signal: leave.signal,
    })
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    for (let text = ''; !text.includes('seen');) text += Buffer.from((await reader.read()).value ?? []).toString()
    leave.abort()
    const account = await g.id(key)
    const { scripts } = g.gateway.ledger
    await until(async () => g.gateway.running === 0 || (await scripts.redis.zcard(scripts.keys.of(account).places)) > 0)
    finish()
    const [entry] = await g.settled(key)
    t.match(entry, { status: 'client_gone', usage_source: 'upstream', cost_nano: String(cost) }, format)
  }
})

t.test('how far a key can fall below zero counts the dearest tier, long input and the dearest class', async t => {
  const most = async (price: string): Promise<bigint> => {
    const { g } = await scene(t, price)
    return mostBelowZero(g.gateway.config.keyTypes.get('famC') as KeyType, 150)
  }
  const plain = await most('tiers: []')
  // The dearest price of the type has none of these: 75 a million.
  t.equal(await most('tiers: [], serviceTier: { priority: 2 }'), plain)
  t.equal(await most('tiers: [], serviceTier: { priority: 10 }'), 2n * plain)
  t.equal(await most('tiers: [], speed: { fast: 2 }, serviceTier: { flex: 0.5, priority: 10 }'), 4n * plain)
  t.equal(await most('audioOutput: 150, tiers: []'), 2n * plain)
})

t.test('a request with too many members, tools or references is refused before they are examined', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  const many = (count: number, text: (index: number) => string): string =>
    Array.from({ length: count }, (_, index) => text(index)).join(',')
  for (const body of [
    `{"model":"acme/famC-5.5","input":"hi",${many(1001, index => `"m${index}":1`)}}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[${many(1_000_000, () => '{}')}]}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"namespace","name":"n","tools":[${many(1001, () => '{"type":"dream"}')}]}]}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"function","name":"f","file_ids":[${many(1_000_000, index => `"${index}"`)}]}]}`,
  ])
    t.match(await g.call(RESPONSES, { key, body }), { status: 400, json: { error: { message: /more than \d+000/ } } })
  t.equal(upstream.requests.length, 0)
})

t.test('a limit of calls that limits nothing is replaced by the held number', async t => {
  const place = await scene(t, CALLS)
  const { g, upstream } = place
  const [chat, messages] = [await g.key('famC', 1000n), await g.key('famA', 1000n)]
  for (const none of [null, 0, '900']) {
    await ask(place, 'responses', { tools: [{ type: 'web_search' }], max_tool_calls: none }, chat)
    t.equal(upstream.last.json['max_tool_calls'], 10)
    await ask(place, 'messages', { tools: [{ type: 'web_search_20250305', name: 'w', max_uses: none }] }, messages)
    t.match(upstream.last.json['tools'], [{ max_uses: 10 }])
  }
  await ask(
    place,
    'messages',
    { tools: [{ type: 'advisor_20260301', name: 'a', model: 'acme/famA-large-5' }] },
    messages,
  )
  t.match(upstream.last.json['tools'], [{ max_uses: 10 }])
  await ask(place, 'messages', { tools: [{ type: 'code_execution_20250825', name: 'c' }] }, messages)
  t.notOk('max_uses' in ((upstream.last.json['tools'] as object[])[0] ?? {}), 'a tool that takes no limit gets none')
  // A limit that the format does not have limits nothing.
  for (const [format, more, usage, calls] of [
    ['chat-completions', { search_parameters: { mode: 'on' }, max_tool_calls: 1 }, { num_sources_used: 50 }, 50n],
    [
      'responses',
      { tools: [{ type: 'web_search', max_uses: 1 }] },
      { server_side_tool_usage_details: { web_search_calls: 40 } },
      40n,
    ],
  ] as const) {
    upstream.script = ({ path }, res) => json(res, reply(path, usage))
    const { cost, entry } = await charged(place, format, more)
    t.equal(entry['quarantined'], false)
    t.equal(cost, PLAIN + calls * 10_000_000n)
  }
})

t.test('several passes are checked one by one: advice, images and research are plausible usage', async t => {
  const place = await scene(t, CALLS, file =>
    file.model('famA', 'acme/famA-medium-5', { context: 200_000 }).model('famC', 'acme/famC-5.5', { context: 200_000 }),
  )
  const { upstream } = place
  const own = { type: 'message', input_tokens: 140_000, output_tokens: 20 }
  const advice = { type: 'advisor_message', model: 'acme/famA-large-5', input_tokens: 142_000, output_tokens: 900 }
  const tools = [{ type: 'advisor_20260301', name: 'a', model: 'acme/famA-large-5' }]
  upstream.script = (_received, res) => json(res, reply(MESSAGES, { iterations: [own, advice, own, advice, own] }))
  const advised = await charged(place, 'messages', { tools })
  t.match(advised.entry, { quarantined: false, usage_source: 'upstream' })
  t.equal(advised.cost, 3n * (140_000n * INPUT + 20n * OUTPUT) + 2n * (142_000n * 15_000n + 900n * 75_000n))
  const images = Array.from({ length: 10 }, (_, index) => ({
    type: 'image_generation_call',
    id: `i${index}`,
    result: 'x',
  }))
  upstream.script = (_received, res) =>
    json(
      res,
      reply(RESPONSES, {}, { output: images, tool_usage: { image_gen: { input_tokens: 100, output_tokens: 62_400 } } }),
    )
  const drawn = await charged(place, 'responses', { tools: [{ type: 'image_generation' }], max_output_tokens: 300 })
  t.match(drawn.entry, { quarantined: false })
  t.equal(drawn.cost, PLAIN + 10n * 40_000_000n + 100n * INPUT + 62_400n * 40_000n)
  const searches = Array.from({ length: 60 }, (_, index) => ({
    type: 'web_search_call',
    id: `w${index}`,
    action: { type: 'search' },
  }))
  upstream.script = (_received, res) => json(res, reply(RESPONSES, { input_tokens: 3_600_000 }, { output: searches }))
  const research = await charged(place, 'responses', { tools: [{ type: 'web_search' }] })
  t.match(research.entry, { quarantined: false })
  t.equal(research.cost, 3_600_000n * INPUT + 20n * OUTPUT + 60n * 10_000_000n)
})

t.test('images that a tool may create are held, and charged to a client that leaves', async t => {
  const place = await scene(t, CALLS, file => file.everyUpstream({ onDisconnect: 'cancel' }))
  const { g, upstream } = place
  const { secret: poor } = await g.gateway.keys.create({
    type: 'famC',
    name: '',
    credits: 1_100_000_000n,
    expiresAt: undefined,
  })
  t.equal(
    (await ask(place, 'responses', { tools: [{ type: 'image_generation' }] }, poor)).status,
    429,
    'ten images of 7000 tokens',
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
  const leave = new AbortController()
  const response = await g.open(RESPONSES, {
    key,
    body: request('responses', 'acme/famC-5.5', { tools: [{ type: 'image_generation' }], stream: true }),
    signal: leave.signal,
  })
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  for (let text = ''; !text.includes('seen');) text += Buffer.from((await reader.read()).value ?? []).toString()
  leave.abort()
  const [entry] = await g.settled(key)
  t.ok(BigInt(entry?.['cost_nano']) >= 40_000_000n + 7000n * 40_000n, entry?.['cost_nano'])
  t.match(await ask(place, 'responses', { tools: [{ type: 'image_generation', model: 'dear' }] }, key), {
    status: 400,
    json: { error: { message: /It asks for another model/ } },
  })
})

t.test(
  "further members beside a fallback's name are refused, and a model is not mistaken for one whose name continues its own",
  async t => {
    const place = await scene(t, '', file =>
      file
        .set('keyTypes.famC.policy', { models: 'allow' })
        .model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-4' })
        .model('famC', 'acme/famC-5.5', { sends: 'vendor-4-5' }),
    )
    const key = await place.g.key('famC')
    t.equal(
      (
        await ask(
          place,
          'chat-completions',
          { fallbacks: [{ model: 'acme/famC-5.6-sol', api_base: 'https://example.com' }] },
          key,
        )
      ).status,
      400,
    )
    place.upstream.script = ({ path }, res) => json(res, reply(path, {}, { model: 'vendor-4-5-20251101' }))
    const { cost, entry } = await charged(place, 'chat-completions', { fallbacks: [{ model: 'acme/famC-5.6-sol' }] })
    t.equal(cost, PLAIN)
    t.same(entry['unpriced'], [])
  },
)

t.test('a call whose id changes between events is one call', async t => {
  const place = await scene(t, CALLS)
  const event = (name: string, id: string): string =>
    typed({
      type: `response.output_item.${name}`,
      output_index: 0,
      item: { type: 'web_search_call', id, action: { type: 'search' } },
    })
  const last = {
    id: 'r',
    object: 'response',
    status: 'completed',
    output: [{ type: 'web_search_call', id: 'c3', action: { type: 'search' } }],
    usage: { input_tokens: 10, output_tokens: 20 },
  }
  place.upstream.script = (_received, res) =>
    sse(res, event('added', 'a1') + event('done', 'b2') + typed({ type: 'response.completed', response: last }))
  t.equal(
    (await charged(place, 'responses', { tools: [{ type: 'web_search' }], stream: true })).cost,
    PLAIN + 10_000_000n,
  )
})

t.test(
  'items without ids are separate calls, a shorter list removes none, and long conversations continue',
  async t => {
    const place = await scene(t, CALLS)
    const { upstream } = place
    const search = (id?: string): object => ({
      type: 'web_search_call',
      ...(id !== undefined && { id }),
      action: { type: 'search' },
    })
    for (const output of [
      [search(), search(), search()],
      [search(''), search(''), search('')],
    ]) {
      upstream.script = (_received, res) => json(res, reply(RESPONSES, {}, { output }))
      t.equal((await charged(place, 'responses', { tools: [{ type: 'web_search' }] })).cost, PLAIN + 30_000_000n)
    }
    const done = [0, 1, 2]
      .map(index => typed({ type: 'response.output_item.done', output_index: index, item: search(`w${index}`) }))
      .join('')
    const last = {
      id: 'r',
      object: 'response',
      status: 'incomplete',
      output: [search('w0')],
      usage: { input_tokens: 10, output_tokens: 20 },
    }
    upstream.script = (_received, res) => sse(res, done + typed({ type: 'response.incomplete', response: last }))
    t.equal(
      (await charged(place, 'responses', { tools: [{ type: 'web_search' }], stream: true })).cost,
      PLAIN + 30_000_000n,
    )
    upstream.script = ({ path }, res) => json(res, reply(path))
    const functions = Array.from({ length: 40 }, (_, index) => ({
      type: 'function',
      name: `f${index}`,
      parameters: {},
    }))
    const found = Array.from({ length: 30 }, (_, index) => ({
      type: 'tool_search_output',
      call_id: `c${index}`,
      tools: [{ type: 'namespace', name: `n${index}`, tools: functions }],
    }))
    const { answer } = await charged(place, 'responses', { input: [{ role: 'user', content: 'hi' }, ...found] })
    t.equal(answer.status, 200, 'what tool searches have found is no limit of a conversation')
  },
)
