/** Decodes replies in the chat-completions format, JSON and streams, into the neutral model. */
import { contentsOf, noReply, stopOf } from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import { DONE, type ReplyEvent } from '../events.ts'
import type { Call, Decoder, NeutralEvent, Reply, ReplyPart } from '../translate/neutral.ts'
import type { Json, Reading } from '../terms.ts'
import { indexOf, object, text } from '../json.ts'
import { ownReasoning, reasoningText } from './reasoning.ts'

/** Decodes a JSON reply. @throws GatewayError upstream_failed if it is not a reply */
export function decodeReply(json: Json, reading: Reading): Reply {
  const choice = object(contentsOf(json, 'choices')[0])
  const message = object(choice?.['message'])
  if (!choice || !message) throw noReply('a choice without a message')
  const id = text(json['id']) ?? ''
  const said = contentText(message['content'])
  const refusal = text(message['refusal'])
  const calls = callsOf(message)
  const parts: ReplyPart[] = [
    ...ownReasoning(message),
    ...(said === '' ? [] : [{ kind: 'text' as const, text: said }]),
    ...(refusal ? [{ kind: 'refusal' as const, text: refusal }] : []),
    ...calls,
  ]
  if (!text(choice['finish_reason'])) throw noReply('a reply that ends with no reason')
  return { id, parts, stop: stopOf(reading, calls.length > 0) }
}

/** The content as one text; some vendors send it in parts. */
function contentText(content: unknown): string {
  if (Array.isArray(content)) return content.map(part => text(object(part)?.['text']) ?? '').join('')
  return text(content) ?? ''
}

/** The calls of a message, or their fragments in an event. An older spelling has only one. */
function rawCalls(message: Json): unknown[] {
  if (Array.isArray(message['tool_calls'])) return message['tool_calls']
  return message['function_call'] ? [{ index: 0, function: message['function_call'] }] : []
}

function callsOf(message: Json): Call[] {
  return rawCalls(message).map((value): Call => {
    const call = object(value)
    const called = object(call?.['function'])
    return {
      kind: 'call',
      id: text(call?.['id']) ?? '',
      name: text(called?.['name']) ?? '',
      input: inputText(called?.['arguments']),
    }
  })
}

/** A call in a stream. Its id and its name may come with any of its fragments. */
interface Fragments {
  part: number | undefined
  id: string
  name: string
  /** The input so far. */
  input: string
}

