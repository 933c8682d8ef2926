import { dirname, join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { Continuity } from '../../core/ledger/continuity.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { audit } from '../../core/ledger/audit.ts'
import { timedId } from '../../core/lib/ids.ts'
import { testEnvironment } from '../environment.ts'
import type { Edit } from '../gateway-file.ts'
import { recordsEnv, startGateway, type TestGateway, until } from '../gateway.ts'
import { ownPrefix, RealRedis } from '../redis.ts'

/** A test can make only a redis-server of its own lose something. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const NOTES = { endpoint: '/x', model: 'm', stream: false }

function settle(ledger: Ledger, account: string): void {
  ledger.settle({ account, id: timedId(Date.now()) }, { charge: 10n, kind: 'settle', notes: NOTES })
}

t.test('every gateway repeats what a lost store acknowledged to it, whoever rebuilds the store', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { REDIS_URL: redis.url, ...recordsEnv() }
  // Nothing is recorded by itself.
  const slow: Edit = file => ownPrefix(file).set('ledger.archiveEvery', '1h')
  const one = await startGateway(t, { edit: slow, env })
  const shared: Edit = file => slow(file).set('store.data', join(dirname(one.file), 'data'))
  const gateways: TestGateway[] = [one, await startGateway(t, { edit: shared, env })]
  const account = await one.id(await one.key('famC', 1n))
  const used = async (): Promise<bigint> => (await one.gateway.ledger.balance(account)).settled
  for (const { gateway } of gateways) for (let nth = 0; nth < 10; nth++) settle(gateway.ledger, account)
  await until(async () => (await used()) === 200n)

  // As the command does it, in a process of its own.
  const { scripts, records } = one.gateway.ledger
  const rebuilder = new Continuity(scripts, records, one.gateway.store, testEnvironment())
  await redis.command('FLUSHALL')
  await rebuilder.rebuildAll()
  await until(async () => (await used()) === 200n)

  // A server with another identity that lacks its last writes: one of the gateways restores it.
  for (const key of (await redis.command('KEYS', '*:x')) as string[]) await redis.command('DEL', key)
  const { keys } = scripts
  await redis.command('HSET', keys.of(account).account, 'bal', '1000000000', 'sq', '0')
  for (const key of (await redis.command('KEYS', '*:o:*')) as string[]) await redis.command('DEL', key)
  await redis.command('HSET', keys.shared('meta'), 'servers', 'another')
  await until(async () => (await used()) === 200n)
  await one.gateway.ledger.background.archiveAll()
  t.match(await audit(one.gateway.ledger, [account]), { entries: 20, drifts: [] })
})

t.test('a key that is disabled while it is rotated stays disabled', { skip }, async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const { records } = ledger
  const id = await g.id(await g.key('famC', 1n))
  const change = records.keys.change.bind(records.keys)
  let rotating = true
  records.keys.change = async (...args) => {
    const changed = await change(...args)
    // The rotation is recorded, and the store does not know it yet.
    if (rotating) {
      rotating = false
      await keys.disable(id)
    }
    return changed
  }
  const rotated = await keys.rotate(id)
  records.keys.change = change
  await ledger.background.applyPending()
  t.match(await records.keys.get(id), { status: 'disabled', digest: rotated.key.digest })
  t.match(await keys.refind(rotated.secret), { status: 'disabled' })
})
