/** The responses format: named and numbered events, usage in the one terminal event. */
import { frame, typedEvent } from '../events.ts'
import { NO_USAGE, plus, type Usage } from '../../money/usage.ts'
import { openaiRateHeaders } from '../rate-headers.ts'
import type { CountedUsage, Json, Pass, Reading } from '../terms.ts'
import type { Format, RunningStream } from '../format.ts'
import { failedResponseError, openaiError } from '../openai-errors.ts'
import { callOfItem, roundOfItem } from '../provider-tools.ts'
import { list, object, positive, text } from '../json.ts'
import { FOREIGN_FAILURES, failureFrom, foreignFailure } from '../failures.ts'
import { conditionNamed, countInclusive, type InclusiveNames, encodeInclusive } from '../usage.ts'
import { recognisedByCode } from '../overflow.ts'
import { largestLimit, levelLimits, setLimits } from '../output-limits.ts'
import { forwarding } from '../forwarded-headers.ts'
import { ITEM_REFERENCES } from '../item-references.ts'
import { asksForCompaction, compactionFormat, shortened } from './compaction.ts'
import { decoder, decodeReply, endWord } from './decode-reply.ts'
import { CARRIES, decodeRequest, REFUSES } from './decode-request.ts'
import { ECHOES, encoder, encodeReply } from './encode-reply.ts'
import { encodeRequest, LEAST_OUTPUT } from './encode-request.ts'

const TERMINAL_PREFIX = 'response.'
const TERMINAL = new Set(['response.completed', 'response.incomplete', 'response.failed'])
/** The status of a response that goes on, or that does not say it. */
const BEFORE_THE_END = new Set<unknown>([undefined, '', 'queued', 'in_progress'])

/** Reads a response object, which is a JSON reply or part of a terminal event. */
function readResponse(response: Json): Reading {
  const reported = object(response['usage'])
  const serviceTier = conditionNamed(response['service_tier'])
  const image = object(object(response['tool_usage'])?.['image_gen'])
  const usage = reported && image ? { ...reported, image_gen: image } : reported
  const failed = response['status'] === 'failed' || (response['status'] == null && response['error'] != null)
  const items = list(response['output']).map(object)
  const calls = items.flatMap((item, index) => callOfItem(item, text(item?.['id']) || index) ?? [])
  const rounds = items.flatMap((item, index) => roundOfItem(item, text(item?.['id']) || index) ?? [])
  return {
    completes: true,
    endsStream: true,
    usageIsFinal: true,
    ...(serviceTier !== undefined && { serviceTier }),
    ...(calls.length > 0 && { calls }),
    ...(rounds.length > 0 && { rounds }),
    ...(usage && { usage }),
    ...(failed && { failure: failureFrom(response['error']) }),
    ends: [failed ? 'failed' : endWord(response)],
  }
}

function read(json: unknown): Reading {
  const event = object(json)
  if (!event) return {}
  const type = text(event['type'])
  const isForeign = event['object'] === 'error' || (type === undefined && event['object'] === undefined && !Array.isArray(event['output'])) // prettier-ignore
  const foreign = isForeign ? foreignFailure(event) : undefined
  if (foreign) return { failure: foreign, completes: true, endsStream: true }
  if (type === undefined || event['object'] === 'response') return readResponse(event)
  if (type === 'error') return { failure: failureFrom(event['error'] ?? event), completes: true }
  if (type === 'response.output_item.added' || type === 'response.output_item.done') {
    const item = object(event['item'])
    const done = type === 'response.output_item.done'
    const call = callOfItem(item, event['output_index'], !done)
    const round = roundOfItem(item, event['output_index'], !done)
    const nameBytes = done ? 0 : Buffer.byteLength(text(item?.['name']) ?? '')
    return {
      ...(call && { calls: [call] }),
      ...(round && { rounds: [round] }),
      ...(nameBytes > 0 && { nameBytes }),
      ...(done && { encryptedBytes: text(item?.['encrypted_content'])?.length ?? 0 }),
    }
  }
  if (!TERMINAL.has(type)) return {}
  const response = object(event['response']) ?? {}
  // The event says what a response lacks, or has kept from its beginning.
  const isOver = !BEFORE_THE_END.has(text(response['status']))
  return readResponse(isOver ? response : { ...response, status: type.slice(TERMINAL_PREFIX.length) })
}

/** The events before any content. */
const OPENING: ReadonlySet<string> = new Set(['response.created', 'response.in_progress', 'response.queued'])

/** The number after the last one that was sent, so that the closing events leave no gap. */
function nextNumber(running: RunningStream): number {
  const recent = running.recent?.toString('latin1') ?? ''
  const numbers = [...recent.matchAll(/"sequence_number"\s*:\s*(\d+)/g)]
  return Number(numbers.at(-1)?.[1] ?? -1) + 1
}

const USAGE: InclusiveNames = {
  input: 'input_tokens',
  output: 'output_tokens',
  inputDetails: 'input_tokens_details',
  outputDetails: 'output_tokens_details',
}

/** Adds images that a tool made, which are counted apart from the model's own tokens, as a separate pass. */
function withImages(counted: CountedUsage | undefined, image: Json | undefined): CountedUsage | undefined {
  const [asked, made] = [positive(image?.['input_tokens']) ?? 0, positive(image?.['output_tokens']) ?? 0]
  if (!counted || asked + made === 0) return counted
  const seen = Math.min(positive(object(image?.['input_tokens_details'])?.['image_tokens']) ?? 0, asked)
  const pass: Usage = {
    ...NO_USAGE,
    input: asked,
    output: made,
    ...(seen > 0 && { imageInput: seen }),
    ...(made > 0 && { imageOutput: made }),
  }
  const passes: Pass[] = [
    { model: undefined, usage: counted.usage },
    { model: undefined, usage: pass, separate: true },
  ]
  return { ...counted, usage: plus(counted.usage, pass), passes }
}

