import t from 'tap'
import {
  CALLS,
  FACTORS,
  CHAT,
  Exchanges,
  FORMATS,
  FUNCTION,
  MESSAGES,
  PLAIN_COST,
  priced,
  RESPONSES,
  say,
} from './exchanges.ts'
import type { FormatName } from '../../core/formats/index.ts'

/** Members that cost money are refused, dropped or passed, in every format and through translation. */

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
    const place = await Exchanges.load()
    for (const format of FORMATS)
      for (const [member, more] of REFUSED) {
        const { error } = await place.ask(format, more)
        t.match(error, { code: 'member_refused', status: 400, retry: false, details: { param: member } }, member)
        t.match(error?.message, new RegExp(`^"${member}" is refused\\. .+\\.$`))
      }
  },
)

t.test('members that ask for nothing or cost nothing pass unchanged', async t => {
  const place = await Exchanges.load()
  const nothing = Object.fromEntries(REFUSED.flatMap(([member]) => (member === 'modalities' ? [] : [[member, null]])))
  for (const format of FORMATS) {
    const more = {
      ...nothing,
      background: false,
      plugins: [],
      modalities: ['text'],
      store: false,
      prompt_cache_key: 'k',
      top_k: 1,
      service_tier: format === 'messages' ? 'standard_only' : 'default',
      speed: 'standard',
    }
    const { error, dropped, sent } = await place.ask(format, more)
    t.equal(error, undefined)
    t.equal(dropped, undefined)
    for (const [name, value] of Object.entries(more)) t.strictSame((sent as Record<string, unknown>)[name], value, name)
  }
})

t.test('a member in another spelling, which some upstreams accept, is refused', async t => {
  const place = await Exchanges.load()
  for (const format of FORMATS) {
    for (const [name, meant] of [
      ['Background', 'background'],
      ['SERVICE_TIER', 'service_tier'],
      ['\u017fpeed', 'speed'],
      ['Max_Tokens', 'max_tokens'],
      ['bac\u212aground', 'background'],
    ] as const) {
      const { error } = await place.ask(format, { [name]: true })
      t.match(error, { status: 400, message: new RegExp(`Did you mean "${meant}"`) }, name)
    }
    const { error } = await place.ask(format, { tools: [{ ...FUNCTION[format], Type: 'web_search' }] })
    t.match(error, { status: 400 })
  }
})

t.test('a tier or a speed without a price becomes the standard one, and the reply names it', async t => {
  const place = await Exchanges.load()
  for (const format of FORMATS)
    for (const service_tier of ['priority', 'flex', 'scale', 'fast', 'auto']) {
      const { dropped, sent, cost } = await place.ask(format, { service_tier, speed: 'fast' })
      t.equal(dropped, 'service_tier, speed')
      t.equal(sent['service_tier'], format === 'messages' ? 'standard_only' : 'default')
      t.notOk('speed' in sent)
      t.equal(cost, PLAIN_COST)
    }
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
    const place = await Exchanges.load()
    for (const [format, type] of TOOLS) {
      const tool = { type, name: 'that' }
      const beside = await place.ask(format, { tools: [tool, FUNCTION[format], tool] })
      t.equal(beside.error, undefined)
      t.equal(beside.dropped, `tools.${type}`)
      t.same(beside.sent['tools'], [FUNCTION[format]])
      t.match((await place.ask(format, { tools: [tool] })).error, {
        status: 400,
        message: new RegExp(`"tools\\[0\\] \\(${type}\\)" is refused`),
      })
      const choice = format === 'messages' ? { type: 'tool', name: 'that' } : { type }
      const required = await place.ask(format, { tools: [tool, FUNCTION[format]], tool_choice: choice })
      t.match(required.error, { status: 400 })
    }
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
      t.match((await place.ask('responses', more)).error, { status: 400, code: 'member_refused' })
  },
)

