/**
 * Breaks each promise of docs/reliability.md, one by one, and sees that its test fails.
 *
 * npm run teeth             all promises
 * npm run teeth -- plans    those that contain this word
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PostgresServer } from '../postgres.ts'
import { TapReader } from '../tap-reader.ts'
import { queueOf, runWorker, startStore } from '../workers.ts'
import { PROMISES, type Promised } from './promises.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
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
    for (const file of stdout.trim().split('\n')) cpSync(join(ROOT, file), join(this.folder, file), { force: true })
    symlinkSync(join(ROOT, 'node_modules'), join(this.folder, 'node_modules'))
  }

  /** Returns what fails when a promise is broken. */
  async failures(promised: Promised, env: Readonly<Record<string, string>>): Promise<string[]> {
    const { file, text, instead, test } = promised
    const path = join(this.folder, file)
    const source = readFileSync(path, 'utf8')
    writeFileSync(
      path,
      source.replace(text, () => instead),
    )
    const reader = new TapReader(() => {})
    const queue = queueOf([test])
    await runWorker(queue, {
      reader,
      env: { ...env, LIMIT_S: String(LIMIT_S), TAP_GREP: filterOf(promised) },
      folder: this.folder,
      isShown: false,
      limitMs: (LIMIT_S + 30) * 1000,
    })
    writeFileSync(path, source)
    rmSync(queue, { recursive: true, force: true })
    // A file that cannot be loaded shows nothing.
    return reader.failed.filter(failure => !failure.startsWith(`${test} > next`))
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** Selects the test of a promise by its title, unless that is the title of a part of it. */
function filterOf({ title, isPart = false }: Promised): string {
  const literal = title.split(/\$\{[^}]*\}/).map(part => part.replaceAll(/[$()*+./?[\\\]^{|}]/g, String.raw`\$&`))
  return isPart ? '/./' : `/^next$|${literal.join('.*')}/`
}

const [word = ''] = process.argv.slice(2)
const left = PROMISES.filter(({ promise }) => promise.includes(word))
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
      const [first] = await copy.failures(promised, env)
      const seconds = ((performance.now() - began) / 1000).toFixed(1).padStart(6)
      if (first === undefined) without.push(promised.promise)
      console.log(`${seconds} s  ${first === undefined ? 'WITHOUT TEETH' : 'found'}  ${promised.promise}`)
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
