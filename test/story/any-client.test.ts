import { readFileSync } from 'node:fs'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import Anthropic1 from '@anthropic-ai/sdk'
import { generateText, jsonSchema, stepCountIs, streamText, tool, type LanguageModel } from 'ai'
import Anthropic0 from 'anthropic-sdk-0'
import OpenAI7 from 'openai'
import OpenAI6 from 'openai-6'
import t, { type Test } from 'tap'
import type { FormatName } from '../../core/formats/index.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/**
 * Every SDK on a model of every format: text, tools in two rounds, parallel tools, images, reasoning, limits, usage,
 * errors.
 */

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/** A model behind an upstream of each format, and its two replies: one that calls two tools, and a plain one. */
const UPSTREAMS: Readonly<
  Record<
    FormatName,
    {
      type: string
      model: string
      calls: string
      text: string
      said: string
      cut: string
      names: readonly string[]
      tokens: number
    }
  >
> = {
  messages: {
    type: 'famA',
    model: 'acme/famA-medium-5',
    calls: 'messages-thinking-and-parallel-tools',
    text: 'messages-pause',
    said: 'Wait',
    cut: 'messages-omitted-thinking-and-max-tokens',
    names: ['get_weather', 'now'],
    tokens: 3,
  },
  responses: {
    type: 'famC',
    model: 'acme/famC-5.5',
    calls: 'responses-reasoning-and-calls',
    text: 'responses-tools-of-the-provider',
    said: 'Found.',
    cut: 'responses-incomplete',
    names: ['get_weather', 'get_time'],
    tokens: 40,
  },
  'chat-completions': {
    type: 'editor',
    model: 'acme/famB-4.6',
    calls: 'chat-interleaved-calls',
    text: 'chat-text',
    said: 'Hello, Wörld 🌍',
    cut: 'chat-length',
    names: ['get_weather', 'get_time'],
    tokens: 20,
  },
}

let g: TestGateway
let upstream: ScriptedUpstream
const keys: Partial<Record<FormatName, string>> = {}
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('upstreams.famC.speaks', ['responses']),
  })
  for (const [format, { type }] of Object.entries(UPSTREAMS)) keys[format as FormatName] = await g.key(type, 1000n)
})

/**
 * The upstream gives the recorded reply, as JSON or as a stream, as requested. After tool results it gives a plain one.
 */
function plays(format: FormatName, name: string): void {
  const file = (which: string, kind: string): string =>
    readFileSync(new URL(`../formats/replies/${which}/upstream.${format}.${kind}`, import.meta.url), 'utf8')
  upstream.script = (received, res) => {
    const which = /tool_result|function_call_output|"role":"tool"/.test(received.body) ? UPSTREAMS[format].text : name
    if (received.json['stream'] !== true) json(res, file(which, 'json'))
    else res.writeHead(200, { 'content-type': 'text/event-stream' }).end(file(which, 'sse'))
  }
}

/** The conversation as the upstream received it, in the terms of its format. */
function got(format: FormatName): {
  calls: string[]
  results: string[]
  images: number
  sealed: boolean
  tools: number
} {
  const found: Record<string, any>[] = []
  JSON.stringify(
    upstream.last.json,
    (_name, value) => (typeof value === 'object' && value !== null && found.push(value), value),
  )
  const of = (type: string): Record<string, any>[] => found.filter(each => each['type'] === type)
  const seen = {
    messages: () => ({
      calls: of('tool_use').map(({ id }) => id),
      results: of('tool_result').map(result => result['tool_use_id']),
      images: of('image').length,
    }),
    responses: () => ({
      calls: of('function_call').map(call => call['call_id']),
      results: of('function_call_output').map(result => result['call_id']),
      images: of('input_image').length,
    }),
    'chat-completions': () => ({
      calls: of('function').flatMap(({ id }) => (id === undefined ? [] : [id])),
      results: found.filter(({ role }) => role === 'tool').map(result => result['tool_call_id']),
      images: of('image_url').length,
    }),
  }[format]()
  const sealed = found.some(
    each => each['signature'] === 'EqQBCgIYAhIM+/=' || each['encrypted_content'] === 'gAAAAABo_secret==',
  )
  return { ...seen, sealed, tools: (upstream.last.json['tools'] as unknown[] | undefined)?.length ?? 0 }
}

/** A client. All SDKs have this interface here. */
interface Client {
  readonly name: string
  readonly speaks: FormatName
  /** Whether it returns the reasoning that it received. */
  readonly keepsReasoning: boolean
  say(
    text: string,
    stream: boolean,
    options?: { image?: boolean; most?: number },
  ): Promise<{ text: string; stop: string; output: number }>
  /** Sends a request with two tools and their results. Returns the final text and the called tools. */
  useTools(stream: boolean): Promise<{ called: string[]; said: string; reasoning: string }>
}

const SCHEMA = { type: 'object', properties: { city: { type: 'string' } } } as const
const TOOLS = ['get_weather', 'get_time', 'now']
const answer = (name: string): string => `the answer of ${name}`

