/** Decodes replies in the messages format, JSON and streams, into the neutral model. */
import { contentsOf, noReply, parseExact, stopOf } from '../translate/decoding.ts'
import { inputText } from '../translate/calls.ts'
import type { ReplyEvent } from '../events.ts'
import type { Decoder, NeutralEvent, Opening, Reply, ReplyPart, ReasoningSignature } from '../translate/neutral.ts'
import type { Json, Reading } from '../terms.ts'
import { object, text } from '../json.ts'

/** Decodes a JSON reply. @throws GatewayError upstream_failed if it is not a reply */
export function decodeReply(json: Json, reading: Reading): Reply {
  const parts = contentsOf(json, 'content').flatMap(block => decodeBlock(object(block) ?? {}))
  if (!text(json['stop_reason'])) throw noReply('a reply that ends with no reason')
  const calls = parts.some(({ kind }) => kind === 'call')
  return { id: text(json['id']) ?? '', parts, stop: stopOf(reading, calls, text(json['stop_sequence'])) }
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
  /** What it began with: the id and the name of a call, or a text. */
  readonly begins: string
  /** Something was added to what it began with. */
  said: boolean
}

class MessagesDecoder implements Decoder {
  /** The open blocks by number. */
  readonly #blocks = new Map<number, Block>()
  #count = 0
  #calls = false
  #stopped = false

  read(event: ReplyEvent): readonly NeutralEvent[] {
    const json = object(event.json)
    const said = typeof json?.['index'] === 'number' ? json['index'] : undefined
    // A number that is left out is that of the latest block.
    const index = said ?? [...this.#blocks.keys()].at(-1) ?? -1
    switch (json?.['type']) {
      case 'message_start':
        return [{ kind: 'start', id: text(object(json['message'])?.['id']) ?? '' }]
      case 'content_block_start':
        return this.#open(said ?? -1, object(object(parseExact(event.data))?.['content_block']) ?? {})
      case 'content_block_delta':
        return this.#delta(index, object(json['delta']) ?? {})
      case 'content_block_stop':
        return this.#close(index)
      case 'message_delta':
        return this.#stop(object(json['delta']) ?? {}, event.reading)
      case 'message_stop':
        return [{ kind: 'end' }]
      default:
        return []
    }
  }

  #open(index: number, block: Json): NeutralEvent[] {
    const [what] = decodeBlock(block)
    // One of another kind ends the block before, too, whose deltas are not its own.
    if (!what) return this.#close(index)
    const begins = what.kind === 'call' ? `${what.id} ${what.name}` : what.text
    const begun = this.#blocks.get(index)
    // The same beginning twice is one. Another one ends the block before, whose end was left out.
    if (begun?.kind === what.kind && begun.begins === begins && (what.kind === 'call' || !begun.said)) return []
    const before = this.#close(index)
    const part = this.#count++
    // Most providers send an empty object here and the input in pieces. Some send the whole input here.
    const input = what.kind === 'call' && what.input !== '{}' ? what.input : ''
    this.#blocks.set(index, {
      part,
      kind: what.kind,
      input,
      signature: what.kind === 'reasoning' ? what.signature : undefined,
      begins,
      said: false,
    })
    if (what.kind !== 'call') {
      const open: NeutralEvent = { kind: 'open', part, what: { kind: what.kind } }
      return [...before, open, ...(what.text === '' ? [] : [{ kind: 'delta' as const, part, text: what.text }])]
    }
    this.#calls = true
    return [...before, { kind: 'open', part, what: { kind: 'call', id: what.id, name: what.name } }]
  }

  #delta(index: number, delta: Json): NeutralEvent[] {
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
    block.said = true
    return [{ kind: 'delta', part: block.part, text: said }]
  }

  #close(index: number): NeutralEvent[] {
    const block = this.#blocks.get(index)
    this.#blocks.delete(index)
    if (!block) return []
    const { part, kind, input, signature } = block
    const close: NeutralEvent = { kind: 'close', part, ...(signature && { signature }) }
    return kind === 'call' && input !== '' ? [{ kind: 'delta', part, text: input }, close] : [close]
  }

  #stop(delta: Json, reading: Reading): NeutralEvent[] {
    if (text(delta['stop_reason']) === undefined || this.#stopped) return []
    this.#stopped = true
    const rest = [...this.#blocks.keys()].flatMap(index => this.#close(index))
    return [...rest, { kind: 'stop', stop: stopOf(reading, this.#calls, text(delta['stop_sequence'])) }]
  }
}

/** A decoder for one stream. */
export function decoder(): Decoder {
  return new MessagesDecoder()
}
