/** Decodes replies in the responses format, JSON and streams, into the neutral model. */
import { contentsOf, stopOf } from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import type { ReplyEvent } from '../events.ts'
import type { Decoder, NeutralEvent, Opening, Reply, ReplyPart, ReasoningSignature } from '../translate/neutral.ts'
import type { Json, Reading } from '../terms.ts'
import { indexOf, object, text } from '../json.ts'

/** Decodes a JSON reply. @throws GatewayError upstream_failed if it is not a complete reply */
export function decodeReply(json: Json, reading: Reading): Reply {
  const parts = outputParts(contentsOf(json, 'output'))
  return {
    id: text(json['id']) ?? '',
    parts,
    stop: stopOf(
      reading,
      parts.some(({ kind }) => kind === 'call'),
    ),
  }
}

/** The parts of a response's output. */
function outputParts(output: unknown): ReplyPart[] {
  return (Array.isArray(output) ? output : []).flatMap((item): ReplyPart[] => decodeItem(object(item) ?? {}))
}

function decodeItem(item: Json): ReplyPart[] {
  switch (item['type']) {
    case 'message':
      return (Array.isArray(item['content']) ? item['content'] : []).flatMap((value): ReplyPart[] => {
        const part = object(value)
        if (part?.['type'] === 'refusal') return [{ kind: 'refusal', text: text(part['refusal']) ?? '' }]
        return part?.['type'] === 'output_text' ? [{ kind: 'text', text: text(part['text']) ?? '' }] : []
      })
    case 'reasoning': {
      const signature = signatureFrom(item)
      return [{ kind: 'reasoning', text: reasoningText(item), ...(signature && { signature }) }]
    }
    case 'function_call':
      return [
        {
          kind: 'call',
          id: text(item['call_id']) ?? '',
          name: text(item['name']) ?? '',
          input: inputText(item['arguments']),
        },
      ]
    default:
      // The text of the reply contains what the provider's tools found.
      return []
  }
}

/** The summaries of a reasoning, or its own text if there are none. */
function reasoningText(item: Json): string {
  return joined(item['summary']) || joined(item['content'])
}

function joined(list: unknown): string {
  return Array.isArray(list) ? list.map(part => text(object(part)?.['text']) ?? '').join('\n\n') : ''
}

/** What the provider needs in order to recognise the reasoning. */
function signatureFrom(item: Json): ReasoningSignature | undefined {
  const encrypted = text(item['encrypted_content'])
  const summary = Array.isArray(item['summary']) ? item['summary'].map(part => text(object(part)?.['text']) ?? '') : []
  const more = { ...(typeof item['id'] === 'string' && { id: item['id'] }), ...(summary.length > 1 && { summary }) }
  return encrypted ? { by: 'responses', data: { encrypted, ...more } } : undefined
}

/** The word by which a response has ended: its status, or why it is incomplete. */
export function endWord(response: Json): string {
  const status = text(response['status']) || 'completed'
  return status === 'incomplete' ? (text(object(response['incomplete_details'])?.['reason']) ?? 'length') : status
}

/** A part of a streamed item: a text of a message, a reasoning, or a call. */
interface StreamedPart {
  readonly part: number
  said: boolean
  closed: boolean
}

/** An item of a stream. Its ids identify it. Only an item without ids is identified by its place: gateways shift and drop places. */
interface StreamedItem {
  readonly type: string
  readonly id: string | undefined
  readonly callId: string | undefined
  readonly name: string | undefined
  readonly parts: Map<number, StreamedPart>
  isDone: boolean
  /** The last event has it, too. */
  isListed: boolean
}

/** The type of the item that an opening belongs to. */
const ITEM_TYPES: Readonly<Record<Opening['kind'], string>> = {
  text: 'message',
  refusal: 'message',
  reasoning: 'reasoning',
  call: 'function_call',
}

/** What the parts of a message are, by their types. */
const PART_KINDS = new Map<unknown, 'text' | 'refusal'>([
  ['output_text', 'text'],
  ['refusal', 'refusal'],
])

/** The id of an item, and the one of its call, which a later item of the same call has as well. */
function idsOf(item: Json): string[] {
  return [item['call_id'], item['id']].flatMap(id => text(id) || [])
}

/** The place of the part that an event is about: the last one if the event has no place. */
function placeIn({ parts }: StreamedItem, { content_index: at }: Json): number {
  return typeof at === 'number' ? indexOf(at) : Math.max(0, parts.size - 1)
}