class ChatDecoder implements Decoder {
  #begun = false
  #parts = 0
  /** The open part of text, refusal or reasoning. */
  #prose: { part: number; kind: 'text' | 'refusal' | 'reasoning'; field: string | undefined } | undefined
  #details: unknown[] = []
  readonly #calls: Fragments[] = []
  /** How many of the calls have been opened, in order. */
  #opened = 0
  readonly #byIndex = new Map<number, Fragments>()
  #stopped = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    if (event.data === DONE) return [{ kind: 'end' }]
    const chunk = object(event.json)
    if (!chunk) return []
    const out: NeutralEvent[] = []
    const id = text(chunk['id']) ?? ''
    const choice = object(
      Array.isArray(chunk['choices'])
        ? chunk['choices'].find(each => indexOf(object(each)?.['index']) === 0)
        : undefined,
    )
    // Chunks before the reply itself may lack its id.
    if (!this.#begun && (id !== '' || choice)) {
      this.#begun = true
      out.push({ kind: 'start', id })
    }
    // After the end, only the usage follows.
    if (this.#stopped && !choice && object(chunk['usage'])) return [...out, { kind: 'end' }]
    if (!choice || this.#stopped) return out
    const delta = object(choice['delta']) ?? (this.#parts === 0 ? object(choice['message']) : undefined) ?? {}
    const reasoning = reasoningText(delta)
    const details = Array.isArray(delta['reasoning_details']) ? delta['reasoning_details'] : []
    this.#details.push(...details)
    if (reasoning || details.length > 0) out.push(...this.#say('reasoning', reasoning?.said ?? '', reasoning?.field))
    const content = contentText(delta['content'])
    if (content !== '') out.push(...this.#say('text', content))
    const refusal = text(delta['refusal'])
    if (refusal) out.push(...this.#say('refusal', refusal))
    for (const fragment of rawCalls(delta)) out.push(...this.#call(object(fragment) ?? {}))
    if (text(choice['finish_reason'])) out.push(...this.#stop(event.reading))
    return out
  }

  #say(kind: 'text' | 'refusal' | 'reasoning', said: string, field?: string): NeutralEvent[] {
    const out: NeutralEvent[] = []
    if (this.#prose?.kind !== kind) {
      out.push(...this.#closeProse(), { kind: 'open', part: this.#parts, what: { kind } })
      this.#prose = { part: this.#parts++, kind, field }
    }
    this.#prose.field ??= field
    return said === '' ? out : [...out, { kind: 'delta', part: this.#prose.part, text: said }]
  }

  #closeProse(): NeutralEvent[] {
    const prose = this.#prose
    this.#prose = undefined
    if (!prose) return []
    if (prose.kind !== 'reasoning') return [{ kind: 'close', part: prose.part }]
    const data = { field: prose.field, ...(this.#details.length > 0 && { details: this.#details }) }
    this.#details = []
    return [{ kind: 'close', part: prose.part, signature: { by: 'chat-completions', data } }]
  }

  #call(fragment: Json): NeutralEvent[] {
    const called = object(fragment['function'])
    const id = text(fragment['id']) ?? ''
    const name = text(called?.['name']) ?? ''
    const input = inputText(called?.['arguments'])
    // A call that comes again as a whole, such as in the last chunk, is the same call.
    const isSame = (each: Fragments): boolean => each.id === id && each.name === name && each.input === input
    if (id !== '' && isWhole(input) && this.#calls.some(isSame)) return []
    const call = this.#callOf(fragment['index'], id, name)
    call.id ||= id
    call.name ||= name
    const prose = this.#closeProse()
    call.input += input
    if (call.part !== undefined)
      return input === '' ? prose : [...prose, { kind: 'delta', part: call.part, text: input }]
    return [...prose, ...this.#openKnown()]
  }

  /** Opens the calls whose id and name have arrived, in order. A call that lacks them holds back the calls after it. */
  #openKnown(): NeutralEvent[] {
    const out: NeutralEvent[] = []
    for (
      let call = this.#calls[this.#opened];
      call && call.id !== '' && call.name !== '';
      call = this.#calls[this.#opened]
    ) {
      for (const event of this.#open(call)) out.push(event)
    }
    return out
  }

  #knownCall(index: unknown, id: string): Fragments | undefined {
    if (typeof index === 'number') return this.#byIndex.get(index)
    return id === '' ? this.#calls.at(-1) : this.#calls.find(call => call.id === id)
  }

  /**
   * The call that a fragment belongs to, by its index. A further id under the same index begins a new call. Without
   * indexes and ids, a name after complete input does.
   */
  #callOf(index: unknown, id: string, name: string): Fragments {
    const known = this.#knownCall(index, id)
    const isOther = id === '' && known !== undefined && known.name !== '' && known.name !== name
    const further = typeof index !== 'number' && name !== '' && (isOther || isWhole(known?.input))
    if (known && !further && (id === '' || known.id === '' || known.id === id)) return known
    const call: Fragments = { part: undefined, id: '', name: '', input: '' }
    this.#calls.push(call)
    if (typeof index === 'number') this.#byIndex.set(index, call)
    return call
  }

  #open(call: Fragments): NeutralEvent[] {
    const part = (call.part = this.#parts++)
    this.#opened++
    const open: NeutralEvent = { kind: 'open', part, what: { kind: 'call', id: call.id, name: call.name } }
    return call.input === '' ? [open] : [open, { kind: 'delta', part, text: call.input }]
  }

  #stop(reading: Reading): NeutralEvent[] {
    this.#stopped = true
    const out = this.#closeProse()
    this.#calls.forEach(call => {
      if (call.part === undefined) for (const event of this.#open(call)) out.push(event)
      out.push({ kind: 'close', part: call.part as number })
    })
    return [...out, { kind: 'stop', stop: stopOf(reading, this.#calls.length > 0) }]
  }
}

/** Whether the input of a call is complete. */
function isWhole(input: string | undefined): boolean {
  // Most fragments of an object are recognised without parsing all that came before.
  if (!input || (input.startsWith('{') && !input.trimEnd().endsWith('}'))) return false
  try {
    JSON.parse(input)
    return true
  } catch {
    return false
  }
}

/** A decoder for one stream. */
export function decoder(): Decoder {
  return new ChatDecoder()
}
