import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { startGateway, until } from '../gateway.ts'

/** Returns an account of a running gateway with settled requests of 10 nano-credits each. */
async function account(t: Test, settled: number): Promise<{ ledger: Ledger; id: string }> {
  const g = await startGateway(t)
  const { ledger } = g.gateway
  const id = await g.id(await g.key('famC', 1n))
  for (let request = 0; request < settled; request++) {
    const notes = { requestId: `r${request}`, endpoint: '/x', model: 'm', stream: false }
    ledger.settle({ account: id, id: `r${request}` }, { charge: 10n, kind: 'settle', notes })
  }
  await until(async () => (await ledger.balance(id)).settled >= BigInt(settled) * 10n)
  return { ledger, id }
}

t.test('an audit finds each kind of damage to an account', async t => {
  const { ledger, id } = await account(t, 3)
  const { redis } = ledger.scripts
  const key = (part: string): string => ledger.scripts.key(id, part)
  const [first] = await redis.xrange(key('x'), '-', '+', 'COUNT', 1)
  const wrongs: [string, RegExp, () => Promise<unknown>, () => Promise<unknown>][] = [
    [
      'a balance that was changed',
      /granted = balance/,
      () => redis.hincrby(key('a'), 'bal', 5),
      () => redis.hincrby(key('a'), 'bal', -5),
    ],
    [
      'a hold that nobody sums',
      /held = the sum of all holds/,
      () => redis.hset(key('d'), 'h', '7:0:{}'),
      () => redis.hdel(key('d'), 'h'),
    ],
    [
      'a lease without a hold',
      /every hold has a lease[^]*lease l belongs to no hold/,
      () => redis.zadd(key('h'), '9'.repeat(13), 'l'),
      () => redis.zrem(key('h'), 'l'),
    ],
    [
      'a hold that was never reaped',
      /hold old has expired and was not reaped/,
      async () => {
        await redis.zadd(key('h'), 1, 'old')
        await redis.hset(key('d'), 'old', '0:0:{}')
      },
      async () => {
        await redis.zrem(key('h'), 'old')
        await redis.hdel(key('d'), 'old')
      },
    ],
    [
      'a grant from nowhere',
      /granted = the sum of the grants/,
      () => redis.xadd(key('g'), '*', 'k', 'grant', 'id', 'x', 'c', '1', 'p', '0', 'b', '0', 'm', '{}'),
      () => Promise.resolve(),
    ],
    [
      'a request that ended twice, and an entry that nobody settled',
      /request r0 ended twice[^]*settled = the sum of the history/,
      () => redis.xadd(key('x'), '*', ...(first?.[1] ?? [])),
      () => Promise.resolve(),
    ],
  ]
  t.same((await audit(ledger, [id])).drifts, [])
  for (const [name, finding, harm, heal] of wrongs) {
    await harm()
    t.match((await audit(ledger, [id])).drifts[0]?.findings.join('\n'), finding, name)
    await heal()
  }
})

t.test('the audit ends holds that expired while no gateway ran, and reports no drift', async t => {
  const { ledger, id } = await account(t, 1)
  const { redis } = ledger.scripts
  const key = (part: string): string => ledger.scripts.key(id, part)
  const notes = { requestId: 'r', endpoint: '/x', model: 'm', stream: false }
  await ledger.hold({
    account: id,
    id: 'held',
    amount: 1000n,
    least: 1000n,
    version: '1',
    notes,
    floor: () => ({ charge: 0n, notes: {} }),
  })
  const others = Array.from({ length: 1500 }, (_, index) => `h${index}`)
  await redis.hset(key('d'), ...others.flatMap(hold => [hold, '0:0:{}']))
  await redis.zadd(key('h'), ...['held', ...others].flatMap(hold => [1, hold]))
  t.same((await audit(ledger, [id])).drifts, [])
  t.match(await ledger.balance(id), { held: 0n, settled: 10n })
})

t.test('old entries are folded into a sum, and the audit holds before, during and after that', async t => {
  const { ledger, id } = await account(t, 450)
  const { redis } = ledger.scripts
  const [[last] = ['']] = await redis.xrevrange(ledger.scripts.key(id, 'x'), '+', '-', 'COUNT', 1)
  const before = String(Number(last.split('-')[0]) + 1)
  let trimming = true
  const trims = (async () => {
    while ((await redis.xlen(ledger.scripts.key(id, 'x'))) > 0) {
      await ledger.scripts.run('trim', id, '', [before, '7', '1000'])
      await turn()
    }
    trimming = false
  })()
  let drifts = 0
  while (trimming) {
    drifts += (await audit(ledger, [id])).drifts.length
    for (let turns = 0; turns < 20; turns++) await turn()
  }
  await trims
  t.equal(drifts, 0)
  t.match(await audit(ledger, [id]), { entries: 0, drifts: [] })
  t.match(await ledger.balance(id), { settled: 4500n })
  t.equal(await ledger.trimAll(), 0, 'what is younger than ledger.history stays')
})

t.test('a settlement that arrives after its reaped hold was forgotten is not lost', async t => {
  const { ledger, id } = await account(t, 1)
  await ledger.scripts.redis.hset(ledger.scripts.key(id, 't'), 'gone', '5:1')
  await ledger.scripts.run('trim', id, '', ['1', '10', '1000'])
  t.equal(await ledger.scripts.redis.hlen(ledger.scripts.key(id, 't')), 0)
})
