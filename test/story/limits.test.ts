/** The limits of key types and of keys. */
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import type { PlanStanding } from '../../core/account/plan-views.ts'
import { standing } from '../../core/account/views.ts'
import { ERRORS } from '../../core/errors.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { keyView } from '../../core/operator/key-view.ts'
import type { RecordedKey } from '../../core/records/key-records.ts'
import { type TestGateway, until } from '../gateway.ts'
import { chatReply, json } from '../upstream.ts'
import { type Edit, edited } from '../gateway-file.ts'
import { scene, type Scene } from '../scene.ts'
import type { Script } from '../upstream.ts'

const MODEL = 'acme/famC-5.5'
const OTHER = 'acme/famC-5.6-luna'
const CHAT = '/v1/chat/completions'
const messages = [{ role: 'user' as const, content: 'hi' }]
const BODY = { model: MODEL, max_tokens: 100, messages }
const MINUTE_MS = 60_000

/** A gateway whose upstream answers with 10 tokens of input and 60 of output. */
const answer: Script = ({ path }, res) =>
  path.endsWith('/messages')
    ? json(res, {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        model: 'm',
        content: [{ type: 'text', text: 'x' }],
        stop_reason: 'end_turn',
        usage: { input_tokens: 10, output_tokens: 60 },
      })
    : json(res, chatReply(10, 60))

/** A gateway whose key types famC and famA have limits. */
function limited(t: Test, limits: object): Promise<Scene> {
  const edit: Edit = file =>
    file.set('keyTypes.famC.limits', limits).set('keyTypes.famA.limits', { requestsPerMinute: 60 })
  return scene(t, edit, { script: answer })
}

/** Uses up the rates of a key, so that the next request fits so many milliseconds later. */
async function useUp(g: TestGateway, key: string, perMinute: number, waitMs: number): Promise<void> {
  const { redis, keys } = g.gateway.ledger.scripts
  const due = Date.now() + MINUTE_MS - MINUTE_MS / perMinute + waitMs
  await redis.hset(keys.of(await g.id(key)).account, FIELDS.rates, `${due} 0 0`)
}

t.test('a key gets the requests of a minute at once, and then one after the other', async t => {
  const { g, upstream } = await limited(t, { requestsPerMinute: 20 })
  const key = await g.key('famC', 10n)
  const answers = await Promise.all(Array.from({ length: 30 }, () => g.call(CHAT, { key, body: BODY })))
  t.equal(answers.filter(({ status }) => status === 200).length, 20)
  t.equal(upstream.requests.length, 20, 'what is refused costs nothing')
  const refused = answers.find(({ status }) => status === 429)
  t.match(refused?.json, { error: { code: 'rate_limit_exceeded', message: /^The \d+ requests a minute of this key are used; more in \d+ s\.$/ } }) // prettier-ignore
  const wait = Number(refused?.headers.get('retry-after-ms'))
  t.ok(wait > 0 && wait <= 3000, `the next one fits after ${wait} ms`)
  t.equal(refused?.headers.get('x-ratelimit-limit-requests'), '20')
  t.equal(refused?.headers.get('x-ratelimit-remaining-requests'), '0')
  t.match(await g.call(CHAT, { key: await g.key('famC', 10n), body: BODY }), { status: 200 }, 'another key goes on')
})

t.test('the official SDKs wait as long as retry-after-ms says, once, and then succeed', async t => {
  const { g, upstream } = await limited(t, { requestsPerMinute: 60 })
  /** The requests of a client: when it sent each, and when it may send the next one. */
  const sent: { atMs: number; nextMs: number }[] = []
  const watched: typeof fetch = async (...request) => {
    const atMs = performance.now()
    const answer = await fetch(...request)
    sent.push({ atMs, nextMs: performance.now() + Number(answer.headers.get('retry-after-ms')) })
    return answer
  }
  const clients = {
    famC: (key: string) => new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, fetch: watched }).chat.completions.create({ model: MODEL, messages }), // prettier-ignore
    famA: (key: string) => new Anthropic({ apiKey: key, baseURL: g.url, fetch: watched }).messages.create({ model: 'acme/famA-medium-5', max_tokens: 50, messages }), // prettier-ignore
  }
  for (const [type, ask] of Object.entries(clients)) {
    const key = await g.key(type, 10n)
    let before = 0
    // On a busy machine, the next request may already fit when the first one comes.
    do {
      await useUp(g, key, 60, 700)
      before = upstream.requests.length
      sent.length = 0
      await ask(key)
    } while (sent.length === 1)
    const [first, second] = sent
    t.equal(sent.length, 2, type)
    t.ok(second!.atMs >= first!.nextMs - 10, `${type}: it came ${second!.atMs - first!.nextMs} ms after it might`)
    t.equal(upstream.requests.length, before + 1)
    const { json: info } = await g.call('/api/v1/key-info', { key })
    const limit = info.rate_limits.find(({ window, unit }: any) => window === '1m' && unit === 'requests')
    t.match(limit, { limit: 60, used: Number })
  }
})

