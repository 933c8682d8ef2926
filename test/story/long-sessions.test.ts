import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import Anthropic from '@anthropic-ai/sdk'
import { generateText, jsonSchema, stepCountIs, streamText, tool, type LanguageModel, type ModelMessage } from 'ai'
import OpenAI from 'openai'
import t from 'tap'
import { NANO, parseDecimal } from '../../core/money/credits.ts'
import { charge, type Price } from '../../core/money/price.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import type { Edit } from '../gateway-file.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, type Received, ScriptedUpstream, sse } from '../upstream.ts'

/**
 * Sessions of twenty turns that change the family at each turn, with tools, images, reasoning and a compaction. The
 * providers refuse what providers refuse, and reasoning that they have not signed.
 */

const TURNS = 20
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const MODELS = ['a', 'b', 'c'] as const
const modelOf = (turn: number): string => MODELS[turn % MODELS.length] as string
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } } } as const

/** One key type with a model of each of three upstreams. */
const families: Edit = file =>
  file
    .set('upstreams.famC.speaks', ['responses'])
    .change('keyTypes.famC.models', (models: object[]) => [
      ...models,
      { id: 'a', upstream: 'famA', price: 'medium', reasoning: 'shown', maxOutput: 64_000 },
      { id: 'b', upstream: 'editor', price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
      { id: 'c', upstream: 'famC', price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
    ])

let g: TestGateway
let upstream: ScriptedUpstream
/** What the providers have made, and what they have billed in nano-credits. */
const issued = new Set<string>()
let billed = 0n
let count = 0

t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url, edit: families })
  const price = g.gateway.config.keyTypes.get('famC')?.models.get('a')?.price as Price
  upstream.script = (received, res) => {
    const foreign = strangers(received.json)
    const path = received.path.split('?')[0] as string
    if (foreign !== undefined) {
      const error = { type: 'invalid_request_error', message: `not mine: ${foreign}` }
      return json(res, path === '/v1/messages' ? { type: 'error', error } : { error }, 400)
    }
    count++
    const usage = { input: 1000 + count, output: 100 + count }
    billed += charge({ ...NO_USAGE, ...usage }, price)
    const events = SAYS[path]?.(`n${count}`, wantsTool(received), usage) ?? []
    if (received.json['stream'] !== true) return json(res, events[0])
    return sse(res, STREAMS[path]?.(events[0] as Record<string, any>) ?? '')
  }
})

/** A signature, an encrypted reasoning or an item that no provider here has made. */
function strangers(body: unknown): string | undefined {
  let found: string | undefined
  JSON.stringify(body, (name, value) => {
    const own =
      ['signature', 'encrypted_content'].includes(name) || (name === 'id' && /^(?:rs|msg|fc)_/.test(String(value)))
    if (own && typeof value === 'string' && !issued.has(value)) found = `${name} ${value.slice(0, 60)}`
    return value as unknown
  })
  return found
}

const mine = (value: string): string => (issued.add(value), value)

/** Whether the request has tools, and its last word is the user's and asks for one. */
function wantsTool({ body }: Received): boolean {
  const asked = body.lastIndexOf('use the tool')
  return (
    body.includes('"tools"') && !body.includes('Summarise this conversation') && asked > body.lastIndexOf('result of')
  )
}

interface Used {
  input: number
  output: number
}

