import t, { type Test } from 'tap'
import type { FormatName } from '../../core/formats/index.ts'
import { type Answer, type CallOptions } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { FORMATS, MESSAGES, PLACES, reply, request, RESPONSES } from '../metering/exchanges.ts'
import { typed } from '../stream-events.ts'
import { json, sse } from '../upstream.ts'
import { scene, type Scene } from '../scene.ts'

/** Which members, tools, query parameters and headers of a request reach the provider. */

/** A gateway with a key of each format's type. */
interface Keyed extends Scene {
  readonly keys: ReadonlyMap<string, string>
}

async function keyedScene(t: Test, edit?: Edit): Promise<Keyed> {
  const started = await scene(t, edit, { script: ({ path }, res) => json(res, reply(path.replace(/\?.*/, ''))) })
  const keys = new Map<string, string>()
  for (const type of new Set(FORMATS.map(name => PLACES[name].type))) keys.set(type, await started.g.key(type))
  return { ...started, keys }
}

interface Asked {
  readonly answer: Answer
  /** What reached the provider; undefined if nothing did. */
  readonly sent: any
  readonly sentPath: string
  readonly sentHeaders: Record<string, unknown>
  readonly dropped: string | null
}

async function ask(
  { g, upstream, keys }: Keyed,
  format: FormatName,
  more: object,
  options: CallOptions & { readonly path?: string } = {},
): Promise<Asked> {
  const { type, model, path } = PLACES[format]
  const before = upstream.requests.length
  const body = request(format, model, more)
  const answer = await g.call(options.path ?? path, { key: keys.get(type) as string, body, ...options })
  const got = upstream.requests.length > before ? upstream.last : undefined
  return {
    answer,
    sent: got?.json,
    sentPath: got?.path ?? '',
    sentHeaders: got?.headers ?? {},
    dropped: answer.headers.get('x-tollgate-dropped'),
  }
}

const AGGREGATORS = {
  mock_testing_fallbacks: true,
  enable_code_interpreter: true,
  search_options: { forced: true },
  num_retries: 5,
  azure_endpoint: 'https://evil.example',
  customer_id: 'x',
}

t.test('a member that is not listed is dropped, named and counted, in each format', async t => {
  const token = 'a-token-of-a-collector'
  const place = await keyedScene(t, file => file.insertBefore('access-log', { metrics: { token } }))
  for (const format of FORMATS) {
    const { answer, sent, dropped } = await ask(place, format, AGGREGATORS)
    t.equal(answer.status, 200, format)
    for (const name of Object.keys(AGGREGATORS)) t.notOk(name in sent, name)
    t.equal(dropped, Object.keys(AGGREGATORS).join(', '))
  }
  const metrics = (await place.g.call('/metrics', { key: token })).text
  t.match(metrics, 'tollgate_dropped_members_total{member="num_retries"} 3')
  t.match(metrics, 'tollgate_dropped_members_total{member="other"} 9')
  t.notMatch(metrics, 'azure_endpoint', 'a name of a customer is no label')
})

t.test('the header names twenty members of 64 characters, and how many more there are', async t => {
  const place = await keyedScene(t)
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, nth) => [`x${nth}${'y'.repeat(100)}\u00e4\r\n`, 1]))
  const { dropped } = await ask(place, 'messages', many)
  const names = dropped?.split(', ') ?? []
  t.equal(names.length, 21)
  t.ok(names.slice(0, 20).every(name => /^x\d+y+$/.test(name) && name.length === 64))
  t.equal(names.at(-1), 'and 10 more')
})

t.test('a translated request names each dropped member once', async t => {
  const place = await keyedScene(t, file => file.set('upstreams.famC.speaks', ['chat-completions']))
  const { answer, dropped } = await ask(place, 'responses', { num_retries: 1, top_logprobs: 2 })
  t.equal(answer.status, 200)
  t.strictSame(dropped?.split(', ').toSorted(), ['num_retries', 'top_logprobs'])
})

t.test('`passes` lets a member and a query parameter through, if every upstream of the model has it', async t => {
  const passing: Edit = file => file.everyUpstream({ passes: ['priority', 'api-version', 'google_search'] })
  const place = await keyedScene(t, passing)
  for (const format of FORMATS) {
    const query = `?api-version=2&service_tier=priority&beta=true`
    const { sent, sentPath, dropped } = await ask(place, format, { priority: 1 }, { path: PLACES[format].path + query })
    t.equal(sent.priority, 1)
    t.equal(dropped, null)
    const beta = format === 'messages' ? '&beta=true' : ''
    t.equal(sentPath, `${PLACES[format].path}?api-version=2${beta}`)
  }
  const half = await keyedScene(t, file =>
    passing(file)
      .set('upstreams.other', {
        url: place.upstream.url,
        speaks: ['responses', 'chat-completions'],
        accounts: [{ key: 'k' }],
      })
      .set('keyTypes.famC.upstream', ['famC', 'other']),
  )
  const { sent, dropped } = await ask(half, 'responses', { priority: 1 })
  t.notOk('priority' in sent, 'the other upstream does not list it')
  t.equal(dropped, 'priority')
})