class ResponsesDecoder implements Decoder {
  /** The latest item of a type with an id, or at a place, and those of a type that are open, or not in the last event. */
  readonly #latest = new Map<string, StreamedItem>()
  readonly #openItems = new Map<string, StreamedItem[]>()
  readonly #unlistedItems = new Map<string, StreamedItem[]>()
  #count = 0
  #calls = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    const json = object(event.json)
    if (!json) return []
    switch (json['type']) {
      case 'response.created':
        return [{ kind: 'start', id: text(object(json['response'])?.['id']) ?? '' }]
      case 'response.output_item.added':
        return this.#added(object(json['item']) ?? {}, json['output_index'])
      case 'response.content_part.added':
        return this.#content(json)
      case 'response.output_text.delta':
        return this.#say(json, 'text')
      case 'response.refusal.delta':
        return this.#say(json, 'refusal')
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        return this.#say({ ...json, content_index: 0 }, 'reasoning')
      case 'response.reasoning_summary_part.added':
        return indexOf(json['summary_index']) > 0
          ? this.#say({ ...json, content_index: 0, delta: '\n\n' }, 'reasoning')
          : []
      case 'response.function_call_arguments.delta':
        return this.#say(json, 'call')
      case 'response.output_text.done':
        return this.#whole(json, json['text'], 'text')
      case 'response.refusal.done':
        return this.#whole(json, json['refusal'], 'refusal')
      case 'response.function_call_arguments.done':
        return this.#whole(json, inputText(json['arguments']), 'call')
      case 'response.output_item.done': {
        const item = object(json['item']) ?? {}
        return this.#done(item, this.#openOf(item, json['output_index']) ?? this.#new(item, json['output_index']))
      }
      case 'response.completed':
      case 'response.incomplete':
        return this.#end(object(json['response']) ?? {}, event.reading)
      default:
        return []
    }
  }

  #new(item: Json, index: unknown): StreamedItem {
    const type = text(item['type']) ?? ''
    const [id, callId, name] = [text(item['id']), text(item['call_id']), text(item['name'])]
    const made: StreamedItem = { type, id, callId, name, parts: new Map(), isDone: false, isListed: false }
    this.#identify(made, idsOf(item))
    this.#latest.set(`${type} at ${String(index)}`, made)
    // One with the id of a call is known by it.
    for (const kind of callId === undefined ? [type, `${type} without id`] : [type])
      put(this.#unlistedItems, kind, made)
    put(this.#openItems, type, made)
    return made
  }

  #identify(item: StreamedItem, ids: readonly string[]): void {
    for (const id of ids) this.#latest.set(`${item.type} ${id}`, item)
  }

  /** Returns the item of its type that an item repeats. Calls of other names are others: some providers give all items one id. */
  #known(item: Json): StreamedItem | undefined {
    const [callId, name] = [text(item['call_id']), text(item['name'])]
    return idsOf(item)
      .map(id => this.#latest.get(`${String(item['type'])} ${id}`))
      .find(each => each && sameIfBoth(each.callId, callId) && sameIfBoth(each.name, name))
  }

  #lastOpen(type: string): StreamedItem | undefined {
    const open = this.#openItems.get(type) ?? []
    while (open.at(-1)?.isDone) open.pop()
    return open.at(-1)
  }

  /** Returns the item that a whole one ends: by its ids, else by its place, else the last one of its type that is open. */
  #openOf(item: Json, index: unknown): StreamedItem | undefined {
    const known = this.#known(item)
    if (known) return known
    const type = text(item['type']) ?? ''
    const found = typeof index === 'number' ? this.#latest.get(`${type} at ${index}`) : this.#lastOpen(type)
    return found?.isDone ? undefined : found
  }

  /** Returns the item that an event is about: by its id, else by its place, else the last one that is open. */
  #itemOf(event: Json, kind: Opening['kind']): StreamedItem | undefined {
    const type = ITEM_TYPES[kind]
    const [id, index] = [text(event['item_id']), event['output_index']]
    const known = id === undefined ? undefined : this.#latest.get(`${type} ${id}`)
    const there = typeof index === 'number' ? this.#latest.get(`${type} at ${index}`) : this.#lastOpen(type)
    // The place distinguishes items that share an id.
    return known && there?.id !== id ? known : there
  }

  #open(item: StreamedItem, at: number, what: Opening): NeutralEvent {
    const part = this.#count++
    item.parts.set(at, { part, said: false, closed: false })
    this.#calls ||= what.kind === 'call'
    return { kind: 'open', part, what }
  }

  #added(item: Json, index: unknown): NeutralEvent[] {
    if (this.#known(item)) return []
    const made = this.#new(item, index)
    if (made.type === 'reasoning') return [this.#open(made, 0, { kind: 'reasoning' })]
    if (made.type !== 'function_call') return []
    const call = { kind: 'call' as const, id: text(item['call_id']) ?? '', name: text(item['name']) ?? '' }
    return [this.#open(made, 0, call)]
  }

  #content(event: Json): NeutralEvent[] {
    const kind = PART_KINDS.get(object(event['part'])?.['type'])
    if (kind === undefined) return []
    const at = event['content_index'] ?? this.#itemOf(event, kind)?.parts.size
    return this.#say({ ...event, content_index: at, delta: '' }, kind)
  }

  /** Some providers omit the events that announce an item, or a part of one. */
  #say(event: Json, kind: Opening['kind']): NeutralEvent[] {
    const known = this.#itemOf(event, kind)
    if (!known && kind === 'call') return []
    const item = known ?? this.#new({ type: ITEM_TYPES[kind], id: event['item_id'] }, event['output_index'])
    const at = placeIn(item, event)
    const opened = item.parts.has(at) || kind === 'call' ? [] : [this.#open(item, at, { kind })]
    const part = item.parts.get(at)
    const said = text(event['delta']) ?? ''
    if (!part || said === '' || part.closed) return opened
    part.said = true
    return [...opened, { kind: 'delta', part: part.part, text: said }]
  }

  /** The whole text of a part. It is used if the part did not come in pieces. */
  #whole(event: Json, all: unknown, kind: Opening['kind']): NeutralEvent[] {
    const item = this.#itemOf(event, kind)
    const part = item?.parts.get(placeIn(item, event))
    return part?.said ? [] : this.#say({ ...event, delta: all }, kind)
  }

  /** A whole item: its parts end, and those that did not come in pieces are added. One that comes again adds nothing. */
  #done(whole: Json, item: StreamedItem): NeutralEvent[] {
    if (item.isDone) return []
    item.isDone = true
    this.#identify(item, idsOf(whole))
    const signature = whole['type'] === 'reasoning' ? signatureFrom(whole) : undefined
    return decodeItem(whole).flatMap((part, at): NeutralEvent[] => {
      const opened = item.parts.has(at) ? [] : [this.#open(item, at, part)]
      const streamed = item.parts.get(at) as StreamedPart
      if (streamed.closed) return []
      const said = part.kind === 'call' ? part.input : part.text
      const rest: NeutralEvent[] =
        streamed.said || said === '' ? [] : [{ kind: 'delta', part: streamed.part, text: said }]
      streamed.closed = true
      return [...opened, ...rest, { kind: 'close', part: streamed.part, ...(signature && { signature }) }]
    })
  }

  #end(response: Json, reading: Reading): NeutralEvent[] {
    const output = (Array.isArray(response['output']) ? response['output'] : []).map(item => object(item) ?? {})
    for (const item of output) {
      const known = this.#known(item)
      if (known) known.isListed = true
    }
    const rest = output.flatMap((item, at) =>
      this.#done(item, this.#known(item) ?? this.#unlisted(item) ?? this.#new(item, at)),
    )
    return [...rest, { kind: 'stop', stop: stopOf(reading, this.#calls) }, { kind: 'end' }]
  }

  /** Returns the first item of a type that the last event has not listed yet: some providers change the ids. A call has its own. */
  #unlisted(item: Json): StreamedItem | undefined {
    const kind = `${String(item['type'])}${text(item['call_id']) === undefined ? '' : ' without id'}`
    const items = this.#unlistedItems.get(kind) ?? []
    while (items[0]?.isListed) items.shift()
    if (items[0]) items[0].isListed = true
    return items[0]
  }
}

function put(items: Map<string, StreamedItem[]>, kind: string, item: StreamedItem): void {
  const same = items.get(kind)
  if (same) same.push(item)
  else items.set(kind, [item])
}

function sameIfBoth(one: string | undefined, other: string | undefined): boolean {
  return !one || !other || one === other
}

/** A decoder for one stream. */
export function decoder(): Decoder {
  return new ResponsesDecoder()
}
