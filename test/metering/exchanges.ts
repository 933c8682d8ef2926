/**
 * Exchanges without sockets or a store: the real stages read a request, decide about its members, route and hold it, and
 * charge the reply that a test gives.
 */
import { fileURLToPath } from 'node:url'
import { parse } from 'yaml'
import { checkChain } from '../../core/chain/check-chain.ts'
import type { Config } from '../../core/config/config.ts'
import { loadConfig } from '../../core/config/load.ts'
import { GatewayError } from '../../core/errors.ts'
import { type Format, type FormatName, formatOf, PLAIN, type ReplyEvent } from '../../core/formats/index.ts'
import { Hold, type HoldRequest } from '../../core/ledger/hold.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { MeterState } from '../../core/metering/meter-state.ts'
import type { Fact, Outcome, Plugin } from 'tollgate/plugin'
import type { BuiltInFacts, BuiltInStage } from 'tollgate/plugin/metering'
import { Pool } from '../../core/pool/pool.ts'
import type { Notes } from '../../core/records/entry.ts'
import { downwardHeaders } from '../../core/upstream/connection/headers.ts'
import { OutputBytes, outputBytes } from '../../core/upstream/relay/event-filter.ts'
import { eventsIn } from '../../core/upstream/relay/sse.ts'
import jsonBody from '../../plugins/json-body.ts'
import modelGate from '../../plugins/model-gate.ts'
import requestPolicy from '../../plugins/request-policy.ts'
import router from '../../plugins/router.ts'
import sseTap from '../../plugins/sse-tap.ts'
import usageMeter from '../../plugins/usage-meter.ts'
import { edited, type Edit } from '../gateway-file.ts'
import { OWN_STORE_PREFIX, testYaml, upstreamEnv } from '../gateway.ts'
import { keyOf, NOW } from '../plugins/facts.ts'

const FILE = fileURLToPath(new URL('../../gateway.yaml', import.meta.url))
const STAGES = [jsonBody, modelGate, requestPolicy, router, sseTap, usageMeter] as readonly Plugin[]

export const CHAT = '/v1/chat/completions'
export const RESPONSES = '/v1/responses'
export const MESSAGES = '/v1/messages'

/** The outcome of a reply that the client left. */
export const LEFT = {
  kind: 'broken',
  by: 'client',
  status: 200,
  attempts: [{ upstream: 'u', account: 'a', status: 200 }],
} as const satisfies Outcome

/** A model whose upstream speaks the format, and its endpoint. */
export const PLACES: Readonly<Record<FormatName, { type: string; model: string; path: string }>> = {
  'chat-completions': { type: 'famC', model: 'acme/famC-5.5', path: CHAT },
  responses: { type: 'famC', model: 'acme/famC-5.5', path: RESPONSES },
  messages: { type: 'famA', model: 'acme/famA-medium-5', path: MESSAGES },
}
export const FORMATS = Object.keys(PLACES) as FormatName[]

/** Nano-credits of an input and an output token of these models, and of the reply that `reply` makes. */
export const [INPUT, OUTPUT] = [3000n, 15_000n]
export const PLAIN_COST = 10n * INPUT + 20n * OUTPUT

/** Settings of a price with factors, and of one with fees of tools. */
export const FACTORS =
  'tiers: [], serviceTier: { flex: 0.5, priority: 2.5 }, speed: { fast: 6 }, inferenceGeo: { us: 1.1 }'
export const CALLS =
  'tiers: [], calls: { webSearch: 0.01, webFetch: 0, fileSearch: 0.0025, codeExecution: 0.03, imageGeneration: 0.04, mcp: 0, otherTools: 0.5 }, imageOutput: 40'

/** Returns the settings of a price as they stand in the file. */
export const settingsOf = (text: string): Readonly<Record<string, unknown>> =>
  parse(`{ ${text} }`) as Readonly<Record<string, unknown>>

/** Sets the price of these models. */
export const priced =
  (price = 'tiers: []'): Edit =>
  file =>
    file.setAll('prices.medium', { calls: undefined, tiers: undefined }).setAll('prices.medium', settingsOf(price))

export const say = (content: unknown = 'hi'): object[] => [{ role: 'user', content }]

export const FUNCTION: Readonly<Record<FormatName, object>> = {
  'chat-completions': { type: 'function', function: { name: 'f', parameters: { type: 'object' } } },
  responses: { type: 'function', name: 'f', parameters: { type: 'object' }, strict: false },
  messages: { name: 'f', input_schema: { type: 'object' } },
}

