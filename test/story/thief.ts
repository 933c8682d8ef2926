/**
 * Random customers of a provider that bills truthfully: the input, and every token that it made until it saw the
 * connection close, plus what it makes until it stops. The test compares each customer's charge with the bill, and with
 * the maximum that the provider could have billed for what it sent.
 */
import type { ServerResponse } from 'node:http'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { NANO } from '../../core/money/credits.ts'
import { type TestGateway, until } from '../gateway.ts'
import type { Received, ScriptedUpstream } from '../upstream.ts'
import { typed } from '../stream-events.ts'

/** Maximum tokens per second of the models, as gateway.yaml declares. */
export const RATE = 1000
/** Milliseconds for which the provider continues after it saw the connection close. */
const STOP_LAG_MS = 1000
/**
 * Customers, gateway and provider share a process. What one of them sends, another one may see this many turns of the event
 * loop later: when a text arrives, when a client leaves, and when a connection closes.
 */
const TURNS = 3
/** A gateway that is later than this is wrong on any machine, in milliseconds. */
const LATE_MS_MAX = 1000
/** When a customer leaves in the middle of hidden reasoning, in milliseconds after it began. */
const SILENT_MS = 200
/** Tokens in flight when a connection closes. For a model without reasoning, no customer is charged for them. */
const IN_FLIGHT = RATE * 0.1
/** Prices of all models in this test, in nano-credits per token, below and above so many input tokens. */
const PRICE = { input: 3000n, cached: 300n, output: 15_000n, sound: 40_000n, spoken: 80_000n }
const LONG = { above: 4000, input: 6000n, cached: 600n, output: 22_500n }
/** Price of the advisor, in nano-credits per token, and its input and output each time. */
const ADVISOR = { model: 'acme/famA-large-5', input: 15_000n, output: 75_000n, takes: 40, says: 30 }
/** Tokens of advice that are charged if a client does not wait for the report. */
const ADVICE = 1000
/** Nano-credits per search. */
const SEARCH = 10_000_000n
/** Factors in tenths, by the condition's name. A tier without a price must never arrive. */
const FACTORS: Readonly<Record<string, bigint>> = {
  priority: 20n,
  flex: 5n,
  fast: 60n,
  us: 11n,
  default: 10n,
  standard: 10n,
  standard_only: 10n,
}
const NEVER = 10_000n
/** Tokens of a customer's audio. */
const SOUND = 50

/** The prices above, times a factor, as settings of gateway.yaml. */
export function pricesTimes(factor: number): object {
  const times = (rates: Readonly<Record<string, number>>): object =>
    Object.fromEntries(Object.entries(rates).map(([name, rate]) => [name, rate * factor]))
  const sound = { audioInput: 40, audioOutput: 80 }
  return {
    ...times({ input: 3, cacheRead: 0.3, cacheWrite5m: 3.75, cacheWrite1h: 6, output: 15, ...sound }),
    calls: { webSearch: 0.01 },
    serviceTier: { priority: 2, flex: 0.5 },
    speed: { fast: 6 },
    inferenceGeo: { us: 1.1 },
    tiers: [
      {
        above: 4000,
        ...times({ input: 6, cacheRead: 0.6, cacheWrite5m: 7.5, cacheWrite1h: 12, output: 22.5, ...sound }),
      },
    ],
  }
}

/** Models at other prices that may answer in place of the one that was asked for, by its family. */
export const OTHERS = {
  famA: { cheap: 'acme/famA-small-4.5', dear: 'acme/famA-large-4.8' },
  famC: { cheap: 'acme/famC-5.6-luna', dear: 'acme/famC-5.6-sol' },
} as const
/** How many times cheaper the cheap one is. */
export const CHEAPER = 2n

