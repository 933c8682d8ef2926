import { timedId } from '../../core/lib/ids.ts'
import { runningOut } from '../../core/records/running-out.ts'
import { keyRecord, onRecords } from './engines.ts'

const NOW = Date.UTC(2026, 10, 25, 12)
const DAY_MS = 86_400_000

onRecords('a key runs out if what is left does not last at its mean use', async (t, open) => {
  const records = await open()
  /** Makes a key with credits that used some on some days ago. */
  const make = async (name: string, credits: bigint, used: [daysAgo: number, charge: bigint][], more: object = {}) => {
    const key = keyRecord({ name, ...more })
    await records.keys.add([key], credits, NOW)
    const entries = used.map(([daysAgo, charge], index) => ({
      id: timedId(NOW - daysAgo * DAY_MS + index),
      account: key.id,
      ordinal: index + 1,
      at: NOW - daysAgo * DAY_MS,
      kind: 'settle' as const,
      charge,
      balance: 0n,
      bucket: '1.0',
      waived: 0n,
      notes: { endpoint: '/x', model: 'm', stream: false },
    }))
    await records.recorder.record(entries, new Map())
  }
  await make(
    'a week of use',
    170n,
    [6, 5, 4, 3, 2, 1, 0].map(ago => [ago, 10n]),
  )
  await make('first used today', 100n, [[0, 40n]])
  await make('enough for long', 10_000n, [[0, 40n]])
  await make('used up', 40n, [[0, 40n]])
  await make('used long ago', 50n, [[20, 40n]])
  await make('disabled', 100n, [[0, 40n]], { status: 'disabled' })
  await make('expired', 100n, [[0, 40n]], { expiresAt: NOW - 1 })
  await make('expires later', 70n, [[0, 40n]], { expiresAt: NOW + 1 })
  const found = await runningOut(records.database, NOW, 11, 10)
  t.same(
    found.map(({ name, balance, daily }) => [name, Number(balance), Number(daily)]),
    [
      ['expires later', 30, 40],
      ['first used today', 60, 40],
      ['a week of use', 100, 10],
    ],
  )
  t.equal((await runningOut(records.database, NOW, 1, 10)).length, 1)
  t.equal((await runningOut(records.database, NOW, 11, 2)).length, 2)
})
