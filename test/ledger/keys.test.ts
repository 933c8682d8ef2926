import t from 'tap'
import type { Hold } from '../../core/ledger/hold.ts'
import { CommitInDoubt, type Database, RecordsError } from '../../core/records/database.ts'
import type { HistoryEntry } from '../../core/records/entry.ts'
import { audit } from '../../core/ledger/audit.ts'
import { renewOperation } from '../../core/ledger/operations.ts'
import { unavailable } from '../../core/records/unavailable.ts'
import { timedId } from '../../core/lib/ids.ts'
import { expireHolds, startGateway, type TestGateway } from '../gateway.ts'

/** Lets every write of a key to the store fail. @returns a function that ends that */
function failing({ gateway }: TestGateway): () => void {
  const { scripts } = gateway.ledger
  const run = scripts.run.bind(scripts)
  scripts.run = operation =>
    operation.name === 'put' ? Promise.reject(unavailable(new Error('the store has failed'))) : run(operation)
  return () => (scripts.run = run)
}

/** Does something once, just after a change of a key was recorded and before the store knows of it. */
function between({ gateway }: TestGateway, work: () => Promise<unknown>): void {
  const { keys } = gateway.ledger.records
  const change = keys.change.bind(keys)
  keys.change = async (...args) => {
    keys.change = change
    const changed = await change(...args)
    await work()
    return changed
  }
}

t.test('keys that the store does not know yet are shown all the same, and work when it does', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const end = failing(g)
  const wish = { type: 'famC', name: '', credits: 5n, expiresAt: undefined }
  const created = await keys.changes.createMany(wish, 3)
  t.match(created, [{ reached: 'records' }, { reached: 'records' }, { reached: 'records' }])
  end()
  await ledger.background.applyPending()
  for (const { secret } of created) t.match(await keys.refind(secret), { status: 'active', balance: 5n })
  t.match(await keys.changes.createMany(wish, 1), [{ reached: 'store' }])
})

t.test('a key that the store does not know yet can be disabled', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const end = failing(g)
  const [created] = await keys.changes.createMany({ type: 'famC', name: '', credits: 5n, expiresAt: undefined }, 1)
  t.equal(await keys.changes.disable(created?.key.id ?? ''), 'records')
  end()
  await ledger.background.applyPending()
  t.match(await keys.refind(created?.secret ?? ''), { status: 'disabled' })
  await t.rejects(keys.changes.disable('key_none'), RangeError)
})

t.test('a failure of the store while a key is disabled is no failure of the records', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const id = await g.id(await g.key('famC'))
  const recordChanged = ledger.background.recordChanged.bind(ledger.background)
  ledger.background.recordChanged = () => Promise.reject(unavailable(new Error('the store has failed')))
  await t.rejects(keys.changes.disable(id), { code: 'unavailable' })
  ledger.background.recordChanged = () => Promise.reject(unavailable(new RecordsError('the database is away')))
  t.equal(await keys.changes.disable(id), 'unrecorded')
  ledger.background.recordChanged = recordChanged
})

t.test('a rotated key that the store does not know yet is shown, and replaces the old one when it does', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const old = await g.key('famC', 1n)
  const end = failing(g)
  const { secret, reached, key } = await keys.changes.rotate(await g.id(old))
  t.match({ reached, rotation: key.rotation }, { reached: 'records', rotation: 1 })
  t.match(await keys.refind(old), { status: 'active' }, 'the old one is valid as long')
  end()
  await ledger.background.applyPending()
  t.match(await keys.refind(secret), { id: key.id, status: 'active' })
  t.equal(await keys.refind(old), undefined)
})

t.test('a key is rotated once although another gateway writes the rotation to the store first', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const id = await g.id(await g.key('famC', 1n))
  between(g, () => ledger.background.applyPending())
  const { key, secret } = await keys.changes.rotate(id)
  t.match({ rotation: key.rotation, version: key.version }, { rotation: 1, version: 2 })
  t.match(await keys.refind(secret), { rotation: '1' })
})

t.test('a key that is disabled while it is rotated stays disabled', async t => {
  for (const recorded of [true, false]) {
    const g = await startGateway(t)
    const { keys, ledger } = g.gateway
    const id = await g.id(await g.key('famC', 1n))
    if (!recorded) ledger.background.recordChanged = () => Promise.reject(new RecordsError('the database is away'))
    between(g, () => keys.changes.disable(id))
    const rotated = await keys.changes.rotate(id)
    t.match(await ledger.records.keys.get(id), { status: 'disabled', digest: rotated.key.digest })
    t.match(await keys.refind(rotated.secret), { status: 'disabled' })
  }
})

t.test('a settlement that comes after its expired hold was refunded changes nothing', async t => {
  const g = await startGateway(t)
  const { ledger } = g.gateway
  const account = await g.id(await g.key('famC', 1n))
  const { scripts } = ledger
  const hold = await ledger.hold({
    account,
    id: timedId(Date.now()),
    amount: 1000n,
    least: 1000n,
    version: '1',
    notes: { endpoint: '/x', model: 'm', stream: true },
    floor: () => ({ charge: 500n, notes: {} }),
  })
  if (hold.kind !== 'held') throw new Error('there is no hold')
  await scripts.run(renewOperation(hold.hold, 60_000, scripts.keys))
  await expireHolds(ledger, account)
  await ledger.background.reap()
  const [entry] = await ledger.reads.history({ account: account }, { count: 1 })
  t.match(entry, { kind: 'reaped', charge: 500n })
  if (entry) t.same(await ledger.credit(account, entry, 'test'), { credits: 500n, plan: 0n })
  ledger.settle(hold.hold, { charge: 300n, kind: 'settle', notes: { endpoint: '/x', model: 'm', stream: true } })
  await scripts.answered()
  t.match(await ledger.reads.balance(account), { granted: 1_000_000_000n, balance: 1_000_000_000n })
  await ledger.background.archiveAll()
  t.match((await audit(ledger, [account])).drifts, [])
})

