import { readFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { KeyType } from '../../core/config/config.ts'
import { mostBelowZero, mostBelowZeroByTools } from '../ledger/below-zero.ts'
import { matchAll } from '../matching.ts'
import { type TestGateway, until } from '../gateway.ts'
import { rowsOf } from '../tables.ts'
import { typed } from '../stream-events.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { scene } from '../scene.ts'

/** Tools that the provider runs, whose results become input of further passes, and how far they take a balance. */

const MESSAGES = '/v1/messages'
const RESPONSES = '/v1/responses'
/** Nano-credits of famA-large and famC-5.6-sol: per token of input and output, and per search. */
const [INPUT, OUTPUT, SEARCH] = [15_000n, 75_000n, 10_000_000n]
/** Tokens of the results of one search, as gateway.yaml has it. */
const RESULT = 20_000

/** What a provider bills for a reply. */
interface Bill {
  said: number
  input: number
  output: number
  searches: number
  /** Searches whose end it has sent. */
  ended: number
}

const priceOf = ({ input, output, searches }: Bill): bigint =>
  BigInt(input) * INPUT + BigInt(output) * OUTPUT + BigInt(searches) * SEARCH

/**
 * A provider that searches until the request's limit is reached, or its connection closes. It bills each pass in full.
 * @param results tokens of the results of each search
 */
class Searcher {
  readonly bills: Bill[] = []
  /** Waits until the gateway has reacted to what was sent. */
  pause = async (): Promise<void> => {}
  /** Opens a page after the first search. That costs no fee, but its results are read as well. */
  opensPages = false
  /** Reports a search as a call of a custom tool, as one provider does. */
  disguises = false
  readonly #results: readonly number[]

  constructor(upstream: ScriptedUpstream, results: readonly number[]) {
    this.#results = results
    upstream.script = ({ path, json: asked, body }, res) => {
      const said = Math.ceil(body.length / 4)
      const bill = { said, input: said, output: 1, searches: 0, ended: 0 }
      this.bills.push(bill)
      return path === MESSAGES ? this.#messages(asked, bill, res) : this.#responses(asked, bill, res)
    }
  }

  get billed(): bigint {
    return this.bills.reduce((sum, bill) => sum + priceOf(bill), 0n)
  }

  /** Searches once more, and reads everything again. */
  #search(bill: Bill): number {
    const found = this.#results.slice(0, bill.searches + 1)
    bill.searches++
    bill.input += bill.said + found.reduce((sum, each) => sum + each, 0)
    return found.at(-1) ?? 0
  }

  async #messages(asked: any, bill: Bill, res: ServerResponse): Promise<void> {
    const most = Math.min(this.#results.length, asked.tools?.[0]?.max_uses ?? Infinity)
    const usage = () => ({
      input_tokens: bill.input,
      output_tokens: bill.output,
      server_tool_use: { web_search_requests: bill.searches },
    })
    const text = { type: 'text', text: 'Found.' }
    if (asked.stream !== true) {
      while (bill.searches < most) this.#search(bill)
      return json(res, {
        type: 'message',
        id: 'm',
        role: 'assistant',
        content: [text],
        stop_reason: 'end_turn',
        usage: usage(),
      })
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const start = { type: 'message', id: 'm', content: [], usage: { input_tokens: bill.said, output_tokens: 1 } }
    res.write(typed({ type: 'message_start', message: start }))
    while (bill.searches < most && !res.destroyed) {
      const [id, index] = [`s${bill.searches}`, 2 * bill.searches]
      const call = { type: 'server_tool_use', id, name: 'web_search', input: {} }
      res.write(typed({ type: 'content_block_start', index, content_block: call }))
      const tokens = this.#search(bill)
      await this.pause()
      // Two bytes of the encrypted results are a token.
      const content = [{ type: 'web_search_result', encrypted_content: 'f'.repeat(2 * tokens) }]
      const result = { type: 'web_search_tool_result', tool_use_id: id, content }
      if (!res.destroyed) {
        res.write(typed({ type: 'content_block_start', index: index + 1, content_block: result }))
        bill.ended++
      }
      await this.pause()
    }
    res.write(typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: usage() }))
    res.end(typed({ type: 'message_stop' }))
  }

  async #responses(asked: any, bill: Bill, res: ServerResponse): Promise<void> {
    const most = Math.min(this.#results.length, asked.max_tool_calls ?? Infinity)
    const item = (nth: number) => ({
      ...(this.disguises
        ? { type: 'custom_tool_call', name: 'x_keyword_search', input: '{}' }
        : { type: 'web_search_call' }),
      id: `w${nth}`,
      status: 'completed',
      action: { type: this.opensPages && nth > 0 ? 'open_page' : 'search' },
    })
    const whole = () => ({
      id: 'r',
      object: 'response',
      status: 'completed',
      output: [
        ...Array.from({ length: bill.searches }, (_, nth) => item(nth)),
        { type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: 'Found.' }] },
      ],
      usage: { input_tokens: bill.input, output_tokens: bill.output },
    })
    if (asked.stream !== true) {
      while (bill.searches < most) this.#search(bill)
      return json(res, whole())
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const begun = { id: 'r', object: 'response', status: 'in_progress', output: [] }
    res.write(typed({ type: 'response.created', sequence_number: 0, response: begun }))
    while (bill.searches < most && !res.destroyed) {
      const at = { output_index: bill.searches, sequence_number: bill.searches }
      const started = { ...item(bill.searches), status: 'in_progress', ...(!this.disguises && { action: undefined }) }
      res.write(typed({ type: 'response.output_item.added', item: started, ...at }))
      this.#search(bill)
      await this.pause()
      if (!res.destroyed) {
        res.write(typed({ type: 'response.output_item.done', item: item(at.output_index), ...at }))
        bill.ended++
      }
      await this.pause()
    }
    res.end(typed({ type: 'response.completed', sequence_number: 99, response: whole() }))
  }
}