t.test('a query passes `beta` of messages and nothing else', async t => {
  const place = await keyedScene(t)
  for (const format of FORMATS) {
    const query = '?beta=true&service_tier=priority&customer=x&key=sk-other'
    const { sentPath } = await ask(place, format, {}, { path: PLACES[format].path + query })
    t.equal(sentPath, PLACES[format].path + (format === 'messages' ? '?beta=true' : ''))
  }
})

t.test('a request of listed members goes up with identical bytes', async t => {
  const place = await keyedScene(t)
  const bodies: Readonly<Record<FormatName, object>> = {
    'chat-completions': { top_k: 5, chat_template_kwargs: { a: 1 }, reasoning: { effort: 'low' }, tools: [{ type: 'function', function: { name: 'f', strict: true } }] }, // prettier-ignore
    responses: { client_metadata: { a: 'b' }, reasoning: { effort: 'low' }, tools: [{ type: 'function', name: 'f', parameters: {}, strict: false }] }, // prettier-ignore
    messages: { context_management: {}, output_config: { effort: 'low' }, diagnostics: { previous_message_id: null }, tools: [{ name: 'f', input_schema: { type: 'object' }, cache_control: { type: 'ephemeral' } }] }, // prettier-ignore
  }
  for (const format of FORMATS) {
    const { type, model, path } = PLACES[format]
    const body = request(format, model, bodies[format])
    await place.g.call(path, { key: place.keys.get(type) as string, body })
    t.equal(place.upstream.last.body, JSON.stringify(body), format)
  }
})

t.test('inside messages, items and history nothing is dropped', async t => {
  const place = await keyedScene(t)
  const strange = { reasoning_content: 'r', cache_control: { type: 'ephemeral' }, x_vendor: { a: [1] } }
  const conversations: Readonly<Record<FormatName, object>> = {
    'chat-completions': {
      messages: [{ role: 'user', content: [{ type: 'text', text: 'a', ...strange }], ...strange }],
    },
    responses: { input: [{ role: 'user', content: [{ type: 'input_text', text: 'a', ...strange }], ...strange }] },
    messages: { messages: [{ role: 'user', content: [{ type: 'text', text: 'a', ...strange }], ...strange }] },
  }
  for (const format of FORMATS) {
    const { sent, dropped } = await ask(place, format, conversations[format])
    t.match(sent, conversations[format], format)
    t.equal(dropped, null)
  }
})

t.test(
  "a member of a client's tool that is not listed is dropped, and an unlisted type is a provider's tool",
  async t => {
    const place = await keyedScene(t)
    const functions: Readonly<Record<FormatName, object>> = {
      'chat-completions': { type: 'function', function: { name: 'f', google_search: {} }, google_search: {} },
      responses: {
        type: 'function',
        name: 'f',
        parameters: { type: 'object', properties: {} },
        strict: false,
        google_search: {},
      },
      messages: { name: 'f', input_schema: { type: 'object' }, google_search: {} },
    }
    for (const format of FORMATS) {
      const plain = JSON.parse(JSON.stringify(functions[format], (name, value) => (name === 'google_search' ? undefined : value))) // prettier-ignore
      const { sent, dropped } = await ask(place, format, { tools: [functions[format], plain] })
      t.strictSame(sent.tools, [plain, plain], format)
      t.equal(dropped, 'tools.google_search')
      const other = await ask(place, format, { tools: [plain, { google_search: {} }, { type: 'builtin_function', name: '$web_search' }] }) // prettier-ignore
      t.strictSame(other.sent.tools, [plain], `${format}: tools of the provider have no price`)
      t.match(other.dropped, /tools\.builtin_function/)
    }
    const namespace = { type: 'namespace', name: 'n', description: 'd', tools: [functions.responses] }
    const { sent, dropped } = await ask(place, 'responses', { tools: [namespace] })
    t.notOk('google_search' in sent.tools[0].tools[0], 'a tool inside another')
    t.equal(dropped, 'tools.google_search')
  },
)

const CLOSED = { type: 'object', properties: {}, required: [], additionalProperties: false }

