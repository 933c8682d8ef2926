import { deepStrictEqual } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import { FORMATS, type Format, type FormatName, type Rewriter } from '../../core/formats/index.ts'
import { OutputBytes } from '../../core/upstream/relay/event-filter.ts'
import { PassThroughFilter } from '../../core/upstream/relay/stream-filter.ts'
import modelGate from '../../plugins/model-gate.ts'
import { bodyOf, drive } from 'tollgate/testing'
import { DONE } from '../stream-events.ts'

t.test('the scanner finds the same in unparsed events as in parsed ones', t => {
  const format = FORMATS['chat-completions']
  const hide = format.prepare(bodyOf(Buffer.from('{"stream":true}')), { output: 0 }) as Rewriter
  const { edit: _edit, ...parsing } = hide
  const lines = [
    'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}',
    'data: {"choices":[{"delta":{"content":"a"}}],"usage":null,"obfuscation":"x"}',
    'data: {"choices":[{"delta":{"content":"a"}}],"usage":null,"obfuscation":"\\"}"}',
    'data: {"choices":[{"delta":{"content":"],\\"usage\\":null}"}}],"usage":null}',
    'data: {"choices":[{"delta":{"content":"b"},"n":{"a":[],"usage":null}}]}',
    'data: {"choices":[{"delta":{"content":"b"},"n":{"a":[],"usage":null}}],"usage":null}',
    'data: {"choices":[],\ndata: "n":{"a":[],"usage":null}\ndata: }',
    'data: {"n":\ndata: {"a":[],"usage":null}\ndata: ,"choices":[],"usage":null}',
    'data:{"choices":[1],"usage":null}',
    'data: {"choices":[1], "usage": null}',
    'event: e\ndata: {"choices":[1],"usage":null}',
    'data: {"choices":[1],"usage":null}\nid: 7',
    'data: {"choices":[1],"usage":null,"more":1}',
    'data: {"usage":null,"choices":[{"finish_reason":"stop"}]}',
    'data: {"choices":[],"usage":{"prompt_tokens":1}}',
    ': a comment with [],"usage":null}',
  ]
  const passed = (rewriter: Rewriter, ends: string): string => {
    const scanner = new PassThroughFilter(format, { all: false, rewriters: [rewriter], onEvent: () => {} })
    return scanner.push(Buffer.from(lines.map(line => line.replaceAll('\n', ends) + ends + ends).join(''))).toString()
  }
  for (const ends of ['\n', '\r\n']) t.equal(passed(hide, ends), passed(parsing, ends))
  t.notMatch(passed(hide, '\n'), /content":"a"[^\n]*usage/)
  t.end()
})

/** Values that a careless replacement would change: texts and nested members that look like the name of the model. */
const likeNames = fc.oneof(
  fc.constantFrom(
    'up/x',
    'mine',
    'other',
    '"model":"up/x"',
    '}\n\ndata: {"model":"up/x"}',
    { model: 'up/x' },
    { model: 'mine' },
    { message: { model: 'up/x' } },
    [{ model: 'up/x' }],
    'ü \\',
    null,
    1,
  ),
  fc.jsonValue({ maxDepth: 1 }),
)
const member = fc.tuple(
  fc.constantFrom('model', 'model', 'id', 'created', 'choices', 'response', 'message', 'type', 'input', 'metadata'),
  likeNames,
)

/** An event as one of many vendors might write it: with spaces, escapes, line breaks and repeated members. */
const eventText = fc
  .record({
    members: fc.array(member, { maxLength: 6 }),
    spaces: fc.constantFrom(['', ''], ['', ' '], [' ', ' ']),
    escapes: fc.constantFrom('none', 'none', 'slash', 'letter'),
    field: fc.constantFrom('data: ', 'data: ', 'data:', 'event: e\ndata: ', ': note\ndata: '),
    split: fc.boolean(),
    ends: fc.constantFrom('\n', '\n', '\n', '\r\n', '\r'),
  })
  .map(({ members, spaces: [before, after], escapes, field, split, ends }) => {
    const all = escapes === 'letter' ? [['model', 'up/x'], ...members, ['mod_el', 'up/x']] : members
    const json = `{${all.map(([name, value]) => `${JSON.stringify(name)}${before}:${after}${JSON.stringify(value)}`).join(',')}}`
    const spelled = escapes === 'slash' ? json.replaceAll('up/x', 'up\\/x') : json.replace('mod_el', 'mod\\u0065l')
    const comma = split ? spelled.indexOf('","') : -1
    const lines = comma === -1 ? spelled : `${spelled.slice(0, comma + 2)}\ndata: ${spelled.slice(comma + 2)}`
    return `${field}${lines}\n\n`.replaceAll('\n', ends)
  })

t.test('the model is renamed in the text of a stream as it is in parsed events, and nothing else changes', async t => {
  const models = new Map([['mine', { sends: 'up/x' }]])
  const config = { keyTypes: new Map([['a', { formats: Object.values(FORMATS), models }]]) } as never
  const { stage } = await drive(modelGate, {
    facts: { key: { type: 'a' } as never, body: bodyOf(Buffer.from('{"model":"mine"}')) },
    host: { config },
  })
  let renamed = 0
  const passes = (format: Format, rewriter: Rewriter, pushes: readonly string[]): string => {
    const filter = new PassThroughFilter(format, { all: false, rewriters: [rewriter], onEvent: () => {} })
    // An event that was parsed is written with a space.
    return pushes.map(text => filter.push(Buffer.from(text)).toString().replaceAll('data:{', 'data: {')).join('')
  }
  fc.assert(
    fc.property(
      fc.constantFrom(...(Object.keys(FORMATS) as FormatName[])),
      fc.array(fc.array(eventText, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
      fc.constantFrom('up/x', 'other', undefined),
      (name, events, model) => {
        const format = FORMATS[name]
        const pushes = events.map(together => together.join(''))
        const make = (): Rewriter =>
          stage.rewrite?.({ model: { asked: 'mine' }, format } as never, { model } as never) as Rewriter
        const expected = passes(format, { matches: ['"model"'], event: event => make().event(event) }, pushes)
        if (expected !== pushes.join('')) renamed++
        deepStrictEqual(passes(format, make(), pushes), expected)
      },
    ),
    { numRuns: 5000 },
  )
  t.ok(renamed > 1000, 'many of the streams had a name to replace')
})

t.test('the count of delivered text handles escapes, spaces and look-alikes', t => {
  const scan = (text: string): number => {
    const scanner = new PassThroughFilter(FORMATS['chat-completions'], { all: false, rewriters: [], onEvent: () => {} })
    scanner.push(Buffer.from(text))
    return scanner.delivered
  }
  t.equal(scan('data: {"content":"abc"}\n\n'), 3)
  t.equal(scan('data: {"content": "abc"}\n\n'), 3)
  t.equal(scan('data: {"content":"a\\"b\\\\"}\n\n'), 6)
  t.equal(scan('data: {"content":null,"x":"content"}\n\n'), 0)
  t.equal(scan('data: {"content":"\\"content\\":\\"abc\\""}\n\n'), 19)
  t.equal(scan('data: {"content":"a","reasoning_content":"bc"}\n\ndata: {"content":"d"}\n\n'), 4)
  t.end()
})

/** Events of each format, and the bytes of output in them. */
const OUTPUTS: readonly (readonly [what: string, FormatName, events: readonly object[], bytes: number])[] = [
  [
    'a list of content',
    'chat-completions',
    [{ choices: [{ delta: { content: [{ type: 'text', text: 'abc' }] } }] }],
    3,
  ],
  ['a call', 'chat-completions', [{ choices: [{ delta: { tool_calls: [{ index: 0, function: { name: 'look_up', arguments: '{}' } }] } }] }], 9], // prettier-ignore
  ['reasoning that is sent twice', 'chat-completions', [{ choices: [{ delta: { reasoning: 'abc', reasoning_details: [{ type: 'reasoning.text', text: 'abc', index: 0 }] } }] }], 3], // prettier-ignore
  ['a call', 'messages', [{ type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'a', name: 'look_up', input: {} } }, { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: '{}' } }], 9], // prettier-ignore
  ['added text', 'responses', [{ type: 'response.output_text.delta', delta: 'abc' }, { type: 'response.output_text.delta', delta: 'd' }], 4], // prettier-ignore
  ['text that is added and repeated', 'responses', [{ type: 'response.output_text.delta', delta: 'abc' }, { type: 'response.output_text.done', item_id: 'a', text: 'abc' }, { type: 'response.content_part.done', part: { type: 'output_text', text: 'abc' } }], 3], // prettier-ignore
  ['text that comes as a whole', 'responses', [{ type: 'response.output_text.done', item_id: 'a', text: 'abc' }, { type: 'response.content_part.done', part: { type: 'output_text', text: 'abc' } }, { type: 'response.function_call_arguments.done', item_id: 'b', arguments: '{}' }], 5], // prettier-ignore
  ['a call', 'responses', [{ type: 'response.output_item.added', output_index: 0, item: { type: 'function_call', name: 'look_up', arguments: '' } }, { type: 'response.function_call_arguments.delta', delta: '{}' }, { type: 'response.output_item.done', output_index: 0, item: { type: 'function_call', name: 'look_up', arguments: '{}' } }], 9], // prettier-ignore
]

t.test('what is delivered counts, wherever a format puts it, and once', t => {
  for (const [what, name, events, bytes] of OUTPUTS) {
    const format = FORMATS[name]
    const text = events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')
    for (const all of [true, false]) {
      const filter = new PassThroughFilter(format, { all, rewriters: [], onEvent: () => {} })
      filter.push(Buffer.from(text))
      t.equal(filter.delivered, bytes, `${name}: ${what}, ${all ? 'every event' : 'few events'}`)
    }
    const translating = new OutputBytes(format.text)
    translating.take(text)
    const names = events.reduce((sum: number, event) => sum + (format.read(event).nameBytes ?? 0), 0)
    t.equal(translating.bytes + names, bytes, `${name}: ${what}, translated`)
  }
  t.end()
})

/** How each format streams a text, and which of its events have signals. */
const EVENTS: Readonly<
  Record<FormatName, { readonly text: (json: string) => string; readonly signals: readonly string[] }>
> = {
  'chat-completions': {
    text: json =>
      `data: {"model":"m","choices":[{"index":0,"delta":{"content":${json}},"finish_reason":null}],"usage":null}`,
    signals: [
      'data: {"model":"m","choices":[{"index":0,"delta":{"content":"end"},"finish_reason":"stop"}],"usage":null}',
      'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
      'data: {"service_tier":"priority","choices":[{"index":0,"delta":{"content":"end"}}]}',
      'data: {"error":{"message":"no"}}',
      'data: [DONE]',
    ],
  },
  messages: {
    text: json =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":${json}}}`,
    signals: [
      'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"begun"}}',
      'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}',
      'event: message_stop\ndata: {"type":"message_stop"}',
    ],
  },
  responses: {
    text: json => `event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":${json}}`,
    signals: [
      'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"output_tokens":2}}}',
      'event: error\ndata: {"type":"error","message":"no"}',
    ],
  },
}

const DULL = [': a comment', 'data: {"type":"ping"}', 'data: {"text":null,"content":[],"delta":{}}']

/** Texts that look like matches, and texts that repeat. */
const texts = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 8 }),
  fc.constantFrom(
    '',
    ' the',
    '"',
    '\\',
    '\\"',
    'data: [DONE]',
    '"error"',
    '"usage":{"total_tokens":1}',
    '"content":"x"',
    '","delta":"',
  ),
)

