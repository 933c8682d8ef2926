import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { UpstreamAccount, Upstream } from '../../core/config/config.ts'
import { type TestGateway } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { BODY, CHAT, REPLY, pooledScene, type PooledScene } from '../pooled.ts'
import { json, sse } from '../upstream.ts'

/** Each way in which a provider refuses or limits: two accounts, two models, two customers. */

/** What the provider says. No customer may read it. */
const SECRET = 'org-1'
const OTHER_MODEL = 'acme/famC-5.6-luna'

/** The requests that follow a failure, in their order: which of them the account that failed is asked for. */
interface Follows {
  /** The same customer, for the same model. */
  readonly again: boolean
  /** Another model. */
  readonly otherModel: boolean
  /** Another customer, who meets the same failure. */
  readonly otherKey: boolean
  /** A third customer, after that. */
  readonly afterwards: boolean
}

const OUT: Follows = { again: false, otherModel: false, otherKey: false, afterwards: false }
const MODEL_OUT: Follows = { again: false, otherModel: true, otherKey: false, afterwards: false }
const SUSPECTED: Follows = { again: true, otherModel: true, otherKey: true, afterwards: false }
const WELL: Follows = { again: true, otherModel: true, otherKey: true, afterwards: true }

const failing =
  (status: number, error: object, headers: Record<string, string> = {}) =>
  (res: ServerResponse): void =>
    json(res, { error: { message: `${SECRET} fails`, ...error } }, status, headers)

const words = (message: string): object => ({ message: `${SECRET}: ${message}`, type: 'invalid_request_error' })

const WAYS: readonly (readonly [name: string, fail: (res: ServerResponse) => void, follows: Follows, row?: object])[] =
  [
    ['401', failing(401, {}), OUT],
    ['402', failing(402, {}), OUT],
    ['403 with a code', failing(403, { code: 'account_deactivated' }), OUT],
    ['403 without a code', failing(403, {}), SUSPECTED],
    ['400 with a code', failing(400, { code: 'billing_hard_limit_reached' }), OUT],
    ['400 about the balance', failing(400, words('Your credit balance is too low')), SUSPECTED],
    ['400 about a spending limit', failing(400, words('you have reached your spending limit')), SUSPECTED],
    ['400 about the organization', failing(400, words('This organization has been disabled.')), SUSPECTED],
    ['400 about the key', failing(400, words('Your API key has expired')), SUSPECTED],
    ['404 about the account', failing(404, words('the account was suspended')), SUSPECTED],
    ['429 without quota', failing(429, { code: 'insufficient_quota' }), OUT],
    ['429 with a time', failing(429, {}, { 'retry-after': '3000' }), MODEL_OUT],
    ['429 without a time', failing(429, {}), MODEL_OUT],
    ['429 of the account', failing(429, words('this exceeds the limit of your account'), { 'retry-after': '60' }), OUT],
    ['429 of a plan', failing(429, { type: 'usage_limit_reached', resets_in_seconds: 900 }), OUT],
    ['503 with a time', failing(503, {}, { 'retry-after': '60' }), OUT],
    ['200 without quota', res => json(res, { error: { message: SECRET, code: 'insufficient_quota' } }), OUT],
    ['a stream without quota', res => sse(res, `data: {"error":{"message":"${SECRET}","code":"insufficient_quota"}}\n\n`), OUT], // prettier-ignore
    ['500', failing(500, {}), WELL],
    ['a row about the account', failing(418, { code: 'E7' }), OUT, { code: 'E7', about: 'account' }],
    ['a row about the account, by its wording', failing(400, words('recharge it')), SUSPECTED, { message: 'Recharge', about: 'account' }], // prettier-ignore
    ['a row about the model', failing(404, { code: 'sold_out' }), MODEL_OUT, { status: 404, code: 'sold_out', about: 'model' }], // prettier-ignore
    ['a row about the provider', failing(400, words('try later')), WELL, { status: 400, message: 'try later', about: 'provider' }], // prettier-ignore
  ]

/** A gateway whose clock a test can put ahead, in milliseconds. */
async function clockedScene(t: Test, edit?: Edit): Promise<PooledScene & { readonly clock: { aheadMs: number } }> {
  const clock = { aheadMs: 0 }
  return { ...(await pooledScene(t, edit, { environment: { now: () => Date.now() + clock.aheadMs } })), clock }
}

const accountOf = ({ gateway }: TestGateway): UpstreamAccount =>
  (gateway.config.upstreams.get('famC') as Upstream).accounts[0] as UpstreamAccount

