import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { FORMATS, type FormatName, FORMAT_NAMES } from '../../core/formats/index.ts'
import { replyOf } from '../../core/formats/translate/part-order.ts'
import type { ReplyPart } from '../../core/formats/translate/neutral.ts'
import { eventsIn } from '../../core/upstream/relay/sse.ts'

/** Streams in which places are left out, shifted or the same everywhere, and in which things come twice, say the same. */

type Event = Record<string, any>

const CASES = new URL('replies/', import.meta.url)

/** Changes the numbers of an event, wherever they stand. */
const numbered =
  (names: readonly string[], change: (number: number) => number | undefined) =>
  (events: readonly Event[]): Event[] =>
    events.map(event => JSON.parse(JSON.stringify(event, (name, value) => (names.includes(name) && typeof value === 'number' ? change(value) : value)))) // prettier-ignore

const PLACES: Readonly<Record<FormatName, readonly string[]>> = {
  // The index of a choice is no place of a part.
  'chat-completions': [],
  responses: ['output_index', 'content_index'],
  messages: ['index'],
}

/** Changes the indexes of calls in chat completions. */
const ofCalls =
  (change: (number: number) => number | undefined) =>
  (events: readonly Event[]): Event[] =>
    events.map(event => ({
      ...event,
      choices: event['choices']?.map((choice: Event) => ({
        ...choice,
        delta: { ...choice['delta'], ...(choice['delta']?.tool_calls && { tool_calls: choice['delta'].tool_calls.map((call: Event) => ({ ...call, index: change(call['index']) })) }) }, // prettier-ignore
      })),
    }))

const places = (
  format: FormatName,
  change: (number: number) => number | undefined,
): ((events: readonly Event[]) => Event[]) =>
  format === 'chat-completions' ? ofCalls(change) : numbered(PLACES[format], change)

/** Changes what the last event of a response lists. */
const listing =
  (change: (output: Event[]) => Event[]) =>
  (events: readonly Event[]): Event[] =>
    events.map(event => event['response']?.output ? { ...event, response: { ...event['response'], output: change(event['response'].output) } } : event) // prettier-ignore

let count = 0
const WAYS: readonly (readonly [
  name: string,
  formats: readonly FormatName[],
  change: (format: FormatName) => (events: readonly Event[]) => Event[],
])[] = [
  ['without places', FORMAT_NAMES, format => places(format, () => undefined)],
  [
    'with shifted places',
    FORMAT_NAMES,
    format =>
      format === 'responses' ? numbered(['output_index'], number => number + 3) : places(format, number => number + 3),
  ],
  ['with the same place everywhere', ['responses', 'messages'], format => places(format, () => 0)],
  ['with an empty list at the end', ['responses'], () => listing(() => [])],
  ['with each item twice at the end', ['responses'], () => listing(output => [...output, ...output])],
  ['without the first item at the end', ['responses'], () => listing(output => output.slice(1))],
  ['with the items in another order at the end', ['responses'], () => listing(output => output.toReversed())],
  [
    'with the end of each item twice',
    ['responses'],
    () => events => events.flatMap(event => (event['type'] === 'response.output_item.done' ? [event, event] : [event])),
  ],
  [
    'with the beginning of each item twice',
    ['responses'],
    () => events =>
      events.flatMap(event => (event['type'] === 'response.output_item.added' ? [event, event] : [event])),
  ],
  [
    'with the beginning of each block twice',
    ['messages'],
    () => events => events.flatMap(event => (event['type'] === 'content_block_start' ? [event, event] : [event])),
  ],
  [
    'with the end of each block left out',
    ['messages'],
    () => events => events.filter(event => event['type'] !== 'content_block_stop'),
  ],
  [
    'with other ids in each event',
    ['responses'],
    () => events =>
      events.map(event =>
        JSON.parse(
          JSON.stringify(event, (name, value) => (name === 'id' || name === 'item_id' ? `id_${count++}` : value)),
        ),
      ),
  ],
]

/** Streams whose calls run side by side need their places, and those that say something only at the end need that. */
const NEED_PLACES = /interleaved|late-and-repeated/
const NEED_THE_END = /told-/

function partsOf(format: FormatName, events: readonly Event[]): readonly ReplyPart[] | undefined {
  const text = events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')
  const decoder = FORMATS[format].codec.decoder()
  const said = eventsIn(FORMATS[format], Buffer.from(text), true)
    .filter(({ reading }) => !reading.failure)
    .flatMap(event => decoder.read(event))
  return replyOf(said)?.parts
}

const essence = (parts: readonly ReplyPart[] | undefined): unknown =>
  parts?.map(part => (part.kind === 'call' ? [part.name, part.id, part.input] : [part.kind, part.text]))

