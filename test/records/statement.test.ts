import type { Test } from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import type { EndedEntry } from '../../core/records/entry.ts'
import type { Records } from '../../core/records/records.ts'
import { NEWEST, type StatementLine, type StatementPage } from '../../core/records/statement.ts'
import { keyRecord, onRecords } from './engines.ts'

const NOW = Date.UTC(2026, 10, 25, 12)
const DAY_MS = 86_400_000
const RUNS = 4
const STEPS = 30
const MOST = 10n ** 18n

/** Numbers from a seed. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

function ended(account: string, ordinal: number, more: Partial<EndedEntry> = {}): EndedEntry {
  const at = NOW + ordinal * 1000
  return {
    id: timedId(at),
    account,
    ordinal,
    at,
    kind: 'settle',
    charge: 10n,
    balance: 0n,
    bucket: '1.0',
    waived: 0n,
    notes: { endpoint: '/x', model: 'm', stream: false },
    ...more,
  }
}

/** Reads a whole statement in pages. */
async function statement(records: Records, account: string, size = 1000): Promise<StatementPage> {
  const lines: StatementLine[] = []
  for (let place = NEWEST; ;) {
    const page = await records.history.statement({ account: account }, place, size)
    lines.push(...page.lines)
    if (!page.next) return { ...page, lines }
    place = page.next
  }
}

const told = ({ lines }: StatementPage) =>
  lines.map(({ booking, amount, balance, corrects }) => [booking.number, amount, balance, corrects])

/** Checks that a statement has every booking, and that each balance follows from the one before. */
async function follows(t: Test, records: Records, account: string): Promise<StatementPage> {
  const page = await statement(records, account)
  let balance = page.opening?.balance ?? 0n
  let number = page.opening?.number ?? 0
  for (const line of [...page.lines].reverse()) {
    balance += line.amount
    number++
    if (line.balance !== balance || line.booking.number !== number)
      t.fail(`line ${line.booking.number} has ${line.balance}, and follows ${number - 1} with ${balance}`)
  }
  const key = await records.keys.get(account)
  t.equal(
    balance,
    (key?.granted ?? 0n) - (key?.settled ?? 0n),
    'the last balance is what was granted less what was charged',
  )
  return page
}

onRecords('a statement has every booking once, in its order, and no line ever changes', async (t, open) => {
  const records = await open()
  for (let run = 0; run < RUNS; run++) {
    const below = randomFrom(run + 1)
    const key = keyRecord()
    const { id } = key
    await records.keys.add([key], run % 2 === 0 ? 1000n : 0n, NOW)
    const other = keyRecord()
    await records.keys.add([other], 5n, NOW)
    let ordinal = 0
    let kept: readonly StatementLine[] = []
    const reaped: EndedEntry[] = []
    const held: EndedEntry[] = []
    for (let step = 0; step < STEPS; step++) {
      const batch: EndedEntry[] = []
      for (let count = 1 + below(4); count > 0; count--) {
        const charge = BigInt(below(4) * 5)
        const next = (more: Partial<EndedEntry>) => ended(id, ++ordinal, { charge, ...more })
        const what = below(10)
        const again = reaped[below(reaped.length || 1)]
        if (what < 4) batch.push(next({}))
        else if (what < 5) batch.push(next({ kind: 'void', charge: 0n }))
        else if (what < 6) {
          const dead = next({ kind: 'reaped' })
          reaped.push(dead)
          batch.push(dead)
        } else if (what < 8 && again) {
          const kind = below(3) === 0 ? 'reaped' : 'late'
          const grown = again.charge + BigInt(below(3) * 5)
          batch.push(next({ id: again.id, kind, charge: grown }))
          reaped.splice(reaped.indexOf(again), 1)
          if (kind === 'reaped') reaped.push({ ...again, charge: grown })
        } else if (what < 9)
          batch.push(next({ kind: 'credit', charge: -charge, notes: { entry: 'x', reason: 'slow' } }))
        else held.push(next({}))
      }
      batch.push(ended(other.id, step + 1))
      // Some entries come behind later ones.
      if (below(4) === 0) batch.push(...held.splice(0))
      if (below(5) === 0) batch.push(...batch.slice(0, 1))
      await records.recorder.record(batch, new Map())
      if (below(3) === 0) {
        const amount = BigInt(below(5) - 1) * 7n
        if (amount !== 0n)
          await records.accounts.grant(id, { id: `g${step}`, amount, at: NOW + step, notes: { reason: 'topup' } }, MOST)
      }
      const { lines } = await statement(records, id)
      const before = lines.slice(lines.length - kept.length)
      const shown = (all: readonly StatementLine[]) => told({ lines: all, next: undefined, opening: undefined })
      t.strictSame(shown(before), shown(kept), `run ${run}, step ${step}: no line has changed`)
      kept = lines
    }
    const page = await follows(t, records, id)
    t.equal(page.opening, undefined)
    for (const size of [1, 3]) t.strictSame(told(await statement(records, id, size)), told(page), `pages of ${size}`)
    await records.deleteBefore(NOW + (ordinal / 2) * 1000)
    const rest = await follows(t, records, id)
    t.ok(rest.opening, 'what is deleted is one opening line')
    t.strictSame(told(rest), told(page).slice(0, rest.lines.length))
    for (const size of [1, 3]) t.strictSame(told(await statement(records, id, size)), told(rest), `pages of ${size}`)
    await records.deleteBefore(NOW + (ordinal + 1) * 1000)
    await follows(t, records, id)
  }
})