t.test('the policy of a key type applies even if the member has a price', async t => {
  const place = await Exchanges.load(file =>
    priced(FACTORS)(file).set('keyTypes.famC.policy', {
      service_tier: 'refuse',
      background: 'drop',
      store: 'drop',
      provider: 'allow',
      prediction: 'refuse',
    }),
  )
  t.match((await place.ask('responses', { service_tier: 'priority' })).error, { status: 400 })
  t.match((await place.ask('responses', { prediction: { type: 'content', content: 'x' } })).error, { status: 400 })
  const more = { background: true, store: true, provider: { order: ['a'] } }
  const { error, dropped, sent } = await place.ask('responses', more)
  t.equal(error, undefined)
  t.equal(dropped, 'background, store')
  t.match(sent, { store: false, provider: { order: ['a'] } })
  t.notOk('background' in sent)
})

t.test('dropping a member leaves all other bytes unchanged', async t => {
  const place = await Exchanges.load()
  const send = async (body: string): Promise<string> => {
    const { error, sentText } = await place.send('famC', CHAT, body)
    t.equal(error, undefined)
    return sentText
  }
  const said = '"messages": [ {"role":"user","content":"h\\u0069 1.0"} ]'
  t.equal(
    await send(`{ "speed": "fast" , "model":"acme/famC-5.5", ${said}, "seed": 1.00 }`),
    `{"model":"acme/famC-5.5",${said},"seed": 1.00}`,
  )
  t.equal(await send(`{"model":"acme/famC-5.5",${said},"speed":"fast"}`), `{"model":"acme/famC-5.5",${said}}`)
  t.equal(
    await send(`{"model":"acme/famC-5.5","top_k":1,"speed":"fast","min_p":2,"speed2":0,"seed":0,${said}}`),
    `{"model":"acme/famC-5.5","top_k":1,"min_p":2,"seed":0,${said}}`,
  )
})

t.test('translation passes no member without a price, and carries only the standard tier', async t => {
  const place = await Exchanges.load(priced(`${FACTORS}, calls: { webSearch: 0.01, mcp: 0 }`))
  // Each client on a model that speaks another format.
  const pairs = [
    ['messages', MESSAGES, 'famC', 'acme/famC-5.5'],
    ['responses', RESPONSES, 'famA', 'acme/famA-medium-5'],
    ['chat-completions', CHAT, 'famA', 'acme/famA-medium-5'],
  ] as const
  for (const [format, path, type, model] of pairs) {
    const send = (more: object) =>
      place.send(type, path, {
        model,
        ...(format === 'responses' ? { input: 'hi' } : { messages: say() }),
        ...(format === 'messages' && { max_tokens: 100 }),
        ...more,
      })
    for (const [member, more] of REFUSED) {
      const { error, sent } = await send(more)
      if (!error) t.notOk(member in sent, `${format}: ${member} is dropped`)
      else t.equal(error.status, 400, `${format}: ${member} is refused`)
    }
    const tool = format === 'messages' ? { type: 'web_search_20250305', name: 'web_search' } : { type: 'web_search' }
    t.match((await send({ tools: [tool, FUNCTION[format]] })).dropped, /web_search/)
    t.match((await send({ tools: [tool] })).error, { status: 400 })
    const dear = await send({
      service_tier: 'priority',
      speed: 'fast',
      inference_geo: 'us',
      prediction: { type: 'content', content: 'x' },
    })
    t.notOk('service_tier' in dear.sent)
    t.equal(dear.cost, PLAIN_COST, `${format}: nothing of it reached the upstream`)
    if (format === 'chat-completions') continue
    const [wish, carried] = format === 'messages' ? ['standard_only', 'default'] : ['default', 'standard_only']
    const standard = await send({ service_tier: wish })
    t.equal(standard.dropped, undefined)
    t.equal(standard.sent['service_tier'], carried)
  }
})

