import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { type Format, type FormatName, formatOf, UsageTally } from '../../core/formats/index.ts'
import {
  type CounterName,
  type CounterTable,
  EXCLUSIVE_COUNTERS,
  INCLUSIVE_COUNTERS,
} from '../../core/formats/usage-counters.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import { keepsTable } from '../tables.ts'
import { type Ended, Exchanges, type Going, PLACES } from './exchanges.ts'
import { typed } from '../stream-events.ts'
import { DONE } from '../stream-events.ts'

/** Usage as providers really report it: in several events, places, names and types. */

type Raw = Readonly<Record<string, unknown>>

const data = (event: object): string => `data: ${JSON.stringify(event)}\n\n`
const choice = (more: object): object => ({ index: 0, delta: {}, finish_reason: null, ...more })
const chunk = (more: object): string => data({ id: 'c', object: 'chat.completion.chunk', choices: [], ...more })

/** The text of a stream that reports these usages one after the other. */
const STREAMS: Readonly<Record<FormatName, (reports: readonly Raw[]) => string>> = {
  'chat-completions': reports =>
    chunk({ choices: [choice({ delta: { content: 'x' } })] }) +
    chunk({ choices: [choice({ finish_reason: 'stop' })] }) +
    reports.map(usage => chunk({ usage })).join('') +
    DONE,
  responses: reports =>
    typed({ type: 'response.output_text.delta', delta: 'x' }) +
    typed({
      type: 'response.completed',
      response: { id: 'r', object: 'response', status: 'completed', output: [], usage: reports.at(-1) },
    }),
  messages: ([first = {}, ...others]) =>
    typed({ type: 'message_start', message: { type: 'message', role: 'assistant', usage: first } }) +
    typed({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }) +
    typed({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x' } }) +
    typed({ type: 'content_block_stop', index: 0 }) +
    (others.length === 0 ? [first] : others)
      .map(usage => typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage }))
      .join('') +
    typed({ type: 'message_stop' }),
}

/** A JSON reply with a usage. */
const REPLIES: Readonly<Record<FormatName, (usage: Raw) => object>> = {
  'chat-completions': usage => ({
    id: 'c',
    choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }],
    usage,
  }),
  responses: usage => ({ id: 'r', object: 'response', status: 'completed', output: [], usage }),
  messages: usage => ({ type: 'message', content: [{ type: 'text', text: 'x' }], stop_reason: 'end_turn', usage }),
}

/** What is charged: input that was neither read from a cache nor written to one, the cached and the written part, output. */
type Charged = readonly [input: number, cacheRead: number, written: number, output: number]

function charged({ notes: { usage } }: Ended): Charged {
  const { input = 0, cacheRead = 0, cacheWrite5m = 0, cacheWrite1h = 0, output = 0 } = usage ?? {}
  return [input, cacheRead, cacheWrite5m + cacheWrite1h, output]
}