onRecords('a correction names the line that it corrects, and both times are told', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 100n, NOW)
  const second = keyRecord({ account: key.id })
  await records.keys.add([second], 0n, NOW)
  const dead = ended(key.id, 1, { key: second.id, kind: 'reaped', charge: 4n })
  await records.recorder.record([dead], new Map())
  await records.recorder.record(
    [ended(key.id, 2, { id: dead.id, key: second.id, kind: 'late', charge: 9n, at: NOW + DAY_MS })],
    new Map(),
  )
  const { lines } = await statement(records, key.id)
  t.match(lines, [
    { booking: { number: 3 }, amount: -5n, balance: 91n, corrects: 2, of: { id: dead.id, key: second.id } },
    { booking: { number: 2 }, amount: -4n, balance: 96n, corrects: undefined, of: { id: dead.id, key: second.id } },
    { booking: { number: 1, at: NOW }, begunAt: NOW, amount: 100n, balance: 100n },
  ])
  t.equal(lines[0]?.begunAt, dead.at)
  t.ok(Number(lines[0]?.booking.at) > NOW + DAY_MS || Number(lines[0]?.booking.at) > 0)
  const [row] = await records.database.all('SELECT booking, balance FROM history')
  t.match([Number(row?.['booking']), Number(row?.['balance'])], [3, 91], 'SQL tells the same')
})

onRecords('a statement that is read while others book has no gap', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 1_000_000n, NOW)
  let ordinal = 0
  let isOver = false
  const booking = (async () => {
    for (let batch = 0; batch < 40; batch++) {
      const entries = Array.from({ length: 5 }, () => ended(key.id, ++ordinal))
      await records.recorder.record(entries, new Map())
      const grant = { id: `g${batch}`, amount: 3n, at: NOW, notes: { reason: 'topup' } }
      await records.accounts.grant(key.id, grant, MOST)
    }
    isOver = true
  })()
  let reads = 0
  while (!isOver) {
    const { lines, opening } = await statement(records, key.id, 50)
    reads++
    if (opening || lines.at(-1)?.booking.number !== 1 || lines[0]?.booking.number !== lines.length)
      t.fail(`read ${reads} has ${lines.length} lines up to ${lines[0]?.booking.number}`)
  }
  await booking
  t.ok(reads > 1)
  await follows(t, records, key.id)
})
