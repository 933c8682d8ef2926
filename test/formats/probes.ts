/** Requests with one feature each, and the fate of that feature on the way to each format. */
import { GatewayError } from '../../core/errors.ts'
import { FORMATS, Translation, type FormatName } from '../../core/formats/index.ts'
import { bodyOf } from 'tollgate/testing'

export interface Probe {
  /** The request by its format: it contains the feature. There is one for each upstream of another format. */
  readonly from: Partial<Record<FormatName, object>>
  /** What the upstream's request contains if the feature is carried. */
  readonly sign: RegExp
  /** What the header says if the feature is dropped. */
  readonly loss?: string
}

const user = { role: 'user', content: 'x' }
const chat = (members: object): object => ({ messages: [user], ...members })
const responses = (members: object): object => ({ input: 'x', ...members })
const messages = (members: object): object => ({ max_tokens: 9, messages: [user], ...members })
const SCHEMA = { type: 'object', properties: { probe: {} } }
const PNG = 'data:image/png;base64,cHJvYmU='
const source = { type: 'base64', media_type: 'image/png', data: 'cHJvYmU=' }
const called = [user, { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: {} }] }]
const chatCalled = [
  user,
  { role: 'assistant', tool_calls: [{ id: 't', type: 'function', function: { name: 'f', arguments: '{}' } }] },
]
const sealed = (by: string, data: object): string =>
  `tollgate.${by}.${Buffer.from(JSON.stringify({ text: 'probe', data })).toString('base64url')}`
const f = { type: 'function', function: { name: 'f' } }

