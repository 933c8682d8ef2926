/**
 * The honest customers of the siege, in a process of their own: each asks for one thing after another, in its own
 * format, as JSON or as a stream, and checks that the reply is its own and whole. Asked for `times`, the process tells
 * what they saw since it was last asked; asked for `end`, it lets each finish and compares what each was charged with
 * the usage that its replies told.
 */
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { answering } from './helper.ts'
import { WAYS, type Way } from './ways.ts'

export interface Times {
  /** Milliseconds until a JSON reply had come. */
  readonly replies: readonly number[]
  /** The longest silence of each stream, in milliseconds. */
  readonly silences: readonly number[]
  readonly errors: readonly string[]
}

export interface End {
  readonly served: number
  /** Customers who were charged anything else than what their replies cost. */
  readonly wrong: readonly string[]
}

/** Nano-credits for a token: prices of the models above. */
const PRICE = { input: 3000, output: 15_000 }
/** A customer waits for so long between two requests, in milliseconds. */
const PAUSE_MS = { least: 500, most: 1500 }
/** One customer in so many connects anew for each request. */
const NEW_CONNECTIONS = 4
/** A reply that has not come by then never comes. */
const PATIENCE_MS = 30_000

class Customer {
  readonly #index: number
  readonly #port: number
  readonly #key: string
  readonly #agent: Agent | false
  served = 0
  /** Nano-credits that its replies cost. */
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

  /** What is wrong with what it was charged. */
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