interface Line {
  readonly line: string
  readonly bytes: number
  readonly hasSignals: boolean
}

const streamOf = (name: FormatName): fc.Arbitrary<readonly Line[]> => {
  const { text, signals } = EVENTS[name]
  return fc.array(
    fc.oneof(
      {
        weight: 6,
        arbitrary: texts.map(words => ({
          line: text(JSON.stringify(words)),
          bytes: Buffer.byteLength(JSON.stringify(words)) - 2,
          hasSignals: false,
        })),
      },
      {
        weight: 1,
        arbitrary: fc
          .constantFrom(...signals)
          .map(line => ({ line, bytes: (/"(?:end|begun)"/.exec(line)?.[0].length ?? 2) - 2, hasSignals: true })),
      },
      { weight: 1, arbitrary: fc.constantFrom(...DULL).map(line => ({ line, bytes: 0, hasSignals: false })) },
    ),
    { maxLength: 12 },
  )
}

/** Matches for none, for words in events, for one in texts, for a text's own name, and for all events in two ways. */
const MATCHES: readonly (readonly string[] | undefined)[] = [
  [],
  ['"usage"', '"model"'],
  ['the'],
  ['"content"', '"delta"'],
  [''],
  undefined,
]

/**
 * The data of the events that a scanner parsed for a rewriter without changes, its output, and the amount of text it
 * counted.
 */
