/** Encodes replies of the neutral model in the responses format, as JSON and as streams. */
import type { GatewayError } from '../../errors.ts'
import { freeformInput } from '../translate/calls.ts'
import { type OutgoingEvent, typedEvent } from '../events.ts'
import type { RawUsage, Json } from '../terms.ts'
import type {
  Call,
  Encoder,
  NeutralEvent,
  Opening,
  Reply,
  ReplyPart,
  ReasoningSignature,
  Stop,
  ReplyContext,
} from '../translate/neutral.ts'
import { itemId, renameId, writtenSignature } from '../translate/passthrough.ts'
import { failedResponseError, openaiError } from '../openai-errors.ts'
import { homeName } from '../translate/tools.ts'

const INCOMPLETE: Readonly<Partial<Record<Stop['reason'], string>>> = {
  length: 'max_output_tokens',
  context: 'max_output_tokens',
  filtered: 'content_filter',
}

/** The members of a response that tell how it ended. */
function ending({ reason }: Stop): {
  status: 'completed' | 'incomplete'
  incomplete_details: { reason: string } | null
} {
  const incomplete = INCOMPLETE[reason]
  return incomplete === undefined
    ? { status: 'completed', incomplete_details: null }
    : { status: 'incomplete', incomplete_details: { reason: incomplete } }
}

/** Encodes a JSON reply. */
export function encodeReply(reply: Reply, usage: RawUsage, context: ReplyContext): Json {
  const output = reply.parts.map((part, index) =>
    encodeItem(part, itemId(reply.id, PREFIXES[part.kind], index), context),
  )
  return { ...responseObject(reply.id, context), ...ending(reply.stop), output, usage }
}

const PREFIXES: Readonly<Record<ReplyPart['kind'], string>> = {
  text: 'msg_',
  refusal: 'msg_',
  reasoning: 'rs_',
  call: 'fc_',
}

/** A finished item of the output. */
function encodeItem(part: ReplyPart, id: string, context: ReplyContext): Json {
  switch (part.kind) {
    case 'text':
    case 'refusal':
      return {
        id,
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [contentPart(part.kind, part.text)],
      }
    case 'reasoning': {
      const summary = part.text === '' ? [] : [{ type: 'summary_text', text: part.text }]
      return {
        id,
        type: 'reasoning',
        summary,
        ...(part.signature && { encrypted_content: writtenSignature(part, 'responses', 'encrypted') }),
      }
    }
    case 'call':
      return encodeCall(part, id, context)
  }
}

function contentPart(kind: 'text' | 'refusal', said: string): Json {
  return kind === 'refusal'
    ? { type: 'refusal', refusal: said }
    : { type: 'output_text', annotations: [], logprobs: [], text: said }
}

/** A call as the client declared the tool: with its namespace, and bare input for a freeform tool. */
function encodeCall({ id: call_id, name, input }: Call, id: string, { tools }: ReplyContext): Json {
  const tool = tools.get(name)
  const named = homeName(name, tool)
  if (tool?.freeform)
    return { id, type: 'custom_tool_call', status: 'completed', call_id, ...named, input: freeformInput(input) }
  return { id, type: 'function_call', status: 'completed', arguments: input || '{}', call_id, ...named }
}

/** Members of a request that its response repeats, with their defaults. */
const ECHO: Readonly<Record<string, unknown>> = {
  instructions: null,
  max_output_tokens: null,
  metadata: {},
  parallel_tool_calls: true,
  prompt_cache_key: null,
  reasoning: { effort: null, summary: null },
  safety_identifier: null,
  service_tier: 'default',
  temperature: null,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_p: null,
  user: null,
}

/** The names of those members. */
export const ECHOES: readonly string[] = Object.keys(ECHO)

/** A response that has just begun. */
export function responseObject(id: string, { model, at, member }: ReplyContext): Json {
  const echo = Object.fromEntries(Object.entries(ECHO).map(([name, none]) => [name, member(name) ?? none]))
  return {
    id: renameId({ id }, 'resp_'),
    object: 'response',
    created_at: at,
    status: 'in_progress',
    background: false,
    store: false,
    truncation: 'disabled',
    error: null,
    incomplete_details: null,
    model,
    output: [],
    previous_response_id: null,
    ...echo,
    usage: null,
  }
}

/** The item that is being written. */
interface Writing {
  readonly what: Opening
  readonly index: number
  readonly id: string
  said: string
}

/**
 * Encodes a stream. One item with one part is open at a time. Its text is sent in pieces, again when it ends, and again
 * at the end.
 */
class ResponsesEncoder implements Encoder {
  readonly #context: ReplyContext
  #number = 0
  #id: string | undefined
  readonly #output: Json[] = []
  #item: Writing | undefined
  #stop: Stop = { reason: 'stop' }

