import { timedId } from '../../core/lib/ids.ts'
import { addTo, bucketOf, packHistogram, percentile, unpackHistogram } from '../../core/records/histogram.ts'
import { dayOf, type Notes } from '../../core/records/entry.ts'
import { usageBy, type UsageGroup } from '../../core/records/usage.ts'
import t from 'tap'
import { keyRecord, onRecords } from './engines.ts'

const NOW = Date.UTC(2026, 10, 25, 12)
const DAY_MS = 86_400_000

onRecords('usage is summed up by key, model, type, account, day and status', async (t, open) => {
  const records = await open()
  const [ann, bob] = [keyRecord({ name: 'Ann' }), keyRecord({ name: 'Bob' })]
  await records.keys.add([ann, bob], 0n, 1)
  let ordinal = 0
  const record = (account: string, at: number, charge: bigint, more: Partial<Notes> = {}): Promise<void> => {
    const { model = 'm1', upstream = 'famA/1', status = 'ok' } = more
    const kind = status === 'ok' ? 'served' : 'failed'
    const request = { id: timedId(at), at, account, type: 'famA', model, upstream, status, code: '', kind } as const
    records.recorder.requests.count(request, 0, () => t.fail() as never)
    return records.recorder.record(
      [
        {
          id: timedId(at),
          account,
          ordinal: ++ordinal,
          at,
          kind: charge === 0n ? 'void' : 'settle',
          charge,
          balance: 0n,
          bucket: '1.0',
          waived: 0n,
          notes: {
            endpoint: '/x',
            model: 'm1',
            type: 'famA',
            upstream: 'famA/1',
            stream: false,
            status: 'ok',
            usage: { input: 10, cacheRead: 5, cacheWrite5m: 1, cacheWrite1h: 1, output: 3, reasoning: 1 },
            cost: '2',
            durationMs: 100,
            ttftMs: 10,
            ...more,
          },
        },
      ],
      new Map(),
    )
  }
  await record(ann.id, NOW - DAY_MS, 5n)
  await record(ann.id, NOW, 7n, { model: 'm2', durationMs: 10_000 })
  await record(bob.id, NOW, 0n, { status: 'failed', upstream: 'famA/2' })
  const today = dayOf(NOW)
  const by = async (group: UsageGroup, from = today - 1, count = 10): Promise<unknown[]> =>
    (await usageBy(records.database, group, { from, to: today, count })).map(({ group: name, counts }) => [
      name,
      Number(counts.requests),
      Number(counts.billed),
      Number(counts.errors),
      counts.charge,
    ])
  t.strictSame(await by('key'), [
    [ann.id, 2, 2, 0, 12n],
    [bob.id, 1, 0, 1, 0n],
  ])
  t.strictSame(await by('key', today, 1), [[ann.id, 1, 1, 0, 7n]])
  t.strictSame(await by('model'), [
    ['m2', 1, 1, 0, 7n],
    ['m1', 2, 1, 1, 5n],
  ])
  t.strictSame(await by('type'), [['famA', 3, 2, 1, 12n]])
  t.strictSame(await by('account'), [
    ['famA/1', 2, 2, 0, 12n],
    ['famA/2', 1, 0, 1, 0n],
  ])
  t.strictSame(await by('day'), [
    ['2026-11-24', 1, 1, 0, 5n],
    ['2026-11-25', 2, 1, 1, 7n],
  ])
  t.strictSame(await by('day', today - 1, 1), [['2026-11-25', 2, 1, 1, 7n]], 'the latest days')
  t.strictSame(await by('status'), [
    ['ok', 2, 2, 0, 12n],
    ['failed', 1, 0, 1, 0n],
  ])
  const [all] = await usageBy(records.database, 'type', { from: 0, to: today, count: 1 })
  t.match(all?.counts, { input: 30n, cache_read: 15n, cache_write: 6n, output: 9n, reasoning: 3n, cost: 6n })
  const within = (ms: number | undefined, right: number): boolean => Math.abs((ms ?? 0) - right) <= right / 10
  t.ok(within(percentile(all?.durations ?? new Map(), 0.5), 100))
  t.ok(within(percentile(all?.durations ?? new Map(), 0.95), 10_000))
})

t.test('a histogram keeps each time to within a tenth, also packed and added up', t => {
  for (const ms of [1, 2, 17, 999, 60_000, 3_600_000]) {
    const one = new Map([[bucketOf(ms), 1]])
    const found = percentile(unpackHistogram(packHistogram(one)), 0.5) ?? 0
    t.ok(Math.abs(found - ms) <= Math.max(1, ms / 10), `${ms} is ${found}`)
  }
  const sum = new Map<number, number>()
  addTo(sum, new Map([[3, 2]]))
  addTo(
    sum,
    new Map([
      [3, -2],
      [9, -1],
    ]),
  )
  t.strictSame([...sum], [])
  t.equal(percentile(sum, 0.5), undefined)
  t.end()
})