/** What a customer may request beside tokens. The first have prices. The others have none and must not be free. */
const EXTRAS: Readonly<Record<string, object>> = {
  none: {},
  priority: { service_tier: 'priority' },
  flex: { service_tier: 'flex' },
  auto: { service_tier: 'auto' },
  fast: { speed: 'fast' },
  us: { inference_geo: 'us' },
  sound: {},
  spoken: { modalities: ['text', 'audio'], audio: { voice: 'v', format: 'wav' } },
  prediction: { prediction: { type: 'content', content: 'p'.repeat(90) } },
  advisor: {},
  scale: { service_tier: 'scale' },
  'quick as can be': { speed: 'faster' },
  mars: { inference_geo: 'mars' },
  background: { background: true },
  deferred: { deferred: true },
  models: { models: ['acme/famC-5.6-sol'] },
  fallbacks: { fallbacks: [{ model: 'acme/famA-large-5' }] },
  route: { route: 'fallback' },
  provider: { provider: { order: ['dear'] } },
  plugins: { plugins: [{ id: 'web' }] },
  address: { api_base: 'https://example.com', api_key: 'x' },
  'another spelling': { Service_Tier: 'priority' },
  'a letter like s': { '\u017fpeed': 'fast' },
  interpreter: {},
  'an advisor of others': {},
}
/** Maximum tokens of an image behind a URL. */
const IMAGE = 3000
/** Milliseconds between the last content and the usage. */
const USAGE_AFTER_MS = 30
/** Tokens that each search of a request finds: the later ones find more. The provider reports them only at the end. */
const FOUND = [1000, 2000, 4000]
/** Bytes of a token of what was found, as the messages format delivers it. */
const FOUND_BYTES = 4
/** Bytes of a text from which on the provider caches it. */
const CACHED_MIN = 8192
/** Milliseconds of a search. */
const SEARCH_MS = 20
/** Tokens that are held for the results of a search. */
const HELD_FOR_SEARCH = 20_000
/** Minimum bytes of a request beside its text, and tokens of a message beside its own. */
const FRAME = 4

/** The provider's plan for one request. */
interface Script {
  /** Bytes of text per token. */
  readonly bytesPerToken: number
  readonly phases: readonly { readonly hiddenMs: number; readonly words: number }[]
  /** The size of an encrypted part shows hidden reasoning. */
  readonly sealed: boolean
  /** Which model answers. */
  readonly served: 'asked' | 'cheap' | 'dear'
}

/** A customer's plan. */
interface Customer {
  readonly place: (typeof PLACES)[number]
  readonly stream: boolean
  readonly words: number
  /** Makes the request so long that its beginning is known at the next time. */
  readonly isLong: boolean
  readonly image: boolean
  /** Lets the provider search if its format has searches. */
  readonly search: boolean
  readonly n: number
  readonly extra: string
  readonly limits: readonly (number | undefined)[]
  readonly leave: 'never' | 'at once' | 'in silence' | 'after a word' | 'after the text' | 'after the usage'
  readonly retry: 'none' | 'counted' | 'named' | 'forged'
  readonly times: number
  /** Sends all of them at once. */
  readonly atOnce: boolean
  readonly script: Script
}

/** The key's type, the model, the client's format, and whether the upstream speaks it. */
export const PLACES = [
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/chat/completions', reasons: 'hidden' },
  { type: 'famC', model: 'acme/famC-5.6-terra', path: '/v1/chat/completions', reasons: 'none' },
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/responses', reasons: 'hidden' },
  { type: 'famC', model: 'acme/famC-5.5', path: '/v1/messages', reasons: 'hidden' },
  { type: 'famA', model: 'acme/famA-medium-5', path: '/v1/messages', reasons: 'shown' },
  { type: 'famA', model: 'acme/famA-medium-5', path: '/v1/chat/completions', reasons: 'shown' },
] as const

const script = fc.record({
  bytesPerToken: fc.constantFrom(2, 3, 4, 5),
  phases: fc.array(fc.record({ hiddenMs: fc.constantFrom(0, 0, 300, 500), words: fc.nat(20) }), {
    minLength: 1,
    maxLength: 3,
  }),
  sealed: fc.boolean(),
  served: fc.constantFrom('asked', 'asked', 'cheap', 'dear'),
})

export const customer: fc.Arbitrary<Customer> = fc.record({
  place: fc.constantFrom(...PLACES),
  stream: fc.boolean(),
  words: fc.nat(300),
  isLong: fc.boolean(),
  image: fc.boolean(),
  search: fc.boolean(),
  n: fc.constantFrom(1, 1, 2),
  extra: fc.oneof(fc.constant('none'), fc.constantFrom(...Object.keys(EXTRAS))),
  limits: fc.tuple(
    fc.option(fc.integer({ min: 1, max: 3000 }), { nil: undefined }),
    fc.option(fc.integer({ min: 1, max: 3000 }), { nil: undefined }),
  ),
  leave: fc.constantFrom('never', 'at once', 'in silence', 'after a word', 'after the text', 'after the usage'),
  retry: fc.constantFrom('none', 'counted', 'named', 'forged'),
  times: fc.integer({ min: 1, max: 3 }),
  atOnce: fc.boolean(),
  script,
})