  constructor(context: ReplyContext) {
    this.#context = context
  }

  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[] {
    switch (event.kind) {
      case 'start':
        return this.#begin(event.id)
      case 'open':
        return [...this.#begin(''), ...this.#open(event.what)]
      case 'delta':
        return this.#item ? this.#delta(this.#item, event.text) : []
      case 'close':
        return this.#item ? this.#close(this.#item, event.signature) : []
      case 'stop':
        this.#stop = event.stop
        return this.#begin('')
    }
  }

  end(usage: RawUsage): readonly OutgoingEvent[] {
    const { status, incomplete_details } = ending(this.#stop)
    return [this.#event(`response.${status}`, { response: this.#response({ status, incomplete_details, usage }) })]
  }

  fail(error: GatewayError): readonly OutgoingEvent[] {
    const { code, message } = openaiError(error)
    // SDKs throw on `error`. Agents that ignore it read `response.failed`.
    return [
      this.#event('error', { code, message, param: null }),
      this.#event('response.failed', {
        response: this.#response({ status: 'failed', error: failedResponseError(error) }),
      }),
    ]
  }

  #begin(id: string): OutgoingEvent[] {
    if (this.#id !== undefined) return []
    this.#id = id
    const response = this.#response({})
    return [this.#event('response.created', { response }), this.#event('response.in_progress', { response })]
  }

  #open(what: Opening): OutgoingEvent[] {
    const index = this.#output.length
    const item = (this.#item = { what, index, id: itemId(this.#id ?? '', PREFIXES[what.kind], index), said: '' })
    const added = this.#event('response.output_item.added', { output_index: index, item: this.#blank(item) })
    if (what.kind !== 'text' && what.kind !== 'refusal') return [added]
    return [added, this.#event('response.content_part.added', { ...within(item), part: contentPart(what.kind, '') })]
  }

  /** The item at its beginning. */
  #blank({ what, id }: Writing): Json {
    const whole = encodeItem(
      what.kind === 'call' ? { ...what, input: '' } : { kind: what.kind, text: '' },
      id,
      this.#context,
    )
    if (what.kind === 'call')
      return { ...whole, status: 'in_progress', ...('arguments' in whole ? { arguments: '' } : { input: '' }) }
    return what.kind === 'reasoning' ? whole : { ...whole, status: 'in_progress', content: [] }
  }

  #delta(item: Writing, delta: string): OutgoingEvent[] {
    const first = item.said === ''
    item.said += delta
    switch (item.what.kind) {
      case 'text':
        return [this.#event('response.output_text.delta', { ...within(item), delta, logprobs: [] })]
      case 'refusal':
        return [this.#event('response.refusal.delta', { ...within(item), delta })]
      case 'reasoning': {
        const part = { type: 'summary_text', text: '' }
        const added = first ? [this.#event('response.reasoning_summary_part.added', { ...summary(item), part })] : []
        return [...added, this.#event('response.reasoning_summary_text.delta', { ...summary(item), delta })]
      }
      case 'call':
        // The input of a freeform tool is inside JSON here, so it is sent when that is complete.
        return this.#freeform(item)
          ? []
          : [this.#event('response.function_call_arguments.delta', { ...at(item), delta })]
    }
  }

  #close(item: Writing, signature: ReasoningSignature | undefined): OutgoingEvent[] {
    const { what, said, id } = item
    const empty = what.kind === 'call' && said === '' && !this.#freeform(item) ? this.#delta(item, '{}') : []
    const part: ReplyPart =
      what.kind === 'call'
        ? { ...what, input: item.said }
        : { kind: what.kind, text: said, ...(signature && { signature }) }
    const whole = encodeItem(part, id, this.#context)
    this.#item = undefined
    this.#output.push(whole)
    return [
      ...empty,
      ...this.#finished(item),
      this.#event('response.output_item.done', { output_index: item.index, item: whole }),
    ]
  }

  #finished(item: Writing): OutgoingEvent[] {
    const { what, said } = item
    switch (what.kind) {
      case 'text':
      case 'refusal': {
        const done =
          what.kind === 'text'
            ? this.#event('response.output_text.done', { ...within(item), text: said, logprobs: [] })
            : this.#event('response.refusal.done', { ...within(item), refusal: said })
        return [
          done,
          this.#event('response.content_part.done', { ...within(item), part: contentPart(what.kind, said) }),
        ]
      }
      case 'reasoning':
        if (said === '') return []
        return [
          this.#event('response.reasoning_summary_text.done', { ...summary(item), text: said }),
          this.#event('response.reasoning_summary_part.done', {
            ...summary(item),
            part: { type: 'summary_text', text: said },
          }),
        ]
      case 'call': {
        if (!this.#freeform(item))
          return [
            this.#event('response.function_call_arguments.done', {
              ...at(item),
              name: homeName(what.name, this.#context.tools.get(what.name)).name,
              arguments: said,
            }),
          ]
        const input = freeformInput(said)
        return [
          this.#event('response.custom_tool_call_input.delta', { ...at(item), delta: input }),
          this.#event('response.custom_tool_call_input.done', { ...at(item), input }),
        ]
      }
    }
  }

  #freeform({ what }: Writing): boolean {
    return what.kind === 'call' && this.#context.tools.get(what.name)?.freeform === true
  }

  #response(members: Json): Json {
    return { ...responseObject(this.#id ?? '', this.#context), output: this.#output, ...members }
  }

  #event(type: string, members: Json): OutgoingEvent {
    return responseEvent(type, this.#number++, members)
  }

  /** How many events were written. */
  get count(): number {
    return this.#number
  }
}

const at = ({ id, index }: Writing): Json => ({ item_id: id, output_index: index })
const within = (item: Writing): Json => ({ ...at(item), content_index: 0 })
const summary = (item: Writing): Json => ({ ...at(item), summary_index: 0 })

/** An event with its number in the stream. */
export function responseEvent(type: string, sequence_number: number, members: Json): OutgoingEvent {
  return typedEvent({ type, sequence_number, ...members })
}

/** An encoder for one stream, which counts its events. */
export function encoder(context: ReplyContext): Encoder & { readonly count: number } {
  return new ResponsesEncoder(context)
}
