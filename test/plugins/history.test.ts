import t from 'tap'
import history from '../../plugins/history.ts'
import type { Reply } from 'tollgate/plugin'
import { drive, type Driven } from 'tollgate/testing'
import { at, hostWith, keyOf } from './facts.ts'

interface Range {
  readonly before?: number
  readonly from?: number
  readonly to?: number
  readonly count: number
}

function ask(query: string, ranges: Range[] = []): Promise<Driven> {
  const reads = {
    history: (_account: string, range: Range) => {
      ranges.push(range)
      return Promise.resolve([])
    },
    historyLength: () => Promise.resolve(0),
  }
  const exchange = at('/api/v1/key-info/history', { query: new URLSearchParams(query) })
  return drive(history, { exchange, facts: { key: keyOf('famC') }, host: hostWith({ ledger: { reads, prices: {} } }) })
}

t.test('an empty history is an empty page', async t => {
  const { body } = (await ask('')).given as Reply
  t.match(JSON.parse(String(body)), { data: [], total: 0 })
})

t.test('the store is asked for the range that cursor and times select', async t => {
  const ranges: Range[] = []
  await ask('cursor=17', ranges)
  await ask('from=2030-01-01&to=2030-01-02', ranges)
  t.equal(ranges[0]?.before, 17)
  t.match(ranges[1], { from: Date.UTC(2030, 0, 1), to: Date.UTC(2030, 0, 3) - 1 })
})

t.test('bad parameters are refused by name', async t => {
  for (const [query, message] of [
    ['cursor=x', /"cursor" must be the next_cursor/],
    ['cursor=1&page=2', /either "cursor" or "page"/],
    ['page_size=501', /"page_size" must be a whole number from 1 to 500/],
    ['page=0', /"page" must be a whole number/],
    ['page=100&page_size=100', /Pages end at entry 2000/],
    ['status=good', /"status" must be one of ok, failed/],
    ['from=yesterday', /"from" must be a time/],
  ] as const)
    t.match((await ask(query)).thrown, { code: 'bad_request', message }, query)
})