const SAYS: Readonly<Record<string, (id: string, calls: boolean, usage: Used) => object[]>> = {
  '/v1/messages': (id, calls, { input, output }) => [
    {
      id: `msg_${id}`,
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [
        { type: 'thinking', thinking: `thought ${id}`, signature: mine(`sig${id}`) },
        { type: 'text', text: `said ${id}` },
        ...(calls ? [{ type: 'tool_use', id: `toolu_${id}`, name: 'w', input: { city: 'Oslo' } }] : []),
      ],
      stop_reason: calls ? 'tool_use' : 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: input, output_tokens: output },
    },
  ],
  '/v1/responses': (id, calls, { input, output }) => [
    {
      id: `resp_${id}`,
      object: 'response',
      created_at: 1,
      status: 'completed',
      error: null,
      incomplete_details: null,
      model: 'm',
      output: [
        {
          id: mine(`rs_${id}`),
          type: 'reasoning',
          summary: [{ type: 'summary_text', text: `thought ${id}` }],
          encrypted_content: mine(`enc${id}`),
        },
        {
          id: mine(`msg_${id}`),
          type: 'message',
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: `said ${id}`, annotations: [] }],
        },
        ...(calls
          ? [{ id: mine(`fc_${id}`), type: 'function_call', status: 'completed', call_id: `call_${id}`, name: 'w', arguments: '{"city":"Oslo"}' }] // prettier-ignore
          : []),
      ],
      usage: { input_tokens: input, output_tokens: output, total_tokens: input + output },
    },
  ],
  '/v1/chat/completions': (id, calls, { input, output }) => [
    {
      id: `chatcmpl-${id}`,
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [
        {
          index: 0,
          finish_reason: calls ? 'tool_calls' : 'stop',
          logprobs: null,
          message: {
            role: 'assistant',
            content: `said ${id}`,
            refusal: null,
            reasoning_content: `thought ${id}`,
            // An id that other formats do not allow, and arguments in an odd form.
            ...(calls && { tool_calls: [{ id: `w:${id}`, type: 'function', function: { name: 'w', arguments: '{"city":"Oslo"}' } }] }), // prettier-ignore
          },
        },
      ],
      usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
    },
  ],
}

const named = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

/** The replies as streams of whole parts. */
const STREAMS: Readonly<Record<string, (reply: Record<string, any>) => string>> = {
  '/v1/messages': ({ content, stop_reason, usage, ...message }) =>
    named('message_start', {
      message: { ...message, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
    }) +
    content
      .map((block: Record<string, any>, index: number) => {
        const [start, deltas] =
          block['type'] === 'thinking'
            ? [{ type: 'thinking', thinking: '', signature: '' }, [{ type: 'thinking_delta', thinking: block['thinking'] }, { type: 'signature_delta', signature: block['signature'] }]] // prettier-ignore
            : block['type'] === 'text'
              ? [{ type: 'text', text: '' }, [{ type: 'text_delta', text: block['text'] }]]
              : [{ ...block, input: {} }, [{ type: 'input_json_delta', partial_json: JSON.stringify(block['input']) }]]
        return (
          named('content_block_start', { index, content_block: start }) +
          deltas.map(delta => named('content_block_delta', { index, delta })).join('') +
          named('content_block_stop', { index })
        )
      })
      .join('') +
    named('message_delta', { delta: { stop_reason, stop_sequence: null }, usage }) +
    named('message_stop', {}),
  '/v1/responses': response => {
    let number = 0
    const event = (type: string, members: object): string => named(type, { sequence_number: number++, ...members })
    return (
      event('response.created', { response: { ...response, status: 'in_progress', output: [], usage: null } }) +
      response['output']
        .map((item: Record<string, any>, output_index: number) => {
          const at = { output_index, item_id: item['id'] }
          const text = item['content']?.[0]?.text
          const part = { content_index: 0, ...at }
          const said =
            text === undefined
              ? ''
              : event('response.content_part.added', {
                  ...part,
                  part: { type: 'output_text', text: '', annotations: [] },
                }) +
                event('response.output_text.delta', { ...part, delta: text, logprobs: [] }) +
                event('response.output_text.done', { ...part, text, logprobs: [] }) +
                event('response.content_part.done', { ...part, part: item['content'][0] })
          const called =
            item['type'] === 'function_call'
              ? event('response.function_call_arguments.delta', { ...at, delta: item['arguments'] }) +
                event('response.function_call_arguments.done', { ...at, arguments: item['arguments'] })
              : ''
          const blank = item['type'] === 'function_call' ? { ...item, arguments: '' } : { ...item, ...(text !== undefined && { content: [] }) } // prettier-ignore
          return (
            event('response.output_item.added', { output_index, item: blank }) +
            said +
            called +
            event('response.output_item.done', { output_index, item })
          )
        })
        .join('') +
      event('response.completed', { response })
    )
  },
  '/v1/chat/completions': ({ id, choices, usage }) => {
    const chunk = (members: object): string =>
      `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', created: 1, model: 'm', ...members })}\n\n`
    const { message, finish_reason } = choices[0]
    const delta = (members: object, finish: string | null = null): string =>
      chunk({ choices: [{ index: 0, delta: members, finish_reason: finish }] })
    return (
      delta({ role: 'assistant', content: '' }) +
      delta({ reasoning_content: message.reasoning_content }) +
      delta({ content: message.content }) +
      (message.tool_calls ?? [])
        .map((call: object, index: number) => delta({ tool_calls: [{ index, ...call }] }))
        .join('') +
      delta({}, finish_reason) +
      chunk({ choices: [], usage }) +
      'data: [DONE]\n\n'
    )
  },
}

/** What the user says at a turn, and whether the turn has an image or uses a tool. */
const asks = (turn: number): { text: string; image: boolean } => ({
  text: turn % 3 === 2 ? `turn ${turn}` : `turn ${turn}: use the tool`,
  image: turn % 7 === 4,
})

interface Session {
  /** Runs one turn, with its tools. Returns the final text. */
  turn(turn: number): Promise<string>
}

function chatSession(key: string): Session {
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  const messages: any[] = [{ role: 'system', content: 'You are brief.' }]
  const tools = [{ type: 'function' as const, function: { name: 'w', parameters: SCHEMA } }]
  const ask = async (turn: number): Promise<any> => {
    const body = { model: modelOf(turn), messages, tools, reasoning_effort: 'high' as const }
    if (turn % 2 === 0) return (await client.chat.completions.create(body)).choices[0]?.message
    return (await client.chat.completions.stream(body).finalChatCompletion()).choices[0]?.message
  }
  return {
    async turn(turn) {
      const { text, image } = asks(turn)
      const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }
      messages.push({ role: 'user', content: image ? [{ type: 'text', text }, picture] : text })
      for (let said = await ask(turn); ; said = await ask(turn)) {
        messages.push(said)
        if (!said.tool_calls?.length) return said.content
        for (const call of said.tool_calls)
          messages.push({ role: 'tool', tool_call_id: call.id, content: 'result of w' })
      }
    },
  }
}

