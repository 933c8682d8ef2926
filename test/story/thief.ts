/**
 * Random customers of a provider that bills truthfully: the input, and every token that it made until it saw the connection
 * close, with what it makes until it stops. What each customer is charged is compared with the bill, and with the most that
 * the provider could have billed for what it sent.
 */
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { type TestGateway, until } from '../gateway.ts'
import type { Received, ScriptedUpstream } from '../upstream.ts'

/** Tokens a second that models make at most; gateway.yaml declares the same. */
export const RATE = 1000
/** Milliseconds for which the provider goes on after it saw the connection close. */
const STOP_LAG_MS = 1000
/** Tokens that are on their way when a connection closes: of a model that does not reason, nobody is charged for them. */
const IN_FLIGHT = RATE * 0.1
/** Prices of all models that are asked here, in nano-credits a token. */
const PRICE = { input: 3000n, output: 15_000n }
/** Tokens that an image behind a URL stands for at most. */
const IMAGE = 3000
/** Milliseconds between the last content and the usage. */
const USAGE_AFTER_MS = 30
/** Input tokens that a search of the provider adds, which it tells at the end alone; and those that are held for it. */
const FOUND = 5000
const HELD_FOR_TOOLS = 10_000
/** Bytes that a request has at the least beside its text, and tokens that a message has beside its own. */
const FRAME = 4

/** What the provider does with one request. */
interface Script {
  /** Bytes of text that are one token. */
  readonly bytesPerToken: number
  readonly phases: readonly { readonly hiddenMs: number; readonly words: number }[]
  /** Hidden reasoning is told by the size of an encrypted part. */
  readonly sealed: boolean
}

/** What a customer does. */
interface Customer {
  readonly place: (typeof PLACES)[number]
  readonly stream: boolean
  readonly words: number
  readonly image: boolean
  /** Lets the provider search, where its format is spoken. */
  readonly search: boolean
  readonly n: number
  readonly limits: readonly (number | undefined)[]
  readonly leave: 'never' | 'at once' | 'after a word' | 'after the text' | 'after the usage'
  readonly retry: 'none' | 'counted' | 'named' | 'forged'
  readonly times: number
  readonly script: Script
}

/** Who asks for what: the key's type, the model, the client's format, and whether the upstream speaks it. */
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
  phases: fc.array(fc.record({ hiddenMs: fc.constantFrom(0, 0, 300, 500), words: fc.nat(20) }), { minLength: 1, maxLength: 3 }),
  sealed: fc.boolean(),
})

export const customer: fc.Arbitrary<Customer> = fc.record({
  place: fc.constantFrom(...PLACES),
  stream: fc.boolean(),
  words: fc.nat(300),
  image: fc.boolean(),
  search: fc.boolean(),
  n: fc.constantFrom(1, 1, 2),
  limits: fc.tuple(fc.option(fc.integer({ min: 1, max: 3000 }), { nil: undefined }), fc.option(fc.integer({ min: 1, max: 3000 }), { nil: undefined })),
  leave: fc.constantFrom('never', 'at once', 'after a word', 'after the text', 'after the usage'),
  retry: fc.constantFrom('none', 'counted', 'named', 'forged'),
  times: fc.integer({ min: 1, max: 3 }),
  script,
})

/** What the provider bills for one request, and the most that it could bill for what it sent. */
interface Bill {
  readonly input: number
  /** Of the input, what was found. */
  readonly found: number
  output: number
  /** Bytes of text that it sent, and the milliseconds that it took. */
  sent: number
  readonly began: number
  ended: number
  readonly limit: number
  readonly choices: number
}

export class Provider {
  /** By the name that each customer puts into its text. */
  readonly bills = new Map<string, Bill[]>()
  readonly scripts = new Map<string, Script>()

  constructor(upstream: ScriptedUpstream) {
    upstream.script = (received, res) => this.#answer(received, res)
  }

