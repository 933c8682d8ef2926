import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { timedId } from '../../core/lib/ids.ts'
import { expireHolds, startGateway, until } from '../gateway.ts'

const NOTES = { endpoint: '/x', model: 'm', stream: false }

/** Returns an account of a running gateway with settled requests of 10 nano-credits each. */
async function account(t: Test, settled: number): Promise<{ ledger: Ledger; id: string }> {
  const g = await startGateway(t)
  const { ledger } = g.gateway
  const id = await g.id(await g.key('famC', 1n))
  for (let request = 0; request < settled; request++)
    ledger.settle({ account: id, id: timedId(Date.now()) }, { charge: 10n, kind: 'settle', notes: NOTES })
  await until(async () => (await ledger.reads.balance(id)).settled >= BigInt(settled) * 10n)
  return { ledger, id }
}

t.test('an audit finds each kind of damage to an account', async t => {
  const { ledger, id } = await account(t, 3)
  await ledger.background.archiveAll()
  const { redis, keys } = ledger.scripts
  const own = keys.of(id)
  // After its start, the gateway compares what is held, and would correct what this test damages.
  await until(async () => (await ledger.continuity.meta.get('recounted'))[0] != null)
  const change = (text: string, ...values: string[]): Promise<unknown> =>
    ledger.records.database.transaction(sql => sql.all(text, values))
  const lease = `${id} lost bucket`
  const damages: [string, RegExp, () => Promise<unknown>, () => Promise<unknown>][] = [
    [
      'a balance that was changed',
      /settled = the sum of the recorded/,
      () => redis.hincrby(own.account, 'bal', 5),
      () => redis.hincrby(own.account, 'bal', -5),
    ],
    [
      'a hold that nobody sums',
      /held = the sum of all holds/,
      async () => {
        await redis.zadd(own.leases, '9'.repeat(13), lease)
        await redis.set(keys.hold(id, 'lost'), '7 0 bucket - 0 - []')
      },
      async () => {
        await redis.zrem(own.leases, lease)
        await redis.del(keys.hold(id, 'lost'))
      },
    ],
    [
      'a hold that is summed and does not exist',
      /held = the sum of all holds/,
      () => redis.hincrby(own.account, 'rsv', 5),
      () => redis.hincrby(own.account, 'rsv', -5),
    ],
    [
      'a grant that was changed',
      /granted = the sum of the grants/,
      () => change('UPDATE grants SET amount = amount + 1 WHERE id = ?', `${id}-first`),
      () => change('UPDATE grants SET amount = amount - 1 WHERE id = ?', `${id}-first`),
    ],
    [
      'a grant that the store has lost',
      /the store knows the grants: it has 0 of 1/,
      () => redis.hset(own.account, 'gn', '0'),
      () => redis.hset(own.account, 'gn', '1'),
    ],
    [
      'a record that the store has lost',
      /the store has version 0 of the record, of 1/,
      () => redis.hset(own.account, 've', '0'),
      () => redis.hset(own.account, 've', '1'),
    ],
    [
      'an entry that is missing in the records',
      /the number of entries/,
      () => redis.hincrby(own.account, 'sq', 1),
      () => redis.hincrby(own.account, 'sq', -1),
    ],
    [
      'a recorded charge that was changed',
      /recorded total = the sum of the recorded entries/,
      () => change('UPDATE exchanges SET charge = charge + 1'),
      () => change('UPDATE exchanges SET charge = charge - 1'),
    ],
  ]
  t.same((await audit(ledger, [id])).drifts, [])
  for (const [name, finding, harm, heal] of damages) {
    await harm()
    t.match((await audit(ledger, [id])).drifts[0]?.findings.join('\n'), finding, name)
    await heal()
  }
  t.same((await audit(ledger, [id])).drifts, [])
})

t.test('the audit ends holds that expired while no gateway ran, and reports no drift', async t => {
  const { ledger, id } = await account(t, 1)
  await ledger.hold({
    account: id,
    id: timedId(Date.now()),
    amount: 1000n,
    least: 1000n,
    version: '1',
    notes: NOTES,
    floor: () => ({ charge: 0n, notes: {} }),
  })
  await expireHolds(ledger, id)
  t.same((await audit(ledger, [id])).drifts, [])
  t.match(await ledger.reads.balance(id), { held: 0n, settled: 10n })
})

t.test('old entries are deleted, and the audit holds before, during and after that', async t => {
  const { ledger, id } = await account(t, 450)
  await ledger.background.archiveAll()
  t.equal(await ledger.background.deleteOld(), 0, 'what is younger than ledger.history stays')
  const deleting = ledger.records.deleteBefore(Date.now() + 60_000)
  t.same((await audit(ledger, [id])).drifts, [])
  t.equal(await deleting, 450)
  t.match(await audit(ledger, [id]), { entries: 0, drifts: { length: 0 } })
  t.match(await ledger.reads.balance(id), { settled: 4500n })
  t.equal(await ledger.reads.historyLength({ account: id }), 0)
})

t.test('an audit of an account in use reports no drift', async t => {
  const { ledger, id } = await account(t, 1)
  let running = true
  const settling = (async () => {
    while (running) {
      ledger.settle({ account: id, id: timedId(Date.now()) }, { charge: 10n, kind: 'settle', notes: NOTES })
      // No more than the store can take.
      await ledger.scripts.redis.ping()
    }
  })()
  for (let round = 0; round < 5; round++) t.same((await audit(ledger, [id])).drifts, [])
  running = false
  await settling
})
