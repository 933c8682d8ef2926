import t from 'tap'
import { FORMATS } from '../../core/formats/index.ts'
import { BODY_SHAPES } from '../../core/formats/shapes.ts'
import { FORMAT_NAMES, type FormatName } from '../../core/formats/terms.ts'
import { ELEMENT_SHAPES } from '../../core/formats/translate/elements.ts'
import { PART_TYPES } from '../../core/formats/translate/parts.ts'
import { CHOICE_SHAPES, TOOL_SHAPES } from '../../core/formats/translate/tools.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { REPLIES, STREAMS } from '../reply-kinds.ts'
import { keepsTable } from '../tables.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'

/**
 * Every shape of a request at every path, to an upstream of every format: the path says the form of the answer, and the body that of the
 * request. The scripted provider refuses what its vendor refuses.
 */

type Json = Record<string, any>

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const URL_OF_PNG = `data:image/png;base64,${PNG}`
const SCHEMA = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const KEY_TYPES: Readonly<Record<FormatName, readonly [type: string, model: string]>> = {
  'chat-completions': ['editor', 'acme/famB-4.6'],
  responses: ['famC', 'acme/famC-5.5'],
  messages: ['famA', 'acme/famA-medium-5'],
}

/** The tools of each format, with these names. */
const TOOLS: Readonly<Record<FormatName, (name: string) => Json>> = {
  'chat-completions': name => ({ type: 'function', function: { name, description: 'Searches.', parameters: SCHEMA } }),
  responses: name => ({ type: 'function', name, description: 'Searches.', parameters: SCHEMA, strict: false }),
  messages: name => ({ name, description: 'Searches.', input_schema: SCHEMA }),
}

/** A turn of each format: the user asks with an image, the model calls, the tool answers. */
const TURNS: Readonly<Record<FormatName, (id: string, name: string) => readonly Json[]>> = {
  'chat-completions': (id, name) => [
    {
      role: 'user',
      content: [
        { type: 'text', text: `ask ${id}` },
        { type: 'image_url', image_url: { url: URL_OF_PNG } },
      ],
    },
    {
      role: 'assistant',
      content: `look ${id}`,
      tool_calls: [{ id, type: 'function', function: { name, arguments: `{"path":"${id}"}` } }],
    },
    { role: 'tool', tool_call_id: id, content: `found ${id}` },
  ],
  responses: (id, name) => [
    {
      role: 'user',
      content: [
        { type: 'input_text', text: `ask ${id}` },
        { type: 'input_image', image_url: URL_OF_PNG, detail: 'auto' },
      ],
    },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: `look ${id}` }] },
    { type: 'function_call', call_id: id, name, arguments: `{"path":"${id}"}` },
    { type: 'function_call_output', call_id: id, output: `found ${id}` },
  ],
  messages: (id, name) => [
    {
      role: 'user',
      content: [
        { type: 'text', text: `ask ${id}` },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: `look ${id}` },
        { type: 'tool_use', id, name, input: { path: id } },
      ],
    },
    {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text: `found ${id}` }] }],
    },
  ],
}
const BODIES: Readonly<Record<FormatName, (conversation: readonly Json[], tools: readonly Json[]) => Json>> = {
  'chat-completions': (conversation, tools) => ({
    messages: [{ role: 'system', content: 'You edit code.' }, ...conversation],
    tools,
    max_completion_tokens: 500,
  }),
  responses: (conversation, tools) => ({
    instructions: 'You edit code.',
    input: conversation,
    tools,
    max_output_tokens: 500,
  }),
  messages: (conversation, tools) => ({ system: 'You edit code.', messages: conversation, tools, max_tokens: 500 }),
}

