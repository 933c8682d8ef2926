/**
 * The honest customers of the siege, in a process of their own. Each sends one request after another, in its own
 * format, as JSON or as a stream, and checks that the reply is complete and its own. To `times`, the process answers
 * what they saw since the last question. To `end`, it lets each customer finish and compares each charge with the usage
 * in the replies.
 */
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { answering } from './helper.ts'
import { WAYS, type Way } from './ways.ts'

export interface Times {
  /** Milliseconds until each JSON reply was complete. */
  readonly replies: readonly number[]
  /** The longest silence of each stream, in milliseconds. */
  readonly silences: readonly number[]
  readonly errors: readonly string[]
}

export interface End {
  readonly served: number
  /** Customers whose charge differs from the cost of their replies. */
  readonly wrong: readonly string[]
}

/** Prices of the models above, in nano-credits per token. */
const PRICE = { input: 3000, output: 15_000 }
/** Milliseconds between two requests of a customer. */
const PAUSE_MS = { least: 500, most: 1500 }
/** One in this many customers opens a connection for each request. */
const NEW_CONNECTIONS = 4
/** Milliseconds after which a reply counts as lost. */
const PATIENCE_MS = 30_000

class Customer {
  readonly #index: number
  readonly #port: number
  readonly #key: string
  readonly #agent: Agent | false
  served = 0
  /** Cost of its replies, in nano-credits. */
  cost = 0

  constructor(index: number, port: number, key: string) {
    this.#index = index
    this.#port = port
    this.#key = key
    this.#agent = index % NEW_CONNECTIONS === 0 ? false : new Agent({ keepAlive: true, maxSockets: 1 })
  }

  async live(): Promise<void> {
    await sleep(Math.random() * PAUSE_MS.most)
    while (!ending) {
      try {
        await this.#order()
      } catch (error) {
        seen.errors.push((error as Error).message)
      }
      if (!ending) await sleep(PAUSE_MS.least + Math.random() * (PAUSE_MS.most - PAUSE_MS.least))
    }
  }

  async #order(): Promise<void> {
    const { model, path } = WAYS[this.#index % WAYS.length] as Way
    const stream = this.#index % 2 === 1
    const said = `customer ${this.#index} says ${++this.served}`
    const body = {
      model,
      stream,
      ...(path === '/v1/responses' ? { input: said } : { messages: [{ role: 'user', content: said }] }),
      ...(path === '/v1/messages' && { max_tokens: 100 }),
      ...(path === '/v1/chat/completions' && stream && { stream_options: { include_usage: true } }),
    }
    const began = performance.now()
    let last = began
    let silence = 0
    const text = await this.#send('POST', path, JSON.stringify(body), () => {
      silence = Math.max(silence, performance.now() - last)
      last = performance.now()
    })
    if (stream) seen.silences.push(silence)
    else seen.replies.push(last - began)
    const answer = stream
      ? [...text.matchAll(/"(?:text|delta|content)":"((?:[^"\\]|\\.)*)"/g)].map(match => match[1]).join('')
      : text
    if (!answer.includes(said)) throw new Error(`a reply is not whole or of somebody else: ${path} ${text.slice(-200)}`)
    this.cost +=
      PRICE.input * lastOf(text, /"(?:prompt|input)_tokens":(\d+)/g) +
      PRICE.output * lastOf(text, /"(?:completion|output)_tokens":(\d+)/g)
  }

  /** Returns how its charge is wrong. */
  async bill(): Promise<string | undefined> {
    const { exact } = JSON.parse(await this.#send('GET', '/api/v1/keys/lookup/balance', undefined, () => {})) as {
      exact: Record<string, string>
    }
    const right = exact['used'] === String(this.cost) && exact['held'] === '0'
    return right
      ? undefined
      : `customer ${this.#index}: replies cost ${this.cost}, charged ${exact['used']}, held ${exact['held']}`
  }

  #send(method: string, path: string, body: string | undefined, heard: () => void): Promise<string> {
    return new Promise((resolve, reject) => {
      const headers = {
        authorization: `Bearer ${this.#key}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      }
      const req = request(
        { agent: this.#agent, port: this.#port, host: '127.0.0.1', method, path, headers, timeout: PATIENCE_MS },
        res => {
          let text = ''
          res.setEncoding('utf8').on('data', (part: string) => {
            heard()
            text += part
          })
          res.on('error', reject)
          res.on('end', () =>
            res.statusCode === 200 ? resolve(text) : reject(new Error(`${res.statusCode} ${text.slice(0, 200)}`)),
          )
        },
      )
      req.on('error', reject)
      req.on('timeout', () => req.destroy(new Error(`no answer within ${PATIENCE_MS} ms`)))
      req.end(body)
    })
  }
}

function lastOf(text: string, pattern: RegExp): number {
  return Number([...text.matchAll(pattern)].at(-1)?.[1] ?? NaN)
}

let seen = { replies: [] as number[], silences: [] as number[], errors: [] as string[] }
let ending = false
let customers: Customer[] = []
let lives: Promise<void>[] = []

function times(): Times {
  const told = seen
  seen = { replies: [], silences: [], errors: [] }
  return told
}

async function end(): Promise<End> {
  ending = true
  await Promise.all(lives)
  const bills: (string | undefined)[] = []
  for (const customer of customers) bills.push(await customer.bill())
  return {
    served: customers.reduce((sum, { served }) => sum + served, 0),
    wrong: bills.filter(bill => bill !== undefined),
  }
}

answering((question: 'times' | 'end' | { port: number; keys: string[] }) => {
  if (question === 'times') return times()
  if (question === 'end') return end()
  customers = question.keys.map((key, index) => new Customer(index, question.port, key))
  lives = customers.map(customer => customer.live())
  return undefined
})
