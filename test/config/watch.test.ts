import { spawnSync } from 'node:child_process'
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { watchFile } from '../../core/config/watch.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'

t.test('the watcher does not wait for a file that has become a pipe, and notices when it is a file again', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-watch-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'gateway.yaml')
  spawnSync('mkfifo', [file])
  await new Promise<void>(resolve => {
    t.teardown(
      watchFile({
        file,
        text: 'as it was read',
        log: createLog(new Scrubber(), 'silent', process.stdout),
        changed: resolve,
      }),
    )
    // Later than the watcher would have read the pipe.
    const later = setTimeout(() => {
      writeFileSync(join(folder, 'next'), 'as it is now')
      renameSync(join(folder, 'next'), file)
    }, 1500)
    t.teardown(() => clearTimeout(later))
  })
  t.pass('the change was reported')
})

t.test('the watcher reports a change between the reading of a file and the start of the watch', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-watch-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, 'as it is now')
  await new Promise<void>(resolve => {
    const stop = watchFile({
      file,
      text: 'as it was read',
      log: createLog(new Scrubber(), 'silent', process.stdout),
      changed: resolve,
    })
    t.teardown(stop)
  })
  t.pass('the change was reported')
})