/** What a provider of a format has got: names of tools, calls with their inputs, results, and how many images. */
function gotBy(
  format: FormatName,
  body: Json,
): { tools: string[]; calls: string[]; results: string[]; images: number } {
  const all = JSON.stringify(body)
  const images = all.split(PNG).length - 1
  const list = (value: unknown): Json[] => (Array.isArray(value) ? value : [])
  const elements = list(body['messages'] ?? body['input'])
  const blocks = elements.flatMap(({ content }) => list(content))
  const text = (value: unknown): string => /found \w+/.exec(JSON.stringify(value))?.[0] ?? ''
  switch (format) {
    case 'chat-completions':
      return {
        tools: list(body['tools']).map(tool => tool['function']?.name ?? tool['custom']?.name),
        calls: elements
          .flatMap(({ tool_calls: calls }) => list(calls))
          .map(call => `${call['id']} ${call['function'].name} ${call['function'].arguments}`),
        results: elements
          .filter(({ role }) => role === 'tool')
          .map(({ tool_call_id: id, content }) => `${id} ${text(content)}`),
        images,
      }
    case 'responses':
      return {
        tools: list(body['tools']).map(tool => tool['name']),
        calls: elements
          .filter(({ type }) => type === 'function_call')
          .map(call => `${call['call_id']} ${call['name']} ${call['arguments']}`),
        results: elements
          .filter(({ type }) => type === 'function_call_output')
          .map(({ call_id: id, output }) => `${id} ${text(output)}`),
        images,
      }
    case 'messages':
      return {
        tools: list(body['tools']).map(tool => tool['name']),
        calls: blocks
          .filter(({ type }) => type === 'tool_use')
          .map(call => `${call['id']} ${call['name']} ${JSON.stringify(call['input'])}`),
        results: blocks
          .filter(({ type }) => type === 'tool_result')
          .map(({ tool_use_id: id, content }) => `${id} ${text(content)}`),
        images,
      }
  }
}

let g: TestGateway
let provider: ScriptedUpstream
const keys = new Map<FormatName, string>()
t.before(async () => {
  provider = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: provider.url, edit: file => file.set('upstreams.famC.speaks', ['responses']) })
  for (const name of FORMAT_NAMES) keys.set(name, await g.key(KEY_TYPES[name][0], 100_000n))
})

async function ask(upstream: FormatName, path: FormatName, body: Json, stream = false) {
  provider.script = (_received, res) => (stream ? sse(res, STREAMS[upstream].join('')) : json(res, REPLIES[upstream]))
  provider.requests.length = 0
  const whole = { model: KEY_TYPES[upstream][1], stream, ...body }
  return g.call(FORMATS[path].path, { key: keys.get(upstream) as string, body: whole })
}

/** How an answer of each format looks. */
const ANSWERS: Readonly<Record<FormatName, RegExp>> = {
  'chat-completions': /"object":\s*"chat\.completion/,
  responses: /"object":\s*"response"/,
  messages: /"type":\s*"message"/,
}

for (const upstream of FORMAT_NAMES)
  for (const path of FORMAT_NAMES)
    for (const shape of FORMAT_NAMES)
      t.test(`a body of ${shape} at the path of ${path}, to ${upstream}`, async t => {
        const conversation = [...TURNS[shape]('call_1', 'grep'), { role: 'user', content: 'go on' }]
        for (const stream of [false, true]) {
          const answer = await ask(upstream, path, BODIES[shape](conversation, [TOOLS[shape]('grep')]), stream)
          t.equal(answer.status, 200, answer.text)
          t.match(answer.text, ANSWERS[path])
          t.match(answer.text, /Hi there/)
          const { json: sent } = provider.last
          t.strictSame(gotBy(upstream, sent), {
            tools: ['grep'],
            calls: ['call_1 grep {"path":"call_1"}'],
            results: ['call_1 found call_1'],
            images: 1,
          })
          for (const said of ['You edit code.', 'ask call_1', 'look call_1', 'go on'])
            t.match(JSON.stringify(sent), said)
          t.match(JSON.stringify(sent), /"max_(?:completion_|output_)?tokens":500/)
        }
      })

t.test('a body in the shape of its path goes up byte for byte, unknown parts included', async t => {
  for (const format of FORMAT_NAMES) {
    const conversation = [...TURNS[format]('call_1', 'grep'), { role: 'user', content: [{ type: 'hologram', data: 'x' }, { type: 'image', image: 'of another vendor' }] }] // prettier-ignore
    const body = BODIES[format](conversation, [TOOLS[format]('grep')])
    const sent = JSON.stringify({ model: KEY_TYPES[format][1], ...body })
    const answer = await ask(format, format, body)
    t.equal(answer.status, 200, answer.text)
    for (const member of ['messages', 'input', 'tools', 'system', 'instructions'])
      t.strictSame(provider.last.json[member], JSON.parse(sent)[member], `${format}: ${member}`)
  }
})

