/** The worked requests of docs/charging.md: each charge is computed here from the rules of that page alone. */
import t from 'tap'
import type { FormatName } from '../../core/formats/index.ts'
import { formatCredits } from '../../core/money/credits.ts'
import { keepsTable } from '../tables.ts'
import { Exchanges, type Going, LEFT, MESSAGES, PLACES, reply, request, RESPONSES, say } from './exchanges.ts'

/** Tokens with their rates, in credits per million. */
type Tokens = readonly (readonly [tokens: number, rate: number])[]

interface Worked {
  readonly what: string
  readonly format: FormatName
  readonly more?: object
  /** The size of its body, if that counts. */
  readonly bodyBytes?: number
  readonly going: Going
  readonly sum: Tokens
  /** Calls of a tool, and what each costs. */
  readonly calls?: readonly [count: number, credits: number]
}

const chat = (usage: object): Going => ({ reply: { ...reply(PLACES['chat-completions'].path), usage } })
const { usage: _usage, ...unreported } = reply(PLACES['chat-completions'].path) as Record<string, unknown>
const search = (id: string): object => ({
  type: 'web_search_call',
  id,
  status: 'completed',
  action: { type: 'search' },
})
const chunk = (content: string): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`
const ATTEMPTS = [{ upstream: 'u', account: 'a', status: 200 }]

const WORKED: readonly Worked[] = [
  {
    what: 'JSON; reported: 10 input, 20 output',
    format: 'chat-completions',
    going: chat({ prompt_tokens: 10, completion_tokens: 20 }),
    sum: [[10, 3], [20, 15]],
  },
  {
    what: 'JSON; reported: 1000 input, 400 of it cached, 50 output',
    format: 'chat-completions',
    going: chat({ prompt_tokens: 1000, completion_tokens: 50, prompt_tokens_details: { cached_tokens: 400 } }),
    sum: [[600, 3], [400, 0.3], [50, 15]],
  },
  {
    what: 'messages to `acme/famA-medium-5`; reported: 100 input, 5000 read from the cache, 2000 written for five minutes and 1000 for an hour, 300 output',
    format: 'messages',
    going: { reply: reply(MESSAGES, { input_tokens: 100, output_tokens: 300, cache_read_input_tokens: 5000, cache_creation_input_tokens: 3000, cache_creation: { ephemeral_5m_input_tokens: 2000, ephemeral_1h_input_tokens: 1000 } }) },
    sum: [[100, 3], [5000, 0.3], [2000, 3.75], [1000, 6], [300, 15]],
  },
  {
    what: 'long input; reported: 300,000 input, 100,000 of it cached, 1000 output',
    format: 'chat-completions',
    going: chat({ prompt_tokens: 300_000, completion_tokens: 1000, prompt_tokens_details: { cached_tokens: 100_000 } }),
    sum: [[200_000, 6], [100_000, 0.6], [1000, 22.5]],
  },
  {
    what: 'responses with `web_search`; reported: 9000 input, 200 output, two searches',
    format: 'responses',
    more: { tools: [{ type: 'web_search' }] },
    going: { reply: reply(RESPONSES, { input_tokens: 9000, output_tokens: 200 }, { output: [search('a'), search('b')] }) },
    sum: [[9000, 3], [200, 15]],
    calls: [2, 0.01],
  },
  {
    what: 'JSON with a body of 1500 bytes; no usage, 90 bytes of text',
    format: 'chat-completions',
    bodyBytes: 1500,
    going: { reply: { ...unreported, choices: [{ index: 0, message: { role: 'assistant', content: 'x'.repeat(90) }, finish_reason: 'stop' }] } },
    sum: [[500, 3], [30, 15]],
  },
  {
    what: 'a stream with a body of 2000 bytes, `onDisconnect: cancel` and an `outputRate` of 150, whose client leaves after 20 s of silence and one second with 300 bytes of text',
    format: 'chat-completions',
    more: { stream: true },
    bodyBytes: 2000,
    going: { reply: chunk('x'.repeat(300)), outcome: LEFT, silentMs: 20_000, elapsedMs: 21_000 },
    sum: [[1000, 3], [150 + 150 * 21, 15]],
  },
  {
    what: 'a stream with a body of 600 bytes that the provider breaks off after 900 bytes of text',
    format: 'chat-completions',
    more: { stream: true },
    bodyBytes: 600,
    going: { reply: chunk('x'.repeat(900)), outcome: { kind: 'broken', by: 'upstream', status: 200, attempts: ATTEMPTS }, elapsedMs: 9000 },
    sum: [[200, 3], [300, 15]],
  },
  {
    what: 'an error of the provider with a usage, and no content',
    format: 'chat-completions',
    going: { reply: { error: { message: 'no', type: 'server_error' }, usage: { prompt_tokens: 10, completion_tokens: 20 } } },
    sum: [],
  },
  {
    what: 'reported by Portkey before Bedrock: 4 input, 97 output, 2821 cached, 2922 in all',
    format: 'chat-completions',
    going: chat({ prompt_tokens: 4, completion_tokens: 97, cache_read_input_tokens: 2821, total_tokens: 2922 }),
    sum: [[4, 3], [2821, 0.3], [97, 15]],
  },
  {
    what: 'reported with a total that has 237 tokens more: 80 input, 233 output, 550 in all',
    format: 'chat-completions',
    going: chat({ prompt_tokens: 80, completion_tokens: 233, total_tokens: 550 }),
    sum: [[317, 3], [233, 15]],
  },
  {
    what: 'messages to `acme/famA-medium-5`, answered by `acme/famA-small-4.5`; reported: 10 input, 20 output',
    format: 'messages',
    going: { reply: reply(MESSAGES, {}, { model: 'acme/famA-small-4.5' }) },
    sum: [[10, 1], [20, 5]],
  },
] // prettier-ignore

/** Returns a request whose body has this size. */
function sized(format: FormatName, more: object, bodyBytes: number): object {
  const { model } = PLACES[format]
  const empty = JSON.stringify(request(format, model, { ...more, messages: say('') })).length
  return { ...more, messages: say('x'.repeat(bodyBytes - empty)) }
}

t.test('the charge of each worked request follows from the rules of docs/charging.md', async t => {
  const rows: string[][] = []
  for (const { what, format, more = {}, bodyBytes, going, sum, calls } of WORKED) {
    const tokens = sum.reduce((all, [count, rate]) => all + count * Math.round(rate * 1000), 0)
    const due = BigInt(tokens) + (calls ? BigInt(calls[0]) * BigInt(Math.round(calls[1] * 1e9)) : 0n)
    // Nothing was learned from others.
    const place = await Exchanges.load(file => file)
    const { cost } = await place.ask(format, bodyBytes === undefined ? more : sized(format, more, bodyBytes), going)
    t.equal(cost, due, what)
    const terms = sum.map(([count, rate]) => `${count} × ${rate}`).join(' + ')
    const fees = calls ? ` millionths + ${calls[0]} × ${calls[1]}` : ''
    rows.push([what, terms === '' ? '-' : `${terms}${fees === '' ? ' millionths' : fees}`, formatCredits(due)])
  }
  keepsTable(t, new URL('../../docs/charging.md', import.meta.url), 'a worked request', rows)
})