t.test('tools that the client runs pass, with a name or without', async t => {
  const place = await keyedScene(t)
  for (const [format, tools] of [
    ['messages', [{ type: 'computer_toolset_20260801' }]],
    ['messages', [{ type: 'browser_toolset_20260801', configs: {} }]],
    ['messages', [{ type: 'bash_20250124', name: 'bash' }]],
    [
      'responses',
      [{ type: 'programmatic_tool_calling' }, { type: 'function', name: 'f', parameters: CLOSED, strict: true }],
    ],
  ] as const) {
    const { answer, sent, dropped } = await ask(place, format, { tools })
    t.equal(answer.status, 200, tools[0].type)
    t.strictSame(sent.tools, tools)
    t.equal(dropped, null)
  }
})

t.test('a tool that a message declares has the policy of one at the top level', async t => {
  const place = await keyedScene(t)
  const declaring = (definition: object): object => ({
    messages: [
      { role: 'user', content: 'hello' },
      { role: 'system', content: [{ type: 'tool_addition', tool: { type: 'tool_definition', definition } }] },
    ],
  })
  for (const definition of [
    { type: 'web_search_20250305', name: 'web_search' },
    { type: 'code_execution_20250825', name: 'c' },
    { type: 'mcp_toolset', mcp_server_name: 'x' },
    { type: 'advisor_20260301', name: 'a', model: 'unknown' },
    { type: 'code_execution_20250825', name: 'c', file_ids: ['file_of_another_key'] },
  ]) {
    const place_ = definition.type.startsWith('web_search')
      ? await keyedScene(t, file => file.set('keyTypes.famA.policy', { webSearch: 'refuse' }))
      : place
    const { answer, sent } = await ask(place_, 'messages', declaring(definition))
    t.equal(answer.status, 400, definition.type)
    t.equal(sent, undefined)
  }
  const changes = [{ tool: { type: 'tool_definition', definition: { type: 'mcp_toolset', mcp_server_name: 'x' } } }]
  const compacted = {
    messages: [{ role: 'user', content: [{ type: 'compaction', content: 'c', tool_changes: changes }] }],
  }
  t.equal((await ask(place, 'messages', compacted)).answer.status, 400, 'in a compaction')
  const own = await ask(place, 'messages', declaring({ name: 'f', input_schema: { type: 'object' } }))
  t.equal(own.answer.status, 200, "a client's own tool")
})

t.test('members that change who pays are dropped, and betas and headers that do so are removed', async t => {
  const place = await keyedScene(t)
  const { sent, sentHeaders, dropped } = await ask(
    place,
    'messages',
    { billing_policy: { type: 'billing_policy', bill_to: 'user_profile' }, fallback_credit_token: 'tok' },
    {
      headers: {
        'anthropic-beta':
          'user-profiles-billing-2026-10-01, "user_profiles_billing-20261001", context-1m-2025-08-07, brand-new-2027-01-01',
        'anthropic-user-profile-id': 'p1',
        'anthropic-workspace-id': 'w1',
        'anthropic-service-tier': 'priority',
        'anthropic-bill-to': 'x',
      },
    },
  )
  t.notOk('billing_policy' in sent || 'fallback_credit_token' in sent)
  t.equal(dropped, 'billing_policy, fallback_credit_token')
  t.equal(sentHeaders['anthropic-beta'], 'context-1m-2025-08-07,brand-new-2027-01-01')
  for (const name of ['user-profile-id', 'workspace-id', 'service-tier', 'bill-to'])
    t.notOk(`anthropic-${name}` in sentHeaders, name)
})

t.test('a request cannot be compared with one of another key, nor go on with its thread', async t => {
  const place = await keyedScene(t)
  const cache = { prompt_cache_options: { comparison_response_id: 'resp_of_another_key' } }
  const compared = await ask(place, 'responses', cache)
  t.match(compared.answer, { status: 400, json: { error: { param: 'prompt_cache_options.comparison_response_id' } } })
  t.equal(compared.sent, undefined)
  const diagnosed = await ask(place, 'messages', { diagnostics: { previous_message_id: 'msg_of_another_key' } })
  t.equal(diagnosed.answer.status, 200, 'a session goes on')
  t.notOk('diagnostics' in diagnosed.sent)
  t.equal(diagnosed.dropped, 'diagnostics')
  const thread = await ask(place, 'messages', {
    thread: { type: 'continue', previous_message_id: 'msg_of_another_key' },
  })
  t.equal(thread.answer.status, 400)
  t.equal(thread.sent, undefined)
  place.upstream.script = (_received, res) => json(res, { ...reply(MESSAGES), id: 'msg_own' })
  t.equal((await ask(place, 'messages', { thread: { type: 'create' } })).answer.status, 200)
  const own = await ask(place, 'messages', { thread: { type: 'continue', previous_message_id: 'msg_own' } })
  t.equal(own.answer.status, 200, 'its own')
  place.upstream.script = (_received, res) => json(res, { ...reply(RESPONSES), id: 'resp_own' })
  t.equal((await ask(place, 'responses', { store: true })).answer.status, 200)
  const same = await ask(place, 'responses', { prompt_cache_options: { comparison_response_id: 'resp_own' } })
  t.equal(same.answer.status, 200)
})