t.test('shapes that are mixed in one list all reach the provider', async t => {
  let state = 7
  const random = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  const any = (): FormatName => FORMAT_NAMES[random(3)] as FormatName
  for (let run = 0; run < 60; run++) {
    const [upstream, path] = [any(), any()]
    const names = Array.from({ length: 1 + random(3) }, (_, nth) => `tool_${nth}`)
    const ids = Array.from({ length: 1 + random(4) }, (_, nth) => `call_${run}_${nth}`)
    const turns = ids.flatMap(id => TURNS[any()](id, names[random(names.length)] as string))
    const conversation = [...turns, { role: 'user', content: 'go on' }]
    const body = BODIES[path](
      conversation,
      names.map(name => TOOLS[any()](name)),
    )
    const answer = await ask(upstream, path, body)
    t.equal(answer.status, 200, `${run}: ${path} to ${upstream}: ${answer.text} ${JSON.stringify(body)}`)
    const got = gotBy(upstream, provider.last.json)
    t.strictSame(got.tools, names)
    t.strictSame(
      got.calls.map(call => call.split(' ')[0]),
      ids,
    )
    t.strictSame(
      got.results,
      ids.map(id => `${id} found ${id}`),
    )
    t.equal(got.images, ids.length)
  }
})

t.test('a tool that takes text stays one where the provider takes such tools', async t => {
  const flat = { type: 'custom', name: 'ApplyPatch', description: 'Applies a patch.', format: { type: 'grammar', syntax: 'lark', definition: 'start: /.+/' } } // prettier-ignore
  const messages = [{ role: 'user', content: 'hello' }]
  const answer = await ask('chat-completions', 'chat-completions', {
    messages,
    tools: [flat, TOOLS['chat-completions']('list')],
  })
  t.equal(answer.status, 200)
  t.match(provider.last.json, {
    tools: [
      {
        type: 'custom',
        custom: {
          name: 'ApplyPatch',
          format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: /.+/' } },
        },
      },
      { type: 'function', function: { name: 'list' } },
    ],
  })
  const input = [{ role: 'user', content: 'hello' }, { type: 'custom_tool_call', call_id: 'call_1', name: 'ApplyPatch', input: '*** Begin' }, { type: 'custom_tool_call_output', call_id: 'call_1', output: 'Done' }] // prettier-ignore
  await ask('chat-completions', 'chat-completions', { input, tools: [flat] })
  t.match(provider.last.json, {
    messages: [
      {},
      { tool_calls: [{ type: 'custom', custom: { name: 'ApplyPatch', input: '*** Begin' } }] },
      { role: 'tool' },
    ],
  })
})

t.test('members of the path stay beside shapes of others; what no shape of the path carries is named', async t => {
  const messages = TURNS.messages('call_1', 'grep')
  const body = {
    messages,
    tools: [TOOLS.messages('grep')],
    repetition_penalty: 1.1,
    seed: 7,
    max_tokens: 20,
    user: 'u',
  }
  const { status, headers } = await ask('chat-completions', 'chat-completions', body)
  t.equal(status, 200)
  t.match(provider.last.json, { seed: 7, max_tokens: 20 })
  t.notMatch(headers.get('x-tollgate-dropped') ?? '', /seed|max_tokens/)
  const named = await ask('chat-completions', 'chat-completions', {
    input: 'hi',
    truncation: 'auto',
    include: ['file_search_call.results'],
  })
  t.equal(named.status, 200)
  t.match(named.headers.get('x-tollgate-dropped'), /include/)
  t.match(await ask('chat-completions', 'chat-completions', { input: 'hi', previous_response_id: 'resp_1' }), { status: 400, json: { error: { param: 'previous_response_id' } } }) // prettier-ignore
})

/** What only providers of a format know, beside a tool in the shape of another format. */
const OWN_BESIDE: Readonly<Record<FormatName, Json>> = {
  'chat-completions': {
    n: 2,
    messages: [
      { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{}' } }] }, // prettier-ignore
      { role: 'user', content: 'go on' },
    ],
    tools: [TOOLS['chat-completions']('f')],
  },
  responses: {
    input: [{ type: 'local_shell_call', id: 'ls_1', call_id: 'call_1', action: { type: 'exec', command: ['ls'], env: {} }, status: 'completed' }, { role: 'user', content: 'go on' }], // prettier-ignore
    tools: [{ type: 'local_shell' }, { type: 'apply_patch' }, TOOLS.responses('f')],
  },
  messages: {
    system: [{ type: 'text', text: 'Edit.', cache_control: { type: 'ephemeral' } }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'f', input: {} }] },
      { role: 'user', content: 'go on' },
    ],
    tools: [{ type: 'bash_20250124', name: 'bash' }, TOOLS.messages('f')],
  },
}