function scanned(
  format: Format,
  matches: readonly string[] | undefined,
  parts: readonly string[],
): { seen: string[]; out: string; delivered: number } {
  const seen: string[] = []
  const idle: Rewriter = { ...(matches && { matches: matches }), event: () => undefined }
  const scanner = new PassThroughFilter(format, {
    all: false,
    rewriters: [idle],
    onEvent: ({ data }) => void seen.push(data),
  })
  const out = parts.map(part => scanner.push(Buffer.from(part)).toString()).join('')
  return { seen, out, delivered: scanner.delivered }
}

const dataOf = (lines: readonly Line[]): string[] =>
  lines.flatMap(({ line }) => /(?:^|\n)data: ([^\n]*)/.exec(line)?.[1] ?? [])

/** Removes the values of a line, in which a word in quotes does not match. */
const namesOf = (line: string): string => line.replace(/"(?:[^"\\]|\\.)*"(?!:)/g, '')

/** Whether one value equals another without some of its members. */
function isWithin(some: readonly string[], all: readonly string[]): boolean {
  let at = 0
  for (const one of all) if (one === some[at]) at++
  return at === some.length
}

for (const name of Object.keys(EVENTS) as FormatName[]) {
  t.test(`${name}: events with signals are parsed, few others are, and every byte of text is counted`, t => {
    const format = FORMATS[name]
    const property = fc.property(
      streamOf(name),
      fc.constantFrom(...MATCHES),
      fc.constantFrom('\n', '\r\n', '\r'),
      fc.nat(12),
      (lines, matches, end, cut) => {
        const events = lines.map(({ line }) => line.replaceAll('\n', end) + end + end)
        const { seen, out, delivered } = scanned(format, matches, [
          events.slice(0, cut).join(''),
          events.slice(cut).join(''),
        ])
        const asked = (line: string): boolean =>
          matches?.some(needle => (needle.startsWith('"') ? namesOf(line) : line).includes(needle)) ?? true
        const must = lines.filter(({ line, hasSignals }) => hasSignals || asked(line))
        const may = lines.filter(({ line }) =>
          [...format.signals, ...(matches ?? [''])].some(word =>
            typeof word === 'string' ? line.includes(word) : word.test(line),
          ),
        )
        return (
          out === events.join('') &&
          delivered === lines.reduce((sum, { bytes }) => sum + bytes, 0) &&
          isWithin(dataOf(must), seen) &&
          isWithin(seen, dataOf(may))
        )
      },
    )
    fc.assert(property, { numRuns: 2000 })
    t.end()
  })
}

