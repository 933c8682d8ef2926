/** Decodes replies in the responses format, JSON and streams, into the neutral model. */
import { contentsOf, noReply, stopOf } from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import type { ReplyEvent } from '../events.ts'
import type {
  Decoder,
  NeutralEvent,
  Opening,
  Reply,
  ReplyPart,
  ReasoningSignature,
  Stop,
} from '../translate/neutral.ts'
import type { Json } from '../terms.ts'
import { indexOf, object, text } from '../json.ts'

/** Decodes a JSON reply. @throws GatewayError upstream_failed if it is not a complete reply */
export function decodeReply(json: Json): Reply {
  const parts = outputParts(contentsOf(json, 'output'))
  return {
    id: text(json['id']) ?? '',
    parts,
    stop: decodeStop(
      json,
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

function decodeStop(response: Json, calls: boolean): Stop {
  const status = response['status'] ?? 'completed'
  if (status !== 'completed' && status !== 'incomplete') throw noReply('a response that is not complete')
  if (status === 'completed') return stopOf({ reason: 'stop' }, calls)
  const reason = object(response['incomplete_details'])?.['reason']
  return { reason: reason === 'content_filter' ? 'filtered' : 'length' }
}

/** The place of a part: the index of its item, and of its content in a message. */
const place = (event: Json): string => `${indexOf(event['output_index'])}.${indexOf(event['content_index'])}`

class ResponsesDecoder implements Decoder {
  readonly #parts = new Map<string, { readonly part: number; said: boolean; closed: boolean }>()
  #count = 0
  #calls = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    const json = object(event.json)
    if (!json) return []
    switch (json['type']) {
      case 'response.created':
        return [{ kind: 'start', id: text(object(json['response'])?.['id']) ?? '' }]
      case 'response.output_item.added':
        return this.#item(json)
      case 'response.content_part.added':
        return this.#content(json)
      case 'response.output_text.delta':
        return this.#say(json, 'text')
      case 'response.refusal.delta':
        return this.#say(json, 'refusal')
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
        return this.#say({ output_index: json['output_index'], delta: json['delta'] }, 'reasoning')
      case 'response.reasoning_summary_part.added':
        return this.#furtherSummary(json)
      case 'response.function_call_arguments.delta':
        return this.#say(json, 'call')
      case 'response.output_text.done':
        return this.#whole(json, json['text'], 'text')
      case 'response.refusal.done':
        return this.#whole(json, json['refusal'], 'refusal')
      case 'response.function_call_arguments.done':
        return this.#whole(json, inputText(json['arguments']), 'call')
      case 'response.output_item.done':
        return this.#done(object(json['item']) ?? {}, json['output_index'])
      case 'response.completed':
      case 'response.incomplete':
        return this.#end({ status: json['type'].slice('response.'.length), ...object(json['response']) })
      default:
        return []
    }
  }

  #open(at: string, what: Opening): NeutralEvent {
    const part = this.#count++
    this.#parts.set(at, { part, said: false, closed: false })
    this.#calls ||= what.kind === 'call'
    return { kind: 'open', part, what }
  }

  #item(event: Json): NeutralEvent[] {
    const item = object(event['item'])
    if (item?.['type'] === 'reasoning') return [this.#open(place(event), { kind: 'reasoning' })]
    if (item?.['type'] !== 'function_call') return []
    return [this.#open(place(event), { kind: 'call', id: text(item['call_id']) ?? '', name: text(item['name']) ?? '' })]
  }

  #content(event: Json): NeutralEvent[] {
    const type = object(event['part'])?.['type']
    if (type === 'output_text') return [this.#open(place(event), { kind: 'text' })]
    return type === 'refusal' ? [this.#open(place(event), { kind: 'refusal' })] : []
  }

  /** Some providers omit the event that announces a part of text. */
  #say(event: Json, kind: Opening['kind']): NeutralEvent[] {
    const at = place(event)
    const said = text(event['delta']) ?? ''
    const opened = this.#parts.has(at) || kind === 'call' ? [] : [this.#open(at, { kind })]
    const part = this.#parts.get(at)
    if (!part || said === '') return opened
    part.said = true
    return [...opened, { kind: 'delta', part: part.part, text: said }]
  }

  #furtherSummary(event: Json): NeutralEvent[] {
    return indexOf(event['summary_index']) > 0
      ? this.#say({ output_index: event['output_index'], delta: '\n\n' }, 'reasoning')
      : []
  }

  /** The whole text of a part. It is used if the part did not come in pieces. */
  #whole(event: Json, all: unknown, kind: Opening['kind']): NeutralEvent[] {
    return this.#parts.get(place(event))?.said ? [] : this.#say({ ...event, delta: all }, kind)
  }

  /** A whole item: its parts end, and those that did not come in pieces are added. */
  #done(item: Json, output_index: unknown): NeutralEvent[] {
    const signature = item['type'] === 'reasoning' ? signatureFrom(item) : undefined
    return outputParts([item]).flatMap((whole, content_index): NeutralEvent[] => {
      const event = { output_index, content_index }
      const at = place(event)
      if (this.#parts.get(at)?.closed) return []
      const opened = this.#parts.has(at) ? [] : [this.#open(at, whole)]
      const rest = this.#whole(event, whole.kind === 'call' ? whole.input : whole.text, whole.kind)
      const part = this.#parts.get(at)
      if (!part) return []
      part.closed = true
      return [...opened, ...rest, { kind: 'close', part: part.part, ...(signature && { signature }) }]
    })
  }

  #end(response: Json): NeutralEvent[] {
    const output = Array.isArray(response['output']) ? response['output'] : []
    const rest = output.flatMap((item, index) => this.#done(object(item) ?? {}, index))
    return [...rest, { kind: 'stop', stop: decodeStop(response, this.#calls) }, { kind: 'end' }]
  }
}

/** A decoder for one stream. */
export function decoder(): Decoder {
  return new ResponsesDecoder()
}
