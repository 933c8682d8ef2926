import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Outbox } from '../../core/ledger/outbox.ts'
import { RefusedOperation } from '../../core/ledger/script/scripts.ts'
import { unavailable } from '../../core/records/unavailable.ts'
import { type Settlement, settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import { lockFile } from '../../core/lib/file-lock.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { until } from '../gateway.ts'

const settlement = (): Settlement => {
  const notes = { endpoint: '/x', model: 'm', stream: false }
  return settlementOf({ account: 'a', id: timedId(Date.now()) }, { charge: 5n, kind: 'settle', notes }, Date.now())
}

interface Scene {
  readonly folder: string
  /** Settlements that the store refuses although it answers. */
  readonly refused: Set<string>
  readonly taken: string[]
  /** Whether the store accepts writes. */
  open: boolean
  /** Called when the store takes a settlement. */
  onTaken: () => void
  outbox(): Outbox
}

function scene(t: Test): Scene {
  const folder = join(mkdtempSync(join(tmpdir(), 'tollgate-outbox-')), 'outbox')
  t.teardown(() => rmSync(join(folder, '..'), { recursive: true, force: true }))
  const log = createLog(new Scrubber(), 'silent', process.stdout)
  const place: Scene = {
    folder,
    taken: [],
    refused: new Set(),
    open: false,
    onTaken: () => {},
    outbox: () =>
      new Outbox({
        folder,
        newId: () => timedId(Date.now()),
        now: Date.now,
        log,
        send({ id }) {
          if (!place.open) return Promise.reject(new Error('away'))
          if (place.refused.has(id)) return Promise.reject(unavailable(new RefusedOperation('no such account')))
          place.taken.push(id)
          place.onTaken()
          return Promise.resolve()
        },
      }),
  }
  return place
}

/** Whether this process may mount a file system of a limited size. */
function mayMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-mount-'))
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder], { stdio: 'ignore' })
    execFileSync('umount', [folder])
    return true
  } catch {
    return false
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const lines = (folder: string): string[] =>
  readdirSync(folder)
    .filter(name => name.endsWith('.jsonl'))
    .flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean))

t.test('what cannot be written waits in memory, and the rest on disk, until the store takes both', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  const [one, two] = [settlement(), settlement()]
  // There is a file in the place of the folder, so nothing can be written.
  writeFileSync(place.folder, '')
  t.equal(await outbox.put(one), false)
  rmSync(place.folder)
  mkdirSync(place.folder)
  t.equal(await outbox.put(two), true)
  t.same(
    lines(place.folder).map(line => JSON.parse(line).id),
    [two.id],
  )
  t.equal(outbox.size, 2)
  place.open = true
  await until(() => outbox.size === 0)
  await outbox.close()
  t.same(place.taken, [one.id, two.id])
  t.same(readdirSync(place.folder), [])
})

t.test('what could not be written is tried again at the end, on the disk and at the store', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  const [one, two, three] = [settlement(), settlement(), settlement()]
  writeFileSync(place.folder, '')
  for (const each of [one, two]) t.equal(await outbox.put(each), false)
  const closed = outbox.close(performance.now() + 60_000)
  rmSync(place.folder)
  await closed
  t.same(outbox.unwritten, [])
  t.same(
    lines(place.folder).map(line => JSON.parse(line).id),
    [one.id, two.id],
    'the disk has them for the next start',
  )
  rmSync(place.folder, { recursive: true })
  const other = place.outbox()
  writeFileSync(place.folder, '')
  await other.put(three)
  place.open = true
  await other.close(performance.now() + 60_000)
  t.same([other.unwritten, place.taken], [[], [three.id]])
})

t.test('settlements that neither the disk nor the store takes are listed when the outbox is closed', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  const one = settlement()
  writeFileSync(place.folder, '')
  await outbox.put(one)
  await outbox.close(performance.now() + 60)
  t.same(outbox.unwritten, [one])
})

t.test('a full disk still takes settlements, into room that was reserved', { skip: !mayMount() }, async t => {
  const place = scene(t)
  const disk = join(place.folder, '..')
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=6m', 'tmpfs', disk])
  t.teardown(() => execFileSync('umount', [disk]))
  const outbox = place.outbox()
  await outbox.adopt()
  writeFileSync(join(disk, 'log'), '')
  t.throws(() => writeFileSync(join(disk, 'log'), Buffer.alloc(8 * 2 ** 20)), { code: 'ENOSPC' })
  const many = Array.from({ length: 1000 }, settlement)
  t.same(new Set(await Promise.all(many.map(each => outbox.put(each)))), new Set([true]))
  place.open = true
  await until(() => outbox.size === 0)
  await outbox.close()
  t.equal(place.taken.length, many.length)
})

t.test('a torn line does not damage the next one', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  const [one, two] = [settlement(), settlement()]
  writeFileSync(
    join(place.folder, 'dead.w.0.jsonl'),
    `\n${JSON.stringify(one)}\n\n{"v":1,"account":"a","id":"to\n${JSON.stringify(two)}\n`,
  )
  place.open = true
  const outbox = place.outbox()
  await outbox.adopt()
  await until(() => place.taken.length === 2)
  await outbox.close()
  t.same(place.taken, [one.id, two.id])
  t.same(readdirSync(place.folder), [], 'and the dead process’s file is gone')
})