/** The provider's bill for one request, and the maximum that it could bill for what it sent. */
interface Bill {
  /** The input of all passes: each search is followed by one more, which reads everything again. */
  input: number
  /** The input of the first pass, and what of it was in the prompt cache of the account. */
  readonly said: number
  readonly cached: number
  output: number
  /** Bytes of text that it sent, and the milliseconds that it took. */
  sent: number
  readonly began: number
  ended: number
  readonly limit: number
  readonly choices: number
  /** Usage beside plain tokens. */
  readonly conditions: { readonly service_tier?: string; readonly speed?: string; readonly inference_geo?: string }
  /** The dearest conditions under which it could have been served. */
  readonly dearest: bigint
  searches: number
  readonly sound: number
  readonly spoken: boolean
  /** Rejected tokens of a prediction: a part of the output. */
  rejected: number
  readonly advised: boolean
  /** The model that answers. It names itself. The customer pays the cheaper one of this and the one that he asked for. */
  readonly model: string
  readonly isCheap: boolean
}

export class Provider {
  /** By the name that each customer puts into its text. */
  readonly bills = new Map<string, Bill[]>()
  readonly scripts = new Map<string, Script>()
  readonly #asked = new Map<string, () => void>()
  /** The texts in the prompt cache of each account. */
  readonly #cached = new Set<string>()

  constructor(upstream: ScriptedUpstream) {
    upstream.script = (received, res) => this.#answer(received, res)
  }

  /** Calls back when the next request of a customer arrives. */
  whenAsked(name: string, callback: () => void): void {
    this.#asked.set(name, callback)
  }

