/** Encodes replies of the neutral model in the messages format, as JSON and as streams. */
import type { GatewayError } from '../../errors.ts'
import { NO_USAGE } from '../../money/usage.ts'
import { inputObject } from '../translate/calls.ts'
import { type OutgoingEvent, typedEvent } from '../events.ts'
import type { RawUsage, Json } from '../terms.ts'
import type {
  Encoder,
  NeutralEvent,
  Opening,
  Reasoning,
  Reply,
  ReplyPart,
  ReasoningSignature,
  Stop,
  ReplyContext,
} from '../translate/neutral.ts'
import { renameId, writtenSignature } from '../translate/passthrough.ts'
import { envelope } from './errors.ts'
import { encodeUsage } from './usage.ts'

const REASONS: Readonly<Record<Stop['reason'], string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  calls: 'tool_use',
  filtered: 'refusal',
  paused: 'pause_turn',
  context: 'model_context_window_exceeded',
  sequence: 'stop_sequence',
}

function stopMembers(stop: Stop, refused: boolean): Json {
  const reason = stop.reason === 'stop' && refused ? 'refusal' : REASONS[stop.reason]
  return { stop_reason: reason, stop_sequence: stop.reason === 'sequence' ? stop.sequence : null }
}

/** Encodes a JSON reply. */
export function encodeReply(reply: Reply, usage: RawUsage, context: ReplyContext): Json {
  const content = reply.parts.map(part => encodeBlock(part))
  const refused = reply.parts.some(({ kind }) => kind === 'refusal')
  return { ...begun(reply.id, context), content, ...stopMembers(reply.stop, refused), usage }
}

function begun(id: string, { model }: ReplyContext): Json {
  return {
    id: renameId({ id }, 'msg_'),
    type: 'message',
    role: 'assistant',
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
  }
}

function encodeBlock(part: ReplyPart): Json {
  switch (part.kind) {
    case 'text':
    case 'refusal':
      return { type: 'text', text: part.text }
    case 'reasoning':
      return { type: 'thinking', thinking: part.text, signature: signatureOf(part) }
    case 'call':
      return { type: 'tool_use', id: part.id, name: part.name, input: inputObject(part.input) }
  }
}

function signatureOf(reasoning: Omit<Reasoning, 'kind'>): string {
  return writtenSignature(reasoning, 'messages', 'signature')
}

const BLOCKS: Readonly<Record<Exclude<Opening['kind'], 'call'>, Json>> = {
  text: { type: 'text', text: '' },
  refusal: { type: 'text', text: '' },
  reasoning: { type: 'thinking', thinking: '', signature: '' },
}

/** Encodes a stream. Parts come one after the other, so one block is open at a time. */
class MessagesEncoder implements Encoder {
  readonly #context: ReplyContext
  #begun = false
  #index = -1
  #kind: Opening['kind'] = 'text'
  /** The text so far of a part that is sent whole, or also whole. */
  #said: string[] = []
  #refused = false
  #stop: Stop = { reason: 'stop' }

  constructor(context: ReplyContext) {
    this.#context = context
  }

  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[] {
    switch (event.kind) {
      case 'start':
        return this.#begin(event.id)
      case 'open':
        return [...this.#begin(''), this.#open(event.what)]
      case 'delta':
        return this.#delta(event.text)
      case 'close':
        return this.#close(event.signature)
      case 'stop':
        this.#stop = event.stop
        return this.#begin('')
    }
  }

  end(usage: RawUsage): readonly OutgoingEvent[] {
    return [
      typedEvent({ type: 'message_delta', delta: stopMembers(this.#stop, this.#refused), usage }),
      typedEvent({ type: 'message_stop' }),
    ]
  }

  fail(error: GatewayError, requestId: string): readonly OutgoingEvent[] {
    return [typedEvent(envelope(error, requestId))]
  }

  #begin(id: string): OutgoingEvent[] {
    if (this.#begun) return []
    this.#begun = true
    // The input is only known at the end, where the last event reports it.
    return [
      typedEvent({ type: 'message_start', message: { ...begun(id, this.#context), usage: encodeUsage(NO_USAGE) } }),
    ]
  }

  #open(what: Opening): OutgoingEvent {
    this.#index++
    this.#kind = what.kind
    this.#said = []
    this.#refused ||= what.kind === 'refusal'
    const block =
      what.kind === 'call' ? { type: 'tool_use', id: what.id, name: what.name, input: {} } : BLOCKS[what.kind]
    return typedEvent({ type: 'content_block_start', index: this.#index, content_block: block })
  }

  #delta(said: string): OutgoingEvent[] {
    switch (this.#kind) {
      case 'call':
        // Models make mistakes: only complete input shows whether it is the object that clients expect.
        this.#said.push(said)
        return []
      case 'reasoning':
        this.#said.push(said)
        return [this.#piece({ type: 'thinking_delta', thinking: said })]
      default:
        return [this.#piece({ type: 'text_delta', text: said })]
    }
  }

  #close(signature: ReasoningSignature | undefined): OutgoingEvent[] {
    const last = this.#last(this.#said.join(''), signature)
    return [...(last ? [this.#piece(last)] : []), typedEvent({ type: 'content_block_stop', index: this.#index })]
  }

  /** The last delta of a part: the signature of a reasoning, or the input of a call. */
  #last(text: string, signature: ReasoningSignature | undefined): Json | undefined {
    if (this.#kind === 'reasoning')
      return { type: 'signature_delta', signature: signatureOf({ text, ...(signature && { signature }) }) }
    if (this.#kind !== 'call' || text.trim() === '') return undefined
    const input = inputObject(text)
    return {
      type: 'input_json_delta',
      partial_json: 'INVALID_JSON' in input || text.trim() === 'null' ? JSON.stringify(input) : text,
    }
  }

  #piece(delta: Json): OutgoingEvent {
    return typedEvent({ type: 'content_block_delta', index: this.#index, delta })
  }
}

/** An encoder for one stream. */
export function encoder(context: ReplyContext): Encoder {
  return new MessagesEncoder(context)
}