/** A small request. */
export function request(format: FormatName, model: string, more: object = {}): object {
  return {
    model,
    ...(format === 'responses' ? { input: 'hi' } : { messages: say() }),
    ...(format === 'messages' && { max_tokens: 100 }),
    ...more,
  }
}

/** A complete reply with ten input and twenty output tokens. */
export function reply(path: string, usage: object = {}, more: object = {}): object {
  if (path === CHAT)
    return {
      id: 'c',
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 10, completion_tokens: 20, ...usage },
      ...more,
    }
  const counted = { input_tokens: 10, output_tokens: 20, ...usage }
  if (path === MESSAGES)
    return {
      type: 'message',
      id: 'm',
      role: 'assistant',
      content: [{ type: 'text', text: 'x' }],
      stop_reason: 'end_turn',
      usage: counted,
      ...more,
    }
  const item = {
    type: 'message',
    id: 'i',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text: 'x', annotations: [] }],
  }
  return { id: 'r', object: 'response', status: 'completed', output: [item], usage: counted, ...more }
}

/** How an exchange goes on after the request: what the upstream sends, and what is different from a complete reply. */
export interface Going {
  /** A JSON reply, or the text of a stream. A plain reply by default. */
  readonly reply?: object | string
  readonly outcome?: Outcome
  /** Milliseconds of silence before the end. */
  readonly silentMs?: number
  readonly elapsedMs?: number
  readonly encryptedBytes?: number
  readonly delivered?: number
  /** What is different about the key. */
  readonly key?: Partial<BuiltInFacts['key']>
}

/** What became of a request. */
export interface Ended {
  /** Set if a stage refused the request. */
  readonly error: GatewayError | undefined
  /** The header that names dropped members. */
  readonly dropped: string | undefined
  /** What the upstream was sent; undefined if the request was refused. */
  readonly sent: any
  readonly sentText: string
  /** What was asked to be held, at most and at least, in nano-credits. */
  readonly held: bigint
  readonly least: bigint
  readonly cost: bigint
  readonly notes: Notes
}

/** The configurations by their texts: most tests of a file have the same one, which never changes. */
const configs = new Map<string, Config>()

/** Exchanges under one configuration. */
export class Exchanges {
  readonly config: Config
  readonly meter = new MeterState()
  readonly #stages: readonly BuiltInStage<Fact, Fact>[]
  #requests: HoldRequest[] = []
  #ends: { charge: bigint; notes: Notes }[] = []

  /** @param balance of every key, in nano-credits */
  static async load(edit: Edit = priced(), balance = 10n ** 12n): Promise<Exchanges> {
    const text = edited(testYaml(OWN_STORE_PREFIX), file => edit(file.set('limits.stage', '5s')))
    let config = configs.get(text)
    if (!config) {
      const loaded = await loadConfig(FILE, upstreamEnv('http://127.0.0.1:9'), checkChain, text)
      if (!loaded.config) throw new Error(JSON.stringify(loaded.problems))
      configs.set(text, (config = loaded.config))
    }
    return new Exchanges(config, balance)
  }

  private constructor(config: Config, balance: bigint) {
    this.config = config
    const log = createLog(new Scrubber(), 'silent', process.stdout)
    const pool = new Pool({ log, now: () => NOW })
    pool.use(config.upstreams.values())
    const ledger = {
      hold: (asked: HoldRequest) => {
        this.#requests.push(asked)
        const amount = asked.amount <= balance ? asked.amount : balance
        return Promise.resolve(
          amount < asked.least
            ? { kind: 'insufficient', balance, resetsAt: 0, ofShare: false }
            : { kind: 'held', hold: new Hold(asked, '0', amount, balance - amount) },
        )
      },
      settle: (_hold: unknown, end: { charge: bigint; notes: Notes }) => this.#ends.push(end),
      dispatch: async (_hold: unknown, end: { charge: bigint; notes: Notes }) => void this.#ends.push(end),
      extend: () => Promise.resolve('held'),
    }
    const host = {
      config,
      ledger,
      log,
      pool,
      meter: this.meter,
      now: () => NOW,
      newId: () => 'id',
      clientRequests: { of: () => undefined },
      longJobs: { of: () => () => Promise.reject(new Error('no other thread')) },
    }
    const options = new Map(config.chain.map(entry => [entry.plugin, entry.options]))
    this.#stages = STAGES.map(
      plugin => plugin.setup((options.get(plugin.name) ?? {}) as never, host as never) as BuiltInStage<Fact, Fact>,
    )
    // The timers that only a gateway needs.
    for (const stage of this.#stages) void stage.close?.()
  }