  async #answer({ path, headers, body, json }: Received, res: ServerResponse): Promise<void> {
    const name = /customer-\d+/.exec(body)?.[0] ?? ''
    this.#asked.get(name)?.()
    this.#asked.delete(name)
    const { bytesPerToken, phases, sealed, served } = this.scripts.get(name) as Script
    const sent = String(json['model'])
    const model = served === 'asked' ? sent : OTHERS[sent.includes('famA') ? 'famA' : 'famC'][served]
    const text = /said: ([^"\\]*)/.exec(body)?.[1] ?? ''
    const limit =
      Math.max(
        0,
        ...['max_tokens', 'max_completion_tokens', 'max_output_tokens'].map(member => Number(json[member] ?? 0)),
      ) || Infinity
    const choices = Number(json['n'] ?? 1)
    const image = /https:\/\/example\.com/.test(body) ? IMAGE : 0
    const searches = body.includes('web_search') ? 1 + (path === '/v1/chat/completions' ? 0 : text.length % 3) : 0
    const asked = ['service_tier', 'speed', 'inference_geo'].flatMap(member =>
      typeof json[member] === 'string' ? [[member, json[member]] as const] : [],
    )
    // `auto` becomes the priority tier for every second length of the text, and the default tier otherwise.
    const conditions = Object.fromEntries(
      asked.map(([member, name]) => [
        member,
        name === 'auto' ? (text.length % 2 === 0 ? 'priority' : 'default') : name,
      ]),
    )
    const forbidden = [
      'background',
      'deferred',
      'models',
      'fallbacks',
      'route',
      'provider',
      'plugins',
      'api_base',
      'api_key',
    ].some(member => member in json)
    const dearest = asked
      .map(([, name]) => (name === 'auto' ? 20n : (FACTORS[name] ?? NEVER)))
      .map(factor => (factor > 10n ? factor : 10n))
    const otherwise =
      Object.keys(json).some(member => /[^a-z_]/.test(member)) ||
      body.includes('code_interpreter') ||
      body.includes('"model":"acme/strange"')
    const sound = body.includes('input_audio') ? SOUND : 0
    const words = Math.ceil(text.length / bytesPerToken)
    const said = words + FRAME + image + sound
    const cacheName = `${String(headers.authorization ?? headers['x-api-key'])} ${name} ${text.length}`
    const cached = text.length > CACHED_MIN && this.#cached.has(cacheName) ? words : 0
    this.#cached.add(cacheName)
    const bill: Bill = {
      conditions: forbidden || otherwise ? { service_tier: 'never' } : conditions,
      dearest: dearest.reduce((all, factor) => (all * factor) / 10n, 10n),
      searches: 0,
      sound,
      // Only this format has audio.
      spoken: path === '/v1/chat/completions' && JSON.stringify(json['modalities'] ?? '').includes('audio'),
      rejected: 0,
      advised: body.includes('advisor_20260301'),
      model,
      isCheap: served === 'cheap',
      input: said,
      said,
      cached,
      output: 0,
      sent: 0,
      began: performance.now(),
      ended: 0,
      limit,
      choices,
    }
    this.bills.set(name, [...(this.bills.get(name) ?? []), bill])
    const reply = new Reply(path, res, json['stream'] === true, choices, bill)
    let left = limit
    const reasons = !body.includes('terra')
    const close = new Promise<void>(resolve => res.on('close', resolve))
    reply.begin()
    for (let found = 0; bill.searches < searches && !res.destroyed; bill.searches++) {
      reply.search(bill.searches)
      found += FOUND[bill.searches] ?? 0
      bill.input += said + found
      if (bill.searches + 1 < searches) await Promise.race([sleep(SEARCH_MS), close])
    }
    if (bill.advised && !res.destroyed) reply.advise()
    const predicted = /p{90}/.test(body) ? Math.min(20, left) : 0
    for (const { hiddenMs, words } of phases) {
      if (res.destroyed || left <= 0) break
      if (reasons && hiddenMs > 0) {
        const from = performance.now()
        await Promise.race([sleep(hiddenMs), close])
        const made = Math.min(left, Math.floor(((performance.now() - from) * RATE) / 1000))
        bill.output += made * choices
        left -= made
        if (sealed && !res.destroyed) reply.seal(made * choices)
      }
      for (let word = 0; word < words && left > 0 && !res.destroyed; word++) {
        const piece = 'w'.repeat(bytesPerToken * Math.min(left, 5))
        // A word is sent when it has been made, at half of the rate.
        const tokens = Math.ceil(piece.length / bytesPerToken)
        if (word % 4 === 3) await Promise.race([sleep((tokens * 8 * 1000) / RATE), close])
        if (res.destroyed) break
        for (let choice = 0; choice < choices; choice++) reply.say(piece, choice)
        bill.output += tokens * choices
        left -= tokens
      }
    }
    bill.rejected = res.destroyed ? 0 : Math.min(predicted, left)
    bill.output += bill.rejected
    left -= bill.rejected
    if (res.destroyed) {
      // No client reads any more, and the model goes on for a moment.
      if (reasons)
        bill.output = Math.min(limit * choices, bill.output + Math.floor((STOP_LAG_MS * 0.9 * RATE) / 1000) * choices)
    } else await reply.end(left <= 0)
    bill.ended = performance.now()
  }
}

/** Returns a reply in one of the three formats, as JSON or as a stream. */
class Reply {
  readonly #path: string
  readonly #res: ServerResponse
  readonly #stream: boolean
  readonly #choices: number
  readonly #bill: Bill
  readonly #text: string[]

  constructor(path: string, res: ServerResponse, stream: boolean, choices: number, bill: Bill) {
    this.#path = path
    this.#res = res
    this.#stream = stream
    this.#choices = choices
    this.#bill = bill
    this.#text = Array.from({ length: choices }, () => '')
  }

