import { Writable } from 'node:stream'
import t from 'tap'
import type { UpstreamAccount, Upstream } from '../../core/config/config.ts'
import { waitAsked } from '../../core/formats/rate-limits.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { Health } from '../../core/pool/health.ts'
import { noneLeft } from '../../core/pool/none-left.ts'
import { Pool } from '../../core/pool/pool.ts'
import { until } from '../gateway.ts'

const HEALTH = { failures: 3, rate: 0.5, least: 10, windowMs: 60_000, cooldownMs: 1000, cooldownMaxMs: 8000 }

function accountOf(name: string, more: Partial<UpstreamAccount> = {}): UpstreamAccount {
  return {
    name,
    key: `key-of-${name}`,
    header: 'authorization',
    url: undefined,
    proxy: undefined,
    weight: 1,
    models: undefined,
    quotas: [],
    ...more,
  }
}

function upstreamOf(accounts: readonly UpstreamAccount[]): Upstream {
  return { name: 'u', accounts, health: HEALTH } as unknown as Upstream
}

/** A pool with a clock of its own. */
function poolOf(names: readonly string[]): {
  pool: Pool
  upstream: Upstream
  clock: { now: number }
  logged: () => string
  choose: (conversation?: string) => string[]
  ask: (conversation?: string) => { fail(status?: number, waitMs?: number): void; succeed(): void }
} {
  const clock = { now: 1_000_000 }
  let text = ''
  const read = new Writable({ write: (piece, _, done) => ((text += String(piece)), done()) })
  const pool = new Pool({ log: createLog(new Scrubber(), 'info', read), now: () => clock.now })
  const upstream = upstreamOf(names.map(name => accountOf(name)))
  const candidates = (conversation = 'c') => pool.candidates([upstream], 'm', () => conversation)
  return {
    pool,
    upstream,
    clock,
    logged: () => text,
    choose: conversation => candidates(conversation).map(({ account }) => account.name),
    ask: conversation => {
      const [asked] = candidates(conversation)
      if (!asked || !pool.begin(asked, false)) throw new Error('no account can be asked')
      return {
        fail: (status, waitMs) => {
          if (status === 401 || status === 402 || status === 403) pool.refused(asked, status, `status ${status}`)
          else pool.failed(asked, `status ${status}`, waitMs)
        },
        succeed: () => pool.succeeded(asked),
      }
    },
  }
}

t.test('a conversation stays with its account, and only those of an account that goes out move', t => {
  const { pool, upstream, choose } = poolOf(['a', 'b', 'c', 'd'])
  const conversations = Array.from({ length: 1000 }, (_, nth) => `conversation ${nth}`)
  const places = new Map(conversations.map(each => [each, choose(each)[0]]))
  for (const each of conversations) t.equal(choose(each)[0], places.get(each))
  for (const name of ['a', 'b', 'c', 'd']) {
    const count = [...places.values()].filter(place => place === name).length
    t.ok(count > 200 && count < 300, `${name} has ${count}`)
  }
  const [a] = upstream.accounts as [UpstreamAccount]
  pool.refused({ upstream, account: a, model: 'm', lastResort: false }, 401, 'refused')
  for (const each of conversations) {
    const [now] = choose(each)
    if (places.get(each) === 'a') t.not(now, 'a')
    else t.equal(now, places.get(each), 'the others stay')
  }
  pool.reset('a')
  for (const each of conversations) t.equal(choose(each)[0], places.get(each), 'they return')
  t.end()
})

t.test('a request with an old key does not try an account that failed with its new one', t => {
  const account = accountOf('a')
  const { pool, clock } = poolOf(['a'])
  const renewed = { ...account, key: 'a new key' }
  const upstream = upstreamOf([renewed])
  pool.use([upstream])
  const asked = { upstream, account: renewed, model: 'm', lastResort: false }
  for (let nth = 0; nth < 3; nth++) if (pool.begin(asked, false)) pool.failed(asked, 'x')
  t.equal(pool.health(renewed).ready(clock.now), false)
  clock.now += 3_600_000
  const old = { upstream: upstreamOf([account]), account, model: 'm', lastResort: false }
  t.ok(pool.begin(old, false))
  pool.ended(old)
  t.equal(pool.health(renewed).ready(clock.now), true, 'another request may try it')
  t.end()
})