t.test(
  'the customer of an account that refuses or limits is served by the next one, and reads nothing of it',
  async t => {
    const rows = WAYS.flatMap(([, , , row]) => (row ? [row] : []))
    const { g, first, clock } = await clockedScene(t, file =>
      file.set('upstreams.famC.failures', rows).set('upstreams.famC.health', { failures: 100, rate: 1 }),
    )
    const keys = [await g.key('famC'), await g.key('famC'), await g.key('famC')] as const
    for (const [name, fail, follows] of WAYS) {
      g.gateway.pool.reset()
      const asked = async (key: string, model = BODY.model): Promise<boolean> => {
        const before = first.requests.length
        const reply = await g.call(CHAT, { key, body: { ...BODY, model, stream: name.includes('stream') } })
        t.equal(reply.status, 200, name)
        t.notMatch(reply.text, SECRET)
        return first.requests.length > before
      }
      first.script = (_received, res) => fail(res)
      // A model may be out for a second only.
      const before = Date.now() + clock.aheadMs
      const isReady = (): boolean => g.gateway.pool.health(accountOf(g)).ready(before, modelSent(g))
      t.equal(await asked(keys[0]), true, `${name}: it is asked`)
      t.equal(isReady(), follows.again, `${name}: again`)
      first.script = (_received, res) => json(res, REPLY)
      const isOut = g.gateway.pool.health(accountOf(g)).outMs(before) > 0
      t.equal(isOut, !follows.otherModel, `${name}: another model`)
      first.script = (_received, res) => fail(res)
      // Two suspected refusals that are closer do not confirm each other.
      clock.aheadMs += 11_000
      if (follows.otherKey) t.equal(await asked(keys[1]), true, `${name}: another customer`)
      t.equal(isReady(), follows.afterwards, `${name}: afterwards`)
      if (!follows.afterwards && name !== '429 without a time' && !name.includes('model'))
        t.equal(await asked(keys[2]), false, `${name}: a third customer`)
    }
    for (const key of keys) await g.settled(key)
  },
)

function modelSent({ gateway }: TestGateway): string {
  return gateway.config.keyTypes.get('famC')?.models.get(BODY.model)?.sends ?? ''
}

t.test('a model that is limited at one account is served by the other, and other models by the first', async t => {
  const { g, first, spare: second } = await clockedScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => failing(429, {}, { 'retry-after': '3000' })(res)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  first.script = (_received, res) => json(res, REPLY)
  const asked = (): number[] => [first.requests.length, second.requests.length]
  t.same(asked(), [1, 1])
  t.equal((await g.call(CHAT, { key, body: { ...BODY, model: OTHER_MODEL } })).status, 200)
  t.same(asked(), [2, 1], 'another model')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.same(asked(), [2, 2], 'the model that is limited')
  second.script = (_received, res) => failing(429, {}, { 'retry-after': '20' })(res)
  await g.call(CHAT, { key, body: BODY })
  const refused = await g.call(CHAT, { key, body: BODY })
  t.equal(refused.status, 503)
  t.ok(Number(refused.headers.get('retry-after')) <= 20, 'until the second account can serve the model')
  await g.settled(key)
})

/** Texts about an account, which a customer writes. */
const TEXTS = [
  'Your credit balance is too low',
  'this organization has been disabled',
  'Your API key has expired',
  "the usage limit of your account's plan, all models",
]

t.test('keys cannot take an account out by any text that the provider repeats', async t => {
  const { g, first } = await clockedScene(t)
  const keys = [await g.key('famC'), await g.key('famC')] as const
  const padding = 'x'.repeat(1_100_000)
  let asked = 0
  for (const text of TEXTS) {
    const escaped = JSON.stringify(text).replace(/[a-z]/, each => `\\u00${each.charCodeAt(0).toString(16)}`)
    // The provider repeats what the customer wrote, in its own case, quoted or not.
    for (const said of [text, text.toUpperCase(), `"${text}"`, `bad value '${text}' in messages`]) {
      for (const status of [400, 404, 413, 422, 429]) {
        first.script = (_received, res) => json(res, { error: { message: said } }, status)
        for (const [nth, more] of ['', padding].entries())
          for (const key of keys) {
            if (more !== '' && status !== 400) continue
            const body = `{"model":"${BODY.model}","max_tokens":9,"messages":[{"role":"user","content":${escaped}}],"user":"${nth}${more}"}`
            await g.call(CHAT, { key, body })
            asked++
            g.gateway.pool.health(accountOf(g)).reset(Date.now())
          }
      }
    }
  }
  t.equal(first.requests.length, asked, 'the account was asked each time')
  const health = g.gateway.pool.health(accountOf(g))
  // Without a reset between them, as the provider would meet them.
  for (const text of TEXTS)
    for (const key of keys) {
      first.script = (_received, res) => json(res, { error: { message: text } }, 400)
      const reply = await g.call(CHAT, { key, body: { ...BODY, messages: [{ role: 'user', content: text }] } })
      t.equal(reply.status, 200)
      t.notMatch(reply.text, text)
    }
  t.equal(health.outMs(Date.now()), 0)
  t.equal(health.state.refused, undefined)
  for (const key of keys) await g.settled(key)
})