  begin(): void {
    if (!this.#stream) return
    this.#res.writeHead(200, { 'content-type': 'text/event-stream' })
    if (this.#path === '/v1/messages') {
      this.#event({
        type: 'message_start',
        message: {
          type: 'message',
          id: 'm',
          role: 'assistant',
          model: this.#bill.model,
          content: [],
          usage: {
            input_tokens: this.#bill.said - this.#bill.cached,
            cache_read_input_tokens: this.#bill.cached,
            output_tokens: 1,
          },
        },
      })
      this.#event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } })
    } else if (this.#path === '/v1/responses') {
      this.#event({
        type: 'response.created',
        sequence_number: 0,
        response: { id: 'r', object: 'response', model: this.#bill.model, status: 'in_progress', output: [] },
      })
      this.#event({
        type: 'response.output_item.added',
        output_index: 0,
        item: { id: 'i', type: 'message', role: 'assistant', content: [] },
      })
      this.#event({
        type: 'response.content_part.added',
        output_index: 0,
        content_index: 0,
        part: { type: 'output_text', text: '', annotations: [] },
      })
    } else this.#chunk({ role: 'assistant', content: '' }, 0)
  }

  /** Reports a search. */
  search(index: number): void {
    if (!this.#stream) return
    if (this.#path === '/v1/messages') {
      const call = { type: 'server_tool_use', id: `s${index}`, name: 'web_search', input: {} }
      const content = [{ type: 'web_search_result', encrypted_content: 'f'.repeat((FOUND[index] ?? 0) * FOUND_BYTES) }]
      const result = { type: 'web_search_tool_result', tool_use_id: `s${index}`, content }
      for (const [nth, block] of [call, result].entries()) {
        this.#event({ type: 'content_block_start', index: 10 + 2 * index + nth, content_block: block })
        this.#event({ type: 'content_block_stop', index: 10 + 2 * index + nth })
      }
    } else if (this.#path === '/v1/responses') {
      this.#event({ type: 'response.output_item.done', output_index: 10 + index, item: this.#searchItem(index) })
    }
  }

  /** Reports a question to the advisor. */
  advise(): void {
    if (this.#stream)
      this.#event({
        type: 'content_block_start',
        index: 20,
        content_block: { type: 'server_tool_use', id: 'a', name: 'advisor', input: {} },
      })
  }

  #searchItem(index: number): object {
    return { type: 'web_search_call', id: `ws${index}`, status: 'completed', action: { type: 'search', query: 'q' } }
  }

  say(piece: string, choice: number): void {
    this.#text[choice] += piece
    this.#bill.sent += piece.length
    if (!this.#stream) return
    if (this.#path === '/v1/messages')
      this.#event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: piece } })
    else if (this.#path === '/v1/responses')
      this.#event({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: piece })
    else this.#chunk({ content: piece }, choice)
  }

  /** Reports reasoning by an encrypted text of proportional size. */
  seal(tokens: number): void {
    if (!this.#stream || this.#path !== '/v1/messages') return
    this.#event({
      type: 'content_block_delta',
      index: 0,
      delta: { type: 'signature_delta', signature: 's'.repeat(tokens * 4) },
    })
  }

  async end(cut: boolean): Promise<void> {
    const { input, cached, output, conditions, searches, sound, spoken, rejected, advised, model } = this.#bill
    const { service_tier } = conditions
    const tier = service_tier === undefined ? {} : { service_tier }
    const found = Array.from({ length: searches }, (_, index) => this.#searchItem(index))
    const whole = this.#text.map((content, index) => ({
      index,
      message: { role: 'assistant', content },
      finish_reason: cut ? 'length' : 'stop',
    }))
    const status = cut ? 'incomplete' : 'completed'
    const item = {
      id: 'i',
      type: 'message',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: this.#text[0], annotations: [] }],
    }
    const response = {
      id: 'r',
      object: 'response',
      model,
      status,
      incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
      output: [...found, item],
      ...tier,
      usage: {
        input_tokens: input,
        input_tokens_details: { cached_tokens: cached },
        output_tokens: output,
        total_tokens: input + output,
      },
    }
    const stop = cut ? 'max_tokens' : 'end_turn'
    const own = { input_tokens: input - cached, cache_read_input_tokens: cached, output_tokens: output }
    const advice = {
      type: 'advisor_message',
      model: ADVISOR.model,
      input_tokens: ADVISOR.takes,
      output_tokens: ADVISOR.says,
    }
    const usage = {
      ...own,
      ...conditions,
      ...(searches > 0 && { server_tool_use: { web_search_requests: searches } }),
      ...(advised && { iterations: [{ type: 'message', ...own }, advice] }),
    }
    const chatUsage = {
      prompt_tokens: input,
      completion_tokens: output,
      total_tokens: input + output,
      prompt_tokens_details: { audio_tokens: sound, cached_tokens: cached },
      completion_tokens_details: { audio_tokens: spoken ? output - rejected : 0, rejected_prediction_tokens: rejected },
    }
    if (!this.#stream) {
      const reply =
        this.#path === '/v1/messages'
          ? {
              type: 'message',
              id: 'm',
              role: 'assistant',
              model,
              content: [{ type: 'text', text: this.#text[0] }],
              stop_reason: stop,
              usage,
            }
          : this.#path === '/v1/responses'
            ? response
            : { id: 'c', object: 'chat.completion', model, choices: whole, ...tier, usage: chatUsage }
      this.#res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply))
      return
    }
    if (this.#path === '/v1/messages') {
      this.#event({ type: 'content_block_stop', index: 0 })
      this.#event({ type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage })
      this.#event({ type: 'message_stop' })
    } else if (this.#path === '/v1/responses') {
      this.#event({ type: 'response.output_text.done', output_index: 0, content_index: 0, text: this.#text[0] })
      this.#event({ type: 'response.output_item.done', output_index: 0, item })
      await sleep(USAGE_AFTER_MS)
      this.#event({ type: `response.${status}`, response })
    } else {
      for (let choice = 0; choice < this.#choices; choice++) this.#chunk({}, choice, cut ? 'length' : 'stop')
      await sleep(USAGE_AFTER_MS)
      this.#res.write(
        `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model, choices: [], ...tier, usage: chatUsage })}\n\ndata: [DONE]\n\n`,
      )
    }
    this.#res.end()
  }

  #event(event: { readonly type: string; readonly [name: string]: unknown }): void {
    this.#res.write(typed(event))
  }

  #chunk(delta: object, index: number, finish: string | null = null): void {
    this.#res.write(
      `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: this.#bill.model, choices: [{ index, delta, finish_reason: finish }] })}\n\n`,
    )
  }
}