  async #answer({ path, body, json }: Received, res: ServerResponse): Promise<void> {
    const name = /customer-\d+/.exec(body)?.[0] ?? ''
    const { bytesPerToken, phases, sealed } = this.scripts.get(name) as Script
    const text = /said: ([^"\\]*)/.exec(body)?.[1] ?? ''
    const limit = Math.max(0, ...['max_tokens', 'max_completion_tokens', 'max_output_tokens'].map(member => Number(json[member] ?? 0))) || Infinity
    const choices = Number(json['n'] ?? 1)
    const image = /https:\/\/example\.com/.test(body) ? IMAGE : 0
    const found = body.includes('web_search') ? FOUND : 0
    const bill: Bill = {
      input: Math.ceil(text.length / bytesPerToken) + FRAME + image + found,
      found,
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
    if (res.destroyed) {
      // Nobody reads any more, and the model goes on for a moment.
      if (reasons) bill.output = Math.min(limit * choices, bill.output + Math.floor((STOP_LAG_MS * 0.9 * RATE) / 1000) * choices)
    } else await reply.end(left <= 0)
    bill.ended = performance.now()
  }
}

/** A reply in one of the three formats, whole or as a stream. */
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
        message: { type: 'message', id: 'm', role: 'assistant', content: [], usage: { input_tokens: this.#bill.input - this.#bill.found, output_tokens: 1 } },
      })
      this.#event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } })
    } else if (this.#path === '/v1/responses') {
      this.#event({ type: 'response.created', sequence_number: 0, response: { id: 'r', object: 'response', status: 'in_progress', output: [] } })
      this.#event({ type: 'response.output_item.added', output_index: 0, item: { id: 'i', type: 'message', role: 'assistant', content: [] } })
      this.#event({ type: 'response.content_part.added', output_index: 0, content_index: 0, part: { type: 'output_text', text: '', annotations: [] } })
    } else this.#chunk({ role: 'assistant', content: '' }, 0)
  }

  say(piece: string, choice: number): void {
    this.#text[choice] += piece
    this.#bill.sent += piece.length
    if (!this.#stream) return
    if (this.#path === '/v1/messages') this.#event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: piece } })
    else if (this.#path === '/v1/responses') this.#event({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: piece })
    else this.#chunk({ content: piece }, choice)
  }

  /** Tells of reasoning by its encrypted text, whose size goes with it. */
  seal(tokens: number): void {
    if (!this.#stream || this.#path !== '/v1/messages') return
    this.#event({ type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 's'.repeat(tokens * 4) } })
  }

  async end(cut: boolean): Promise<void> {
    const { input, output } = this.#bill
    const whole = this.#text.map((content, index) => ({ index, message: { role: 'assistant', content }, finish_reason: cut ? 'length' : 'stop' }))
    const status = cut ? 'incomplete' : 'completed'
    const item = { id: 'i', type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: this.#text[0], annotations: [] }] }
    const response = {
      id: 'r',
      object: 'response',
      status,
      incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
      output: [item],
      usage: { input_tokens: input, output_tokens: output, total_tokens: input + output },
    }
    const stop = cut ? 'max_tokens' : 'end_turn'
    const usage = { input_tokens: input, output_tokens: output }
    const chatUsage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
    if (!this.#stream) {
      const reply =
        this.#path === '/v1/messages'
          ? { type: 'message', id: 'm', role: 'assistant', content: [{ type: 'text', text: this.#text[0] }], stop_reason: stop, usage }
          : this.#path === '/v1/responses'
            ? response
            : { id: 'c', object: 'chat.completion', choices: whole, usage: chatUsage }
      this.#res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply))
      return
    }
    if (this.#path === '/v1/messages') {
      this.#event({ type: 'content_block_stop', index: 0 })
      this.#event({ type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage: { input_tokens: input, output_tokens: output } })
      this.#event({ type: 'message_stop' })
    } else if (this.#path === '/v1/responses') {
      this.#event({ type: 'response.output_text.done', output_index: 0, content_index: 0, text: this.#text[0] })
      this.#event({ type: 'response.output_item.done', output_index: 0, item })
      await sleep(USAGE_AFTER_MS)
      this.#event({ type: `response.${status}`, response })
    } else {
      for (let choice = 0; choice < this.#choices; choice++) this.#chunk({}, choice, cut ? 'length' : 'stop')
      await sleep(USAGE_AFTER_MS)
      this.#res.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [], usage: chatUsage })}\n\ndata: [DONE]\n\n`)
    }
    this.#res.end()
  }

  #event(event: { readonly type: string; readonly [name: string]: unknown }): void {
    this.#res.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  }

  #chunk(delta: object, index: number, finish: string | null = null): void {
    this.#res.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [{ index, delta, finish_reason: finish }] })}\n\n`)
  }
}

let customers = 0

/** Lets customers do what they do, all at once and with one key; resolves when all has settled. Most will be refused. */
export async function crowd(g: TestGateway, provider: Provider, key: string, wishes: readonly Customer[]): Promise<void> {
  await Promise.all(
    wishes.map(async wish => {
      const name = `customer-${++customers}`
      provider.scripts.set(name, wish.script)
      for (let time = 0; time < wish.times; time++) await ask(g, key, name, wish, time)
    }),
  )
  await until(() => g.gateway.running === 0)
  await g.settled(key)
}

/** Lets customers do what they do, each with a key of his own; returns what is wrong with what they were charged. */
export async function serve(g: TestGateway, provider: Provider, wishes: readonly Customer[]): Promise<string[]> {
  const served = await Promise.all(
    wishes.map(async wish => {
      const name = `customer-${++customers}`
      const key = await g.key(wish.place.type, 1000n)
      provider.scripts.set(name, wish.script)
      for (let time = 0; time < wish.times; time++) await ask(g, key, name, wish, time)
      return { name, key, wish }
    }),
  )
  // Requests of clients that left at once may not even have begun.
  await sleep(100)
  await until(() => g.gateway.running === 0 && [...provider.bills.values()].flat().every(({ ended }) => ended > 0))
  const wrong: string[] = []
  for (const { name, key, wish } of served) wrong.push(...(await compare(g, provider, name, key, wish)))
  provider.bills.clear()
  return wrong
}

async function compare(g: TestGateway, provider: Provider, name: string, key: string, wish: Customer): Promise<string[]> {
  const entries = (await g.settled(key)).filter(({ type }) => type !== 'void')
  const bills = provider.bills.get(name) ?? []
  const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((all, amount) => all + amount, 0n)
  const charged = sum(entries.map(({ cost_nano: cost }) => BigInt(cost)))
  const waived = sum(entries.map(({ waived_nano: nano }) => BigInt(nano)))
  const billed = sum(bills.map(priceOf))
  const most = sum(bills.map(mostOf))
  const unseen = wish.place.reasons === 'none' ? BigInt(bills.length) * BigInt(IN_FLIGHT) * PRICE.output : 0n
  // Who has the last content, and whoever asks for a whole reply, is charged by the usage that the provider reports.
  const exact = !wish.stream || ['never', 'after the text', 'after the usage'].includes(wish.leave)
  const told = (): string =>
    `${name} was billed ${billed}, charged ${charged} (waived ${waived}), at most ${most}: ${JSON.stringify(wish)} ${JSON.stringify(bills)} ${JSON.stringify(entries.map(({ status, usage_source, input_tokens, output_tokens }) => ({ status, usage_source, input_tokens, output_tokens })))}`
  if (charged + waived + unseen < billed) return [`too little: ${told()}`]
  if (charged > most) return [`too much: ${told()}`]
  if (exact && charged + waived !== billed) return [`not what was billed: ${told()}`]
  return entries.length > bills.length ? [`more entries than requests: ${told()}`] : []
}

function priceOf({ input, output }: Bill): bigint {
  return BigInt(input) * PRICE.input + BigInt(output) * PRICE.output
}

/** The most that any script could have billed that sent the same bytes in the same time, at the declared rate and within the limit. */
function mostOf({ sent, began, ended, limit, choices }: Bill): bigint {
  const time = ended - began + STOP_LAG_MS + 500
  const output = Math.min(limit * choices, sent + Math.ceil((time * RATE * choices) / 1000))
  return BigInt(BODY_MOST + IMAGE + HELD_FOR_TOOLS) * PRICE.input + BigInt(output) * PRICE.output
}

/** Bytes that a request has at the most. */
const BODY_MOST = 3000

async function ask(g: TestGateway, key: string, name: string, wish: Customer, time: number): Promise<void> {
  const { path, model } = wish.place
  const text = `${name} said: ${'word '.repeat(wish.words)}`
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
      ? [{ type: 'input_text', text }, ...(wish.image ? [{ type: 'input_image', image_url: 'https://example.com/a.png' }] : [])]
      : path === '/v1/messages'
        ? [{ type: 'text', text }, ...(wish.image ? [{ type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }] : [])]
        : [{ type: 'text', text }, ...(wish.image ? [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }] : [])]
  const said = [{ role: 'user', content }]
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
  const timer = wish.leave === 'at once' ? setTimeout(() => leave.abort(), 50) : undefined
  try {
    const response = await g.open(path, { key, body, headers, signal: leave.signal })
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    const usage = path === '/v1/messages' ? /"message_delta"[^]*"usage"/ : /"usage":\{"(?:prompt|input)_tokens":[1-9]/
    const point = {
      never: undefined,
      'at once': undefined,
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
  } finally {
    clearTimeout(timer)
  }
}
