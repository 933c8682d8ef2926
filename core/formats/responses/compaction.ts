/**
 * Compactions that the gateway makes: one request to the key's model for a summary of the conversation, and a reply whose
 * only item holds it. Later requests carry the item to any model, as text.
 */
import { GatewayError } from '../../errors.ts'
import { withElements, withMembers } from '../../lib/json/rebuild.ts'
import type { JsonView } from '../../lib/json/view.ts'
import type { Body } from '../body.ts'
import type { OutgoingEvent } from '../events.ts'
import type { Format } from '../format.ts'
import { failedResponseError } from '../openai-errors.ts'
import { arrayAt, refused } from '../translate/decoding.ts'
import type { DroppedFields } from '../translate/dropped-fields.ts'
import type { Encoder, NeutralEvent, Opening, Reply, ReplyContext, Request, Stop } from '../translate/neutral.ts'
import { itemId, sealedSummary } from '../translate/passthrough.ts'
import type { Json, RawUsage } from '../terms.ts'
import { list, object, words } from '../json.ts'
import { decodeRequest } from './decode-request.ts'
import { encoder as responsesEncoder, responseEvent, responseObject } from './encode-reply.ts'

/** What a client asks for: a response whose only item is the compaction, or the compacted conversation itself. */
export type CompactionKind = 'response' | 'conversation'

/** The type of the item that asks for a compaction. */
const TRIGGER = 'compaction_trigger'

const PROMPT = `Summarise this conversation for another assistant, which continues it and sees nothing but your summary. Say what the user asked for and which constraints apply; what was done and decided, with the names of files, commands, values and results that matter; and what remains to be done, with the next step. If the conversation contains an earlier summary, include what still matters of it. Answer with the summary alone, as text. Do not call tools.`

/** The types of tools that the client runs. A tool of the provider could be refused, although none is called. */
const CLIENTS_TOOLS: ReadonlySet<unknown> = new Set(words('function custom namespace'))

/** Whether the last item of a request asks for a compaction. */
export function asksForCompaction(body: Body): boolean {
  if (!body.received.includes(TRIGGER)) return false
  let last: JsonView | undefined
  for (const item of body.view('input')?.elements() ?? []) last = item
  return last?.member('type')?.is(TRIGGER) === true
}

/** The members that stand for a conversation that a provider has stored. */
const STORED = ['previous_response_id', 'conversation', 'prompt'] as const

/** The request for a summary. The tools stay, so that a translated prompt begins as the provider has cached it. */
function decodeCompaction(body: Json, headers: Readonly<Record<string, unknown>>, dropped: DroppedFields): Request {
  const { input, text: shape, tools, tool_choice: _choice, ...rest } = body
  for (const name of STORED)
    if (body[name])
      throw refused(
        name,
        `"${name}" cannot be compacted here: the gateway makes the compaction. Send the whole conversation as "input".`,
      )
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : arrayAt(input, 'input')
  const history = items.filter(item => object(item)?.['type'] !== TRIGGER)
  const { format: _format, ...style } = object(shape) ?? {}
  const request = decodeRequest(
    {
      ...rest,
      input: [...history, { role: 'user', content: PROMPT }],
      text: style,
      tools: list(tools).filter(tool => CLIENTS_TOOLS.has(object(tool)?.['type'])),
    },
    headers,
    dropped,
    true,
  )
  return { ...request, toolChoice: { kind: 'none' }, isPast: true }
}

/** The item with the summary; undefined without a complete one. */
function compactionItem(reply: string, summary: string, { reason }: Stop): Json | undefined {
  if (summary.trim() === '' || !WHOLE.has(reason)) return undefined
  return { id: itemId(reply, 'cmp_', 0), type: 'compaction', encrypted_content: sealedSummary(summary) }
}

/** Why a reply ends that is complete. A model that calls a tool has not written its summary yet. */
const WHOLE: ReadonlySet<Stop['reason']> = new Set(['stop', 'sequence'])

/** The error for a reply without a complete summary. The client would lose its conversation. */
function noSummary(): GatewayError {
  return new GatewayError('upstream_failed', {
    message: 'The model returned no complete summary of the conversation.',
    retry: false,
  })
}

/** Most characters of the user's messages that a compacted conversation repeats: the newest ones. */
const REPEATED_MAX = 256_000

/** The user's messages, as items of a reply. */
function usersMessages(input: unknown, reply: string): Json[] {
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : list(input)
  const kept: Json[] = []
  let room = REPEATED_MAX
  for (const [index, value] of [...items.entries()].reverse()) {
    const item = object(value)
    if (item?.['role'] !== 'user') continue
    room -= JSON.stringify(item['content'] ?? '').length
    if (room < 0) break
    const content =
      typeof item['content'] === 'string' ? [{ type: 'input_text', text: item['content'] }] : item['content']
    kept.push({ id: itemId(reply, 'msg_', index), type: 'message', status: 'completed', role: 'user', content })
  }
  return kept.reverse()
}