t.test('tokens are reserved before a request, and corrected when it has ended', async t => {
  const { g } = await limited(t, { tokensPerMinute: 10_000 })
  const key = await g.key('famC', 10n)
  const answer = await g.call(CHAT, { key, body: { ...BODY, max_tokens: 6000 } })
  t.equal(answer.headers.get('x-ratelimit-limit-tokens'), '10000')
  const left = Number(answer.headers.get('x-ratelimit-remaining-tokens'))
  // 167 tokens come back each second.
  t.ok(left < 9000 && left > 3000, `${left} are left while it runs`)
  await g.settledAll([key])
  const used = async (): Promise<number> => {
    const { json: info } = await g.call('/api/v1/key-info', { key })
    return info.rate_limits.find(({ unit }: any) => unit === 'tokens').used
  }
  await until(async () => (await used()) <= 70)
  const large = await g.call(CHAT, { key, body: { ...BODY, max_tokens: 60_000 } })
  t.match({ status: large.status, json: large.json }, { status: 429, json: { error: { message: /^Too few of the 10000 tokens a minute of this key are left for this request, which may use 4140; enough in \d+ s\.$/ } } }) // prettier-ignore
})

t.test('a day has its credits, whatever pays them', async t => {
  const { g } = await limited(t, { creditsPerDay: 0.005 })
  const key = await g.key('famC', 10n)
  const answers = await Promise.all(Array.from({ length: 20 }, () => g.call(CHAT, { key, body: BODY })))
  await g.settledAll([key])
  let done = answers.filter(({ status }) => status === 200).length
  for (;;) {
    const { status, json: refused } = await g.call(CHAT, { key, body: BODY })
    if (status !== 200) {
      t.match(refused, { error: { type: 'usage_limit_reached', message: /^0\.00\d+ of the [\d.]+ credits of the day of this key are left, but this request may need 0\.00[\d.]+; more at / } }) // prettier-ignore
      break
    }
    done++
  }
  t.ok(done * 0.00093 <= 0.005, `${done} requests`)
  await g.settledAll([key])
  const { json: info } = await g.call('/api/v1/key-info', { key })
  t.match(info.rate_limits.at(-1), { window: '1d', unit: 'credits', limit: 0.005, reset_at: /T00:00:00.000Z$/ })
})