function responsesSession(key: string): Session {
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  let input: any[] = []
  const tools = [{ type: 'function', name: 'w', parameters: SCHEMA, strict: false }]
  const ask = async (turn: number, items = input): Promise<any> => {
    const body: any = {
      model: modelOf(turn),
      input: items,
      tools,
      store: false,
      instructions: 'Be brief.',
      reasoning: { effort: 'high', summary: 'auto' },
      include: ['reasoning.encrypted_content'],
    }
    return turn % 2 === 0 ? client.responses.create(body) : client.responses.stream(body).finalResponse()
  }
  return {
    async turn(turn) {
      const { text, image } = asks(turn)
      // Halfway, the conversation is made shorter, as Codex does it.
      if (turn === TURNS / 2) {
        const { output } = await ask(turn, [...input, { type: 'compaction_trigger' }])
        input = [...input.filter(({ role }) => role === 'user'), ...output]
      }
      const picture = { type: 'input_image', image_url: `data:image/png;base64,${PNG}`, detail: 'auto' }
      input.push({ role: 'user', content: [{ type: 'input_text', text }, ...(image ? [picture] : [])] })
      for (let reply = await ask(turn); ; reply = await ask(turn)) {
        input.push(...reply.output)
        const calls = reply.output.filter((item: any) => item.type === 'function_call')
        if (calls.length === 0) return reply.output_text
        for (const { call_id } of calls) input.push({ type: 'function_call_output', call_id, output: 'result of w' })
      }
    },
  }
}