  /** Takes a request of a format's key type through the stages, and its reply through their hooks. */
  ask(name: FormatName, more: object = {}, going: Going = {}): Promise<Ended> {
    const { type, model, path } = PLACES[name]
    return this.send(type, path, request(name, model, more), going)
  }

  /** Like `ask`, with a body of any kind, by a key of any type. */
  async send(type: string, path: string, body: object | string, going: Going = {}): Promise<Ended> {
    this.#requests = []
    this.#ends = []
    const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
    const x = exchangeAt(path, type, bytes)
    Object.assign(x.key, going.key)
    let error: GatewayError | undefined
    try {
      for (const stage of this.#stages) Object.assign(x, await stage.request?.(x as never))
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown
      error = thrown
    }
    const [held] = this.#requests
    const ended = { held: held?.amount ?? 0n, least: held?.least ?? 0n }
    if (error)
      return { ...ended, error, dropped: undefined, sent: undefined, sentText: '', cost: 0n, notes: {} as Notes }
    const { translation } = x.route
    const sentText = (translation ? translation.bytes : x.body.bytes()).toString()
    const head = { status: 200, headers: {}, stream: false, reply: downwardHeaders({}, translation) }
    for (const stage of this.#stages.toReversed()) void stage.response?.(x as never, head as never)
    const outcome = this.#reply(x, going)
    for (const stage of this.#stages.toReversed()) await stage.settle?.(x as never, outcome)
    const [end, ...others] = this.#ends
    if (others.length > 0) throw new Error('the exchange was settled twice')
    return {
      ...ended,
      error,
      dropped: head.reply['x-tollgate-dropped'],
      sent: JSON.parse(sentText),
      sentText,
      cost: end?.charge ?? 0n,
      notes: end?.notes as Notes,
    }
  }

  /** Lets the stages see a reply. @returns how it ended */
  #reply(x: any, { reply: given = reply(x.route.format.path), outcome, key: _key, ...more }: Going): Outcome {
    const format = x.route.format as Format
    const text = typeof given === 'string' ? given : JSON.stringify(given)
    const events: readonly ReplyEvent[] = eventsIn(
      format,
      Buffer.from(typeof given === 'string' ? text : `data: ${text}\n\n`),
      true,
    )
    const output = new OutputBytes(format.text)
    output.take(text)
    x.delivered = typeof given === 'string' ? output.bytes : outputBytes(text, format.text)
    x.complete = outcome === undefined
    Object.assign(x, more)
    for (const event of events) for (const stage of this.#stages.toReversed()) stage.event?.(x, event)
    const attempt = { upstream: 'u', account: 'a', status: 200 }
    if (outcome) return outcome
    if (typeof given === 'object' && events.some(({ reading }) => reading.failure)) {
      x.complete = false
      const error = new GatewayError('upstream_failed')
      return { kind: 'failed', error, attempts: [{ ...attempt, failure: 'empty' }] }
    }
    return { kind: 'relayed', status: 200, attempts: [attempt] }
  }
}

function exchangeAt(path: string, type: string, bytes: Buffer): any {
  return {
    id: '0197a000-0000-7000-8000-000000000000',
    method: 'POST',
    path,
    query: new URLSearchParams(),
    headers: {},
    format: formatOf(path) ?? PLAIN,
    inference: true,
    address: '127.0.0.1',
    addressGroup: '127.0.0.1',
    signal: new AbortController().signal,
    startedAt: NOW,
    delivered: 0,
    complete: false,
    silentMs: 0,
    elapsedMs: 0,
    encryptedBytes: 0,
    gone: false,
    over: false,
    key: keyOf(type),
    secret: 'sk-test',
    addHeaders: () => {},
    stop: () => {},
    giveUp: () => {},
    reserve: () => {},
    release: () => {},
    whenClosed: () => () => {},
    read: (_limit: number, watch?: (all: Buffer) => boolean | void) => {
      // A reader of long bodies takes them in several turns.
      while (watch?.(bytes) === false);
      return Promise.resolve(bytes)
    },
  }
}