t.test('duplicates, other spellings and odd shapes, which upstreams may read differently, are refused', async t => {
  const place = await Exchanges.load()
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
    [CHAT, chat('"tools":[{"type":"namespace","name":"n","tools":{"0":{"type":"web_search"}}}]')],
    [CHAT, chat('"tools":[{"type":"namespace","name":"n","tools":"web_search"}]')],
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
  for (const [path, body] of bodies) t.match((await place.send('famC', path, body)).error, { status: 400 }, body)
  for (const more of [
    { tools: [{ type: 'shell', environment: { type: 'local' } }] },
    { search_parameters: { mode: 'off' } },
    { tools: [{ type: 'function', name: 'f', parameters: { properties: { Type: {}, ID: {} } } }] },
  ])
    t.equal((await place.ask('responses', more)).error, undefined, JSON.stringify(more))
})

t.test('a container larger than the one with a price is refused', async t => {
  const place = await Exchanges.load(priced(CALLS))
  const tool = (memory_limit?: string): object => ({
    tools: [
      { type: 'code_interpreter', container: { type: 'auto', ...(memory_limit !== undefined && { memory_limit }) } },
    ],
  })
  t.match((await place.ask('responses', tool('64g'))).error, { status: 400, message: /a larger container/ })
  for (const size of ['1g', undefined]) t.equal((await place.ask('responses', tool(size))).error, undefined)
})

t.test('the error for a refused member with a price does not say that it has none', async t => {
  const place = await Exchanges.load(file =>
    priced(`${FACTORS}, calls: { webSearch: 0.01 }`)(file).set('keyTypes.famC.policy', {
      service_tier: 'refuse',
      webSearch: 'drop',
    }),
  )
  t.match(
    (await place.ask('responses', { service_tier: 'priority' })).error?.message,
    'It is not offered to this key. Omit the member',
  )
  t.match(
    (await place.ask('responses', { tools: [{ type: 'web_search' }] })).error?.message,
    'It is not offered to this key.',
  )
})

t.test('auto passes only if a dearer tier has a price', async t => {
  const cheap = await Exchanges.load(priced('tiers: [], serviceTier: { flex: 0.5 }'))
  t.equal((await cheap.ask('responses', { service_tier: 'auto' })).dropped, 'service_tier')
  const dear = await Exchanges.load(priced(FACTORS))
  for (const format of FORMATS) {
    t.equal((await dear.ask(format, { service_tier: 'auto' })).dropped, undefined)
    t.equal((await dear.ask(format, { service_tier: 'scale' })).dropped, 'service_tier', 'a tier beside those')
  }
})

t.test(
  'nothing is stored at the provider if the key type forbids it, even if the request does not mention it',
  async t => {
    const place = await Exchanges.load(file => priced()(file).set('keyTypes.famC.policy', { store: 'refuse' }))
    const { dropped, sent } = await place.ask('responses')
    t.equal(dropped, 'store')
    t.equal(sent['store'], false)
    t.match((await place.ask('responses', { store: true })).error, { status: 400 })
    const chat = await place.ask('chat-completions')
    t.notOk('store' in chat.sent, 'chat completions are not stored unless they ask for it')
  },
)

t.test('dropping tools keeps the bytes of the others, and the header names only as many as fit', async t => {
  const place = await Exchanges.load()
  const kept = '{ "type":"function","name":"f","parameters":{"maximum":18446744073709551615,"x":1.0} }'
  const many = Array.from({ length: 900 }, (_, index) => `{"type":"dream_${index}"}`).join(',')
  const { error, sentText, dropped } = await place.send(
    'famC',
    RESPONSES,
    `{"model":"acme/famC-5.5","input":"hi","tools":[${many}, ${kept} ,{"type":"web_fetch"}]}`,
  )
  t.equal(error, undefined)
  t.match(sentText, `"tools":[${kept}]`)
  t.match(dropped, /^tools\.dream_0, .*, and 881 more$/)
})

t.test('a tool_choice or a caller that requires a dropped tool is refused', async t => {
  const place = await Exchanges.load()
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
    t.match((await place.ask('responses', more)).error, { status: 400 })
})

