import t from 'tap'
import { chargesAdded, type EndedEntry, type EntryKind } from '../../core/records/entry.ts'

const entry = (kind: EntryKind, ordinal: number, charge: bigint, before: bigint): EndedEntry => ({
  id: 'x',
  account: 'a',
  bucket: '1.0',
  at: 0,
  balance: 0n,
  waived: 0n,
  notes: {},
  kind,
  ordinal,
  charge,
  before,
})
const NOTHING = new Map<string, never>()

t.test('the last word of an exchange counts', async t => {
  t.equal(chargesAdded([entry('reaped', 1, 4n, 0n), entry('late', 2, 7n, 4n)], NOTHING), 7n)
  t.equal(chargesAdded([entry('late', 2, 7n, 4n), entry('reaped', 3, 5n, 7n)], new Map()), 3n)
  const recorded = new Map([['x', { ...entry('settle', 1, 7n, 0n) }]])
  t.equal(chargesAdded([entry('orphan', 2, 7n, 0n)], recorded), 0n)
})

t.test('what an earlier end charged counts once if the database has lost it', async t => {
  // Its charge of 3 is in the sum of the lost entries.
  const second = entry('reaped', 2, 5n, 3n)
  const late = entry('late', 3, 7n, 5n)
  t.equal(chargesAdded([second, late], NOTHING), 4n)
  t.equal(chargesAdded([second], NOTHING), 2n)
  const recorded = new Map([['x', { ...second, charge: 2n, waived: 3n }]])
  t.equal(chargesAdded([late], recorded), 2n)
})