t.test('an account gets conversations in proportion to its weight', t => {
  const { pool } = poolOf([])
  const upstream = upstreamOf([accountOf('light'), accountOf('heavy', { weight: 3 })])
  const first = Array.from({ length: 2000 }, (_, nth) => pool.candidates([upstream], 'm', () => `c${nth}`)[0])
  const heavy = first.filter(each => each?.account.name === 'heavy').length
  t.ok(heavy > 1400 && heavy < 1600, String(heavy))
  t.end()
})

t.test('a model goes only to accounts that serve it, and upstreams are asked in their order', t => {
  const { pool } = poolOf([])
  const one = upstreamOf([accountOf('a', { models: new Set(['x']) }), accountOf('b', { models: new Set(['m']) })])
  const two = upstreamOf([accountOf('c')])
  const names = (model: string): string[] =>
    pool.candidates([one, two], model, () => 'c').map(({ account }) => account.name)
  t.same(names('m'), ['b', 'c'])
  t.same(names('x'), ['a', 'c'])
  t.same(names('y'), ['c'])
  t.end()
})

t.test('the time for which an account is out doubles up to a limit, and ends with a success', t => {
  const { clock, choose, ask } = poolOf(['a', 'b'])
  const [name = ''] = choose()
  const other = name === 'a' ? 'b' : 'a'
  for (let nth = 0; nth < 3; nth++) ask().fail(500)
  for (const ms of [1000, 2000, 4000, 8000, 8000]) {
    t.same(choose(), [other, name])
    clock.now += ms - 1
    t.same(choose(), [other, name], `out for ${ms} ms`)
    clock.now += 1
    t.same(choose(), [name, other])
    const trial = ask()
    t.same(choose(), [other, name], 'one request tries it')
    trial.fail(500)
  }
  clock.now += 8000
  ask().succeed()
  for (let nth = 0; nth < 2; nth++) ask().fail(500)
  t.same(choose(), [name, other], 'as if it had never failed')
  t.end()
})

t.test('a large share of failures takes an account out', t => {
  const { choose, ask } = poolOf(['a', 'b'])
  const [name = ''] = choose()
  for (let nth = 0; nth < 9; nth++) {
    if (nth % 2 === 0) ask().fail(500)
    else ask().succeed()
  }
  t.equal(choose()[0], name, 'not before `least` requests')
  ask().fail(500)
  t.not(choose()[0], name)
  t.end()
})

t.test('accounts that all fail are asked all the same, but not before the time that a provider asks for', t => {
  const { pool, upstream, clock, choose, ask } = poolOf(['a', 'b'])
  for (let nth = 0; nth < 6; nth++) ask().fail(500)
  t.equal(choose().length, 2, 'the last resort')
  t.equal(pool.waitMs([upstream], 'm'), 0)
  const [name = ''] = choose()
  ask().fail(429, 7_200_000)
  t.not(choose()[0], name)
  t.equal(choose().length, 1)
  ask().fail(429, 3_600_000)
  t.same(choose(), [])
  t.equal(pool.waitMs([upstream], 'm'), 3_600_000)
  clock.now += 3_600_000
  t.equal(choose().length, 1)
  t.end()
})

t.test(
  'an account that its provider refuses is reported once, with its cause, and comes back with another key',
  async t => {
    const { pool, upstream, choose, ask, logged } = poolOf(['a', 'b'])
    const [name = ''] = choose()
    ask().fail(401)
    pool.refused({ upstream, account: accountOf(name), model: 'm', lastResort: false }, 403, 'status 403')
    await until(() => logged() !== '')
    t.equal(logged().split('the provider refuses an account').length, 2)
    t.match(logged(), new RegExp(`"upstream":"u","account":"${name}","reason":"status 401"`))
    t.not(choose()[0], name)
    const changed = upstreamOf(upstream.accounts.map(each => (each.name === name ? { ...each, key: 'new' } : each)))
    pool.use([changed])
    t.equal(pool.candidates([changed], 'm', () => 'c')[0]?.account.name, name)
    pool.refused({ upstream, account: accountOf(name), model: 'm', lastResort: false }, 401, 'of the old key')
    t.equal(pool.candidates([changed], 'm', () => 'c')[0]?.account.name, name, 'the old key says nothing about it')
  },
)