t.test('a limit of the day that is set at noon counts the morning, whether of a key or of its type', async t => {
  for (const ofType of [true, false]) {
    const { g } = await limited(t, {})
    const { gateway } = g
    const key = await g.key('famC', 10n)
    for (let at = 0; at < 3; at++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    await g.settledAll([key])
    const limits = { creditsPerDay: '0.005' }
    if (ofType) await gateway.reload(edited(gateway.config.text, file => file.set('keyTypes.famC.limits', limits)))
    else await gateway.keys.changes.edit(await g.id(key), { limits: JSON.stringify(limits) })
    const day = async (): Promise<{ used: number }> =>
      (await g.call('/api/v1/key-info', { key })).json.rate_limits.at(-1)
    t.match(await day(), { window: '1d', limit: 0.005, used: 3 * 0.00093 }, 'a look-up shows it at once')
    let more = 0
    for (; (await g.call(CHAT, { key, body: BODY })).status === 200; more++) await g.settledAll([key])
    // A request costs 0.00093 and may need more.
    t.equal(more, 1, 'and what is left is one request')
    t.match(await day(), { used: 4 * 0.00093 })
  }
})

t.test('a key that has used up its day is exhausted in all look-ups until midnight', async t => {
  for (const ofType of [true, false]) {
    const limits = { creditsPerDay: '0.005' }
    const { g, upstream } = await limited(t, ofType ? limits : {})
    // A provider that bills more than it was asked for.
    upstream.script = (_received, res) => json(res, chatReply(10, 6000))
    const wish = { type: 'famC', name: '', credits: 1_000_000_000n, expiresAt: undefined }
    const own = ofType ? {} : { limits: JSON.stringify(limits) }
    const { secret: key, key: record } = await g.gateway.keys.changes.create({ ...wish, ...own })
    const look = async (path: string) => (await g.call(path, { key })).json
    const before = { isValid: true, remaining: 0.005, data: { limit_remaining: 0.005 } }
    t.match(await look('/api/v1/keys/lookup/balance'), before, 'before its first request, too')
    t.match(await g.call(CHAT, { key, body: BODY }), { status: 200 })
    await g.settledAll([key])
    const exhausted = {
      status: 'exhausted',
      isValid: false,
      invalidMessage: 'The credits of this day that this key may use are used up.',
      remaining: 0,
      reset_at: /T00:00:00.000Z$/,
    }
    t.match(await look('/api/v1/keys/lookup/balance'), exhausted)
    t.match(await look('/api/v1/key-info'), exhausted)
    t.match(await look('/v1/usage'), { status: 'quota_exhausted', remaining: 0 })
    const { ledger, keys, config } = g.gateway
    const shown = await keyView(ledger, (await keys.changes.record(record.id)) as RecordedKey, config, Date.now())
    t.match(shown, { status: 'exhausted' }, 'operators see the same')
  }
})

t.test('a look-up names what keeps a key from buying for longest', async t => {
  const planned = (then: string, isUsedUp: boolean) =>
    ({ plan: { terms: { then } }, isUsedUp }) as unknown as PlanStanding
  const [credits, window, day] = [
    ERRORS.allocation_exhausted.words,
    ERRORS.window_exhausted.words,
    /credits of this day/,
  ]
  const cases: [plan: PlanStanding | undefined, balance: bigint, leftToday: bigint | undefined, why: unknown][] = [
    [undefined, 5n, undefined, undefined],
    [undefined, 5n, 1n, undefined],
    [undefined, 5n, 0n, day],
    [undefined, 0n, undefined, credits],
    [undefined, 0n, 0n, credits],
    [planned('refuse', false), 0n, undefined, undefined],
    [planned('refuse', false), 0n, 0n, day],
    [planned('refuse', true), 5n, undefined, window],
    [planned('refuse', true), 5n, 0n, window],
    [planned('credits', true), 5n, undefined, undefined],
    [planned('credits', true), 5n, 0n, day],
    [planned('credits', true), 0n, 0n, credits],
  ]
  for (const [plan, balance, leftToday, why] of cases) {
    const may = { credits: { balance, granted: 0n, held: 0n, settled: 0n }, plan, leftToday, least: 1n }
    const { status, message } = standing({ expiresAt: undefined }, may, 0)
    t.equal(status, why === undefined ? 'active' : 'exhausted')
    t.match(message, why)
    t.equal(standing({ expiresAt: 0 }, may, 0).status, 'expired')
  }
})

t.test('the narrower limit of a key and of its type counts', async t => {
  const { g } = await limited(t, { requestsPerMinute: 50, maxOutput: 80, models: [MODEL, OTHER] })
  const limits = JSON.stringify({ requestsPerMinute: 3, models: [MODEL], maxInput: 500, addresses: ['127.0.0.1'] })
  const wish = { type: 'famC', name: '', credits: 1_000_000_000n, expiresAt: undefined, limits }
  const { secret: key, key: record } = await g.gateway.keys.changes.create(wish)
  const first = await g.call(CHAT, { key, body: BODY })
  t.equal(first.status, 200)
  t.equal(first.headers.get('x-tollgate-output-limit'), '80')
  t.equal(first.headers.get('x-ratelimit-limit-requests'), '3')
  t.match(await g.call(CHAT, { key, body: { ...BODY, model: OTHER } }), { status: 404 }, 'a model of the type only')
  const long = [{ role: 'user', content: 'word '.repeat(2000) }]
  t.match(await g.call(CHAT, { key, body: { ...BODY, messages: long } }), {
    status: 400,
    json: { error: { code: 'context_length_exceeded' } },
  })
  const { json: info } = await g.call('/api/v1/key-info', { key })
  t.match(info, { models: [MODEL], max_input: 500, max_output: 80 })
  await g.gateway.keys.changes.edit(record.id, { limits: JSON.stringify({ addresses: ['203.0.113.7'] }) })
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 403 })
  await g.gateway.keys.changes.edit(record.id, { limits: null })
  t.match(await g.call(CHAT, { key, body: { ...BODY, model: OTHER } }), { status: 200 })
})

t.test("a cap of the type limits each of its keys' lives", async t => {
  const { g } = await limited(t, { credits: 0.003 })
  const key = await g.key('famC', 10n)
  let done = 0
  for (;;) {
    const { status, json: refused } = await g.call(CHAT, { key, body: BODY })
    if (status === 200) {
      done++
      continue
    }
    t.match(refused, { error: { code: 'insufficient_quota', message: /^This key may use [\d.]+ credits more/ } })
    break
  }
  t.ok(done >= 1 && done * 0.00093 <= 0.003)
  await g.settledAll([key])
  const { json: info } = await g.call('/api/v1/key-info', { key })
  const { json: balance } = await g.call('/api/v1/keys/lookup/balance', { key })
  t.equal(balance.total, 0.003, 'a customer sees the cap, and not the credits that it keeps from being used')
  const record = (await g.gateway.keys.changes.record(key)) as RecordedKey
  const shown = await keyView(g.gateway.ledger, record, g.gateway.config, Date.now())
  t.match([Number(shown.balance), shown.cap], [balance.remaining, null], 'operators see what is left, too')
  t.same([info.remaining, balance.remaining], Array(2).fill(Number((0.003 - balance.used).toFixed(9))))
})
