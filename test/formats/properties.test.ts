import { deepStrictEqual } from 'node:assert'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { FORMATS, ReplyEvent, type Format, type FormatName, type OutgoingEvent } from '../../core/formats/index.ts'
import { DroppedFields } from '../../core/formats/translate/dropped-fields.ts'
import type {
  Item,
  NeutralEvent,
  Reply,
  ReplyPart,
  Request,
  Stop,
  ReplyContext,
} from '../../core/formats/translate/neutral.ts'
import { eventsOf, PartOrder } from '../../core/formats/translate/part-order.ts'
import { NO_USAGE } from '../../core/money/usage.ts'

/** Translation keeps texts, calls and results in their order, over one hop and over two. */

const NAMES = Object.keys(FORMATS) as FormatName[]
const LIMITS = { output: 1000, thinking: 'adaptive' } as const
const RUNS = { numRuns: 200 }

const words = fc.string({ unit: 'binary', minLength: 1, maxLength: 12 }).filter(text => text.trim() !== '')
const id = fc.string({
  unit: fc.constantFrom(...'a b c X Y Z 0 1 9 _ - . : / é'.split(' ')),
  minLength: 1,
  maxLength: 30,
})
const json = fc.dictionary(
  fc.string({ maxLength: 5 }).filter(key => key !== '__proto__'),
  fc.jsonValue({ maxDepth: 2 }),
  { maxKeys: 3 },
)
const name = fc.string({ unit: fc.constantFrom(...'a b c X Y Z _ -'.split(' ')), minLength: 1, maxLength: 70 })

/** A turn: the user asks, the model answers and calls tools, and the user sends their results. */
const turn = fc
  .record({
    asked: fc.array(words, { minLength: 1, maxLength: 2 }),
    said: fc.option(words, { nil: undefined }),
    rounds: fc.array(fc.array(fc.record({ id, name, json, answer: words }), { minLength: 1, maxLength: 3 }), {
      maxLength: 3,
    }),
  })
  .map(({ asked, said, rounds }): Item[] => [
    { kind: 'message', role: 'user', parts: asked.map(text => ({ kind: 'text', text })) },
    ...(said === undefined
      ? []
      : [{ kind: 'message' as const, role: 'assistant' as const, parts: [{ kind: 'text' as const, text: said }] }]),
    ...rounds.flatMap(calls => [
      ...calls.map(call => ({ kind: 'call' as const, id: call.id, name: call.name, input: JSON.stringify(call.json) })),
      ...calls.map(call => ({
        kind: 'result' as const,
        id: call.id,
        parts: [{ kind: 'text' as const, text: call.answer }],
        failed: false,
      })),
    ]),
  ])

const conversation = fc
  .record({
    system: fc.option(words, { nil: undefined }),
    turns: fc.array(turn, { minLength: 1, maxLength: 4 }),
    last: words,
  })
  .map(({ system, turns, last }): Item[] => [
    ...(system === undefined
      ? []
      : [{ kind: 'message' as const, role: 'system' as const, parts: [{ kind: 'text' as const, text: system }] }]),
    ...turns.flat(),
    { kind: 'message', role: 'user', parts: [{ kind: 'text', text: last }] },
  ])
  // An id belongs to one call. Ids that could be confused do not appear in one history.
  .filter(
    items =>
      new Set(items.filter(item => item.kind === 'call').map(call => call.id)).size ===
      items.filter(item => item.kind === 'call').length,
  )

const request = (items: readonly Item[]): Request => ({
  model: 'm',
  stream: false,
  usageAsked: true,
  items,
  tools: [],
  stops: [],
  maxOutput: 100,
})

/** The texts with their roles, the calls and the results. */
function meaning(items: readonly Item[]): unknown[] {
  const told: [string, string][] = []
  for (const item of items) {
    const said = 'parts' in item ? item.parts.map(part => ('text' in part ? part.text : '')).join('') : ''
    const who =
      item.kind === 'message'
        ? item.role
        : item.kind === 'result'
          ? `result ${item.id}`
          : item.kind === 'call'
            ? `call ${item.id}`
            : 'reasoning'
    const what = item.kind === 'call' ? `${fitting(item.name)} ${JSON.stringify(JSON.parse(item.input))}` : said
    const last = told.at(-1)
    if (last && last[0] === who) last[1] += what
    else told.push([who, what])
  }
  return told
}

/** Names longer than the formats allow were shortened. The request's tools have the full names. */
const fitting = (tool: string): string => tool.slice(0, 55)

function hop(items: readonly Item[], by: Format): readonly Item[] {
  const body = by.codec.encodeRequest(request(items), new DroppedFields(), LIMITS)
  return by.codec.decodeRequest(JSON.parse(JSON.stringify(body)), {}, new DroppedFields()).items
}

for (const a of NAMES) {
  t.test(`a conversation that is written as ${a} and read again means the same`, t =>
    check(t, conversation, items => [meaning(hop(items, FORMATS[a])), meaning(items)]),
  )
  for (const b of NAMES.filter(other => other !== a)) {
    t.test(`a conversation in ${a} comes back unchanged from ${b}`, t =>
      check(t, conversation, items => {
        const before = hop(items, FORMATS[a])
        return [meaning(hop(hop(before, FORMATS[b]), FORMATS[a])), meaning(before)]
      }),
    )
  }
}

