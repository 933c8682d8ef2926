import { timedId } from '../../core/lib/ids.ts'
import type { EndedEntry } from '../../core/records/entry.ts'
import type { CountedRequest, FailedRequest } from '../../core/records/request-sums.ts'
import type { Records } from '../../core/records/records.ts'
import { keyRecord, onRecords } from './engines.ts'

const NOW = Date.UTC(2026, 10, 25, 12)
const STORY = { endpoint: '/x', format: 'messages', config: 'abc', ms: 5, attempts: [], message: 'no' }

/** Counts a failed request of a key. @returns its id */
function fail(records: Records, account: string, more: Partial<FailedRequest & CountedRequest> = {}, most = 2): string {
  const id = timedId(more.at ?? NOW)
  const request = {
    id,
    at: NOW,
    account,
    type: 'famC',
    model: 'm',
    upstream: 'famC/1',
    status: 'failed',
    code: 'upstream_failed',
    kind: 'failed',
    ...more,
  } as const
  records.recorder.requests.count(request, most, () => ({
    ...request,
    who: 'provider',
    httpStatus: 502,
    words: 'on fire',
    story: JSON.stringify(STORY),
    ...more,
  }))
  return id
}

const entry = (account: string): EndedEntry => ({
  id: timedId(NOW),
  account,
  ordinal: 1,
  at: NOW,
  kind: 'settle',
  charge: 10n,
  balance: 0n,
  bucket: '1.0',
  waived: 0n,
  notes: { endpoint: '/x', model: 'm', stream: false },
})

onRecords('failures are noted up to a number of each key, code and minute; the others are counted', async (t, open) => {
  const records = await open()
  const [ann, bob] = [keyRecord(), keyRecord()]
  await records.keys.add([ann, bob], 0n, 1)
  const list = async (filter: { key?: string; code?: string } = {}) =>
    (await records.failures.list({ before: undefined, key: filter.key, code: filter.code }, 50)).map(
      ({ id, key, code, alike }) => [id, key, code, alike],
    )
  const first = fail(records, ann.id)
  const second = fail(records, ann.id)
  fail(records, ann.id)
  const third = fail(records, ann.id, { code: 'overloaded' })
  const other = fail(records, bob.id)
  await records.recorder.recordRequests()
  t.same(new Set((await list()).map(([id]) => id)), new Set([first, second, third, other]))
  t.same(await list({ key: ann.id, code: 'upstream_failed' }).then(rows => rows.map(row => row[3]).toSorted()), [1, 2])
  // Further ones of the minute are added to a row that is recorded already.
  fail(records, ann.id)
  await records.recorder.recordRequests()
  t.same(await list({ key: ann.id, code: 'upstream_failed' }).then(rows => rows.map(row => row[3]).toSorted()), [1, 3])
  const later = fail(records, ann.id, { at: NOW + 60_000 })
  await records.recorder.recordRequests()
  t.match(await records.failures.get(later), { key: ann.id, alike: 1, words: 'on fire', story: STORY })
  t.equal(await records.deleteFailuresBefore(NOW + 1), 4)
  t.same(await list(), [[later, ann.id, 'upstream_failed', 1]])
  fail(records, bob.id, {}, 0)
  await records.recorder.recordRequests()
  t.equal((await list()).length, 1, 'with 0, none is noted')
})

onRecords('a cause that the database refuses keeps no charge and no count from being recorded', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 100n, 1)
  fail(records, key.id, { words: 'a \0 b' })
  await records.recorder.record([entry(key.id)], new Map())
  const [sums] = await records.database.all('SELECT requests, settled FROM totals')
  t.same([Number(sums?.['requests']), Number(sums?.['settled'])], [1, 10])
  t.ok(records.recorder.requests.isEmpty)
})

onRecords('requests that could not be recorded wait, and count once', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 100n, 1)
  fail(records, key.id)
  await t.rejects(records.recorder.record([], new Map(), 99), /restored meanwhile/)
  t.match(records.recorder.requests.waiting(key.id), [{ requests: 1, errors: 1 }])
  fail(records, key.id)
  await Promise.all([records.recorder.recordRequests(), records.recorder.recordRequests()])
  const [sums] = await records.database.all('SELECT requests, errors, refused FROM day_accounts')
  t.same(Object.values(sums ?? {}).map(Number), [2, 2, 0])
  t.same(records.recorder.requests.waiting(key.id), [])
})