function chat(name: string, SDK: typeof OpenAI7, key: string, model: string): Client {
  const client = new SDK({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  const ask = async (body: any, stream: boolean): Promise<any> =>
    stream
      ? await client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion()
      : await client.chat.completions.create(body)
  return {
    name,
    speaks: 'chat-completions',
    keepsReasoning: false,
    async say(text, stream, { image, most } = {}) {
      const content = image
        ? [
            { type: 'text', text },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
          ]
        : text
      const { choices, usage } = await ask(
        { model, messages: [{ role: 'user', content }], ...(most && { max_completion_tokens: most }) },
        stream,
      )
      return {
        text: choices[0].message.content ?? '',
        stop: choices[0].finish_reason,
        output: usage?.completion_tokens ?? 0,
      }
    },
    async useTools(stream) {
      const tools = TOOLS.map(tool => ({ type: 'function' as const, function: { name: tool, parameters: SCHEMA } }))
      const messages: any[] = [{ role: 'user', content: 'Look.' }]
      const first = (await ask({ model, messages, tools, reasoning_effort: 'high' }, stream)).choices[0].message
      const called = first.tool_calls.map((call: any) => call.function.name)
      messages.push(
        first,
        ...first.tool_calls.map((call: any) => ({
          role: 'tool',
          tool_call_id: call.id,
          content: answer(call.function.name),
        })),
      )
      const last = await ask({ model, messages, tools, reasoning_effort: 'high' }, stream)
      return { called, said: last.choices[0].message.content, reasoning: first.reasoning_content ?? '' }
    },
  }
}

function responses(name: string, SDK: typeof OpenAI7, key: string, model: string): Client {
  const client = new SDK({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  const ask = async (body: any, stream: boolean): Promise<any> =>
    stream ? await client.responses.stream(body).finalResponse() : await client.responses.create(body)
  return {
    name,
    speaks: 'responses',
    keepsReasoning: true,
    async say(text, stream, { image, most } = {}) {
      const content = [
        { type: 'input_text', text },
        ...(image ? [{ type: 'input_image', image_url: `data:image/png;base64,${PNG}`, detail: 'auto' }] : []),
      ]
      const { output_text, status, incomplete_details, usage } = await ask(
        { model, input: [{ role: 'user', content }], ...(most && { max_output_tokens: most }) },
        stream,
      )
      return { text: output_text, stop: incomplete_details?.reason ?? status, output: usage.output_tokens }
    },
    async useTools(stream) {
      const tools = TOOLS.map(tool => ({ type: 'function', name: tool, parameters: SCHEMA, strict: false }))
      const options = {
        model,
        tools,
        store: false,
        reasoning: { effort: 'high', summary: 'auto' },
        include: ['reasoning.encrypted_content'],
      }
      const first = await ask({ ...options, input: 'Look.' }, stream)
      const calls = first.output.filter((item: any) => item.type === 'function_call')
      const outputs = calls.map((call: any) => ({
        type: 'function_call_output',
        call_id: call.call_id,
        output: answer(call.name),
      }))
      const last = await ask(
        { ...options, input: [{ role: 'user', content: 'Look.' }, ...first.output, ...outputs] },
        stream,
      )
      const reasoning = first.output.flatMap((item: any) =>
        item.type === 'reasoning' ? item.summary.map((part: any) => part.text) : [],
      )
      return { called: calls.map((call: any) => call.name), said: last.output_text, reasoning: reasoning.join('') }
    },
  }
}

function messages(name: string, SDK: typeof Anthropic1, key: string, model: string): Client {
  const client = new SDK({ apiKey: key, baseURL: g.url, maxRetries: 0 })
  const ask = async (body: any, stream: boolean): Promise<any> =>
    stream ? await client.messages.stream(body).finalMessage() : await client.messages.create(body)
  const textOf = (content: any[]): string =>
    content.flatMap(block => (block.type === 'text' ? [block.text] : [])).join('')
  return {
    name,
    speaks: 'messages',
    keepsReasoning: true,
    async say(text, stream, { image, most = 100 } = {}) {
      const content = [
        { type: 'text', text },
        ...(image ? [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }] : []),
      ]
      const reply = await ask({ model, max_tokens: most, messages: [{ role: 'user', content }] }, stream)
      return { text: textOf(reply.content), stop: reply.stop_reason, output: reply.usage.output_tokens }
    },
    async useTools(stream) {
      const tools = TOOLS.map(tool => ({ name: tool, input_schema: SCHEMA }))
      const options = { model, max_tokens: 4000, tools, thinking: { type: 'adaptive' } }
      const first = await ask({ ...options, messages: [{ role: 'user', content: 'Look.' }] }, stream)
      const calls = first.content.filter((block: any) => block.type === 'tool_use')
      const results = calls.map((call: any) => ({
        type: 'tool_result',
        tool_use_id: call.id,
        content: answer(call.name),
      }))
      const history = [
        { role: 'user', content: 'Look.' },
        { role: 'assistant', content: first.content },
        { role: 'user', content: results },
      ]
      const last = await ask({ ...options, messages: history }, stream)
      const reasoning = first.content.flatMap((block: any) => (block.type === 'thinking' ? [block.thinking] : []))
      return { called: calls.map((call: any) => call.name), said: textOf(last.content), reasoning: reasoning.join('') }
    },
  }
}

function aiSdk(name: string, speaks: FormatName, model: LanguageModel): Client {
  const ask = async (options: any, stream: boolean): Promise<any> => {
    if (!stream) return generateText({ model, maxRetries: 0, ...options })
    const run = streamText({ model, maxRetries: 0, onError: () => {}, ...options })
    await run.consumeStream()
    return {
      text: await run.text,
      finishReason: await run.finishReason,
      usage: await run.usage,
      steps: await run.steps,
    }
  }
  return {
    name,
    speaks,
    keepsReasoning: speaks !== 'chat-completions',
    async say(text, stream, { image, most } = {}) {
      const content = [
        { type: 'text', text },
        ...(image ? [{ type: 'image', image: Buffer.from(PNG, 'base64'), mediaType: 'image/png' }] : []),
      ]
      const {
        text: said,
        finishReason,
        usage,
      } = await ask({ messages: [{ role: 'user', content }], ...(most && { maxOutputTokens: most }) }, stream)
      return { text: said, stop: finishReason, output: usage.outputTokens }
    },
    async useTools(stream) {
      const tools = Object.fromEntries(
        TOOLS.map(each => [
          each,
          tool({ inputSchema: jsonSchema(SCHEMA as never), execute: () => Promise.resolve(answer(each)) }),
        ]),
      )
      const providerOptions = {
        openai: { store: false, reasoningEffort: 'high', reasoningSummary: 'auto', forceReasoning: true },
        anthropic: { thinking: { type: 'enabled', budgetTokens: 2000 } },
      }
      const { steps, text } = await ask({ prompt: 'Look.', tools, stopWhen: stepCountIs(3), providerOptions }, stream)
      return {
        called: steps[0].toolCalls.map((call: any) => call.toolName),
        said: text,
        reasoning: steps[0].reasoningText ?? '',
      }
    },
  }
}

function clients(format: FormatName): Client[] {
  const key = keys[format] as string
  const { model } = UPSTREAMS[format]
  const base = { apiKey: key, baseURL: `${g.url}/v1` }
  return [
    chat('openai 7, chat', OpenAI7, key, model),
    chat('openai 6, chat', OpenAI6 as never, key, model),
    responses('openai 7, responses', OpenAI7, key, model),
    responses('openai 6, responses', OpenAI6 as never, key, model),
    messages('anthropic 1', Anthropic1, key, model),
    messages('anthropic 0', Anthropic0 as never, key, model),
    aiSdk(
      'AI SDK, compatible',
      'chat-completions',
      createOpenAICompatible({ name: 'tollgate', includeUsage: true, ...base })(model),
    ),
    aiSdk('AI SDK, responses', 'responses', createOpenAI(base).responses(model)),
    aiSdk('AI SDK, messages', 'messages', createAnthropic(base)(model)),
  ]
}

const LENGTHS = new Set(['length', 'max_output_tokens', 'max_tokens'])

for (const format of Object.keys(UPSTREAMS) as FormatName[]) {
  t.test(`on a model that speaks ${format}`, async t => {
    for (const client of clients(format)) await t.test(client.name, t => works(t, client, format))
  })
}

async function works(t: Test, client: Client, format: FormatName): Promise<void> {
  const { calls, text, said, cut, names, tokens } = UPSTREAMS[format]
  for (const stream of [false, true]) {
    const how = stream ? 'stream' : 'JSON'
    plays(format, text)
    const plain = await client.say('Hello', stream, { image: true })
    t.equal(plain.text, said, `${how}: text`)
    t.equal(plain.output, tokens, `${how}: usage`)
    t.equal(got(format).images, 1, `${how}: the image arrived`)
    plays(format, calls)
    const used = await client.useTools(stream)
    t.same(used.called, names, `${how}: two calls at once`)
    t.equal(used.said, said, `${how}: the second round`)
    const { calls: sent, results, sealed, tools } = got(format)
    t.equal(sent.length, 2, `${how}: both calls are in the history`)
    t.same([...results].sort(), [...sent].sort(), `${how}: each with its result`)
    t.equal(tools, TOOLS.length)
    if (format === 'chat-completions') continue
    if (client.keepsReasoning || (client.name.startsWith('openai') && !stream))
      t.ok(sealed, `${how}: the reasoning came home with its seal`)
    if (client.keepsReasoning) t.match(used.reasoning, /two cities|Plan/, `${how}: reasoning`)
  }
  plays(format, cut)
  const short = await client.say('Hello', false, { most: 64 })
  t.ok(LENGTHS.has(short.stop), `the limit shows: ${short.stop}`)
}