for (const format of FORMAT_NAMES)
  t.test(`beside a foreign tool, everything of ${format} goes up as it is`, async t => {
    const { tools, ...own } = OWN_BESIDE[format]
    const other = FORMAT_NAMES[(FORMAT_NAMES.indexOf(format) + 1) % 3] as FormatName
    const answer = await ask(format, format, { ...own, max_tokens: 20, tools: [...tools, TOOLS[other]('g')] })
    t.equal(answer.status, 200, answer.text)
    const sent: Json = provider.last.json
    t.match(sent, own)
    t.strictSame(sent['tools'].slice(0, -1), tools)
    t.strictSame(gotBy(format, sent).tools.at(-1), 'g')
  })

/** Bodies in the shape of their path, but for one piece, and what the provider gets. */
const MIXED: readonly (readonly [title: string, FormatName, body: Json, sent: Json])[] = [
  [
    'ids of a call and its result agree',
    'chat-completions',
    { messages: [{ role: 'user', content: 'hi' }, { role: 'assistant', content: null, tool_calls: [{ id: 'x'.repeat(55), type: 'function', function: { name: 'f', arguments: '{}' } }] }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x'.repeat(55), content: 'found' }] }] }, // prettier-ignore
    { messages: [{}, { tool_calls: [{ id: /^call_\w{8,34}$/ }] }, { role: 'tool', tool_call_id: /^call_\w{8,34}$/ }] },
  ],
  [
    'a result has the type of its call',
    'responses',
    { tools: [{ type: 'custom', name: 'patch' }], input: [{ role: 'user', content: 'hi' }, { type: 'custom_tool_call', call_id: 'call_a', name: 'patch', input: 'x' }, { role: 'tool', tool_call_id: 'call_a', content: 'found' }] }, // prettier-ignore
    { input: [{}, { type: 'custom_tool_call', input: 'x' }, { type: 'custom_tool_call_output', output: 'found' }] },
  ],
  [
    'all results come before what they show',
    'chat-completions',
    { messages: [{ role: 'user', content: 'hi' }, { role: 'assistant', content: null, tool_calls: ['a', 'b'].map(id => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })) }, { role: 'tool', tool_call_id: 'a', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }] }, { role: 'tool', tool_call_id: 'b', content: 'found' }] }, // prettier-ignore
    { messages: [{}, {}, { role: 'tool', tool_call_id: 'a' }, { role: 'tool', tool_call_id: 'b' }, { role: 'user', content: [{}, { type: 'image_url' }] }] }, // prettier-ignore
  ],
  [
    'rules of chat completions become the system',
    'messages',
    { max_tokens: 5, messages: [{ role: 'system', content: 'Edit.' }, { role: 'user', content: 'hi' }], tools: [TOOLS['chat-completions']('f')] }, // prettier-ignore
    { system: [{ type: 'text', text: 'Edit.' }], messages: [{ role: 'user', content: 'hi' }] },
  ],
  [
    'own parts beside a foreign one stay',
    'messages',
    { max_tokens: 5, messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' }, title: 't', citations: { enabled: true } }, { type: 'text', text: 'look', cache_control: { type: 'ephemeral' } }, { type: 'hologram' }, { type: 'image_url', image_url: { url: URL_OF_PNG } }] }] }, // prettier-ignore
    { messages: [{ content: [{ type: 'document', source: { data: 'x' }, title: 't', citations: { enabled: true } }, { cache_control: { type: 'ephemeral' } }, { type: 'hologram' }, { type: 'image', source: { data: PNG } }] }] }, // prettier-ignore
  ],
  [
    'parts within an own result change alone',
    'messages',
    { max_tokens: 5, messages: [{ role: 'user', content: 'hi' }, { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'f', input: {} }] }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: true, cache_control: { type: 'ephemeral' }, content: [{ type: 'input_text', text: 'x' }] }] }] }, // prettier-ignore
    {
      messages: [{}, {}, { content: [{ is_error: true, cache_control: {}, content: [{ type: 'text', text: 'x' }] }] }],
    },
  ],
  [
    'of two tools with one name the first counts',
    'messages',
    { max_tokens: 5, messages: [{ role: 'user', content: 'hi' }], tools: [TOOLS['chat-completions']('f'), TOOLS.messages('f')] }, // prettier-ignore
    { tools: { length: 1 } },
  ],
]
for (const [title, format, body, sent] of MIXED)
  t.test(title, async t => {
    const answer = await ask(format, format, body)
    t.equal(answer.status, 200, answer.text)
    t.match(provider.last.json, sent)
    for (const name of ['messages', 'input'])
      if (sent[name]) t.equal((provider.last.json[name] as unknown[]).length, sent[name].length)
  })