for (const name of readdirSync(CASES).sort())
  t.test(name, t => {
    const format = FORMAT_NAMES.find(each => readdirSync(new URL(`${name}/`, CASES)).includes(`upstream.${each}.sse`))
    if (!format) throw new Error(`${name} has no stream`)
    const text = readFileSync(new URL(`${name}/upstream.${format}.sse`, CASES), 'utf8')
    const events = eventsIn(FORMATS[format], Buffer.from(text), true).flatMap(({ json }) =>
      json ? [json as Event] : [],
    )
    const before = essence(partsOf(format, events))
    for (const [way, formats, change] of WAYS)
      if (
        formats.includes(format) &&
        !NEED_PLACES.test(name) &&
        !(/empty list|without the first|another order/.test(way) && NEED_THE_END.test(name))
      )
        t.strictSame(essence(partsOf(format, change(format)(events))), before, way)
    t.end()
  })

/** Streams that give several items one id, by format. */
const SHARED_IDS: Readonly<Record<FormatName, readonly Event[]>> = {
  'chat-completions': [
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'call_0', function: { name: 'ls', arguments: '{}' } }] } }] }, // prettier-ignore
    { choices: [{ index: 0, delta: { tool_calls: [{ index: 1, id: 'call_0', function: { name: 'pwd', arguments: '{}' } }] } }] }, // prettier-ignore
    { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] },
  ],
  responses: ['ls', 'pwd'].flatMap((name, at) => {
    const item = { type: 'function_call', id: 'fc_0', call_id: `call_${at}`, name, arguments: '{}' }
    return [
      { type: 'response.output_item.added', item: { ...item, arguments: '' } },
      { type: 'response.output_item.done', item },
      ...(name === 'ls' ? [] : [{ type: 'response.completed', response: { status: 'completed', output: [item] } }]),
    ]
  }),
  messages: [
    {
      type: 'content_block_start',
      index: 0,
      content_block: { type: 'tool_use', id: 'toolu_0', name: 'ls', input: {} },
    },
    {
      type: 'content_block_start',
      index: 0,
      content_block: { type: 'tool_use', id: 'toolu_0', name: 'pwd', input: {} },
    },
    { type: 'message_delta', delta: { stop_reason: 'tool_use' } },
  ],
}

t.test('calls of different tools stay apart although they share an id', t => {
  for (const format of FORMAT_NAMES)
    t.strictSame(
      partsOf(format, SHARED_IDS[format])?.map(part => part.kind === 'call' && part.name),
      ['ls', 'pwd'],
      format,
    )
  t.end()
})

t.test('an item with the id of another kind of item is not that item', t => {
  const items = [
    { type: 'reasoning', id: 'item', summary: [{ type: 'summary_text', text: 'Hm.' }] },
    { type: 'message', id: 'item', content: [{ type: 'output_text', text: 'Hi' }] },
    { type: 'function_call', id: 'item', call_id: 'call_0', name: 'ls', arguments: '{}' },
  ]
  const events = [
    ...items.flatMap(item => [
      { type: 'response.output_item.added', item },
      { type: 'response.output_item.done', item },
    ]),
    { type: 'response.completed', response: { status: 'in_progress', output: items } },
  ]
  t.strictSame(
    partsOf('responses', events)?.map(({ kind }) => kind),
    ['reasoning', 'text', 'call'],
  )
  t.end()
})

t.test('blocks whose ends are left out stay apart', t => {
  const events = [
    { type: 'content_block_start', content_block: { type: 'text', text: 'Hello' } },
    { type: 'content_block_start', content_block: { type: 'text', text: ' world' } },
    { type: 'content_block_start', content_block: { type: 'server_tool_use', id: 's', name: 'web_search', input: {} } },
    { type: 'content_block_delta', delta: { type: 'input_json_delta', partial_json: '{"query":"x"}' } },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
  ]
  t.strictSame(essence(partsOf('messages', events)), [
    ['text', 'Hello'],
    ['text', ' world'],
  ])
  t.end()
})

t.test('what is said of items that share an id goes to the one at its place', t => {
  const call = (at: number): Event => ({ type: 'function_call', id: 'fc', call_id: `call_${at}`, name: 'ls' })
  const events = [
    ...[0, 1].map(at => ({ type: 'response.output_item.added', output_index: at, item: call(at) })),
    ...[0, 1].map(at => ({ type: 'response.function_call_arguments.delta', output_index: at, item_id: 'fc', delta: `{"a":${at}}` })), // prettier-ignore
    ...[0, 1].map(at => ({ type: 'response.output_item.done', output_index: at, item: { ...call(at), arguments: `{"a":${at}}` } })), // prettier-ignore
    { type: 'response.completed', response: { status: 'completed', output: [] } },
  ]
  t.match(essence(partsOf('responses', events)), [
    ['ls', 'call_0', '{"a":0}'],
    ['ls', 'call_1', '{"a":1}'],
  ])
  t.end()
})

t.test('a name that comes in pieces is that of one call', t => {
  const events = [
    ...[{ id: 'x', function: { name: 'get_' } }, { id: 'x', function: { name: 'weather' } }, { id: 'x', function: { arguments: '{}' } }].map(call => ({ choices: [{ index: 0, delta: { tool_calls: [call] } }] })), // prettier-ignore
    { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] },
  ]
  t.equal(partsOf('chat-completions', events)?.length, 1)
  t.end()
})