interface Scene {
  readonly g: TestGateway
  readonly provider: Provider
}

let customers = 0

/** Runs customers at once with one key. Resolves when all have settled. Most will be refused. */
export async function crowd(
  g: TestGateway,
  provider: Provider,
  key: string,
  wishes: readonly Customer[],
): Promise<void> {
  await Promise.all(
    wishes.map(async wish => {
      const name = `customer-${++customers}`
      provider.scripts.set(name, wish.script)
      for (let time = 0; time < wish.times; time++) await ask({ g, provider }, key, name, wish, time)
    }),
  )
  await until(() => g.gateway.running === 0)
  await g.settled(key)
}

/** A plan that pays for a request or two, and then leaves the rest to credits. */
const PLAN = {
  windows: [{ credits: '0.02', per: '5h' }, { requests: 2, per: 'day' }, { tokens: 20_000, per: 'week' }],
  then: 'credits',
} as const // prettier-ignore

/**
 * Returns a key for each customer. Of three, one spends from one balance with the others of these, and one has a plan and the
 * limits of a day.
 */
async function keysFor(g: TestGateway, wishes: readonly Customer[]): Promise<readonly string[]> {
  const account = await g.id(await g.key('famC', 100_000n))
  const join = async (type: string): Promise<string> => {
    const wish = { type, name: '', credits: 0n, expiresAt: undefined, account }
    return (await g.gateway.keys.changes.create(wish)).secret
  }
  const withPlan = async (type: string): Promise<string> => {
    const wish = { type, name: '', credits: 1000n * NANO, expiresAt: undefined, limits: '{"creditsPerDay":"900"}' }
    const { key, secret } = await g.gateway.keys.changes.create(wish)
    await g.gateway.keys.plans.set({ account: key.account, id: 'plan' }, PLAN)
    return secret
  }
  const make = [join, withPlan, (type: string) => g.key(type, 1000n)] as const
  return Promise.all(wishes.map(({ place: { type } }, index) => (make[index % 3] as (typeof make)[0])(type)))
}

/** Runs customers, each with a key of his own. Returns what is wrong with their charges. */
export async function serve(g: TestGateway, provider: Provider, wishes: readonly Customer[]): Promise<string[]> {
  const turns = monitorEventLoopDelay({ resolution: 1 })
  turns.enable()
  const keys = await keysFor(g, wishes)
  const served = await Promise.all(
    wishes.map(async (wish, index) => {
      const name = `customer-${++customers}`
      const key = keys[index] ?? ''
      provider.scripts.set(name, wish.script)
      const asked = Array.from({ length: wish.times }, (_, time) => () => ask({ g, provider }, key, name, wish, time))
      if (wish.atOnce) await Promise.all(asked.map(each => each()))
      else for (const each of asked) await each()
      return { name, key, wish }
    }),
  )
  await until(() => g.gateway.running === 0 && [...provider.bills.values()].flat().every(({ ended }) => ended > 0))
  turns.disable()
  const lateMs = Math.min((TURNS * turns.max) / 1e6, LATE_MS_MAX)
  await g.settledAll(served.map(({ key }) => key))
  const wrong = await Promise.all(served.map(({ name, key, wish }) => compare(g, provider, name, key, wish, lateMs)))
  provider.bills.clear()
  return wrong.flat()
}

