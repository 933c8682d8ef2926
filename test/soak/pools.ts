/**
 * Four accounts of one upstream for two minutes, or as long as SOAK_MS says: one fails three in ten requests, one is slow, one dies, and one comes
 * back. No customer may notice, and every credit must be accounted for.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { startGateway } from '../gateway.ts'
import { CHAT, REPLY, USAGE } from '../pooled.ts'
import { json, sse } from '../upstream.ts'

const SOAK_MS = Number(process.env['SOAK_MS'] ?? 120_000)
const CUSTOMERS = 32
const BODY = { model: 'acme/famC-5.5', max_tokens: 100 }
const EVENTS = [
  '{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
  '{"choices":[{"index":0,"delta":{"content":"good"}}]}',
  '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
  JSON.stringify({ choices: [], usage: USAGE }),
  '[DONE]',
].map(data => `data: ${data}\n\n`)

/** Answers a request. @returns whether the answer is a good reply, which the provider bills */
type Behaviour = (stream: boolean, res: ServerResponse) => boolean | Promise<boolean>

function answerWell(stream: boolean, res: ServerResponse): true {
  if (stream) sse(res, EVENTS.join(''))
  else json(res, REPLY)
  return true
}

let random = 1
/** The next of a sequence of numbers from 0 to 1 that is the same in every run. */
function next(): number {
  random = (random * 48_271) % 2_147_483_647
  return random / 2_147_483_647
}

const FAILURES: readonly ((res: ServerResponse) => void)[] = [
  res => json(res, { error: { message: 'x' } }, 500),
  res => json(res, { error: { type: 'overloaded_error' } }, 529),
  res => json(res, { error: { message: 'slow down' } }, 429),
  res => sse(res, EVENTS[0] ?? ''),
  res => sse(res, 'data: {"error":{"type":"server_error"}}\n\n'),
]

/** One account's provider, which can go away and come back at the same address. */
class Provider {
  /** Requests that arrived, and good replies. */
  asked = 0
  good = 0
  port = 0
  readonly #behave: Behaviour
  #server: Server | undefined

  constructor(behave: Behaviour) {
    this.#behave = behave
  }

  async begin(): Promise<void> {
    const server = (this.#server = createServer((req, res) => void this.#take(req, res)))
    await new Promise<void>(resolve => server.listen(this.port, '127.0.0.1', resolve))
    this.port = (server.address() as AddressInfo).port
  }

  /** Refuses new connections. Running requests are answered. */
  async end(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    await new Promise(resolve => (server ? server.close(resolve) : resolve(undefined)))
  }

  async #take(req: IncomingMessage, res: ServerResponse): Promise<void> {
    this.asked++
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const { stream } = JSON.parse(Buffer.concat(chunks).toString()) as { stream?: boolean }
    if (!this.#server) res.setHeader('connection', 'close')
    if (await this.#behave(stream === true, res)) this.good++
  }
}

async function providers(t: Test): Promise<Record<'flaky' | 'slow' | 'dying' | 'back', Provider>> {
  const all = {
    flaky: new Provider((stream, res) => {
      if (next() > 0.3) return answerWell(stream, res)
      const fail = FAILURES[Math.floor(next() * FAILURES.length)]
      fail?.(res)
      return false
    }),
    slow: new Provider(async (stream, res) => {
      await new Promise(resolve => setTimeout(resolve, 300 + 700 * next()))
      return answerWell(stream, res)
    }),
    dying: new Provider(answerWell),
    back: new Provider(answerWell),
  }
  for (const each of Object.values(all)) {
    await each.begin()
    t.teardown(() => each.end())
  }
  return all
}

t.test('four accounts of which some fail', { timeout: SOAK_MS + 120_000 }, async t => {
  const pool = await providers(t)
  await pool.back.end()
  const g = await startGateway(t, {
    edit: file =>
      file
        .set('upstreams.famC', {
          url: `http://127.0.0.1:${pool.flaky.port}`,
          speaks: ['chat-completions'],
          health: { cooldown: '1s', cooldownMax: '5s' },
          accounts: Object.entries(pool).map(([name, { port }]) => ({
            name,
            key: `${name}-secret-0123456789`,
            url: `http://127.0.0.1:${port}`,
            quota: { credits: 1000, per: 'month' },
          })),
        })
        .set('keyTypes.famC.limits.concurrency', 100),
  })
  const keys = await Promise.all(Array.from({ length: CUSTOMERS }, () => g.key('famC', 1000n)))
  const charged = new Map<string, number>()
  const until = performance.now() + SOAK_MS
  const failed: string[] = []

  async function customer(key: string, nth: number): Promise<void> {
    for (let turn = 0; performance.now() < until; turn++) {
      const stream = (turn + nth) % 2 === 0
      const messages = [{ role: 'user', content: `conversation ${nth} ${Math.floor(turn / 10)}` }]
      const answer = await g.call(CHAT, { key, body: { ...BODY, stream, messages } })
      const isGood =
        answer.status === 200 && answer.text.includes('good') && (!stream || answer.text.includes('[DONE]'))
      if (isGood) charged.set(key, (charged.get(key) ?? 0) + 1)
      else failed.push(`${answer.status} ${answer.text.slice(0, 200)}`)
      await new Promise(resolve => setTimeout(resolve, 50 * next()))
    }
  }

  const scenes = [
    setTimeout(() => void pool.back.begin(), SOAK_MS / 3),
    setTimeout(() => void pool.dying.end(), SOAK_MS / 2),
  ]
  t.teardown(() => scenes.forEach(clearTimeout))
  await Promise.all(keys.map(customer))

  t.same(failed.slice(0, 10), [], 'no customer noticed')
  const entries = await Promise.all(keys.map(key => g.settled(key)))
  const charge = 105_000n
  for (const [nth, key] of keys.entries()) {
    t.match(await g.balance(key), { held: '0' })
    const ledger = await g.gateway.ledger.reads.balance(await g.id(key))
    t.equal(ledger.settled, charge * BigInt(charged.get(key) ?? 0), `key ${nth} is charged once for each reply`)
    t.ok((entries[nth]?.length ?? 0) > 0)
  }
  const replies = [...charged.values()].reduce((sum, count) => sum + count, 0)
  const { accounts } = g.gateway.config.upstreams.get('famC') ?? { accounts: [] }
  let served = 0
  for (const { name, quotas } of accounts) {
    const provider = pool[name.split('/')[1] as keyof typeof pool]
    const [quota] = quotas
    if (!quota) throw new Error('no quota')
    const { used } = await g.gateway.ledger.reads.quotaUsed(name, quota, Date.now())
    t.equal(used, charge * BigInt(provider.good), `the quota of ${name} has what its provider bills`)
    t.ok(provider.good > 0)
    served += provider.good
    t.comment(`${name}: ${provider.asked} requests, ${provider.good} good replies`)
  }
  t.equal(served, replies, 'each reply came from one account')
  t.comment(`${replies} replies in ${SOAK_MS / 1000} s`)
})
