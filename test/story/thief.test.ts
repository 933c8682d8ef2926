import fc from 'fast-check'
import t from 'tap'
import { mostBelowZero, mostBelowZeroByTools } from '../ledger/below-zero.ts'
import { beside, recordsEnv, startGateway, type TestGateway, upstreamEnv } from '../gateway.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { ScriptedUpstream } from '../upstream.ts'
import { crowd, customer, PLACES, PRICES, Provider, RATE, serve } from './thief.ts'
import type { Edit } from '../gateway-file.ts'

/** Number of customers. `npm run simulate` has more. */
const CASES = Number(process.env['CASES'] ?? 2000)
/** Customers at once. */
const CROWD = 250
const SEED = Number(process.env['SEED'] ?? 20261124)

type Models = readonly Readonly<Record<string, unknown>>[]

const alike = (model: Models[number]): Models[number] => ({ ...model, price: 'medium', overhead: 0, outputRate: RATE })

/** All models at one price, and as fast as the provider of this test makes tokens. */
const edit: Edit = file =>
  file
    // Nothing here waits for what runs in the background.
    .setAll('ledger', { reapEvery: '30s', archiveEvery: '1s' })
    .setAll('prices.medium', PRICES)
    .change<Models>('keyTypes.famA.models', models => models.map(alike))
    .change<Models>('keyTypes.famC.models', models => models.map(alike))
    .model('famC', 'acme/famC-5.6-terra', { reasoning: 'none' })
    .model('famA', 'acme/famA-large-5', { price: 'large' })

/** What the upstreams add to a prompt is not in the file, and keys pretend that it is much. */
const undeclared = ({ overhead: _overhead, ...model }: Models[number]): Models[number] => model

function teach({ gateway: { config, meter } }: TestGateway): void {
  for (const { name, models } of config.keyTypes.values())
    for (const { sends } of models.values())
      for (let nth = 0; nth < 25; nth++) {
        const key = { id: `${name} ${nth}`, createdAt: 0, settled: 1_000_000_000n }
        meter.learned.learn(`${name} ${sends}`, key, { overhead: 19_000 }, Date.now())
      }
}

const ACCOUNTS = ['a', 'b', 'c'].map(name => ({ name, key: `${name}-secret-0123456789` }))

t.test(
  `no customer is charged less than the provider bills, or more than it could bill (SEED=${SEED})`,
  { timeout: CASES * 100 },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    // One gateway reads abandoned replies with much unknown cost. The other cancels all of them, has several accounts, each
    // with a prompt cache of its own, and lets the requests of a key wait.
    const gateways = [
      await startGateway(t, { upstream: upstream.url, edit }),
      await startGateway(t, {
        upstream: upstream.url,
        edit: file =>
          edit(file)
            .everyUpstream({ onDisconnect: 'cancel', accounts: ACCOUNTS })
            .everyKeyType({ limits: { concurrency: 2, queue: '10s' } })
            .change<Models>('keyTypes.famA.models', models => models.map(undeclared))
            .change<Models>('keyTypes.famC.models', models => models.map(undeclared)),
      }),
    ] as const
    teach(gateways[1])
    const provider = new Provider(upstream)
    const customersAtOnce = fc.array(customer, { minLength: CROWD, maxLength: CROWD })
    const crowds = fc.sample(customersAtOnce, { seed: SEED, numRuns: Math.ceil(CASES / CROWD) })
    for (const [nth, customers] of crowds.entries()) {
      const wrong = await serve(gateways[nth % 2 === 0 ? 0 : 1], provider, customers)
      if (wrong.length > 0) throw new Error(wrong.join('\n'))
    }
    t.pass(`${crowds.length * CROWD} customers`)
  },
)

t.test('five hundred requests at once take a key no further below zero than docs/charging.md states', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const g = await startGateway(t, { upstream: upstream.url, edit })
  const provider = new Provider(upstream)
  const wishes = fc.sample(customer, { seed: SEED, numRuns: 500 })
  for (const name of ['famC', 'famA']) {
    const type = g.gateway.config.keyTypes.get(name)
    const { secret: key } = await g.gateway.keys.changes.create({
      type: name,
      name: '',
      credits: 200_000_000n,
      expiresAt: undefined,
    })
    const places = PLACES.filter(place => place.type === name)
    await crowd(
      g,
      provider,
      key,
      wishes.map((wish, index) => ({ ...wish, place: places[index % places.length] ?? wish.place, times: 1 })),
    )
    const balance = BigInt((await g.balance(key)).exact.balance)
    const most = type ? mostBelowZero(type, RATE) + mostBelowZeroByTools(type, 20_000, 200_000_000n) : 0n
    t.ok(balance >= -most, `${name}: ${balance}, and ${-most} at the least`)
    t.ok(balance < 200_000_000n, `it was used: ${balance}`)
  }
})

t.test(
  'five hundred requests at once of three keys get no more than plan, credits and the bound of docs/charging.md',
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    const redis = await RealRedis.start(t, '--appendonly', 'no')
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
    const own: Edit = file => edit(ownPrefix(file))
    const g = await startGateway(t, { env, edit: own })
    const gateways = [g, await startGateway(t, { env, edit: beside(g, own) })] as const
    const provider = new Provider(upstream)
    const wishes = fc.sample(customer, { seed: SEED, numRuns: 500 })
    const type = g.gateway.config.keyTypes.get('famC')
    const places = PLACES.filter(place => place.type === 'famC')
    const { changes, plans } = g.gateway.keys
    const wish = { type: 'famC', name: '', expiresAt: undefined }
    const { key: first, secret } = await changes.create({ ...wish, credits: 100_000_000n })
    const { account } = first
    await plans.set({ account, id: 'plan' }, { windows: [{ credits: '0.1', per: 'day' }, { credits: '0.3', per: 'month' }], then: 'credits' }) // prettier-ignore
    const others = await changes.createMany({ ...wish, credits: 0n, account, limits: '{"creditsPerDay":"0.15"}' }, 2)
    const keys = [secret, ...others.map(other => other.secret)]
    await Promise.all(
      keys.map((key, nth) =>
        crowd(
          gateways[nth % 2 === 0 ? 0 : 1],
          provider,
          key,
          wishes
            .filter((_, index) => index % keys.length === nth)
            .map((wish, index) => ({ ...wish, place: places[index % places.length] ?? wish.place, times: 1 })),
        ),
      ),
    )
    const { plan, exact } = await g.balance(secret)
    const used = (place: number): number => plan.windows[place].used
    const most = type ? mostBelowZero(type, RATE) + mostBelowZeroByTools(type, 20_000, 200_000_000n) : 0n
    // The bound is that of one key.
    const bound = most * BigInt(keys.length)
    t.equal(used(0), used(1), 'both windows count the same')
    t.ok(BigInt(exact.balance) >= -bound, `${exact.balance}, and ${-bound} at the least`)
    t.ok(BigInt(Math.round(used(0) * 1e9)) <= 100_000_000n + bound, `${used(0)} of 0.1 are used`)
    t.ok(used(0) > 0, 'the plan was used')
  },
)