async function compare(
  g: TestGateway,
  provider: Provider,
  name: string,
  key: string,
  wish: Customer,
  lateMs: number,
): Promise<string[]> {
  const entries = (await g.history(key)).filter(({ type }) => type !== 'void')
  const bills = provider.bills.get(name) ?? []
  const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((all, amount) => all + amount, 0n)
  const charged = sum(entries.map(({ cost_nano: cost }) => BigInt(cost)))
  const waived = sum(entries.map(({ waived_nano: nano }) => BigInt(nano)))
  const billed = sum(bills.map(priceOf))
  const most = sum(bills.map(bill => mostOf(bill, lateMs)))
  const unseen = sum(bills.map(bill => unseenIn(bill, wish.place.reasons === 'none', lateMs)))
  // A client that has the last content, or that asked for JSON, pays the usage that the provider reports.
  const exact = !wish.stream || ['never', 'after the text', 'after the usage'].includes(wish.leave)
  const told = (): string =>
    `${name} was billed ${billed}, charged ${charged} (waived ${waived}), at most ${most}: ${JSON.stringify(wish)} ${JSON.stringify(bills, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value))} ${JSON.stringify(entries.map(({ status, usage_source, input_tokens, output_tokens, unit_prices, unpriced }) => ({ status, usage_source, input_tokens, output_tokens, unit_prices, unpriced })))}`
  if (charged + waived + unseen < billed) return [`too little: ${told()}`]
  if (charged > most) return [`too much: ${told()}`]
  if (exact && charged + waived !== billed) return [`not what was billed: ${told()}`]
  return entries.length > bills.length ? [`more entries than requests: ${told()}`] : []
}

function priceOf(bill: Bill): bigint {
  const { input, cached, output, conditions, searches, sound, spoken, rejected, advised, isCheap } = bill
  const rates = input > LONG.above ? LONG : PRICE
  const said = BigInt(output - rejected) * (spoken ? PRICE.spoken : rates.output) + BigInt(rejected) * rates.output
  const read = BigInt(input - cached - sound) * rates.input + BigInt(cached) * rates.cached
  // All rates are even.
  const tokens = (read + BigInt(sound) * PRICE.sound + said) / (isCheap ? CHEAPER : 1n)
  const advice = advised ? BigInt(ADVISOR.takes) * ADVISOR.input + BigInt(ADVISOR.says) * ADVISOR.output : 0n
  // An advisor is served under the same conditions, but its price has no factors for them.
  return scaled(tokens, Object.values(conditions)) + advice + BigInt(searches) * SEARCH
}

function scaled(tokens: bigint, names: readonly string[]): bigint {
  const factors = names.map(name => FACTORS[name] ?? NEVER)
  const [exact, parts] = factors.reduce(([sum, per], factor) => [sum * factor, per * 10n], [tokens, 1n])
  return (exact + parts - 1n) / parts
}

/**
 * What the gateway cannot have seen: tokens in flight, and what was made while the process was late, which includes
 * searches.
 */
function unseenIn({ choices, dearest, spoken, searches, said }: Bill, inFlight: boolean, lateMs: number): bigint {
  const tokens = (inFlight ? IN_FLIGHT : 0) + Math.ceil((lateMs * RATE * choices) / 1000)
  const passes = Math.max(0, Math.min(searches - 1, Math.ceil(lateMs / SEARCH_MS)))
  const found = FOUND.reduce((sum, each) => sum + each)
  return (
    (BigInt(tokens) * (spoken ? PRICE.spoken : LONG.output) * dearest) / 10n +
    BigInt(passes) * (SEARCH + (BigInt(said + found) * LONG.input * dearest) / 10n)
  )
}

/**
 * The maximum that a provider could have billed that sent the same bytes in the same time, at the declared rate and
 * within the limit.
 */
function mostOf(
  { sent, began, ended, limit, choices, dearest, searches, spoken, advised }: Bill,
  lateMs: number,
): bigint {
  const time = ended - began + STOP_LAG_MS + 500 + lateMs
  const output = Math.min(limit * choices, sent + Math.ceil((time * RATE * choices) / 1000))
  const said = BODY_MOST + IMAGE
  // A search may have begun that the provider has not reported. Advice is read in a further pass as well.
  const rounds = Math.max(searches, 1) + (advised ? 1 : 0)
  const found = HELD_FOR_SEARCH * rounds
  const input = BigInt((rounds + 1) * said + (HELD_FOR_SEARCH * rounds * (rounds + 1)) / 2)
  const tokens =
    input * LONG.input + BigInt(SOUND * 4) * PRICE.sound + BigInt(output + 100) * (spoken ? PRICE.spoken : LONG.output)
  return (
    (tokens * dearest) / 10n +
    BigInt(said + found) * ADVISOR.input +
    BigInt(ADVICE) * ADVISOR.output +
    BigInt(Math.max(searches, 1)) * SEARCH
  )
}

