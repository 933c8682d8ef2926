/** Encodes replies of the neutral model in the chat-completions format, as JSON and as streams. */
import type { GatewayError } from '../../errors.ts'
import { freeformInput } from '../translate/calls.ts'
import { present } from '../translate/decoding.ts'
import { DONE, type OutgoingEvent } from '../events.ts'
import type { RawUsage, Json } from '../terms.ts'
import type { Call, Encoder, NeutralEvent, Opening, Reply, Stop, ReplyContext } from '../translate/neutral.ts'
import { renameId } from '../translate/passthrough.ts'
import { openaiError } from '../openai-errors.ts'
import { signatureDetail } from './reasoning.ts'

const FINISHES: Readonly<Record<Stop['reason'], string>> = {
  stop: 'stop',
  sequence: 'stop',
  paused: 'stop',
  length: 'length',
  context: 'length',
  calls: 'tool_calls',
  filtered: 'content_filter',
}

/** Encodes a JSON reply. */
export function encodeReply(reply: Reply, usage: RawUsage, context: ReplyContext): Json {
  const said = textOfKind(reply, 'text')
  const refusal = textOfKind(reply, 'refusal')
  const thought = textOfKind(reply, 'reasoning')
  const calls = reply.parts.filter(part => part.kind === 'call').map(call => encodeCall(call, context))
  const details = detailsOf(reply)
  const message = {
    role: 'assistant',
    content: said ?? null,
    refusal: refusal ?? null,
    annotations: [],
    ...(thought && { reasoning_content: thought }),
    ...(details.length > 0 && { reasoning_details: details }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
  const choices = [{ index: 0, message, logprobs: null, finish_reason: FINISHES[reply.stop.reason] }]
  return {
    id: renameId(reply, 'chatcmpl-'),
    object: 'chat.completion',
    created: context.at,
    model: context.model,
    choices,
    usage,
  }
}

/** The signed reasonings of a reply, each with its place in the reply. */
function detailsOf({ parts }: Reply): Json[] {
  const details: Json[] = []
  const place = { said: 0, calls: 0 }
  for (const part of parts) {
    if (part.kind === 'text') place.said += part.text.length
    else if (part.kind === 'call') place.calls++
    else if (part.kind === 'reasoning' && part.signature) details.push(signatureDetail(part, details.length, place))
  }
  return details
}

/** The text of all parts of a kind; undefined if there is no such part. */
function textOfKind({ parts }: Reply, kind: 'text' | 'refusal' | 'reasoning'): string | undefined {
  const found = parts.flatMap(part => (part.kind === kind ? [part.text] : []))
  return found.length > 0 ? found.join('') : undefined
}

function encodeCall({ id, name, input }: Call, { tools }: ReplyContext): Json {
  const freeform = tools.get(name)?.freeform
  return freeform
    ? { id, type: 'custom', custom: { name, input: freeformInput(input) } }
    : { id, type: 'function', function: { name, arguments: input || '{}' } }
}

/** The state of an open part. Calls are numbered among themselves. */
type Open =
  | { kind: 'prose'; member: string; said: string[] }
  | { kind: 'call'; index: number; empty: boolean }
  | { kind: 'freeform'; index: number; input: string }

const MEMBERS = { text: 'content', refusal: 'refusal', reasoning: 'reasoning_content' } as const

class ChatEncoder implements Encoder {
  readonly #context: ReplyContext
  #id = ''
  #begun = false
  readonly #open = new Map<number, Open>()
  #calls = 0
  #details = 0
  readonly #place = { said: 0 }
  #finish = 'stop'

  constructor(context: ReplyContext) {
    this.#context = context
  }

  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[] {
    switch (event.kind) {
      case 'start':
        this.#id = renameId(event, 'chatcmpl-')
        return []
      case 'open':
        return [...this.#begin(event.what.kind === 'text' ? '' : null), ...this.#opened(event.part, event.what)]
      case 'delta':
        return this.#delta(this.#open.get(event.part), event.text)
      case 'close':
        return this.#closed(event)
      case 'stop':
        this.#finish = FINISHES[event.stop.reason]
        return this.#begin(null)
    }
  }

  end(usage: RawUsage): readonly OutgoingEvent[] {
    const asked = this.#context.usageAsked
    return [
      this.#chunk({}, this.#finish),
      ...(asked ? [this.#event({ choices: [], usage })] : []),
      { type: '', data: DONE },
    ]
  }

  fail(error: GatewayError): readonly OutgoingEvent[] {
    return [{ type: '', data: JSON.stringify({ error: openaiError(error) }) }]
  }

  #begin(content: '' | null): OutgoingEvent[] {
    if (this.#begun) return []
    this.#begun = true
    return [this.#chunk({ role: 'assistant', content })]
  }

  #opened(part: number, what: Opening): OutgoingEvent[] {
    if (what.kind !== 'call') {
      this.#open.set(part, { kind: 'prose', member: MEMBERS[what.kind], said: [] })
      return []
    }
    const index = this.#calls++
    const { id, name } = what
    const freeform = this.#context.tools.get(name)?.freeform
    this.#open.set(part, freeform ? { kind: 'freeform', index, input: '' } : { kind: 'call', index, empty: true })
    const call = freeform
      ? { index, id, type: 'custom', custom: { name, input: '' } }
      : { index, id, type: 'function', function: { name, arguments: '' } }
    return [this.#chunk({ tool_calls: [call] })]
  }

  #delta(open: Open | undefined, said: string): OutgoingEvent[] {
    switch (open?.kind) {
      case 'prose':
        if (open.member === MEMBERS.text) this.#place.said += said.length
        else open.said.push(said)
        return [this.#chunk({ [open.member]: said })]
      case 'call':
        open.empty = false
        return [this.#chunk({ tool_calls: [{ index: open.index, function: { arguments: said } }] })]
      case 'freeform':
        open.input += said
        return []
      case undefined:
        return []
    }
  }

  #closed({ part, signature }: Extract<NeutralEvent, { kind: 'close' }>): OutgoingEvent[] {
    const open = this.#open.get(part)
    this.#open.delete(part)
    // Clients parse the arguments: they must be JSON.
    if (open?.kind === 'call' && open.empty) return this.#delta(open, '{}')
    if (open?.kind === 'freeform')
      return [this.#chunk({ tool_calls: [{ index: open.index, custom: { input: freeformInput(open.input) } }] })]
    if (!signature) return []
    const text = open?.kind === 'prose' ? open.said.join('') : ''
    return [
      this.#chunk({
        reasoning_details: [
          signatureDetail({ text, signature }, this.#details++, { ...this.#place, calls: this.#calls }),
        ],
      }),
    ]
  }

  #chunk(delta: Json, finish: string | null = null): OutgoingEvent {
    const choices = [{ index: 0, delta, logprobs: null, finish_reason: finish }]
    return this.#event(present({ choices, usage: this.#context.usageAsked ? null : undefined }))
  }

  #event(members: Json): OutgoingEvent {
    const { at, model } = this.#context
    return {
      type: '',
      data: JSON.stringify({ id: this.#id, object: 'chat.completion.chunk', created: at, model, ...members }),
    }
  }
}

/** An encoder for one stream. */
export function encoder(context: ReplyContext): Encoder {
  return new ChatEncoder(context)
}