/** The response as its first event showed it. */
function begun(running: RunningStream): Json {
  return object(object(running.opening?.json)?.['response']) ?? { object: 'response', output: [] }
}

/** The responses format. */
export const responses: Format = {
  name: 'responses',
  path: '/v1/responses',
  counting: '/v1/responses/input_tokens',
  required: { input: 'any' },
  compaction: {
    path: '/v1/responses/compact',
    asked(path, body) {
      if (path === '/v1/responses/compact') return COMPACTED_CONVERSATION
      return asksForCompaction(body) ? COMPACTED_RESPONSE : undefined
    },
    shorten: shortened,
  },
  conversationMember: 'input',
  typed: { stream: 'boolean', max_output_tokens: 'count' },
  forwards: forwarding(['session-id', 'thread-id', 'originator', 'x-client-request-id', 'openai-beta'], ['x-codex-']),
  query: [],
  counted: tokens => ({ object: 'response.input_tokens', input_tokens: tokens }),
  choices: () => 1,
  isComplete: () => false,
  outputLimit: largestLimit('max_output_tokens'),
  limitOutput: (body, tokens) => setLimits(body, tokens, 'max_output_tokens'),
  leastOutput: LEAST_OUTPUT,
  storesReply: body => body.get('store') !== false,
  standardTier: 'default',
  reportsInputFirst: false,
  summaries: ['"response.reasoning_summary_text.delta"'],
  namesEvents: true,
  ending: '',
  isReply: json => Array.isArray(object(json)?.['output']),
  marksFinalUsage: true,
  reportsCalls: true,
  callLimit: 'all tools',
  storesByDefault: true,
  items: ITEM_REFERENCES,
  limitCalls(body, most, unsaid) {
    const said = positive(body.get('max_tool_calls'))
    if (body.contents.providerTools.length === 0 || (said !== undefined && said <= most)) return
    body.set('max_tool_calls', Math.min(most, said ?? unsaid))
  },
  // Each item ends with `.done` events, and the next one begins with others.
  probe: model => ({ model, input: 'Reply with OK.', max_output_tokens: 16, store: false }),
  isOpening: json => OPENING.has(text(object(json)?.['type']) ?? ''),
  mayBeComplete: recent =>
    recent.lastIndexOf('.done"') > Math.max(recent.lastIndexOf('.delta"'), recent.lastIndexOf('.added"')),
  defaultHeaders: {},
  prepare(body) {
    levelLimits(body, responses.outputLimit(body))
    return undefined
  },
  signals: [
    '"response.created"',
    '"response.completed"',
    '"response.incomplete"',
    '"response.failed"',
    '"error"',
    '"encrypted_content"',
    '_call"',
    ...FOREIGN_FAILURES,
  ],
  text: {
    stream: ['delta'],
    whole: {
      types: ['_text.done', 'refusal.done', 'arguments.done', 'input.done'],
      members: ['text', 'refusal', 'arguments', 'input'],
    },
    reply: ['text', 'refusal', 'name', 'arguments', 'input'],
  },
  read,
  replyMember: 'response',
  modelOf: json => text((object(object(json)?.['response']) ?? object(json))?.['model']),
  decodeUsage: (raw, said) => withImages(countInclusive(raw, said), object(raw['image_gen'])),
  encodeUsage: usage => encodeInclusive(usage, USAGE),
  rateHeaders: openaiRateHeaders,
  status: error => error.status,
  error: error => ({ error: openaiError(error) }),
  replaceError(json, error) {
    const event = object(json)
    const { sequence_number } = event ?? {}
    const { code, message, param } = openaiError(error)
    const response = object(event?.['response'])
    if (!response) return { type: 'error', code, message, param, sequence_number }
    // Only the members that identify the reply. The others may reveal the operator's account.
    const { id, object: kind, created_at, model, output } = response
    return {
      type: 'response.failed',
      sequence_number,
      response: {
        id,
        object: kind,
        created_at,
        status: 'failed',
        model,
        output,
        error: failedResponseError(error),
        usage: null,
      },
    }
  },
  errorEvent(error, _requestId, running) {
    const { message, code } = openaiError(error)
    const number = nextNumber(running)
    const response = { ...begun(running), status: 'failed', error: failedResponseError(error), usage: null }
    // SDKs throw on `error`. Agents that ignore it read `response.failed`.
    return (
      frame('error', JSON.stringify({ type: 'error', code, message, param: null, sequence_number: number })) +
      frame('response.failed', JSON.stringify({ type: 'response.failed', sequence_number: number + 1, response }))
    )
  },
  recognisable: recognisedByCode,
  overflow: () => 'Your input exceeds the context window of this model. Please adjust your input and try again.',
  codec: {
    translates: CARRIES,
    refuses: REFUSES,
    repeats: ECHOES,
    decodeRequest,
    encodeRequest,
    decodeReply,
    encodeReply,
    decoder,
    encoder,
  },
  truncate(usage, running) {
    // Without `output`: its text was sent in deltas, which the gateway does not keep. SDKs fill in what they have
    // collected.
    const { output: _none, ...rest } = begun(running)
    const response = {
      ...rest,
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      usage: responses.encodeUsage(usage),
    }
    return [typedEvent({ type: 'response.incomplete', sequence_number: nextNumber(running), response })]
  },
}

/** The format for clients that ask for a response with a compaction, and for a compacted conversation. */
export const COMPACTED_RESPONSE = compactionFormat(responses, 'response')
/** As `COMPACTED_RESPONSE`, for the endpoint of its own. */
export const COMPACTED_CONVERSATION = compactionFormat(responses, 'conversation')