/** Reports in order, what is charged, and what is marked. One report is tried as JSON and as a stream. */
const CASES: readonly (readonly [what: string, FormatName, reports: Raw[], Charged, unread?: readonly string[]])[] = [
  ['a last event of zeros', 'messages', [{ input_tokens: 500, cache_read_input_tokens: 300 }, { input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 20 }], [500, 300, 0, 20]], // prettier-ignore
  ['a last chunk of zeros', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30 }, { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }], [100, 0, 0, 30]], // prettier-ignore
  ['a usage in every chunk', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 1, total_tokens: 101 }, { prompt_tokens: 100, completion_tokens: 30, total_tokens: 130 }], [100, 0, 0, 30]], // prettier-ignore
  ['the whole prompt first, and its cached part at the end', 'messages', [{ input_tokens: 3602 }, { cache_read_input_tokens: 3604, output_tokens: 20 }], [0, 3604, 0, 20]], // prettier-ignore
  ['the same, with a written part', 'messages', [{ input_tokens: 3602 }, { cache_read_input_tokens: 3000, cache_creation_input_tokens: 500, output_tokens: 20 }], [102, 3000, 500, 20]], // prettier-ignore
  ['input that grows by tools', 'messages', [{ input_tokens: 2037, cache_read_input_tokens: 100 }, { input_tokens: 15_665, cache_read_input_tokens: 100, output_tokens: 20 }], [15_665, 100, 0, 20]], // prettier-ignore
  ['null for what is said already', 'messages', [{ input_tokens: 500, cache_read_input_tokens: 300 }, { input_tokens: null, cache_read_input_tokens: null, output_tokens: 20 }], [500, 300, 0, 20]], // prettier-ignore
  ['cached tokens beside the counters', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, cached_tokens: 40 }], [60, 40, 0, 30]], // prettier-ignore
  ['cached tokens under the name of another vendor', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, cache_read_input_tokens: 40 }], [60, 40, 0, 30]], // prettier-ignore
  ['cached tokens as hits', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, prompt_cache_hit_tokens: 40, prompt_cache_miss_tokens: 60 }], [60, 40, 0, 30]], // prettier-ignore
  ['written tokens in two places', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 20, cache_creation_tokens: 40 }, cache_creation_input_tokens: 40 }], [40, 20, 40, 30]], // prettier-ignore
  ['the counters of the other format', 'chat-completions', [{ input_tokens: 100, output_tokens: 30, input_tokens_details: { cached_tokens: 40 } }], [60, 40, 0, 30]], // prettier-ignore
  ['the counters of the other format', 'responses', [{ prompt_tokens: 100, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 40 } }], [60, 40, 0, 30]], // prettier-ignore
  ['reasoning beside the output, by the total', 'chat-completions', [{ prompt_tokens: 12, completion_tokens: 2, total_tokens: 354, completion_tokens_details: { reasoning_tokens: 340 } }], [12, 0, 0, 342]], // prettier-ignore
  ['more reasoning than output', 'chat-completions', [{ prompt_tokens: 12, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 340 } }], [12, 0, 0, 342], ['completion_tokens_details.reasoning_tokens']], // prettier-ignore
  ['a total above the sum', 'chat-completions', [{ prompt_tokens: 12, completion_tokens: 2, total_tokens: 114 }], [112, 0, 0, 2], ['total_tokens']], // prettier-ignore
  ['a total above the sum', 'responses', [{ input_tokens: 12, output_tokens: 2, total_tokens: 1014 }], [1012, 0, 0, 2], ['total_tokens']], // prettier-ignore
  ['a total below the sum', 'responses', [{ input_tokens: 12, output_tokens: 2, total_tokens: 3 }], [12, 0, 0, 2], ['total_tokens']], // prettier-ignore
  ['counters as texts', 'chat-completions', [{ prompt_tokens: '100', completion_tokens: '30' }], [100, 0, 0, 30], ['prompt_tokens', 'completion_tokens']], // prettier-ignore
  ['counters as texts', 'responses', [{ input_tokens: '100', output_tokens: '30' }], [100, 0, 0, 30], ['input_tokens', 'output_tokens']], // prettier-ignore
  ['counters as texts', 'messages', [{ input_tokens: '100', output_tokens: '30' }], [100, 0, 0, 30], ['input_tokens', 'output_tokens']], // prettier-ignore
  ['a negative counter among good ones', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, prompt_tokens_details: { cached_tokens: -1 } }], [100, 0, 0, 30], ['prompt_tokens_details.cached_tokens']], // prettier-ignore
  ['a negative counter among good ones', 'responses', [{ input_tokens: 100, output_tokens: 30, output_tokens_details: { reasoning_tokens: -1 } }], [100, 0, 0, 30], ['output_tokens_details.reasoning_tokens']], // prettier-ignore
  ['a negative counter among good ones', 'messages', [{ input_tokens: 100, output_tokens: 30, cache_read_input_tokens: -1 }], [100, 0, 0, 30], ['cache_read_input_tokens']], // prettier-ignore
  ['more cached tokens than input', 'responses', [{ input_tokens: 100, output_tokens: 30, input_tokens_details: { cached_tokens: 140 } }], [100, 140, 0, 30], ['input_tokens_details.cached_tokens']], // prettier-ignore
  ['an unknown counter', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, prompt_tokens_details: { video_tokens: 5 } }], [100, 0, 0, 30], ['prompt_tokens_details.video_tokens']], // prettier-ignore
  ['an unknown counter', 'messages', [{ input_tokens: 100, output_tokens: 30, dream_tokens: 5 }], [100, 0, 0, 30], ['dream_tokens']], // prettier-ignore
  ['cached tokens under the name of a format that counts otherwise', 'messages', [{ input_tokens: 100, output_tokens: 30, input_tokens_details: { cached_tokens: 40 } }], [100, 0, 0, 30], ['input_tokens_details.cached_tokens']], // prettier-ignore
  ['more written than the whole prompt', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, cache_creation_input_tokens: 500 }], [100, 0, 500, 30], ['cache_creation_input_tokens']], // prettier-ignore
  ['written parts beside another sum', 'messages', [{ input_tokens: 100, output_tokens: 30, cache_creation_input_tokens: 10, cache_creation: { ephemeral_5m_input_tokens: 50, ephemeral_1h_input_tokens: 50 } }], [100, 0, 100, 30], ['cache_creation_input_tokens']], // prettier-ignore
  ['an image in a cached prompt', 'chat-completions', [{ prompt_tokens: 1000, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 900, image_tokens: 700 } }], [100, 900, 0, 30]], // prettier-ignore
  ['sources that are no number', 'chat-completions', [{ prompt_tokens: 100, completion_tokens: 30, num_sources_used: 'x' }], [100, 0, 0, 30], ['num_sources_used']], // prettier-ignore
  ['members that say nothing', 'messages', [{ input_tokens: 100, output_tokens: 30, other_tokens: 0, details: { x: null, y: '' } }], [100, 0, 0, 30]], // prettier-ignore
]

