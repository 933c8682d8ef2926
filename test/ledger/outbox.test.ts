import { isAlive } from '../environment.ts'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Outbox, type Settlement } from '../../core/ledger/outbox.ts'
import { createLog, Scrubber } from '../../core/lib/log.ts'
import { until } from '../gateway.ts'

const settlement = (id: string): Settlement => ({ account: 'a', id, args: [id, '5'], at: Date.now() })

interface Scene {
  readonly folder: string
  readonly taken: string[]
  /** Whether the store accepts writes. */
  open: boolean
  outbox(pid?: number): Outbox
}

function scene(t: Test): Scene {
  const folder = join(mkdtempSync(join(tmpdir(), 'tollgate-outbox-')), 'outbox')
  t.teardown(() => rmSync(join(folder, '..'), { recursive: true, force: true }))
  const log = createLog(new Scrubber(), 'silent', process.stdout)
  const place: Scene = {
    folder,
    taken: [],
    open: false,
    outbox: (pid = process.pid) =>
      new Outbox({
        folder,
        isAlive,
        now: Date.now,
        pid,
        rememberMs: 3_600_000,
        log,
        send({ id }) {
          if (!place.open) return Promise.reject(new Error('away'))
          place.taken.push(id)
          return Promise.resolve()
        },
      }),
  }
  return place
}

const lines = (folder: string): string[] =>
  readdirSync(folder).flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean))

t.test('a line that could not be written is written whole with the next one', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  // There is a file in the place of the folder, so nothing can be written.
  writeFileSync(place.folder, '')
  t.equal(await outbox.put(settlement('one')), false)
  rmSync(place.folder)
  mkdirSync(place.folder)
  t.equal(await outbox.put(settlement('two')), true)
  t.same(
    lines(place.folder).map(line => JSON.parse(line).id),
    ['one', 'two'],
  )
  t.equal(await outbox.put(settlement('two')), true, 'the same once more changes nothing')
  t.equal(outbox.size, 2)
  place.open = true
  await until(() => outbox.size === 0)
  await outbox.close()
  t.same(place.taken, ['one', 'two'])
  t.same(readdirSync(place.folder), [])
})

t.test('a torn line does not damage the next one', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  writeFileSync(
    join(place.folder, '999999999-1.jsonl'),
    `${JSON.stringify(settlement('one'))}\n{"account":"a","id":"to\n${JSON.stringify(settlement('two'))}\n`,
  )
  place.open = true
  const outbox = place.outbox()
  await outbox.adopt()
  await until(() => outbox.size === 0)
  await outbox.close()
  t.same(place.taken, ['one', 'two'])
  t.same(readdirSync(place.folder), [], 'and the dead process’s file is gone')
})

t.test('several processes that start at once take over the lines of a dead one, and none of them fails', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  for (let file = 0; file < 20; file++)
    writeFileSync(join(place.folder, `99999999${file}-1.jsonl`), `${JSON.stringify(settlement(`s${file}`))}\n`)
  place.open = true
  const outboxes = [1, 2, 3, 4].map(number => place.outbox(process.pid * 10 + number))
  await Promise.all(outboxes.map(outbox => outbox.adopt()))
  await until(() => outboxes.every(outbox => outbox.size === 0))
  await Promise.all(outboxes.map(outbox => outbox.close()))
  t.equal(new Set(place.taken).size, 20)
})