t.test(
  'a refused account is tried by one request after a minute, then after twice that time, for an hour at most',
  t => {
    const health = new Health()
    const first = {}
    t.ok(health.begin(0, first, false))
    t.ok(health.refused(401, { now: 0, request: first, reason: 'x' }), 'an outage begins')
    let now = 0
    for (const minutes of [1, 2, 4, 8, 16, 32, 60, 60]) {
      t.notOk(
        health.begin(now + minutes * 60_000 - 1, {}, true),
        `not before ${minutes} minutes, even as the last resort`,
      )
      now += minutes * 60_000
      const trial = {}
      t.ok(health.begin(now, trial, false))
      t.notOk(health.ready(now), 'one request tries it')
      t.notOk(health.refused(401, { now, request: trial, reason: 'x' }), 'the outage goes on')
    }
    const trial = {}
    now += 3_600_000
    t.ok(health.begin(now, trial, false))
    t.ok(health.succeeded(now, trial), 'a reply ends it')
    t.ok(health.ready(now))
    t.ok(health.refused(401, { now, request: {}, reason: 'x' }), 'another outage')
    t.equal(health.waitMs(now), 60_000)
    t.end()
  },
)

t.test('requests that were under way when an account was refused neither end the outage nor make it longer', t => {
  const health = new Health()
  const [first, second, third] = [{}, {}, {}]
  for (const each of [first, second, third]) health.begin(0, each, false)
  health.refused(401, { now: 0, request: first, reason: 'x' })
  health.refused(401, { now: 0, request: second, reason: 'x' })
  t.equal(health.waitMs(0), 60_000)
  t.notOk(health.answers(0, third))
  t.notOk(health.succeeded(0, third))
  t.equal(health.waitMs(0), 60_000)
  const trial = {}
  t.ok(health.begin(60_000, trial, false))
  t.ok(health.answers(60_000, trial), 'a stream that begins ends it')
  t.ok(health.ready(60_000))
  t.notOk(health.succeeded(61_000, trial), 'once')
  t.end()
})

t.test('an account is out when requests of two keys meet a suspected refusal without a success between them', t => {
  const health = new Health()
  const meet = (seconds: number, key: string, request: object = {}): boolean =>
    health.suspected(key, 400, { now: seconds * 1000, request, reason: 'no balance' })
  for (let second = 0; second < 300; second += 10) t.notOk(meet(second, 'one key'))
  t.ok(health.ready(300_000), 'one key takes no account out')
  health.succeeded(300_000, {}, 'm')
  t.notOk(meet(301, 'another key'), 'a success between them')
  t.notOk(meet(302, 'one key'), 'at the same time, as one customer with two keys sends them')
  t.ok(meet(311, 'one key'))
  t.equal(health.waitMs(311_000), 60_000)
  t.notOk(meet(311, 'a third key'), 'requests that were under way')

  const [trial, other] = [{}, {}]
  t.ok(health.begin(371_000, trial, false))
  t.notOk(meet(371, 'one key', trial))
  t.ok(health.ready(371_000), 'one key does not make the outage longer')
  t.ok(health.begin(382_000, other, false))
  t.notOk(meet(382, 'another key', other))
  t.equal(health.waitMs(382_000), 60_000, 'two keys do, by a minute')
  t.ok(health.begin(442_000, trial, false))
  t.ok(health.succeeded(442_000, trial))

  const mine = new Health()
  const tried = {}
  mine.refused(401, { now: 0, request: {}, reason: 'x' })
  t.ok(mine.begin(60_000, tried, false))
  const theirs = new Health()
  theirs.adopt(mine.state)
  const theirTrial = {}
  theirs.begin(60_000, theirTrial, false)
  theirs.refused(401, { now: 60_000, request: theirTrial, reason: 'x' })
  mine.adopt(theirs.state)
  mine.suspected('one key', 403, { now: 60_000, request: tried, reason: 'x' })
  t.ok(mine.ready(60_000 + 120_000), 'a trial of an outage that another process has made longer ends')

  const slow = new Health()
  slow.suspected('one key', 400, { now: 0, request: {}, reason: 'no balance' })
  t.notOk(slow.suspected('another key', 400, { now: 600_000, request: {}, reason: 'no balance' }), 'ten minutes later')
  t.end()
})