t.test('usage is charged as the provider means it, and what is understood in part is marked', async t => {
  const place = await Exchanges.load()
  for (const [what, format, reports, right, unread] of CASES) {
    const ways: [string, object, Going['reply']][] = [['stream', { stream: true }, STREAMS[format](reports)]]
    const [only] = reports
    if (only && reports.length === 1) ways.push(['JSON', {}, REPLIES[format](only)])
    for (const [way, more, reply] of ways) {
      const ended = await place.ask(format, more, { reply: reply as object })
      t.same(charged(ended), right, `${what}, ${format}, ${way}`)
      t.same(ended.notes.unread, unread, `${what}, ${format}, ${way}: the marks`)
      t.equal(ended.notes.usageSource, 'upstream')
    }
  }
})

t.test('usage stands in a choice, or in a member of a vendor', async t => {
  const place = await Exchanges.load()
  const usage = { prompt_tokens: 100, completion_tokens: 30 }
  for (const last of [
    chunk({ choices: [choice({ finish_reason: 'stop', usage })] }),
    chunk({ choices: [choice({ finish_reason: 'stop' })], x_groq: { id: 'req', usage } }),
  ]) {
    const reply = `${chunk({ choices: [choice({ delta: { content: 'x' } })] })}${last}data: [DONE]\n\n`
    const ended = await place.ask('chat-completions', { stream: true }, { reply })
    t.same(charged(ended), [100, 0, 0, 30])
    t.equal(ended.notes.unread, undefined)
  }
})

t.test('a usage that counts nothing is marked, and the reply is estimated', async t => {
  const place = await Exchanges.load()
  for (const format of ['chat-completions', 'responses', 'messages'] as const) {
    const strange = { tokens_in: 100, tokens_out: 30 }
    const ended = await place.ask(format, {}, { reply: REPLIES[format](strange) })
    t.match(ended.notes, { unread: ['tokens_in', 'tokens_out'] })
    t.not(ended.notes.usageSource, 'upstream')
    const total = await place.ask(format, {}, { reply: REPLIES[format]({ total_tokens: 500 }) })
    t.same(total.notes.unread, ['total_tokens'], 'a total alone')
    const cached = await place.ask(format, {}, { reply: REPLIES[format]({ cache_read_input_tokens: 500 }) })
    t.ok((cached.notes.unread?.length ?? 0) > 0, 'a part alone')
  }
})

t.test('zeros are no usage: the reply is estimated, and marked', async t => {
  const place = await Exchanges.load()
  for (const format of ['chat-completions', 'responses', 'messages'] as const) {
    const zeros =
      format === 'chat-completions' ? { prompt_tokens: 0, completion_tokens: 0 } : { input_tokens: 0, output_tokens: 0 }
    const output = [{ type: 'message', content: [{ type: 'output_text', text: 'x' }] }]
    for (const reply of [{ ...REPLIES[format](zeros), output }, STREAMS[format]([zeros])]) {
      const { cost, notes } = await place.ask(format, { stream: typeof reply === 'string' }, { reply })
      t.ok(cost > 0n, format)
      t.match(notes, { usageSource: 'estimated', unread: ['usage'] })
    }
  }
})

