/** Decodes replies in the messages format, JSON and streams, into the neutral model. */
import { contentsOf, noReply, parseExact, stopOf } from '../translate/decoding.ts'
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
import { object, text } from '../json.ts'

function decodeStop(reason: unknown, sequence: unknown): Stop {
  switch (reason) {
    case 'max_tokens':
      return { reason: 'length' }
    case 'tool_use':
      return { reason: 'calls' }
    case 'refusal':
      return { reason: 'filtered' }
    case 'pause_turn':
      return { reason: 'paused' }
    case 'model_context_window_exceeded':
      return { reason: 'context' }
    case 'stop_sequence':
      return { reason: 'sequence', sequence: text(sequence) ?? null }
    default:
      if (text(reason) === undefined) throw noReply('a reply that ends with no reason')
      return { reason: 'stop' }
  }
}

/** Decodes a JSON reply. @throws GatewayError upstream_failed if it is not a reply */
export function decodeReply(json: Json): Reply {
  const parts = contentsOf(json, 'content').flatMap(block => decodeBlock(object(block) ?? {}))
  const stop = decodeStop(json['stop_reason'], json['stop_sequence'])
  const calls = parts.some(({ kind }) => kind === 'call')
  return { id: text(json['id']) ?? '', parts, stop: stopOf(stop, calls) }
}

function decodeBlock(block: Json): ReplyPart[] {
  switch (block['type']) {
    case 'text':
      return [{ kind: 'text', text: text(block['text']) ?? '' }]
    case 'thinking':
      return [
        { kind: 'reasoning', text: text(block['thinking']) ?? '', ...signatureFrom({ signature: block['signature'] }) },
      ]
    case 'redacted_thinking':
      return [{ kind: 'reasoning', text: '', ...signatureFrom({ redacted: block['data'] }) }]
    case 'tool_use':
      return [
        {
          kind: 'call',
          id: text(block['id']) ?? '',
          name: text(block['name']) ?? '',
          input: inputText(block['input'] ?? {}),
        },
      ]
    default:
      // The text of the reply contains what the provider's tools found.
      return []
  }
}

/** A signature, if there is any data. */
function signatureFrom(data: Json): { signature?: ReasoningSignature } {
  return Object.values(data).some(value => text(value)) ? { signature: { by: 'messages', data } } : {}
}

/** An open block. */
interface Block {
  readonly part: number
  readonly kind: Opening['kind']
  /** For a call: input that came with its beginning, unless input comes in pieces. */
  input: string
  signature: ReasoningSignature | undefined
}

class MessagesDecoder implements Decoder {
  /** The open blocks by number. */
  readonly #blocks = new Map<unknown, Block>()
  #count = 0
  #calls = false
  #stopped = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    const json = object(event.json)
    const index = json?.['index']
    switch (json?.['type']) {
      case 'message_start':
        return [{ kind: 'start', id: text(object(json['message'])?.['id']) ?? '' }]
      case 'content_block_start':
        return this.#open(index, object(object(parseExact(event.data))?.['content_block']) ?? {})
      case 'content_block_delta':
        return this.#delta(index, object(json['delta']) ?? {})
      case 'content_block_stop':
        return this.#close(index)
      case 'message_delta':
        return this.#stop(object(json['delta']) ?? {})
      case 'message_stop':
        return [{ kind: 'end' }]
      default:
        return []
    }
  }

  #open(index: unknown, block: Json): NeutralEvent[] {
    const [what] = decodeBlock(block)
    if (!what || this.#blocks.has(index)) return []
    const part = this.#count++
    // Most providers send an empty object here and the input in pieces. Some send the whole input here.
    const input = what.kind === 'call' && what.input !== '{}' ? what.input : ''
    this.#blocks.set(index, {
      part,
      kind: what.kind,
      input,
      signature: what.kind === 'reasoning' ? what.signature : undefined,
    })
    if (what.kind !== 'call') {
      const open: NeutralEvent = { kind: 'open', part, what: { kind: what.kind } }
      return what.text === '' ? [open] : [open, { kind: 'delta', part, text: what.text }]
    }
    this.#calls = true
    return [{ kind: 'open', part, what: { kind: 'call', id: what.id, name: what.name } }]
  }

  #delta(index: unknown, delta: Json): NeutralEvent[] {
    const block = this.#blocks.get(index)
    if (!block) return []
    if (delta['type'] === 'signature_delta') {
      const so = text(block.signature?.data['signature']) ?? ''
      block.signature = signatureFrom({ signature: so + (text(delta['signature']) ?? '') }).signature
      return []
    }
    const said = text(delta['text']) ?? text(delta['thinking']) ?? text(delta['partial_json'])
    if (!said) return []
    if (block.kind === 'call') block.input = ''
    return [{ kind: 'delta', part: block.part, text: said }]
  }

  #close(index: unknown): NeutralEvent[] {
    const block = this.#blocks.get(index)
    this.#blocks.delete(index)
    if (!block) return []
    const { part, kind, input, signature } = block
    const close: NeutralEvent = { kind: 'close', part, ...(signature && { signature }) }
    return kind === 'call' && input !== '' ? [{ kind: 'delta', part, text: input }, close] : [close]
  }

  #stop(delta: Json): NeutralEvent[] {
    const reason = text(delta['stop_reason'])
    if (reason === undefined || this.#stopped) return []
    this.#stopped = true
    return [{ kind: 'stop', stop: stopOf(decodeStop(reason, delta['stop_sequence']), this.#calls) }]
  }
}

/** A decoder for one stream. */
export function decoder(): Decoder {
  return new MessagesDecoder()
}
