/** A key is changed at one gateway and used at another one, which has its record: from the answer on, the change is in force. */
import t from 'tap'
import { LIMITS } from '../../core/config/plan-schema.ts'
import { findServer } from '../../core/store/managed.ts'
import type { Edit } from '../gateway-file.ts'
import {
  type Answer,
  beside,
  operations,
  recordsEnv,
  startGateway,
  type TestGateway,
  until,
  upstreamEnv,
} from '../gateway.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { chatReply, json, ScriptedUpstream } from '../upstream.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const CHAT = '/v1/chat/completions'
const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] }
/** Requests that use a key at once. */
const AT_ONCE = 4

const redis = findServer(process.env) === undefined ? undefined : await RealRedis.start(t)
const upstream = await ScriptedUpstream.start(t)
/** Replies that wait, while the test lets them. */
let waits: (() => void)[] | undefined
upstream.script = (_received, res) => {
  const end = (): void => json(res, chatReply(10, 60))
  if (waits) waits.push(end)
  else end()
}

/** Keys of another type pay twice as much. */
const edit: Edit = file =>
  ownPrefix(file)
    .set('keyTypes.famC.limits', { concurrency: 100, queue: '5s' })
    .change('keyTypes', (types: Record<string, object>) => ({
      ...types,
      dear: { ...types['famC'], priceFactor: 2, limits: { concurrency: 100 } },
    }))
const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis?.url ?? '', ...recordsEnv() }
const [office, shop] = redis
  ? await startGateway(t, { edit, env }).then(async one => [
      one,
      await startGateway(t, { edit: beside(one, edit), env }),
    ])
  : []

/** One use of a key at the other gateway: the answers, and what the requests cost. */
interface Use {
  readonly answers: readonly Answer[]
  readonly costs: readonly number[]
}

async function use(g: TestGateway, key: string, count: number): Promise<Use> {
  const before = new Set((await g.history(key)).map(({ request_id }) => request_id))
  const answers = await Promise.all(Array.from({ length: count }, () => g.call(CHAT, { key, body: BODY })))
  await g.settledAll([key])
  const entries = (await g.history(key)).filter(({ request_id, type }) => type === 'settle' && !before.has(request_id))
  return { answers, costs: entries.map(({ cost_nano }) => Number(cost_nano)) }
}

const statuses = ({ answers }: Use): Set<number> => new Set(answers.map(({ status }) => status))
const are = (status: number) => (of: Use) => [...statuses(of)].join() === String(status)
const COST = 10 * 3000 + 60 * 15_000

/** The limits of a key: a tight value, a wide one, and how its uses show the tight one. */
const OF_LIMITS: Readonly<Record<string, { tight: unknown; wide: unknown; is: (of: Use) => boolean; count?: number }>> = {
  models: { tight: ['acme/famC-5.6-sol'], wide: [MODEL], is: are(404) },
  addresses: { tight: ['198.51.100.0/24'], wide: ['127.0.0.0/8'], is: are(403) },
  maxInput: { tight: 1, wide: 100_000, is: are(400) },
  maxOutput: { tight: 20, wide: 5000, is: () => upstream.last.json['max_tokens'] === 20 },
  priceFactor: { tight: '2', wide: '1', is: ({ costs }) => costs.length === AT_ONCE && costs.every(cost => cost === 2 * COST) },
  creditsPerDay: { tight: '0.0000001', wide: '100', is: are(429) },
  requestsPerMinute: { tight: 900, wide: 1000, is: ({ answers }) => answers[0]?.headers.get('x-ratelimit-limit-requests') === '900', count: 1 },
  tokensPerMinute: { tight: 900_000, wide: 1_000_000, is: ({ answers }) => answers[0]?.headers.get('x-ratelimit-limit-tokens') === '900000', count: 1 },
} // prettier-ignore
/** Limits that only requests beside others show. */
const TOGETHER = ['concurrency', 'queue']

for (const [name, { tight, wide, is, count = AT_ONCE }] of Object.entries(OF_LIMITS))
  t.test(`the limit ${name} of a key is in force at another gateway from the answer on`, { skip }, async t => {
    const [one, other] = [office as TestGateway, shop as TestGateway]
    const key = await one.key('famC')
    const id = await one.id(key)
    for (const [value, isTight] of [
      [wide, false],
      [tight, true],
      [wide, false],
      [tight, true],
    ] as const) {
      // prettier-ignore
      await one.gateway.keys.changes.edit(id, { limits: JSON.stringify({ [name]: value }) })
      t.equal(is(await use(other, key, count)), isTight, `${name}: ${JSON.stringify(value)}`)
    }
  })