t.test('a usage that counts far less than the text is charged as it is, and marked', async t => {
  const place = await Exchanges.load()
  const long = 'some words '.repeat(2000)
  const reply = { ...REPLIES.messages({ input_tokens: 1, output_tokens: 1 }), content: [{ type: 'text', text: long }] }
  const short = await place.ask('messages', {}, { reply })
  t.same(short.notes.unread, ['output'])
  const asked = await place.ask('messages', { messages: [{ role: 'user', content: long }] }, { reply })
  t.same(asked.notes.unread, ['output', 'input'])
  const right = { ...reply, usage: { input_tokens: 4000, output_tokens: 4000 } }
  const fair = await place.ask('messages', { messages: [{ role: 'user', content: long }] }, { reply: right })
  t.equal(fair.notes.unread, undefined)
})

t.test('content after a usage makes it a part of the whole', async t => {
  const place = await Exchanges.load()
  const usage = { prompt_tokens: 10, completion_tokens: 1 }
  const reply = `${chunk({ usage })}${chunk({ choices: [choice({ delta: { content: 'x'.repeat(600) } })] })}`
  const outcome = { kind: 'broken', by: 'client', status: 200, attempts: [] } as const
  const attempts = [{ upstream: 'u', account: 'a', status: 200 }]
  const ended = await place.ask('chat-completions', { stream: true }, { reply, outcome: { ...outcome, attempts } })
  t.equal(ended.notes.usageSource, 'estimated')
  t.ok((ended.notes.usage?.output ?? 0) >= 300)
})

t.test('the paths that are told are few, and are no text of a customer', async t => {
  const place = await Exchanges.load()
  const many = Object.fromEntries(Array.from({ length: 20 }, (_, nth) => [`tokens_${nth}`, 1]))
  const { notes } = await place.ask('messages', {}, { reply: REPLIES.messages({ 'a text of somebody': 1, ...many }) })
  t.equal(notes.unread?.length, 8)
  t.equal(notes.unread?.[0], 'other')
  t.match([...place.meter.unread.all], [{ upstream: 'famA', model: 'acme/famA-medium-5', count: 1 }])
})

/** Tokens of a scripted bill, in the classes that are charged. */
const BILL = fc.record({
  input: fc.nat(5000),
  cacheRead: fc.nat(5000),
  written: fc.nat(500),
  output: fc.integer({ min: 1, max: 3000 }),
  reasoning: fc.nat(1000),
})
type Billed = typeof BILL extends fc.Arbitrary<infer B> ? B : never

/** The usage of a bill in a format in which cached and written tokens are parts of the prompt. */
function inclusive({ input, cacheRead, written, output, reasoning }: Billed, prompt: string, completion: string): Raw {
  return {
    [`${prompt}_tokens`]: input + cacheRead + written,
    [`${prompt}_tokens_details`]: { cached_tokens: cacheRead, cache_write_tokens: written },
    [`${completion}_tokens`]: output,
    [`${completion}_tokens_details`]: { reasoning_tokens: Math.min(reasoning, output) },
    total_tokens: input + cacheRead + written + output,
  }
}