function messagesSession(key: string): Session {
  const client = new Anthropic({ apiKey: key, baseURL: g.url, maxRetries: 0 })
  const messages: any[] = []
  const tools = [{ name: 'w', input_schema: SCHEMA }]
  const ask = async (turn: number): Promise<any> => {
    const body: any = {
      model: modelOf(turn),
      max_tokens: 4000,
      messages,
      tools,
      system: 'Be brief.',
      thinking: { type: 'adaptive' },
    }
    return turn % 2 === 0 ? client.messages.create(body) : client.messages.stream(body).finalMessage()
  }
  return {
    async turn(turn) {
      const { text, image } = asks(turn)
      const picture = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }
      messages.push({ role: 'user', content: [{ type: 'text', text }, ...(image ? [picture] : [])] })
      for (let { content } = await ask(turn); ; { content } = await ask(turn)) {
        messages.push({ role: 'assistant', content })
        const calls = content.filter((block: any) => block.type === 'tool_use')
        if (calls.length === 0) return content.map((block: any) => block.text ?? '').join('')
        messages.push({ role: 'user', content: calls.map(({ id }: any) => ({ type: 'tool_result', tool_use_id: id, content: 'result of w' })) }) // prettier-ignore
      }
    },
  }
}

function aiSession(model: (id: string) => LanguageModel, providerOptions: any): Session {
  const messages: ModelMessage[] = []
  const tools = { w: tool({ inputSchema: jsonSchema(SCHEMA as never), execute: () => Promise.resolve('result of w') }) }
  return {
    async turn(turn) {
      const { text, image } = asks(turn)
      const picture = { type: 'image' as const, image: Buffer.from(PNG, 'base64'), mediaType: 'image/png' }
      messages.push({ role: 'user', content: [{ type: 'text', text }, ...(image ? [picture] : [])] })
      const options = {
        model: model(modelOf(turn)),
        messages,
        tools,
        stopWhen: stepCountIs(4),
        maxRetries: 0,
        providerOptions,
      }
      if (turn % 2 === 0) {
        const { response, text: said } = await generateText(options)
        messages.push(...response.messages)
        return said
      }
      const run = streamText({ ...options, onError: () => {} })
      await run.consumeStream()
      messages.push(...(await run.response).messages)
      return run.text
    },
  }
}

const aiOptions = { openai: { reasoningEffort: 'high', reasoningSummary: 'auto', forceReasoning: true }, anthropic: { thinking: { type: 'adaptive' } } } // prettier-ignore

const openai =
  (key: string): ((id: string) => LanguageModel) =>
  id =>
    createOpenAI({ apiKey: key, baseURL: `${g.url}/v1` }).responses(id)

const SESSIONS: Readonly<Record<string, (key: string) => Session>> = {
  'the chat completions SDK': chatSession,
  'the responses SDK, which compacts once': responsesSession,
  'the messages SDK': messagesSession,
  'the AI SDK by responses': key => aiSession(openai(key), aiOptions),
  'the AI SDK by responses, which stores nothing': key =>
    aiSession(openai(key), { openai: { ...aiOptions.openai, store: false } }),
  'the AI SDK by messages': key => aiSession(createAnthropic({ apiKey: key, baseURL: `${g.url}/v1` }), aiOptions),
}

for (const [client, begin] of Object.entries(SESSIONS))
  t.test(`a session of ${client} changes the family at each of twenty turns`, async t => {
    const key = await g.key('famC', 10n)
    const session = begin(key)
    const before = billed
    for (let turn = 0; turn < TURNS; turn++) {
      t.match(await session.turn(turn), /said n\d+/, `turn ${turn}`)
      t.match(upstream.last.body, `turn ${turn}`)
    }
    const entries = await g.settled(key)
    t.ok(entries.length >= TURNS)
    t.ok(entries.every(({ status, usage_source }) => status === 'ok' && usage_source === 'upstream'))
    const { balance } = await g.balance(key)
    t.equal(10n * NANO - (parseDecimal(String(balance)) ?? 0n), billed - before, 'the charges equal the bills')
  })