const part = fc.oneof(
  words.map((text): ReplyPart => ({ kind: 'text', text })),
  words.map((text): ReplyPart => ({
    kind: 'reasoning',
    text,
    signature: { by: 'messages', data: { signature: text } },
  })),
  fc
    .record({ id: fc.uuid(), name, json })
    .map((call): ReplyPart => ({ kind: 'call', id: call.id, name: call.name, input: JSON.stringify(call.json) })),
)
const stop = fc.constantFrom<Stop['reason']>('stop', 'length', 'filtered').map((reason): Stop => ({ reason }) as Stop)
const reply = fc.record({ id: fc.constant('1'), parts: fc.array(part, { maxLength: 6 }), stop })

/**
 * The events of a reply, its parts in pieces. Overlapping parts come in any order that keeps the order within each
 * part.
 */
const events = fc
  .tuple(reply, fc.array(fc.nat(), { minLength: 60, maxLength: 60 }))
  .map(([whole, dice]): { whole: Reply; events: NeutralEvent[] } => {
    const all = eventsOf(whole)
    const [start, ...rest] = all
    const lanes = whole.parts.map((_part, index) =>
      rest.flatMap((event): NeutralEvent[] => {
        if (!('part' in event) || event.part !== index) return []
        if (event.kind !== 'delta') return [event]
        const cut = 1 + ((dice[index] as number) % event.text.length)
        return [event.text.slice(0, cut), event.text.slice(cut)]
          .filter(text => text !== '')
          .map(text => ({ kind: 'delta', part: index, text }))
      }),
    )
    const mixed: NeutralEvent[] = []
    // Parts begin in their order, since a later one that came first would have no place.
    for (let at = 0, open = 1; lanes.some(lane => lane.length > 0); at++) {
      const lane = lanes[(dice[at % dice.length] as number) % Math.min(open + 1, lanes.length)] as NeutralEvent[]
      const index = lanes.indexOf(lane)
      const begun = lanes.slice(0, index).every(earlier => earlier[0]?.kind !== 'open')
      // A part may end while the random numbers choose no other.
      const next = (begun ? lane.shift() : undefined) ?? lanes.find(each => each.length > 0)?.shift()
      if (next) mixed.push(next)
      open = Math.min(lanes.length, open + 1)
    }
    return { whole, events: [start as NeutralEvent, ...mixed, { kind: 'stop', stop: whole.stop }] }
  })

const telling: ReplyContext = {
  model: 'm',
  at: 1,
  usageAsked: request([]).usageAsked,
  tools: new Map(),
  member: () => undefined,
}

/** Writes events as a stream of the format and reads them again. */
function stream(told: readonly NeutralEvent[], by: Format): NeutralEvent[] {
  const encoder = by.codec.encoder(telling)
  const sequence = new PartOrder()
  const out: OutgoingEvent[] = told
    .flatMap(event => sequence.push(event))
    .flatMap(event => (event.kind === 'end' ? [] : [...encoder.write(event)]))
  out.push(...encoder.end(by.encodeUsage(NO_USAGE)))
  const decoder = by.codec.decoder()
  return out.flatMap(({ type, data }) => [...decoder.read(new ReplyEvent(by, type, data))])
}

/** The reply of the events, with adjacent texts joined. */
function gathered(told: readonly NeutralEvent[]): unknown {
  const parts = new Map<number, [string, string]>()
  let why = ''
  for (const event of told) {
    if (event.kind === 'open')
      parts.set(event.part, [
        event.what.kind === 'call' ? `call ${event.what.id} ${event.what.name}` : event.what.kind,
        '',
      ])
    if (event.kind === 'delta') (parts.get(event.part) as [string, string])[1] += event.text
    if (event.kind === 'stop') why = event.stop.reason
  }
  return { parts: merged([...parts.values()]), why }
}

function merged(parts: readonly [string, string][]): [string, string][] {
  const result: [string, string][] = []
  for (const [kind, text] of parts) {
    const last = result.at(-1)
    if (last?.[0] === kind && !kind.startsWith('call')) last[1] += text
    else result.push([kind, text])
  }
  return result
}

const expected = (whole: Reply): unknown => ({
  parts: merged(
    whole.parts.map(each =>
      each.kind === 'call' ? [`call ${each.id} ${each.name}`, each.input] : [each.kind, each.text],
    ),
  ),
  why: whole.stop.reason === 'stop' && whole.parts.some(({ kind }) => kind === 'call') ? 'calls' : whole.stop.reason,
})

for (const a of NAMES) {
  t.test(`a reply with its parts in any order is a complete, ordered stream of ${a}`, t =>
    check(t, events, ({ whole, events: told }) => [gathered(stream(told, FORMATS[a])), expected(whole)]),
  )
  for (const b of NAMES.filter(other => other !== a)) {
    t.test(`a complete stream of ${a} is one of ${b} when it is translated`, t =>
      check(t, events, ({ whole, events: told }) => [
        gathered(stream(stream(told, FORMATS[a]), FORMATS[b])),
        expected(whole),
      ]),
    )
  }
}

/** Runs a property that returns the actual and the expected value. */
function check<T>(t: Test, values: fc.Arbitrary<T>, pair: (value: T) => [unknown, unknown]): void {
  const holds = (value: T): void => deepStrictEqual(...pair(value))
  fc.assert(fc.property(values, holds), RUNS)
  t.pass(`${RUNS.numRuns} times`)
  t.end()
}