t.test('an exchange without a charge is not ended by a refund, and one that still runs is not refunded', async t => {
  const g = await startGateway(t)
  const { ledger } = g.gateway
  const account = await g.id(await g.key('famC', 1n))
  const notes = { endpoint: '/x', model: 'm', stream: true }
  const reaped = async (charge: bigint): Promise<{ hold: Hold; entry: HistoryEntry }> => {
    const id = timedId(Date.now())
    const wish = { account, id, amount: 1000n, least: 1000n, version: '1', notes, floor: () => ({ charge, notes: {} }) }
    const answer = await ledger.hold(wish)
    if (answer.kind !== 'held') throw new Error('there is no hold')
    await ledger.scripts.run(renewOperation(answer.hold, 60_000, ledger.scripts.keys))
    await expireHolds(ledger, account)
    await ledger.background.reap()
    const [entry] = await ledger.reads.history({ account: account }, { count: 1 })
    if (!entry) throw new Error('there is no entry')
    return { hold: answer.hold, entry }
  }
  const free = await reaped(0n)
  await t.rejects(ledger.credit(account, free.entry, 'test'), { message: /charged nothing/ })
  ledger.settle(free.hold, { charge: 300n, kind: 'settle', notes })
  await ledger.scripts.answered()
  t.match(await ledger.reads.balance(account), { settled: 300n })
  const running = await reaped(200n)
  t.equal(await ledger.extend(running.hold, 1000n), 'held')
  await t.rejects(ledger.credit(account, running.entry, 'test'), { message: /still runs/ })
  ledger.settle(running.hold, { charge: 700n, kind: 'settle', notes })
  await ledger.scripts.answered()
  t.match(await ledger.reads.balance(account), { settled: 1000n })
})

t.test('a key whose commit is in doubt is looked up, and shown if that is not possible', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const { database, keys: recorded } = ledger.records
  const transaction = database.transaction.bind(database)
  let happens = true
  const doubtful: Database['transaction'] = async use => {
    database.transaction = transaction
    if (happens) await transaction(use)
    throw new CommitInDoubt('the connection was lost')
  }
  database.transaction = doubtful
  const wish = { type: 'famC', name: '', credits: 5n, expiresAt: undefined }
  const [created] = await keys.changes.createMany(wish, 2)
  t.match(created, { reached: 'store' })
  const old = created?.secret ?? ''
  database.transaction = doubtful
  const rotated = await keys.changes.rotate(await g.id(old))
  t.match(rotated, { reached: 'store', key: { rotation: 1 } })
  t.match(await keys.refind(rotated.secret), { status: 'active' })
  happens = false
  database.transaction = doubtful
  await t.rejects(keys.changes.createMany(wish, 2), { code: 'unavailable' })
  const get = recorded.get.bind(recorded)
  recorded.get = () => Promise.reject(new Error('away'))
  database.transaction = doubtful
  t.match(await keys.changes.createMany(wish, 1), [{ reached: 'unknown', secret: /^sk-/ }])
  recorded.get = get
})

t.test('a change in doubt does not count as done if another one came instead of it', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const id = await g.id(await g.key('famC', 1n))
  const { database } = ledger.records
  const transaction = database.transaction.bind(database)
  database.transaction = async () => {
    database.transaction = transaction
    await keys.changes.edit(id, { name: 'other' })
    throw new CommitInDoubt('the connection was lost')
  }
  await t.rejects(keys.changes.edit(id, { name: 'ours', expiresAt: 1 }), { code: 'unavailable' })
  t.match(await ledger.records.keys.get(id), { name: 'other', expiresAt: undefined })
  database.transaction = async () => {
    database.transaction = transaction
    await keys.changes.edit(id, { name: 'other' })
    await keys.changes.edit(id, { name: 'another' })
    throw new CommitInDoubt('the connection was lost')
  }
  t.equal(await keys.changes.edit(id, { name: 'ours' }), 'unknown')
  t.match(await ledger.records.keys.get(id), { name: 'another' })
  database.transaction = async () => {
    database.transaction = transaction
    await keys.changes.edit(id, { metadata: { shop: '1' } })
    throw new CommitInDoubt('the connection was lost')
  }
  await t.rejects(keys.changes.edit(id, { limits: '{"concurrency":1}' }), { code: 'unavailable' })
  t.match(await ledger.records.keys.get(id), { metadata: { shop: '1' }, limits: undefined })
})

t.test('one of two rotations at the same time says that it was not done', async t => {
  const g = await startGateway(t)
  const { keys } = g.gateway
  const id = await g.id(await g.key('famC', 1n))
  let other = ''
  between(g, async () => (other = (await keys.changes.rotate(id)).secret))
  await t.rejects(keys.changes.rotate(id), { message: /somebody else has rotated/ })
  t.match(await keys.refind(other), { id, status: 'active' })
})
