/**
 * Breaks each promise of docs/reliability.md, one by one, and sees that its test fails.
 *
 * npm run teeth             all promises
 * npm run teeth -- plans    those that contain this word
 */
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PostgresServer } from '../postgres.ts'
import { TapReader } from '../tap-reader.ts'
import { grepOf, queueOf, ROOT, runWorker, startStore, titlePattern } from '../workers.ts'
import { PROMISES, type Promised } from './promises.ts'

/** Tests that run at once. */
const JOBS = 2
/** How long a broken test may take, in seconds. */
const LIMIT_S = 240
/** How long a broken test waits for a condition, in seconds. */
const UNTIL_S = 60

/** A copy of the project, whose files can be broken. */
class Copy {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-teeth-'))

  constructor() {
    const { stdout } = spawnSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' })
    for (const file of stdout.trim().split('\n'))
      if (existsSync(join(ROOT, file))) cpSync(join(ROOT, file), join(this.folder, file), { force: true })
    symlinkSync(join(ROOT, 'node_modules'), join(this.folder, 'node_modules'))
  }

  /** Returns what fails in the test of a promise, while the promise is broken or not. */
  async failures(promised: Promised, isBroken: boolean, env: Readonly<Record<string, string>>): Promise<string[]> {
    const { file, text, instead, test, title, isPart } = promised
    const path = join(this.folder, file)
    const source = readFileSync(path, 'utf8')
    if (isBroken)
      writeFileSync(
        path,
        source.replace(text, () => instead),
      )
    const reader = new TapReader(() => {})
    const queue = queueOf([test])
    await runWorker(queue, {
      reader,
      // The title of a part is not known to tap before the test runs that it belongs to.
      env: { ...env, LIMIT_S: String(LIMIT_S), ...(isPart !== true && { TAP_GREP: grepOf(title) }) },
      folder: this.folder,
      isShown: false,
      limitMs: (LIMIT_S + 30) * 1000,
    })
    writeFileSync(path, source)
    rmSync(queue, { recursive: true, force: true })
    return reader.ran.has(test) ? reader.failed : [...reader.failed, `${test}: it has asserted nothing`]
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** What shows nothing about a promise: a process or a test that did not come to its end. */
const NO_FINDING = /: its process ended with|: it has asserted nothing|timeout!/
const [word = ''] = process.argv.slice(2)
const left = PROMISES.filter(({ promise }) => promise.includes(word))
if (left.length === 0) {
  console.error(`No promise contains ${JSON.stringify(word)}.`)
  process.exit(2)
}
const without: string[] = []
const postgres = await PostgresServer.start()
const count = left.length
await Promise.all(
  Array.from({ length: JOBS }, async () => {
    const redis = await startStore()
    const copy = new Copy()
    const env = { TEST_REDIS: redis.url, TEST_POSTGRES: postgres.url, UNTIL_S: String(UNTIL_S) }
    for (let promised = left.shift(); promised; promised = left.shift()) {
      const began = performance.now()
      const { title, promise } = promised
      // A test that fails also while its promise is kept shows nothing.
      const [unbroken] = await copy.failures(promised, false, env)
      const isFinding = (failure: string): boolean => titlePattern(title).test(failure) && !NO_FINDING.test(failure)
      const first = (await copy.failures(promised, true, env)).find(isFinding)
      const hasTeeth = unbroken === undefined && first !== undefined
      const seconds = ((performance.now() - began) / 1000).toFixed(1).padStart(6)
      if (!hasTeeth) without.push(promise)
      console.log(`${seconds} s  ${hasTeeth ? 'found' : 'WITHOUT TEETH'}  ${promise}`)
      if (unbroken !== undefined) console.log(`          unbroken: ${unbroken}`)
      if (first !== undefined) console.log(`          ${first}`)
    }
    copy.remove()
    await redis.remove()
  }),
)
await postgres.stop()
for (const promise of without) console.log(`without teeth: ${promise}`)
console.log(`\n${count - without.length} passed, ${without.length} failed`)
process.exit(without.length > 0 ? 1 : 0)