t.test('concurrency and queue of a key are in force at another gateway from the answer on', { skip }, async t => {
  const [one, other] = [office as TestGateway, shop as TestGateway]
  const key = await one.key('famC')
  const id = await one.id(key)
  await use(other, key, 1)
  const limit = (limits: object) => one.gateway.keys.changes.edit(id, { limits: JSON.stringify(limits) })
  const holds = operations(other, 'hold')
  /** The status of a second request beside a running one. */
  const second = async (): Promise<number> => {
    waits = []
    const running = other.call(CHAT, { key, body: BODY })
    await until(() => waits?.length === 1)
    const asked = holds.length
    const another = other.call(CHAT, { key, body: BODY })
    // It is refused, or runs beside the first one, or looks again from its line.
    await Promise.race([another, until(() => waits?.length === 2 || holds.length > asked + 1)])
    const ends = waits
    waits = undefined
    for (const end of ends) end()
    await running
    const { status } = await another
    await other.settledAll([key])
    return status
  }
  for (const [limits, status] of [
    [{ concurrency: 1, queue: '0s' }, 429],
    [{ concurrency: 2, queue: '0s' }, 200],
    [{ concurrency: 1, queue: '0s' }, 429],
    [{ concurrency: 1, queue: '5s' }, 200],
  ] as const) {
    // prettier-ignore
    await limit(limits)
    t.equal(await second(), status, JSON.stringify(limits))
  }
})

t.test('every limit that a key may have is tried', t => {
  // The credits of a key's life are its cap.
  t.same([...Object.keys(OF_LIMITS), ...TOGETHER].toSorted(), [...Object.keys(LIMITS).filter(name => name !== 'credits'), 'priceFactor'].toSorted()) // prettier-ignore
  t.end()
})

/** Other changes of a key, there and back. */
const CHANGES: Readonly<Record<string, { there: (g: TestGateway, id: string) => unknown; back?: (g: TestGateway, id: string) => unknown; is: (of: Use) => boolean }>> = {
  type: {
    there: (g, id) => g.gateway.keys.changes.edit(id, { type: 'dear' }),
    back: (g, id) => g.gateway.keys.changes.edit(id, { type: 'famC' }),
    is: ({ costs }) => costs.length === AT_ONCE && costs.every(cost => cost === 2 * COST),
  },
  cap: {
    there: (g, id) => g.gateway.keys.changes.edit(id, { cap: 1n }),
    back: (g, id) => g.gateway.keys.changes.edit(id, { cap: null }),
    is: are(429),
  },
  expiry: {
    there: (g, id) => g.gateway.keys.changes.edit(id, { expiresAt: Date.now() - 1000 }),
    back: (g, id) => g.gateway.keys.changes.edit(id, { expiresAt: null }),
    is: are(401),
  },
  status: {
    there: (g, id) => g.gateway.keys.changes.disable(id),
    back: (g, id) => g.gateway.keys.changes.enable(id),
    is: are(401),
  },
  'plan of the balance': {
    there: (g, id) => g.gateway.keys.plans.set({ account: id, id: `set-${Math.random()}` }, { then: 'refuse', windows: [{ credits: '0.0000001', per: 'day' }] }),
    back: (g, id) => g.gateway.keys.plans.set({ account: id, id: `set-${Math.random()}` }, { then: 'credits', windows: [{ credits: '0.0000001', per: 'day' }] }),
    is: are(429),
  },
  balance: {
    there: async (g, id) => g.gateway.keys.changes.move(id, await g.id(await g.key('famC', 0n))),
    is: are(429),
  },
  secret: { there: (g, id) => g.gateway.keys.changes.rotate(id), is: are(401) },
} // prettier-ignore

for (const [name, { there, back, is }] of Object.entries(CHANGES))
  t.test(`another ${name} of a key is in force at another gateway from the answer on`, { skip }, async t => {
    const [one, other] = [office as TestGateway, shop as TestGateway]
    const key = await one.key('famC')
    const id = await one.id(key)
    const uses = async (): Promise<boolean> => {
      const answers = await Promise.all(Array.from({ length: AT_ONCE }, () => other.call(CHAT, { key, body: BODY })))
      if (answers.some(({ status }) => status === 401)) return is({ answers, costs: [] })
      await until(() => other.gateway.ledger.live === 0)
      const entries = await one.gateway.ledger.reads.history({ account: id, key: id }, { count: AT_ONCE })
      return is({ answers, costs: entries.map(({ charge }) => Number(charge)) })
    }
    t.notOk(await uses(), 'before')
    for (let times = 0; times < (back ? 2 : 1); times++) {
      await there(one, id)
      t.ok(await uses(), 'there')
      await back?.(one, id)
      if (back) t.notOk(await uses(), 'and back')
    }
  })