t.test('one key cannot take an account out, whatever the provider answers to it', async t => {
  const { g, first } = await clockedScene(t)
  const key = await g.key('famC')
  for (const status of [400, 403, 404, 413, 422]) {
    first.script = (_received, res) => json(res, { error: { message: TEXTS[0] } }, status)
    for (let nth = 0; nth < 3; nth++) {
      const reply = await g.call(CHAT, { key, body: BODY })
      t.equal(reply.status, 200)
      t.notMatch(reply.text, 'credit')
    }
  }
  t.equal(g.gateway.pool.health(accountOf(g)).outMs(Date.now()), 0)
  t.equal(first.requests.length, 15)
  await g.settled(key)
})

t.test('counting tells nothing about an account', async t => {
  const { g, first } = await clockedScene(t)
  const keys = [await g.key('famC'), await g.key('famC')]
  const count = async (status: number, headers: Record<string, string> = {}): Promise<void> => {
    first.script = (_received, res) => json(res, { error: { message: 'no counting' } }, status, headers)
    for (const key of keys)
      await g.call('/v1/responses/input_tokens', { key, body: { model: BODY.model, input: 'hi' } })
  }
  const health = g.gateway.pool.health(accountOf(g))
  for (const status of [401, 403, 404, 429, 500, 503]) await count(status, { 'retry-after': '60' })
  t.same([health.waitMs(Date.now(), modelSent(g)), health.outMs(Date.now())], [0, 0])
  first.script = (_received, res) => json(res, {}, 402)
  await g.call(CHAT, { key: keys[0] as string, body: BODY })
  first.script = (_received, res) => json(res, { object: 'response.input_tokens', input_tokens: 7 })
  await g.call('/v1/responses/input_tokens', { key: keys[1] as string, body: { model: BODY.model, input: 'hi' } })
  t.ok(health.outMs(Date.now()) > 0, 'nor that it is well')
})

t.test('a failure within a stream is judged as one before it, also by the rows of the file', async t => {
  const rows = [{ code: 'E7', about: 'account' }]
  const { g, first } = await clockedScene(t, file => file.set('upstreams.famC.failures', rows))
  const key = await g.key('famC')
  const content = 'data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n'
  const health = g.gateway.pool.health(accountOf(g))
  for (const [code, isOut, isModelOut] of [
    ['E7', true, true],
    ['insufficient_quota', true, true],
    ['rate_limit_exceeded', false, true],
    ['server_error', false, false],
    ['', false, false],
  ] as const) {
    g.gateway.pool.reset()
    const before = Date.now()
    first.script = (_received, res) =>
      sse(res, `${content}data: ${JSON.stringify({ error: { message: `${SECRET}: credit balance`, code } })}\n\n`)
    const reply = await g.call(CHAT, { key, body: { ...BODY, stream: true } })
    t.match(reply.text, /some/)
    t.notMatch(reply.text, SECRET)
    await g.settled(key)
    t.equal(health.outMs(before) > 0, isOut, code)
    t.equal(!health.ready(before, modelSent(g)), isModelOut, `${code}: the model`)
  }
})

t.test('the client is told the time that the body of a limit names', async t => {
  const { g, first, spare: second } = await clockedScene(t)
  const key = await g.key('famC')
  for (const each of [first, second])
    each.script = (_received, res) =>
      json(res, { error: { type: 'usage_limit_reached', message: 'x', resets_in_seconds: 900 } }, 429)
  for (let nth = 0; nth < 2; nth++) {
    const reply = await g.call(CHAT, { key, body: BODY })
    t.equal(reply.status, 503)
    t.ok(Number(reply.headers.get('retry-after')) > 890, `request ${nth + 1}`)
  }
})