function encodeCompaction(kind: CompactionKind) {
  return ({ id, parts, stop }: Reply, usage: RawUsage, context: ReplyContext): Json => {
    const item = compactionItem(id, parts.map(part => (part.kind === 'text' ? part.text : '')).join(''), stop)
    if (!item && kind === 'response')
      return { ...responseObject(id, context), status: 'failed', error: failedResponseError(noSummary()), usage }
    if (!item) throw noSummary()
    if (kind === 'response') return { ...responseObject(id, context), status: 'completed', output: [item], usage }
    const { id: name, created_at } = responseObject(id, context)
    const output = [...usersMessages(context.member('input'), id), item]
    return { id: name, created_at, object: 'response.compaction', output, usage }
  }
}

/** Encodes a stream: nothing but the item, once the summary is complete. */
class CompactionEncoder implements Encoder {
  readonly #events: Encoder & { readonly count: number }
  readonly #context: ReplyContext
  failed = false
  #id = ''
  #kind: Opening['kind'] = 'text'
  #stop: Stop = { reason: 'stop' }
  readonly #summary: string[] = []

  constructor(context: ReplyContext) {
    this.#context = context
    this.#events = responsesEncoder(context)
  }

  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[] {
    if (event.kind === 'start') this.#id = event.id
    if (event.kind === 'open') this.#kind = event.what.kind
    if (event.kind === 'stop') this.#stop = event.stop
    if (event.kind === 'delta' && this.#kind === 'text') this.#summary.push(event.text)
    return event.kind === 'start' ? this.#events.write(event) : []
  }

  end(usage: RawUsage): readonly OutgoingEvent[] {
    const item = compactionItem(this.#id, this.#summary.join(''), this.#stop)
    if (!item) {
      this.failed = true
      return this.#events.fail(noSummary(), '')
    }
    const response = { ...responseObject(this.#id, this.#context), status: 'completed', output: [item], usage }
    const number = this.#events.count
    return [
      responseEvent('response.output_item.added', number, { output_index: 0, item }),
      responseEvent('response.output_item.done', number + 1, { output_index: 0, item }),
      responseEvent('response.completed', number + 2, { response }),
    ]
  }

  fail(error: GatewayError, requestId: string): readonly OutgoingEvent[] {
    return this.#events.fail(error, requestId)
  }
}

/** The responses format for clients that ask for a compaction. @param format the responses format */
export function compactionFormat(format: Format, kind: CompactionKind): Format {
  return {
    ...format,
    variant: `${format.name} ${kind}`,
    codec: {
      ...format.codec,
      // A compacted conversation comes in one piece.
      decodeRequest: (body, headers, dropped) =>
        decodeCompaction(kind === 'conversation' ? { ...body, stream: false } : body, headers, dropped),
      repeats: kind === 'conversation' ? ['input'] : format.codec.repeats,
      encodeReply: encodeCompaction(kind),
      encoder: context => new CompactionEncoder(context),
    },
  }
}

/** The types of items whose output a conversation can do without, and what stands in place of an output. */
const OUTPUT = /_output$/
const LEFT_OUT = '(left out: the conversation is too long)'
/** The share of a conversation that is left out at a time, if the provider does not say how much is too much. */
const SHARE = 0.25
/** How far below its limit a prompt should be. */
const MARGIN = 0.95

/**
 * Shortens a conversation that is too long for its model: the oldest outputs of tools go first, then the oldest items.
 * @returns what was left out; undefined if nothing more can be
 */
export function shortened(body: Body, { tokens, most }: { tokens?: number; most?: number }): string | undefined {
  const input = body.view('input')
  if (!input?.isList) return undefined
  const items = [...input.elements()].map(view => {
    const type = view.member('type')?.text ?? 'message'
    const output = OUTPUT.test(type) ? view.member('output') : undefined
    const isLeftOut = output === undefined || output.is(LEFT_OUT)
    return { bytes: view.bytes.length, spare: isLeftOut ? 0 : (output?.bytes.length ?? 0) - LEFT_OUT.length, type }
  })
  const all = items.reduce((sum, { bytes }) => sum + bytes, 0)
  const share = tokens && most && tokens > most ? 1 - (most / tokens) * MARGIN : SHARE
  let excess = all * share
  const outputs = items.some(({ spare }) => spare > 0)
  // The last items are the newest messages and the trigger.
  const last = items.length - (outputs ? 0 : 2)
  const chosen = new Set<number>()
  for (const [index, { bytes, spare }] of items.slice(0, Math.max(0, last)).entries()) {
    if (excess <= 0) break
    const gain = outputs ? spare : bytes
    if (gain <= 0) continue
    chosen.add(index)
    excess -= gain
  }
  if (chosen.size === 0) return undefined
  const leftOut = Buffer.from(JSON.stringify(LEFT_OUT))
  let index = 0
  const { result } = withElements(input, item => {
    if (!chosen.has(index++)) return item
    return outputs ? withMembers(item, (name, value) => (name === 'output' ? leftOut : value)) : undefined
  })
  if (Buffer.isBuffer(result)) body.setBytes('input', result)
  return outputs ? 'input[].output' : 'input[]'
}