t.test('a choice of a tool is recognised by its shape', async t => {
  const choices: readonly object[] = [
    { type: 'function', function: { name: 'f' } },
    { type: 'function', name: 'f' },
    { type: 'tool', name: 'f', disable_parallel_tool_use: true },
  ]
  const made: Readonly<Record<FormatName, Json>> = {
    'chat-completions': { type: 'function', function: { name: 'f' } },
    responses: { type: 'function', name: 'f' },
    messages: { type: 'tool', name: 'f' },
  }
  for (const format of FORMAT_NAMES) {
    const asked = { ...BODIES[format]([{ role: 'user', content: 'hi' }], [TOOLS[format]('f')]) }
    for (const tool_choice of choices) {
      t.equal((await ask(format, format, { ...asked, tool_choice })).status, 200)
      t.match(provider.last.json['tool_choice'], made[format], `${format}: ${JSON.stringify(tool_choice)}`)
    }
    const any = format === 'messages' ? { type: 'any' } : 'required'
    for (const tool_choice of ['required', { type: 'any' }]) {
      await ask(format, format, { ...asked, tool_choice })
      t.strictSame(provider.last.json['tool_choice'], any)
    }
  }
})

t.test('a call in the old style keeps its result at every path', async t => {
  const turns = [{ role: 'user', content: 'look' }, { role: 'assistant', content: null, function_call: { name: 'f', arguments: '{}' } }, { role: 'function', name: 'f', content: 'found it' }] // prettier-ignore
  for (const format of ['responses', 'messages'] as const) {
    const answer = await ask(format, format, BODIES[format](turns, [TOOLS[format]('f')]))
    t.equal(answer.status, 200, answer.text)
    const { calls, results } = gotBy(format, provider.last.json)
    t.match([calls.length, results.length], [1, 1], format)
  }
})

t.test('an output limit counts by whatever name it has', async t => {
  const hi = [{ role: 'user', content: 'hi' }]
  const asked: readonly (readonly [FormatName, Json])[] = [
    ['chat-completions', { system: 's', messages: hi, max_completion_tokens: 50 }],
    ['chat-completions', { input: 'hi', max_tokens: 50 }],
    ['responses', { messages: hi, max_output_tokens: 50 }],
    ['messages', { input: 'hi', max_tokens: 50 }],
  ]
  for (const [format, body] of asked) {
    const answer = await ask(format, format, body)
    t.equal(answer.status, 200, answer.text)
    t.match(JSON.stringify(provider.last.json), /"max_\w*tokens":50/, JSON.stringify(body))
  }
  t.equal((await ask('chat-completions', 'chat-completions', { input: 'hi', max_output_tokens: '5' })).status, 400)
})

t.test('hostile shapes are refused as any other body', async t => {
  const deep = `{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}`
  const call = { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: deep } }] } // prettier-ignore
  const user = { role: 'user', content: 'hi' }
  const refused = await ask('messages', 'messages', { max_tokens: 5, messages: [user, call, user] })
  t.match(refused, { status: 400, json: { error: { message: /levels deep/ } } })
  for (const type of ['constructor', '__proto__', 'toString']) {
    const { status, text } = await ask('chat-completions', 'chat-completions', { messages: [user, { type, role: 'user', content: 'x' }] }) // prettier-ignore
    t.equal(status, 200, text)
  }
  t.equal((await ask('messages', 'messages', { max_tokens: 5, messages: [user, { role: 'user', content: 'x', tool_calls: [{ id: 'c', function: { name: 'f' } }] }] })).status, 400) // prettier-ignore
})

t.test('docs/translation.md has the table of shapes', t => {
  const every = 'every format'
  const rows = [
    ...BODY_SHAPES.map(([path, has, lacks, shape]) => ['a body', path, `\`${has}\`, and no \`${lacks}\``, shape]),
    ...TOOL_SHAPES.map(([shape, , words]) => ['a tool', every, words, shape]),
    ...CHOICE_SHAPES.map(([formats, words]) => ['a choice of a tool', every, words, formats.join(', ')]),
    ...ELEMENT_SHAPES.map(([format, words]) => ['a call, a result, an item', every, words, format]),
    ...FORMAT_NAMES.map(format => ['a part', every, Object.keys(PART_TYPES).filter(type => PART_TYPES[type]?.[0] === format).map(type => `\`${type}\``).join(', '), format]), // prettier-ignore
  ]
  keepsTable(t, new URL('../../docs/translation.md', import.meta.url), 'what', rows)
  t.end()
})
