/**
 * Runs a tier of the tests, or some files, and prints the number of passed and failed assertions in one line.
 *
 * - `node test/run.ts`: the files `*.test.ts`, which a person runs after each change.
 * - `node test/run.ts all`: the files `*.all.ts`: other databases, browsers, workers, processes that are killed.
 * - `node test/run.ts FILE...`: these files, of either tier.
 * - `node test/run.ts -t TEXT FILE...`: their tests whose titles contain the text.
 *
 * With `COVERAGE=1`, each tier leaves its coverage in .tap/coverage. After the tier `all` the run fails if the coverage
 * of both is below the floor.
 */
import { globSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { belowFloor, COVERAGE } from './coverage.ts'
import { PostgresServer } from './postgres.ts'
import { TapReader } from './tap-reader.ts'
import { grepOf, killWorkers, queueOf, ROOT, runWorker, startStore } from './workers.ts'

/** Processes of tests that run at once, each with a Redis. On two cores, two more fill the time of waits. */
const JOBS = 4
const RESULTS = '.tap/results.tap'

/** The files of a tier that take longest, so that none of them is left over at the end. */
const LONGEST = [
  'story/thief.all',
  'story/last-byte.all',
  'story/offers.all',
  'story/pages.all',
  'story/balances.all',
  'plugins/webhooks.all',
  'story/tools',
  'story/pools',
  'story/charges',
  'story/pool-faults',
  'story/admin-races',
]
/** Files with a process of their own: they measure the process, or they set what other files read as they are loaded. */
const ALONE = [
  'ledger/simulation.all',
  'records/postgres.all',
  'story/amplification.all',
  'story/large.all',
  'story/memory.all',
  'story/thief.all',
]

/** How long a file may take, in seconds. It bounds a test that hangs. */
const LIMIT_S = Number(process.env['LIMIT_S'] ?? 1800)

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { title: { type: 'string', short: 't' } },
})
const isAll = positionals[0] === 'all'
const asked = positionals.slice(isAll ? 1 : 0).map(given => relative(ROOT, resolve(given)))
for (const file of asked)
  if (!statSync(resolve(ROOT, file), { throwIfNoEntry: false })?.isFile()) {
    console.error(`There is no test file ${file}.`)
    process.exit(2)
  }
const isTier = asked.length === 0
const isCovered = process.env['COVERAGE'] !== undefined && isTier
const began = performance.now()

const tier = (): string[] => byLength(globSync(isAll ? 'test/**/*.all.ts' : 'test/**/*.test.ts', { cwd: ROOT }).sort())
const files = isTier ? tier() : [...new Set(asked)]
const isAlone = (file: string): boolean => ALONE.some(name => file.endsWith(`${name}.ts`))
/** Files that wait for a process of their own. */
const alone = files.filter(isAlone)
const queue = queueOf(files.filter(file => !isAlone(file)))
const reader = new TapReader(line => console.log(line))

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, stop)
// Nobody reads the output any more.
process.stdout.on('error', stop)
if (isCovered && !isAll) rmSync(COVERAGE, { recursive: true, force: true })
// One server for all test files that need one. It is quicker to start here than in each of them.
const postgres = files.some(file => !file.endsWith('.test.ts')) ? await PostgresServer.start() : undefined
const jobs = Math.min(JOBS, files.length)
const stores = await Promise.all(Array.from({ length: jobs }, startStore))
await Promise.all(Array.from({ length: jobs }, (_, job) => work(job)))
await postgres?.stop()
for (const store of stores) await store.remove()
rmSync(queue, { recursive: true, force: true })
mkdirSync('.tap', { recursive: true })
writeFileSync(RESULTS, reader.lines.join('\n'))

const { passed, skipped } = reader
const isRun = (file: string): boolean => reader.ran.has(file)
const failed = [
  ...reader.failed,
  ...files.filter(file => !isRun(file)).map(file => `${file}: it has asserted nothing`),
  ...(passed + reader.failed.length === 0 ? [`no test ${values.title === undefined ? 'ran' : 'has this title'}`] : []),
  ...(isCovered && isAll ? await belowFloor() : []),
]
if (failed.length > 0)
  console.log(`\n${reader.diagnostics.join('\n')}\n\n${failed.map(name => `failed: ${name}`).join('\n')}`)
console.log(`\n${Math.round((performance.now() - began) / 1000)} s; all results are in ${RESULTS}`)
console.log(`${passed} passed, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
process.exit(failed.length > 0 ? 1 : 0)

/** Runs processes one after the other until nothing is left. One that dies is followed by another. */
async function work(job: number): Promise<void> {
  const env = {
    TAP_JOB_ID: String(job),
    TEST_REDIS: process.env['TEST_REDIS'] ?? stores.map(({ url }) => url).join(' '),
    LIMIT_S: String(LIMIT_S),
    ...(postgres && { TEST_POSTGRES: postgres.url }),
    ...(isCovered && { NODE_V8_COVERAGE: COVERAGE }),
    ...(values.title !== undefined && { TAP_GREP: grepOf(values.title) }),
  }
  // tap ends a test that hangs. A process that no longer runs its timers is killed.
  const working = { reader, env, limitMs: (LIMIT_S + 60) * 1000 }
  for (let file = alone.shift(); file !== undefined; file = alone.shift()) {
    const own = queueOf([file])
    await runWorker(own, working)
    rmSync(own, { recursive: true, force: true })
  }
  for (let left = waiting().length; left > 0; left = waiting().length) {
    await runWorker(queue, working)
    // A process that took no file has failed, and so would the next one.
    if (waiting().length === left) return
  }
}

function waiting(): string[] {
  return readdirSync(queue).filter(name => name.endsWith('.waiting'))
}

/** Ends the run, which reports the files that run now. */
function stop(): void {
  alone.length = 0
  for (const name of waiting()) rmSync(`${queue}/${name}`, { force: true })
  killWorkers()
}

/** Puts the files that take longest first. */
function byLength(files: readonly string[]): string[] {
  const first = LONGEST.map(name => `test/${name}${name.endsWith('.all') ? '' : '.test'}.ts`)
  return [...first.filter(file => files.includes(file)), ...files.filter(file => !first.includes(file))]
}