t.test('a limit belongs to a model: other models of the account are asked', t => {
  const health = new Health()
  t.ok(health.limited('large', { now: 0, request: {}, reason: 'x', waitMs: 5000 }))
  t.notOk(health.limited('large', { now: 0, request: {}, reason: 'x', waitMs: 5100 }), 'hardly longer')
  t.same([health.waitMs(0, 'large'), health.waitMs(0, 'small'), health.outMs(0)], [5100, 0, 0])
  t.notOk(health.begin(5000, {}, true, 'large'))
  t.ok(health.begin(5000, {}, false, 'small'))
  t.ok(health.begin(5100, {}, false, 'large'))
  const other = new Health()
  other.failed(HEALTH, { now: 1, request: {}, reason: 'x', waitMs: 100 })
  other.adopt(health.state)
  t.equal(other.waitMs(0, 'large'), 5100, 'another process learns it')
  health.reset(10)
  other.adopt(health.state)
  t.equal(other.waitMs(20, 'large'), 0, 'and that an operator has ended it')
  t.end()
})

t.test('a limit without a time doubles from a second on, until a reply of the model', t => {
  const health = new Health()
  let now = 0
  for (const seconds of [1, 2, 4, 8, 16, 32, 60, 60]) {
    t.ok(health.limited('m', { now, request: {}, reason: 'x' }))
    t.notOk(health.limited('m', { now, request: {}, reason: 'x' }), 'requests under way do not count')
    t.notOk(health.ready(now + seconds * 1000 - 1, 'm'))
    t.ok(health.begin(now, {}, true, 'm'), 'if no other account can serve, it is asked')
    now += seconds * 1000
    t.ok(health.ready(now, 'm'))
  }
  health.succeeded(now, {}, 'm')
  t.ok(health.limited('m', { now, request: {}, reason: 'x' }))
  t.ok(health.ready(now + 1000, 'm'))
  t.end()
})

t.test('what a provider says about the time to wait is understood', t => {
  const now = Date.UTC(2030, 0, 1)
  for (const [headers, ms] of [
    [{}, undefined],
    [{ 'retry-after': '7' }, 7000],
    [{ 'retry-after': '0' }, 0],
    [{ 'retry-after-ms': '250', 'retry-after': '1' }, 250],
    [{ 'retry-after': new Date(now + 90_000).toUTCString() }, 90_000],
    [{ 'retry-after': '1000000000' }, 8 * 86_400_000],
    [{ 'retry-after': 'soon' }, undefined],
    [{ 'retry-after': '-5' }, undefined],
    [{ 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '6m0s' }, 360_000],
    [{ 'x-ratelimit-remaining-requests': '5', 'x-ratelimit-reset-requests': '6m0s' }, undefined],
    [{ 'x-ratelimit-remaining-tokens': '0', 'x-ratelimit-reset-tokens': '20ms' }, 20],
    [
      {
        'anthropic-ratelimit-tokens-remaining': '0',
        'anthropic-ratelimit-tokens-reset': new Date(now + 5000).toISOString(),
      },
      5000,
    ],
    [
      {
        'anthropic-ratelimit-unified-status': 'rejected',
        'anthropic-ratelimit-unified-reset': String(now / 1000 + 7200),
      },
      7_200_000,
    ],
    [{ 'x-codex-primary-used-percent': '100', 'x-codex-primary-reset-after-seconds': '1800' }, 1_800_000],
  ] as const)
    t.equal(waitAsked(headers, now), ms, JSON.stringify(headers))
  t.end()
})

t.test('the error for a model that nobody can serve is final if it lasts', t => {
  const accounts = [{ account: 'famA/main', state: 'disabled' }]
  const after = (waitMs: number) => noneLeft({ waitMs: () => waitMs, states: () => accounts }, [], 'm')
  t.match(after(5000), { retry: true, details: { retryAfterMs: 5000, accounts } })
  t.match(after(61_000), { retry: false, details: { retryAfterMs: 61_000 } })
  const forever = after(Infinity)
  t.equal(forever.retry, false)
  t.equal(forever.details.retryAfterMs, undefined)
  t.end()
})

t.test('a wait that is asked for again and again neither grows nor is logged each time', async t => {
  const { clock, choose, ask, logged } = poolOf(['a'])
  const asked = Array.from({ length: 20 }, () => ask())
  for (const each of asked) each.fail(429, 5000)
  await until(() => logged() !== '')
  t.equal(logged().match(/account out of rotation/g)?.length, 1)
  clock.now += 5000
  t.same(choose(), ['a'])
  ask().fail(500)
  t.same(choose(), ['a'], 'one failure takes no account out')
  t.end()
})