/** Maximum bytes of a request. */
const BODY_MOST = 14_000

async function ask({ g, provider }: Scene, key: string, name: string, wish: Customer, time: number): Promise<void> {
  const { path, model } = wish.place
  const text = `${name} said: ${'word '.repeat(wish.words + (wish.isLong ? 2000 : 0))}`
  const native = wish.place.path === '/v1/chat/completions' && wish.place.type === 'famC'
  const [one, other] = wish.limits
  const search =
    wish.search && path === '/v1/responses'
      ? { tools: [{ type: 'web_search' }] }
      : wish.search && wish.place.type === 'famA' && path === '/v1/messages'
        ? { tools: [{ type: 'web_search_20250305', name: 'web_search' }] }
        : wish.search && native
          ? { web_search_options: {} }
          : {}
  const content =
    path === '/v1/responses'
      ? [
          { type: 'input_text', text },
          ...(wish.image ? [{ type: 'input_image', image_url: 'https://example.com/a.png' }] : []),
        ]
      : path === '/v1/messages'
        ? [
            { type: 'text', text },
            ...(wish.image ? [{ type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }] : []),
          ]
        : [
            { type: 'text', text },
            ...(wish.image ? [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }] : []),
          ]
  const sounds = wish.extra === 'sound' && path === '/v1/chat/completions'
  const sound = { type: 'input_audio', input_audio: { data: 'A'.repeat(SOUND * 64), format: 'wav' } }
  const said = [{ role: 'user', content: sounds ? [...content, sound] : content }]
  const advisor =
    wish.extra === 'advisor' ? ADVISOR.model : wish.extra === 'an advisor of others' ? 'acme/strange' : undefined
  const tools = [
    ...(path === '/v1/messages' && advisor !== undefined
      ? [{ type: 'advisor_20260301', name: 'advisor', model: advisor }]
      : []),
    ...(path === '/v1/responses' && wish.extra === 'interpreter'
      ? [
          { type: 'code_interpreter', container: { type: 'auto' } },
          { type: 'function', name: 'f', parameters: {}, strict: false },
        ]
      : []),
    ...('tools' in search ? search.tools : []),
  ]
  const body = {
    model,
    ...(path === '/v1/responses' ? { input: said } : { messages: said }),
    stream: wish.stream,
    ...(path === '/v1/responses'
      ? { max_output_tokens: one }
      : path === '/v1/messages'
        ? { max_tokens: one ?? 2000 }
        : { max_tokens: one, max_completion_tokens: other }),
    ...(native && wish.n > 1 && { n: wish.n }),
    ...search,
    ...(tools.length > 0 && { tools }),
    ...EXTRAS[wish.extra],
  }
  const headers: Record<string, string> =
    wish.retry === 'counted'
      ? { 'x-stainless-retry-count': String(time) }
      : wish.retry === 'named'
        ? { 'idempotency-key': name }
        : wish.retry === 'forged'
          ? { 'x-stainless-retry-count': '1' }
          : {}
  const leave = new AbortController()
  // A request that does not reach the provider has been refused.
  if (wish.leave === 'at once') provider.whenAsked(name, () => leave.abort())
  if (wish.leave === 'in silence') provider.whenAsked(name, () => setTimeout(() => leave.abort(), SILENT_MS))
  try {
    const response = await g.open(path, { key, body, headers, signal: leave.signal })
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    const usage = path === '/v1/messages' ? /"message_delta"[^]*"usage"/ : /"usage":\{"(?:prompt|input)_tokens":[1-9]/
    const point = {
      never: undefined,
      'at once': undefined,
      'in silence': undefined,
      'after a word': /www/,
      'after the text': /"stop"|"length"|text\.done|message_delta/,
      'after the usage': usage,
    }[wish.leave]
    for (let seen = ''; ;) {
      const { value, done } = await reader.read()
      if (done) return
      seen += Buffer.from(value).toString()
      if (point?.test(seen)) return leave.abort()
    }
  } catch (thrown) {
    if (!leave.signal.aborted) throw thrown
  }
}