t.test('a request without output fills the prompt cache, and pays for what it wrote', async t => {
  const place = await keyedScene(t)
  const usage = { input_tokens: 5, cache_creation_input_tokens: 2000, cache_read_input_tokens: 0, output_tokens: 0 }
  place.upstream.script = (_received, res) => json(res, { ...reply(MESSAGES, usage), content: [], stop_reason: 'max_tokens' }) // prettier-ignore
  const key = place.keys.get('famA') as string
  for (const stream of [false, true]) {
    const message = { ...reply(MESSAGES), content: [], usage }
    const end = { type: 'message_delta', delta: { stop_reason: 'max_tokens' }, usage: { output_tokens: 0 } }
    if (stream)
      place.upstream.script = (_received, res) =>
        sse(res, typed({ type: 'message_start', message }) + typed(end) + typed({ type: 'message_stop' }))
    const { answer, sent } = await ask(place, 'messages', { max_tokens: 0, stream })
    t.equal(answer.status, 200)
    t.equal(sent.max_tokens, 0)
    const [entry] = await place.g.settled(key)
    t.match(entry, { type: 'settle', status: 'ok', cache_creation_tokens: 2000, output_tokens: 0 })
  }
  t.equal((await ask(place, 'messages', { max_tokens: -1 })).answer.status, 400)
  t.equal((await ask(place, 'chat-completions', { max_tokens: 0 })).answer.status, 400)
})

t.test('tokens of a response are counted by the provider or estimated, and never charged', async t => {
  const place = await keyedScene(t)
  const COUNT = '/v1/responses/input_tokens'
  const counted = { object: 'response.input_tokens', input_tokens: 7 }
  place.upstream.script = (_received, res) => json(res, counted)
  const key = place.keys.get('famC') as string
  const exact = await ask(place, 'responses', {}, { path: COUNT })
  t.match(exact.answer, { status: 200, json: counted })
  t.equal(exact.sentPath, COUNT)
  place.upstream.script = (_received, res) => json(res, {}, 404)
  const input = [{ role: 'user', content: [{ type: 'input_text', text: 'a'.repeat(4000) }] }]
  const estimate = await ask(place, 'responses', { input, instructions: 'b'.repeat(4000) }, { path: COUNT })
  t.equal(estimate.answer.json.object, 'response.input_tokens')
  t.ok(estimate.answer.json.input_tokens > 1900 && estimate.answer.json.input_tokens < 2200, estimate.answer.text)
  const translated = await keyedScene(t, file => file.set('upstreams.famC.speaks', ['chat-completions']))
  const other = await ask(translated, 'responses', {}, { path: COUNT })
  t.match(other.answer, { status: 200, json: { object: 'response.input_tokens' } })
  t.equal(other.sent, undefined, 'a provider of another format is not asked')
  t.strictSame(await place.g.settled(key), [])
  t.match(await place.g.balance(key), { held: '0' })
  t.equal((await place.g.call(COUNT, { body: {} })).status, 401)
})

t.test('an empty header is no credential, beside another one or alone', async t => {
  const place = await keyedScene(t)
  const key = place.keys.get('famA') as string
  const headers = { authorization: `Bearer ${key}`, 'x-api-key': '' }
  const body = request('messages', PLACES.messages.model)
  t.equal((await place.g.call(MESSAGES, { headers, body })).status, 200)
  for (const empty of ['', 'Bearer', 'Bearer ', 'bearer  ']) {
    const beside = { 'x-api-key': key, authorization: empty }
    t.equal((await place.g.call(MESSAGES, { headers: beside, body })).status, 200, `"${empty}"`)
    t.match((await place.g.call(MESSAGES, { headers: { authorization: empty }, body })).text, /No API key/)
  }
  t.equal((await place.g.call(MESSAGES, { headers: { 'x-api-key': '' }, body })).status, 401)
  t.equal((await place.g.call(MESSAGES, { headers: { 'x-api-key': key, authorization: 'Basic x' }, body })).status, 401)
})