const SEARCHES = {
  [MESSAGES]: {
    type: 'famA',
    model: 'acme/famA-large-5',
    tools: [{ type: 'web_search_20250305', name: 'web_search', max_uses: 10 }],
  },
  [RESPONSES]: { type: 'famC', model: 'acme/famC-5.6-sol', tools: [{ type: 'web_search' }] },
} as const

function bodyAt(path: typeof MESSAGES | typeof RESPONSES, stream: boolean): object {
  const { model, tools } = SEARCHES[path]
  return path === MESSAGES
    ? { model, tools, stream, max_tokens: 4096, messages: [{ role: 'user', content: 'What is new?' }] }
    : { model, tools, stream, max_output_tokens: 4096, input: 'What is new?' }
}

async function keyWith(g: TestGateway, type: string, credits: bigint): Promise<string> {
  const wish = { type, name: '', credits: credits * 1_000_000_000n, expiresAt: undefined }
  return (await g.gateway.keys.changes.create(wish)).secret
}

const sent = async (g: TestGateway, key: string, path: string, bodies: readonly object[]): Promise<void> => {
  await Promise.all(bodies.map(body => g.call(path, { key, body })))
  await until(() => g.gateway.running === 0)
  await g.settled(key)
}

async function start(t: Test, results: readonly number[]): Promise<{ g: TestGateway; provider: Searcher }> {
  const { g, upstream } = await scene(t)
  const provider = new Searcher(upstream, results)
  // A search takes much longer than an event on its way, or an answer of the store.
  provider.pause = async () => {
    for (let time = 0; time < 4; time++) {
      for (let nth = 0; nth < 25; nth++) await turn()
      await g.gateway.ledger.scripts.answered()
    }
  }
  return { g, provider }
}

for (const path of [MESSAGES, RESPONSES] as const)
  for (const stream of [true, false])
    t.test(
      `thirty searching requests at once take a key no further than stated: ${path}, stream: ${stream}`,
      async t => {
        const { type } = SEARCHES[path]
        // Results of up to the stated size, and results that no file can foresee.
        for (const [credits, tokens] of [
          [1n, 15_000],
          [1n, RESULT],
          [30n, RESULT],
        ] as const) {
          const { g, provider } = await start(
            t,
            Array.from({ length: 10 }, () => tokens),
          )
          const key = await keyWith(g, type, credits)
          await sent(
            g,
            key,
            path,
            Array.from({ length: 30 }, () => bodyAt(path, stream)),
          )
          const balance = BigInt((await g.balance(key)).exact.balance)
          const had = credits * 1_000_000_000n
          const keyType = g.gateway.config.keyTypes.get(type) as KeyType
          const most = mostBelowZero(keyType, 150) + mostBelowZeroByTools(keyType, RESULT, had)
          t.ok(provider.bills.length > 0, `${provider.bills.length} were served`)
          t.ok(balance >= -most, `${balance} is left of ${had}, and ${-most} at the least`)
          t.ok(had - balance >= provider.billed, `${had - balance} was charged, and ${provider.billed} billed`)
        }
      },
    )

t.test(
  'five hundred requests whose results grow take a key no further below zero than docs/charging.md states',
  async t => {
    const results = Array.from({ length: 40 }, (_, nth) => Math.min(RESULT, 500 * (nth + 1)))
    for (const path of [MESSAGES, RESPONSES] as const) {
      const { type } = SEARCHES[path]
      const { g, provider } = await start(t, results)
      const key = await keyWith(g, type, 10n)
      await sent(
        g,
        key,
        path,
        Array.from({ length: 500 }, (_, nth) => bodyAt(path, nth % 3 > 0)),
      )
      const balance = BigInt((await g.balance(key)).exact.balance)
      const keyType = g.gateway.config.keyTypes.get(type) as KeyType
      const most = mostBelowZero(keyType, 150) + mostBelowZeroByTools(keyType, RESULT, 10_000_000_000n)
      t.ok(balance >= -most, `${path}: ${balance}, and ${-most} at the least`)
      // The bound of the page is for the dearest requests. These end at -1.3 (messages) and -5.4 credits (responses).
      t.ok(balance >= -11_000_000_000n, `${path}: ${balance}, and -11 credits at the least of these requests`)
      t.ok(10_000_000_000n - balance >= provider.billed, 'and everything that was billed is charged')
    }
  },
)