/** By the words of the table in docs/translation.md. */
export const PROBES: Readonly<Record<string, Probe>> = {
  top_k: { from: { messages: messages({ top_k: 5 }) }, sign: /top_k/, loss: 'top_k' },
  'stop sequences': {
    from: { 'chat-completions': chat({ stop: 'probe' }), messages: messages({ stop_sequences: ['probe'] }) },
    sign: /probe/,
    loss: 'stop',
  },
  verbosity: {
    from: { 'chat-completions': chat({ verbosity: 'low' }), responses: responses({ text: { verbosity: 'low' } }) },
    sign: /"low"/,
    loss: 'verbosity',
  },
  'service_tier` of chat and responses': {
    from: { 'chat-completions': chat({ service_tier: 'flex' }), responses: responses({ service_tier: 'flex' }) },
    sign: /flex/,
    loss: 'service_tier',
  },
  'metadata`, the user apart': {
    from: {
      responses: responses({ metadata: { a: 'probe' } }),
      'chat-completions': chat({ metadata: { a: 'probe' } }),
    },
    sign: /probe/,
    loss: 'metadata',
  },
  store: {
    from: { responses: responses({ store: true }), 'chat-completions': chat({ store: true }) },
    sign: /"store":true/,
    loss: 'store',
  },
  truncation: { from: { responses: responses({ truncation: 'auto' }) }, sign: /truncation/, loss: 'truncation' },
  'any JSON object as the answer': {
    from: {
      'chat-completions': chat({ response_format: { type: 'json_object' } }),
      responses: responses({ text: { format: { type: 'json_object' } } }),
    },
    sign: /json_object/,
    loss: 'response_format',
  },
  "a JSON schema as the answer's form": {
    from: {
      responses: responses({ text: { format: { type: 'json_schema', name: 'n', schema: SCHEMA } } }),
      messages: messages({ output_config: { format: { type: 'json_schema', schema: SCHEMA } } }),
    },
    sign: /"probe"/,
  },
  'temperature of a request that reasons': {
    from: {
      'chat-completions': chat({ reasoning_effort: 'low', temperature: 0.25 }),
      messages: messages({ thinking: { type: 'adaptive' }, temperature: 0.25 }),
    },
    sign: /0\.25/,
    loss: 'temperature',
  },
  cache_control: {
    from: { messages: messages({ system: [{ type: 'text', text: 's', cache_control: { type: 'ephemeral' } }] }) },
    sign: /cache_control/,
    loss: 'cache_control',
  },
  "images in a tool's result": {
    from: {
      messages: messages({
        messages: [
          ...called,
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: [{ type: 'image', source }] }] },
        ],
      }),
      'chat-completions': chat({
        messages: [
          ...chatCalled,
          { role: 'tool', tool_call_id: 't', content: [{ type: 'image_url', image_url: { url: PNG } }] },
        ],
      }),
    },
    sign: /cHJvYmU=/,
  },
  sound: {
    from: {
      'chat-completions': chat({
        messages: [
          { role: 'user', content: [{ type: 'input_audio', input_audio: { data: 'cHJvYmU=', format: 'wav' } }] },
        ],
      }),
    },
    sign: /cHJvYmU=/,
  },
  'a file behind a URL': {
    from: {
      responses: responses({
        input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'https://probe.example/a.pdf' }] }],
      }),
      messages: messages({
        messages: [
          {
            role: 'user',
            content: [{ type: 'document', source: { type: 'url', url: 'https://probe.example/a.pdf' } }],
          },
        ],
      }),
    },
    sign: /probe\.example/,
  },
  'a file stored at a provider': {
    from: {
      'chat-completions': chat({
        messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'probe' } }] }],
      }),
      messages: messages({
        messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'probe' } }] }],
      }),
    },
    sign: /probe/,
  },
  'media in messages of other roles': {
    from: {
      'chat-completions': chat({
        messages: [{ role: 'system', content: [{ type: 'image_url', image_url: { url: PNG } }] }, user],
      }),
      messages: messages({ messages: [user, { role: 'assistant', content: [{ type: 'image', source }] }] }),
    },
    sign: /cHJvYmU=/,
  },
  'more than one reply': { from: { 'chat-completions': chat({ n: 2 }) }, sign: /"n":2/ },
  "a tool of the provider's own, beside others": {
    from: {
      responses: responses({ tools: [{ type: 'function', name: 'f', parameters: {} }, { type: 'web_search' }] }),
      messages: messages({
        tools: [
          { name: 'f', input_schema: { type: 'object' } },
          { type: 'web_search', name: 'web_search' },
        ],
      }),
    },
    sign: /web_search/,
    loss: 'tools.web_search',
  },
  "a tool of the provider's own, alone": {
    from: {
      responses: responses({ tools: [{ type: 'web_search' }] }),
      messages: messages({ tools: [{ type: 'web_search', name: 'web_search' }] }),
    },
    sign: /web_search/,
  },
  'a tool that takes text': {
    from: {
      responses: responses({ tools: [{ type: 'custom', name: 'probe' }] }),
      'chat-completions': chat({ tools: [{ type: 'custom', custom: { name: 'probe' } }] }),
    },
    sign: /probe/,
  },
  "reasoning that another provider's model made": {
    from: {
      messages: messages({
        messages: [
          user,
          {
            role: 'assistant',
            content: [
              { type: 'thinking', thinking: 'probe', signature: 'its own' },
              { type: 'text', text: 'a' },
            ],
          },
          user,
        ],
      }),
      responses: responses({
        input: [
          user,
          { type: 'reasoning', summary: [], encrypted_content: sealed('chat-completions', {}) },
          { role: 'assistant', content: 'a' },
          user,
        ],
      }),
      'chat-completions': chat({
        messages: [user, { role: 'assistant', content: 'a', reasoning_content: 'probe' }, user],
      }),
    },
    sign: /probe/,
    loss: 'reasoning',
  },
  'a call without its result, a result without its call': {
    from: {
      'chat-completions': chat({
        messages: [...chatCalled, user, { role: 'tool', tool_call_id: 'gone', content: 'probe' }],
        tools: [f],
      }),
      messages: messages({
        messages: [
          ...called,
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 'gone', content: 'probe' },
              { type: 'text', text: 'x' },
            ],
          },
        ],
      }),
    },
    sign: /probe/,
    loss: 'tool_call',
  },
}

/** The fate of a feature on the way to each format: carried, dropped or refused. */
export function fates({ from, sign, loss }: Probe): string[] {
  return (Object.keys(FORMATS) as FormatName[]).map(to => {
    const [format, body] = Object.entries(from).find(([each]) => each !== to) ?? []
    // A feature that only the upstream's own clients can ask for passes unchanged.
    if (body === undefined) return 'carried'
    try {
      const between = {
        client: FORMATS[format as FormatName],
        upstream: FORMATS[to],
        body: bodyOf(Buffer.from(JSON.stringify(body))),
      }
      const traits = { output: 100, thinking: 'adaptive' } as const
      const translation = new Translation({ ...between, headers: {}, asked: 'm', traits, requestId: 'r', startedAt: 0 })
      const carried = sign.test(translation.bytes.toString())
      if (carried) return 'carried'
      return String(translation.dropped)
        .split(', ')
        .includes(loss ?? '')
        ? 'dropped'
        : 'vanished'
    } catch (thrown) {
      if (thrown instanceof GatewayError && thrown.code === 'invalid_body') return 'refused'
      throw thrown
    }
  })
}