/** A scanner that looks back from each of these would take minutes for a megabyte. */
const LONG: Readonly<Record<string, string>> = {
  'events that tell something, with CRLF': 'data: [DONE]\r\n\r\n'.repeat(65_000),
  'events that tell something, behind a lone CR': `\r${DONE.repeat(75_000)}`,
  'a line full of what is taken out at its end': `data: {"c":[${'{"b":[],"usage":null},'.repeat(50_000)}1]}\n\n`,
  'blank lines': '\n'.repeat(1_000_000),
  'a line full of types of events': `data: {"type":"response.created","enum":[${'"response.output_text.done",'.repeat(40_000)}1]}\n\n`,
  'lines full of types of events': 'data: {"type":"response.output_text.done","x":1}\n\n'.repeat(20_000),
}

for (const [name, text] of Object.entries(LONG)) {
  t.test(`a megabyte of ${name} passes unchanged`, t => {
    const hide = FORMATS['chat-completions'].prepare(bodyOf(Buffer.from('{"stream":true}')), { output: 0 }) as Rewriter
    for (const format of Object.values(FORMATS)) {
      const rewriters = format.name === 'chat-completions' ? [hide] : []
      const scanner = new PassThroughFilter(format, { all: false, rewriters, onEvent: () => {} })
      t.ok(scanner.push(Buffer.from(text)).equals(Buffer.from(text)), format.name)
    }
    t.end()
  })
}