t.test(
  'a stream ends at the first event of a call that its balance does not cover, as if its limit were reached',
  async t => {
    for (const path of [MESSAGES, RESPONSES] as const) {
      const { g, provider } = await start(
        t,
        Array.from({ length: 10 }, () => RESULT),
      )
      const key = await keyWith(g, SEARCHES[path].type, 2n)
      const { text } = await g.call(path, { key, body: bodyAt(path, true) })
      t.match(text, path === MESSAGES ? '"stop_reason":"max_tokens"' : 'response.incomplete')
      const [entry] = await g.settled(key)
      t.match(entry, { status: 'budget', usage_source: 'estimated' })
      // Three calls and their passes cost 0.03 and 120,000 tokens, which are 1.8 credits.
      t.match(provider.bills[0], { searches: 4, ended: 3 }, path)
      matchAll(t, entry?.['unit_prices'], [{ calls: { web_search: { count: 4 } } }])
      t.ok(BigInt(entry?.['cost_nano']) >= provider.billed)
    }
  },
)

t.test('a page that the provider opens counts as a call whose results are read, without a fee', async t => {
  const { g, provider } = await start(
    t,
    Array.from({ length: 10 }, () => RESULT),
  )
  provider.opensPages = true
  const key = await keyWith(g, 'famC', 2n)
  const { text } = await g.call(RESPONSES, { key, body: bodyAt(RESPONSES, true) })
  t.match(text, 'response.incomplete')
  const [entry] = await g.settled(key)
  t.match(provider.bills[0], { searches: 4, ended: 3 })
  // The fourth may become a search.
  matchAll(t, entry?.['unit_prices'], [{ calls: { web_search: { count: 2 } } }])
})

t.test('a search that looks like a call of a custom tool counts as a search', async t => {
  const { g, provider } = await start(
    t,
    Array.from({ length: 10 }, () => RESULT),
  )
  provider.disguises = true
  const key = await keyWith(g, 'famC', 2n)
  const body = { ...bodyAt(RESPONSES, true), tools: [{ type: 'x_search' }] }
  t.match((await g.call(RESPONSES, { key, body })).text, 'response.incomplete')
  const [entry] = await g.settled(key)
  t.match(provider.bills[0], { searches: 4, ended: 3 })
  t.ok(BigInt(entry?.['cost_nano']) >= provider.billed)
})

t.test('a JSON request runs as many searches as half of the balance covers', async t => {
  for (const path of [MESSAGES, RESPONSES] as const) {
    const { g, provider } = await start(
      t,
      Array.from({ length: 10 }, () => RESULT),
    )
    const key = await keyWith(g, SEARCHES[path].type, 5n)
    const { status } = await g.call(path, { key, body: bodyAt(path, false) })
    t.equal(status, 200)
    await g.settled(key)
    // Two and a half credits cover 4096 tokens of output, three searches, and 120,000 tokens that the passes read.
    t.equal(provider.bills[0]?.searches, 3, path)
    t.ok(BigInt((await g.balance(key)).exact.balance) > 2_500_000_000n)
  }
})

t.test('results count by their bytes when they have arrived', async t => {
  // Small results leave more of the balance for further searches.
  const { g, provider } = await start(
    t,
    Array.from({ length: 10 }, () => 500),
  )
  const key = await keyWith(g, 'famA', 1n)
  const { text } = await g.call(MESSAGES, { key, body: bodyAt(MESSAGES, true) })
  t.match(text, '"stop_reason":"end_turn"')
  matchAll(t, await g.settled(key), [{ status: 'ok', usage_source: 'upstream', cost_nano: String(provider.billed) }])
})

const AGENTS = {
  'Claude Code': { path: MESSAGES, bytes: 1000 },
  Codex: { path: RESPONSES, bytes: 50_000 },
} as const

t.test('agents search with the balances that docs/charging.md states', async t => {
  const page = readFileSync(new URL('../../docs/charging.md', import.meta.url), 'utf8')
  for (const [agent = '', quoted = '', credits] of rowsOf(page, 'agent')) {
    const { path, bytes } = AGENTS[agent as keyof typeof AGENTS]
    const model = quoted.replaceAll('`', '')
    const { g, provider } = await start(t, [RESULT / 2])
    const wish = { name: '', credits: BigInt(Number(credits) * 1e9), expiresAt: undefined }
    const { secret: key } = await g.gateway.keys.changes.create({ ...wish, type: SEARCHES[path].type })
    const text = 'x'.repeat(bytes)
    const [tool] = SEARCHES[path].tools
    const body =
      path === MESSAGES
        ? { messages: [{ role: 'user', content: text }], max_tokens: 64_000, tools: [{ ...tool, max_uses: 8 }] }
        : { input: text, tools: [tool] }
    const answer = await g.call(path, { key, body: { model, stream: true, ...body } })
    t.match(answer.text, path === MESSAGES ? 'end_turn' : 'response.completed', `${agent}: ${model}`)
    t.equal(provider.bills[0]?.searches, 1)
    await g.settled(key)
  }
})