t.test('a request with too many members, tools or references is refused before they are examined', async t => {
  const place = await Exchanges.load()
  const many = (count: number, text: (index: number) => string): string =>
    Array.from({ length: count }, (_, index) => text(index)).join(',')
  for (const body of [
    `{"model":"acme/famC-5.5","input":"hi",${many(1001, index => `"m${index}":1`)}}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[${many(1_000_000, () => '{}')}]}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"namespace","name":"n","tools":[${many(1001, () => '{"type":"dream"}')}]}]}`,
    `{"model":"acme/famC-5.5","input":"hi","tools":[{"type":"function","name":"f","file_ids":[${many(1_000_000, index => `"${index}"`)}]}]}`,
  ])
    t.match((await place.send('famC', RESPONSES, body)).error, { status: 400, message: /more than \d+000/ })
})

t.test('a limit of calls that limits nothing is replaced by the held number', async t => {
  const place = await Exchanges.load(priced(CALLS))
  for (const none of [null, undefined]) {
    const { sent } = await place.ask('responses', { tools: [{ type: 'web_search' }], max_tool_calls: none })
    t.equal(sent['max_tool_calls'], 10)
    const tools = [{ type: 'web_search_20250305', name: 'w', max_uses: none }]
    t.match((await place.ask('messages', { tools })).sent['tools'], [{ max_uses: 10 }])
  }
  const limited = await place.ask('responses', { tools: [{ type: 'web_search' }], max_tool_calls: 3 })
  t.equal(limited.sent['max_tool_calls'], 3)
  const advised = [{ type: 'advisor_20260301', name: 'a', model: 'acme/famA-large-5' }]
  t.match((await place.ask('messages', { tools: advised })).sent['tools'], [{ max_uses: 10 }])
  const { sent } = await place.ask('messages', { tools: [{ type: 'code_execution_20250825', name: 'c' }] })
  t.notOk('max_uses' in sent['tools'][0], 'a tool that takes no limit gets none')
})

t.test('an advisor must be a model of the key type, and an image of another model is refused', async t => {
  const place = await Exchanges.load(file =>
    priced(CALLS)(file).model('famA', 'acme/famA-large-5', { sends: 'vendor-large' }),
  )
  const tool = { type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }
  t.match((await place.ask('messages', { tools: [tool] })).sent['tools'], [{ model: 'vendor-large' }])
  for (const model of ['acme/famC-5.6-sol', 'vendor-other', undefined])
    t.match((await place.ask('messages', { tools: [{ ...tool, model }, FUNCTION.messages] })).error, {
      status: 400,
      message: /advisor_20260301.*(?:model that this key may not use|It names no model)/,
    })
  t.match((await place.ask('responses', { tools: [{ type: 'image_generation', model: 'dear' }] })).error, {
    status: 400,
    message: /It asks for another model/,
  })
})

t.test('fallbacks must be models of the key type, and bring no further members', async t => {
  const place = await Exchanges.load(file =>
    priced()(file)
      .set('keyTypes.famC.policy', { models: 'allow' })
      .model('famC', 'acme/famC-5.6-sol', { sends: 'vendor-sol' }),
  )
  const { sent } = await place.ask('chat-completions', { models: ['acme/famC-5.6-sol', 'acme/famC-5.5'] })
  t.same(sent['models'], ['vendor-sol', 'acme/famC-5.5'])
  t.match((await place.ask('chat-completions', { models: ['acme/famA-large-5'] })).error, { status: 400 })
  const strange = [{ model: 'acme/famC-5.6-sol', api_base: 'https://example.com' }]
  t.match((await place.ask('chat-completions', { fallbacks: strange })).error, { status: 400 })
})

t.test('sound without a price is refused', async t => {
  const place = await Exchanges.load()
  const sound = { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }
  t.match((await place.ask('chat-completions', { messages: say([sound]) })).error, {
    status: 400,
    message: /Sound in .* is refused\. Sound has no price here/,
  })
})