t.test('a settlement that is being written while the last one is sent is sent too', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  place.open = true
  place.onTaken = () => {
    place.onTaken = () => {}
    void outbox.put(settlement())
  }
  await outbox.put(settlement())
  await until(() => place.taken.length === 2)
  await until(() => outbox.size === 0)
  await outbox.close()
  t.same(readdirSync(place.folder), [])
})

t.test('the files of a living process are left alone, whatever its number', async t => {
  const place = scene(t)
  const living = place.outbox()
  await living.put(settlement())
  // Both have the number of this process, as processes in two containers do.
  const other = place.outbox()
  place.open = true
  await other.adopt()
  await other.close()
  await until(() => living.size === 0)
  t.equal(place.taken.length, 1)
  await living.close()
  t.same(readdirSync(place.folder), [])
})

t.test('several processes that start at once take over the lines of a dead one, and none of them fails', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  for (let file = 0; file < 20; file++)
    writeFileSync(join(place.folder, `dead${file}.w.0.jsonl`), `${JSON.stringify(settlement())}\n`)
  place.open = true
  const outboxes = [1, 2, 3, 4].map(() => place.outbox())
  await Promise.all(outboxes.map(outbox => outbox.adopt()))
  await until(() => place.taken.length >= 20)
  await Promise.all(outboxes.map(outbox => outbox.close()))
  t.equal(new Set(place.taken).size, 20)
})

t.test('a settlement that a store may lose is kept, and sent again only after a loss', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  const kept = settlement()
  await outbox.keep(kept, 1)
  place.open = true
  t.equal(outbox.size, 0, 'it does not wait')
  outbox.sendAgain()
  await until(() => place.taken.length === 1)
  t.same(place.taken, [kept.id])
  await outbox.close()
})

t.test('a settlement that the store refuses waits, and keeps no other from being sent', async t => {
  const place = scene(t)
  const [bad, good] = [settlement(), settlement()]
  mkdirSync(place.folder)
  writeFileSync(join(place.folder, 'dead0.w.0.jsonl'), `${JSON.stringify(bad)}\n`)
  place.refused.add(bad.id)
  place.open = true
  const outbox = place.outbox()
  await outbox.adopt()
  await outbox.put(good)
  await until(() => place.taken.length === 1)
  t.same(place.taken, [good.id])
  place.refused.clear()
  await until(() => place.taken.length === 2)
  await outbox.close()
  t.same(readdirSync(place.folder), [])
})

t.test('locks that killed processes left behind are deleted, and those of others stay', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  const minutesAgo = new Date(Date.now() - 600_000)
  for (const name of ['killed.lock', 'new.lock', 'living.lock']) writeFileSync(join(place.folder, name), '')
  const living = lockFile(join(place.folder, 'living.lock'))
  for (const name of ['killed.lock', 'living.lock']) utimesSync(join(place.folder, name), minutesAgo, minutesAgo)
  writeFileSync(join(place.folder, 'dead.w.0.jsonl'), `\n${JSON.stringify(settlement())}\n`)
  place.open = true
  const outbox = place.outbox()
  await outbox.adopt()
  await until(() => place.taken.length === 1 && outbox.size === 0)
  await until(() => !existsSync(join(place.folder, 'dead.lock')))
  const locks = readdirSync(place.folder).filter(name => name.endsWith('.lock'))
  t.same(locks.sort(), ['living.lock', 'new.lock'])
  living?.release()
  await outbox.close()
})

t.test('a file that cannot be locked is not taken for one that another process has locked', async t => {
  const place = scene(t)
  mkdirSync(join(place.folder, 'x.lock'), { recursive: true })
  t.throws(() => lockFile(join(place.folder, 'x.lock')), { message: /^cannot lock .+x\.lock: unable to open/ })
  writeFileSync(join(place.folder, 'x.w.0.jsonl'), `\n${JSON.stringify(settlement())}\n`)
  const outbox = place.outbox()
  await outbox.adopt()
  t.equal(lines(place.folder).length, 1, 'its settlement is left for a process that can lock it')
  await outbox.close()
})

t.test('a file that another process has sent and deleted delays no other', async t => {
  const place = scene(t)
  mkdirSync(place.folder)
  for (const nth of [0, 1])
    writeFileSync(join(place.folder, `dead.w.${nth}.jsonl`), `${JSON.stringify(settlement())}\n`)
  const outbox = place.outbox()
  await outbox.adopt()
  rmSync(join(place.folder, 'dead.w.0.jsonl'))
  place.open = true
  await until(() => place.taken.length === 1 && outbox.size === 0)
  await outbox.close()
  t.same(readdirSync(place.folder), [])
})

t.test('kept settlements that are about to be sent again are not dropped', async t => {
  const place = scene(t)
  const outbox = place.outbox()
  await outbox.keep(settlement(), 1)
  place.open = true
  outbox.sendAgain()
  while (place.taken.length === 0) {
    outbox.dropUntil(Date.now())
    await new Promise(setImmediate)
  }
  t.equal(place.taken.length, 1)
  await outbox.close()
})