t.test(
  'a refusal that one process knows is kept if another one writes later, and a reset ends it in spite of clocks',
  t => {
    const one = new Health()
    const two = new Health()
    one.refused(401, { now: 1000, request: {}, reason: 'revoked' })
    two.failed(HEALTH, { now: 2000, request: {}, reason: 'slow', waitMs: 10_000 })
    one.adopt(two.state)
    t.equal(one.waitMs(3000), 58_000, 'still refused')
    two.adopt(one.state)
    t.equal(two.waitMs(3000), 58_000, 'the other one learns it')
    const early = new Health()
    early.adopt(two.state)
    early.reset(10)
    two.adopt(early.state)
    t.equal(two.waitMs(3000), 0, 'a reset by a process whose clock is behind')
    t.end()
  },
)

t.test('a credential that a provider repeats is not kept', t => {
  const { pool, upstream, logged } = poolOf(['a'])
  const [account] = upstream.accounts as [UpstreamAccount]
  pool.refused({ upstream, account, model: 'm', lastResort: false }, 401, `the key ${account.key} is wrong`)
  t.notMatch(JSON.stringify(pool.health(account).state) + logged(), account.key)
  t.end()
})

t.test('only the request that tries an account decides about the trial', t => {
  const health = new Health()
  const [old, trial, other] = [{}, {}, {}]
  health.begin(0, old, false)
  for (let nth = 0; nth < 3; nth++) health.failed(HEALTH, { now: 0, request: {}, reason: 'x' })
  t.notOk(health.ready(999))
  t.ok(health.begin(1000, trial, false))
  health.ended(old)
  t.notOk(health.ready(1000), 'an older request ends no trial')
  t.ok(health.begin(1000, other, true), 'a last resort')
  health.failed(HEALTH, { now: 1000, request: other, reason: 'x' })
  t.equal(health.state.level, 1, 'its failure is not that of the trial')
  health.failed(HEALTH, { now: 1000, request: trial, reason: 'x' })
  t.equal(health.state.level, 2)
  t.ok(health.begin(3000, trial, false))
  t.ok(health.answers(3000, trial), 'a stream that begins ends the trial')
  t.ok(health.ready(3000))
  t.end()
})

t.test('a stream that has only begun ends no failures in a row', t => {
  const health = new Health()
  const twice = (): boolean[] =>
    [{}, {}].map(request => {
      health.begin(0, request, false)
      health.answers(0, request)
      return health.failed(HEALTH, { now: 0, request, reason: 'x' })
    })
  t.same(twice(), [false, false])
  health.begin(0, {}, false)
  health.succeeded(0, {})
  t.same(twice(), [false, false], 'a complete reply ends them')
  t.equal(twice()[0], true, 'the third in a row takes it out')
  t.end()
})

t.test('an account whose trial begins and breaks off is out again at once, and for longer', t => {
  const health = new Health()
  for (let nth = 0; nth < 3; nth++) health.failed(HEALTH, { now: 0, request: {}, reason: 'x' })
  const trial = {}
  t.ok(health.begin(1000, trial, false))
  t.ok(health.answers(1000, trial))
  t.ok(health.ready(1000), 'other requests may go to it meanwhile')
  t.ok(health.failed(HEALTH, { now: 1500, request: trial, reason: 'x' }))
  t.notOk(health.answers(1500, {}), 'a request that was sent before does not bring it back by beginning')
  t.equal(health.state.coolUntil, 1500 + 2 * HEALTH.cooldownMs)
  t.notOk(health.ready(3499))
  t.ok(health.begin(3500, trial, false))
  health.succeeded(3500, trial)
  t.notOk(
    health.failed(HEALTH, { now: 3500, request: trial, reason: 'x' }),
    'after a complete reply it is like any other',
  )
  t.end()
})

t.test('what another process has reset is reset here, with its failures in a row', t => {
  const { pool, upstream, clock, ask, choose } = poolOf(['a'])
  const [a] = upstream.accounts as [UpstreamAccount]
  ask().fail(500)
  ask().fail(500)
  clock.now += 10
  const operator = new Health()
  operator.adopt(pool.health(a).state)
  operator.reset(clock.now)
  pool.health(a).adopt(operator.state)
  ask().fail(500)
  t.same(choose(), ['a'])
  t.equal(pool.health(a).ready(clock.now), true, 'one failure of three')
  t.end()
})

t.test('the last failure is shared even if the account stays in', t => {
  const { pool, upstream, ask } = poolOf(['a'])
  const [a] = upstream.accounts as [UpstreamAccount]
  ask().fail(500)
  const other = new Health()
  other.adopt(pool.health(a).state)
  t.match(other.lastFailure, { reason: 'status 500' })
  t.end()
})
