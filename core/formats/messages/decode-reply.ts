/** Replies in the messages format, whole and as streams, into the neutral form. */
import { contentsOf, stopOf } from '../decoding.ts'
import type { ReplyEvent } from '../events.ts'
import type { Decoder, NeutralEvent, Opening, Reply, ReplyPart, Seal, Stop } from '../neutral.ts'
import { sealIn } from '../opaque.ts'
import { type Json, object, text } from '../reading.ts'

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
      return { reason: 'stop' }
  }
}

export function decodeReply(json: Json): Reply {
  const parts = contentsOf(json, 'content').flatMap(block => decodeBlock(object(block) ?? {}))
  const stop = decodeStop(json['stop_reason'], json['stop_sequence'])
  const calls = parts.some(({ kind }) => kind === 'call')
  return { id: text(json['id']) ?? '', parts, stop: stopOf(stop, calls) }
}

function decodeBlock(block: Json): ReplyPart[] {
  const seal = sealOf(block)
  switch (block['type']) {
    case 'text':
      return [{ kind: 'text', text: text(block['text']) ?? '' }]
    case 'thinking':
    case 'redacted_thinking':
      return [{ kind: 'reasoning', text: text(block['thinking']) ?? '', ...(seal && { seal }) }]
    case 'tool_use':
      return [{ kind: 'call', id: text(block['id']) ?? '', name: text(block['name']) ?? '', input: JSON.stringify(block['input'] ?? {}) }]
    default:
      // Tools that the provider ran: what they found is in the text.
      return []
  }
}

function sealOf(block: Json): Seal | undefined {
  return block['type'] === 'redacted_thinking' ? sealIn(block['data'], 'messages', 'redacted') : sealIn(block['signature'], 'messages', 'signature')
}

class MessagesDecoder implements Decoder {
  /** The kind of each block that is open, and of a call whether input has come. */
  readonly #blocks = new Map<number, { readonly kind: Opening['kind']; input: string; seal: Seal | undefined }>()
  #calls = false
  #stopped = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    const json = object(event.json)
    const part = Number(json?.['index'])
    switch (json?.['type']) {
      case 'message_start':
        return [{ kind: 'start', id: text(object(json['message'])?.['id']) ?? '' }]
      case 'content_block_start':
        return this.#open(part, object(json['content_block']) ?? {})
      case 'content_block_delta':
        return this.#delta(part, object(json['delta']) ?? {})
      case 'content_block_stop':
        return this.#close(part)
      case 'message_delta':
        return this.#stop(object(json['delta']) ?? {})
      case 'message_stop':
        return [{ kind: 'end' }]
      default:
        return []
    }
  }

  #open(part: number, block: Json): NeutralEvent[] {
    const [what] = decodeBlock(block)
    if (!what) return []
    // Most send an empty object and the input in pieces; some the whole input here.
    const input = what.kind === 'call' && what.input !== '{}' ? what.input : ''
    this.#blocks.set(part, { kind: what.kind, input, seal: what.kind === 'reasoning' ? what.seal : undefined })
    if (what.kind !== 'call') {
      const open: NeutralEvent = { kind: 'open', part, what: { kind: what.kind } }
      return what.text === '' ? [open] : [open, { kind: 'delta', part, text: what.text }]
    }
    this.#calls = true
    return [{ kind: 'open', part, what: { kind: 'call', id: what.id, name: what.name } }]
  }

  #delta(part: number, delta: Json): NeutralEvent[] {
    const block = this.#blocks.get(part)
    if (!block) return []
    if (delta['type'] === 'signature_delta') {
      const so = text(block.seal?.data['signature']) ?? ''
      block.seal = sealIn(so + (text(delta['signature']) ?? ''), 'messages', 'signature')
      return []
    }
    const said = text(delta['text']) ?? text(delta['thinking']) ?? text(delta['partial_json'])
    if (!said) return []
    if (block.kind === 'call') block.input = ''
    return [{ kind: 'delta', part, text: said }]
  }

  #close(part: number): NeutralEvent[] {
    const block = this.#blocks.get(part)
    this.#blocks.delete(part)
    if (!block) return []
    const close: NeutralEvent = { kind: 'close', part, ...(block.seal && { seal: block.seal }) }
    return block.kind === 'call' && block.input !== '' ? [{ kind: 'delta', part, text: block.input }, close] : [close]
  }

  #stop(delta: Json): NeutralEvent[] {
    const reason = text(delta['stop_reason'])
    if (reason === undefined || this.#stopped) return []
    this.#stopped = true
    return [{ kind: 'stop', stop: stopOf(decodeStop(reason, delta['stop_sequence']), this.#calls) }]
  }
}

export function decoder(): Decoder {
  return new MessagesDecoder()
}
