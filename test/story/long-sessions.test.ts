import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import Anthropic from '@anthropic-ai/sdk'
import { generateText, jsonSchema, stepCountIs, streamText, tool, type LanguageModel, type ModelMessage } from 'ai'
import OpenAI from 'openai'
import t from 'tap'
import { NANO, parseDecimal } from '../../core/money/credits.ts'
import type { Price } from '../../core/money/price.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { families, PNG, type Providers, providers } from '../session-provider.ts'
import { type Received, ScriptedUpstream } from '../upstream.ts'

/**
 * Sessions of twenty turns that change the family at each turn, with tools, images, reasoning and a compaction. The
 * providers refuse what providers refuse, and reasoning that they have not signed.
 */

const TURNS = 20
const MODELS = ['a', 'b', 'c'] as const
const modelOf = (turn: number): string => MODELS[turn % MODELS.length] as string
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } } } as const

let g: TestGateway
let upstream: ScriptedUpstream
let made: Providers

t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url, edit: families() })
  const price = g.gateway.config.keyTypes.get('famC')?.models.get('a')?.price as Price
  made = providers(upstream, price, received =>
    wantsTool(received) ? { name: 'w', input: { city: 'Oslo' } } : undefined,
  )
})

/** Whether the request has tools, and the user's last word asks for one. */
function wantsTool({ body }: Received): boolean {
  const asked = body.lastIndexOf('use the tool')
  return (
    body.includes('"tools"') && !body.includes('Summarise this conversation') && asked > body.lastIndexOf('result of')
  )
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
    const before = made.billed
    for (let turn = 0; turn < TURNS; turn++) {
      t.match(await session.turn(turn), /said n\d+/, `turn ${turn}`)
      t.match(upstream.last.body, `turn ${turn}`)
    }
    const entries = await g.settled(key)
    t.ok(entries.length >= TURNS)
    t.ok(entries.every(({ status, usage_source }) => status === 'ok' && usage_source === 'upstream'))
    const { balance } = await g.balance(key)
    t.equal(10n * NANO - (parseDecimal(String(balance)) ?? 0n), made.billed - before, 'the charges equal the bills')
  })