/** The usage of a bill as each vendor documents it. */
const DOCUMENTED: Readonly<Record<FormatName, (bill: Billed) => Raw>> = {
  'chat-completions': bill => inclusive(bill, 'prompt', 'completion'),
  responses: bill => inclusive(bill, 'input', 'output'),
  messages: ({ input, cacheRead, written, output, reasoning }) => ({
    input_tokens: input,
    cache_read_input_tokens: cacheRead,
    cache_creation_input_tokens: written,
    cache_creation: { ephemeral_5m_input_tokens: written, ephemeral_1h_input_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { thinking_tokens: Math.min(reasoning, output) },
  }),
}

/** A usage with one of its members changed. @param nth which of its counters */
function changed(raw: Raw, nth: number, change: (name: string, value: number) => Raw): Raw {
  const names = Object.keys(raw)
  const name = names[nth % names.length] as string
  const { [name]: value, ...others } = raw
  if (typeof value === 'number') return { ...others, ...change(name, value) }
  return { ...others, [name]: changed(value as Raw, nth, change) }
}

/** What providers do to a usage, without a loss of what it says. */
const CHANGES: Readonly<Record<string, (raw: Raw, nth: number, bill: Billed, format: FormatName) => readonly Raw[]>> = {
  'as documented': raw => [raw],
  'moved to an object of its own': (raw, nth) => [changed(raw, nth, (name, value) => ({ vendor: { [name]: value } }))],
  'moved to the top': (raw, nth) => {
    let moved: Raw = {}
    const rest = changed(raw, nth, (name, value) => ((moved = { [name]: value }), {}))
    return [{ ...rest, ...moved }]
  },
  renamed: (raw, nth) => [changed(raw, nth, (name, value) => ({ [`vendor_${name}`]: value }))],
  'as a text': (raw, nth) => [changed(raw, nth, (name, value) => ({ [name]: String(value) }))],
  negative: (raw, nth) => [changed(raw, nth, (name, value) => ({ [name]: -1 - value }))],
  'a fraction': (raw, nth) => [changed(raw, nth, (name, value) => ({ [name]: value + 0.5 }))],
  'a list': (raw, nth) => [changed(raw, nth, (name, value) => ({ [name]: [value + 1] }))],
  'an object': (raw, nth) => [changed(raw, nth, (name, value) => ({ [name]: { value: value + 1 } }))],
  'too large': (raw, nth) => [changed(raw, nth, name => ({ [name]: 2 ** 60 }))],
  'repeated, with zeros': (raw, nth) => [raw, changed(raw, nth, name => ({ [name]: 0 }))],
  'repeated, with null': (raw, nth) => [raw, changed(raw, nth, name => ({ [name]: null }))],
  'in every event, growing': (raw, nth) => [
    changed(raw, nth, (name, value) => ({ [name]: Math.floor(value / 2) })),
    raw,
  ],
  'split into events': (raw, nth) => {
    let [name, value] = ['', 0]
    const rest = changed(raw, nth, (...member) => (([name, value] = member), {}))
    // Where the input is counted apart, a cached part that comes later is one of the input that was told before.
    return name in raw && !name.startsWith('cache_') ? [rest, { [name]: value }] : [raw]
  },
  'the whole prompt first': (raw, _nth, { input, cacheRead, written }, format) =>
    format === 'messages' && cacheRead + written > 0
      ? [{ input_tokens: input + cacheRead + written }, { ...raw, input_tokens: null }]
      : [raw],
}

t.test('a charge that differs from the bill is marked, whatever a provider does to its usage', t => {
  const names = Object.keys(CHANGES)
  const right = new Map(names.map(name => [name, 0]))
  fc.assert(
    fc.property(
      fc.constantFrom<FormatName>('chat-completions', 'responses', 'messages'),
      fc.constantFrom(...names),
      BILL,
      fc.nat(20),
      (format, name, bill, nth) => {
        const reports = CHANGES[name]?.(DOCUMENTED[format](bill), nth, bill, format) ?? []
        const tally = new UsageTally(formatOf(PLACES[format].path) as Format)
        for (const usage of reports) tally.addUsage(usage)
        const { usage } = tally.usage() ?? {}
        const { input, cacheRead, cacheWrite5m: written, cacheWrite1h, output } = usage ?? NO_USAGE
        const isRight = isDeepStrictEqual(
          [input, cacheRead, written + cacheWrite1h, output],
          [bill.input, bill.cacheRead, bill.written, bill.output],
        )
        if (isRight) right.set(name, (right.get(name) ?? 0) + 1)
        const marks = tally.unread
        if (name === 'as documented' || name.startsWith('repeated')) return isRight && marks.length === 0
        return isRight || marks.length > 0
      },
    ),
    { numRuns: Number(process.env['CASES'] ?? 2000), seed: Number(process.env['SEED'] ?? 20_261_127) },
  )
  t.ok((right.get('the whole prompt first') ?? 0) > 0)
  t.end()
})

const WORDS: Readonly<Record<CounterName, string>> = {
  prompt: 'input',
  toolPrompt: 'input that tools of the provider have added',
  cacheRead: 'input read from a cache',
  cacheWrite: 'input written to a cache',
  cacheWrite5m: 'input written to a cache for five minutes',
  cacheWrite1h: 'input written to a cache for an hour',
  audioInput: 'sound in the input',
  imageInput: 'images in the input',
  output: 'output',
  reasoning: 'reasoning',
  audioOutput: 'sound in the output',
  imageOutput: 'images in the output',
  rejected: 'predicted text that was not used',
  total: 'all tokens, as a check',
}

t.test('docs/providers.md has the table of counters', t => {
  const cells = ({ rows }: CounterTable, name: string): [paths: string, whole: string] => {
    const { places = [], partOf } = rows.find(({ counts }) => counts === name) ?? {}
    return [places.map(({ path }) => `\`${path}\``).join(', '), partOf ? WORDS[partOf] : '']
  }
  const rows = Object.entries(WORDS).map(([name, text]) => [
    text,
    ...cells(INCLUSIVE_COUNTERS, name),
    ...cells(EXCLUSIVE_COUNTERS, name),
  ])
  keepsTable(t, new URL('../../docs/providers.md', import.meta.url), 'counter', rows)
  t.end()
})
