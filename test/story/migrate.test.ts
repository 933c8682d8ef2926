import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { until } from '../gateway.ts'
import { Place } from '../process.ts'
import { RealRedis } from '../redis.ts'

/** A test fills only a redis-server of its own. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** The commands that make a store as a gateway of version 0.1.0 left it, killed with an open stream. */
const FIXTURE = new URL('../ledger/first-layout.json', import.meta.url)
const ANN = { id: 'key_690e9d0cbb766398cc', key: 'sk-95KRUAZBsUmEphhASPOl2JGNXjDEQuBnPZnR0iSroWOgG4zG' }
const BOB = { id: 'key_a14f982aa355be066f', key: 'sk-686Zu3DcznIjqPduY2xmf7dePQIZ44OVRIkSERMbkZUMGx83' }
const DORA = 'sk-o6hCQ7aPU0pYrSacCwQHzRfRL0AftXmpFDj0u7aa9dEZ1JSm'
const DORA_BEFORE = 'sk-4bupDjZinVgXq1WARyXigoP2hy7q9lErEoKZX7fomZF9oKG4'
/** Ann's requests: one that was settled, one whose gateway was killed and was reaped, and one that still has a hold. */
const SETTLED = 'f497f45e-6500-4827-9f6c-b4407d905a56'
const REAPED = '724abe0f-8731-4115-9431-2e40db32db4b'
const HELD = 'b8c67bad-a68e-4c20-9125-3f11aa3c9cea'
const UNKNOWN = '11111111-8731-4115-9431-2e40db32db4b'

/** A line of the outbox of that version. */
function line(id: string, charge: number): string {
  const notes = { requestId: id, endpoint: '/v1/chat/completions', model: 'acme/famC-5.5', stream: true, status: 'ok' }
  const args = [
    id,
    String(charge),
    'settle',
    JSON.stringify(notes),
    '172800000',
    notes.model,
    '1',
    '1',
    '0',
    '',
    '',
    '',
    '10',
  ]
  return JSON.stringify({ account: ANN.id, id, args, at: 1_795_637_494_000 })
}

t.test('a store of the version before is moved, with its outbox, and every sum is right', { skip }, async t => {
  const redis = await RealRedis.start(t)
  for (const [name = '', ...args] of JSON.parse(readFileSync(FIXTURE, 'utf8')) as string[][])
    await redis.command(name, ...args)
  const place = new Place(t, undefined, { REDIS_URL: redis.url })
  const outbox = join(place.folder, 'data', 'outbox')
  mkdirSync(outbox, { recursive: true })
  // The second line repeats a settlement, and the last one was cut off.
  const lines = [line(REAPED, 500_000), line(SETTLED, 330_000), line(HELD, 300_000), line(UNKNOWN, 7)]
  writeFileSync(join(outbox, '999999999-1.jsonl'), `${lines.join('\n')}\n${line(UNKNOWN, 9).slice(0, 40)}`)

  for (const command of ['start', 'rebuild'])
    t.match(await place.run(command), { code: 1, err: /earlier version.*tollgate migrate/ })
  const account = `tollgate:{${ANN.id}}:a`
  await redis.command('HINCRBY', account, 'bal', '1')
  t.match(await place.run('migrate'), { code: 1, err: new RegExp(`${ANN.id} is not in order`) }, 'nothing is switched')
  await redis.command('HINCRBY', account, 'bal', '-1')
  t.match(await place.run('migrate'), { code: 0, out: /Moved 6 keys and \d+ entries\. 1 holds of gateways/ })
  t.match(await place.run('migrate'), { code: 1, err: /nothing to migrate/ })
  const left = (await redis.command('KEYS', '*')) as string[]
  t.same(
    left.filter(key => /\{(?:key_|quota:)|tollgate:(?:key:|accounts|open$|prices)/.test(key)),
    [],
    'the old keys are gone',
  )
  t.ok(left.includes('tollgate:rebuilding'), 'a gateway of the version before refuses the store')
  t.match(await place.run('audit', '--reprice'), { code: 0, out: /6 accounts, \d+ entries, 0 with drift/ })

  const running = await place.start(t)
  const settled = 1_224_000n + 234_000n + (500_000n - 234_000n) + (300_000n - 234_000n) + 7n
  await until(async () => (await running.lookUp('keys/lookup/balance', ANN.key)).json.exact.used === String(settled))
  await until(() => readdirSync(outbox).every(name => !name.endsWith('.jsonl')))
  t.match((await running.lookUp('keys/lookup/balance', ANN.key)).json.exact, {
    granted: '6000000000',
    held: '0',
    balance: String(6_000_000_000n - settled),
  })
  const history = (await running.lookUp('key-info/history', ANN.key)).json.data
  const kinds = history.map(({ type }: { type: string }) => type).sort()
  t.same(kinds, ['credit', 'late', 'late', 'orphan', 'settle', 'settle', 'settle', 'settle', 'void'])
  const refund = history.find(({ type }: { type: string }) => type === 'credit')
  t.match(refund, { cost_nano: '-330000', credit_reason: 'oops' })
  t.match(await place.run('credit', refund.credits_entry, '--reason', 'again'), { code: 0, out: /already refunded/ })
  t.match(await place.run('keys', 'topup', ANN.id, '1', '--idempotency-key', 'inv-1'), { code: 0, out: /already used/ })
  t.match((await running.lookUp('key-info', ANN.key)).json, { name: /^sk-/, usage: { total: { requests: 7 } } })
  t.equal((await running.lookUp('key-info', BOB.key)).status, 401, 'a disabled key')
  t.equal((await running.lookUp('key-info', DORA)).status, 200, 'a rotated secret')
  t.equal((await running.lookUp('key-info', DORA_BEFORE)).status, 401)
  // What the old outbox had is counted today.
  const usage = await place.run('usage', '--since', '2026-11-25', '--by', 'key', '--json')
  t.match(
    usage.out
      .trim()
      .split('\n')
      .map(each => JSON.parse(each)),
    [{ group: ANN.id, credits: '0.001790007' }, {}, {}],
  )
  t.match(await place.run('audit'), { code: 0, out: /0 with drift/ })
})
