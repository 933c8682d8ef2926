/**
 * Runs a tier of the tests, or the files that are given, and prints the number of passed and failed assertions in one line.
 *
 * - `node test/run.ts`: the files `*.test.ts`, which a person runs after each change.
 * - `node test/run.ts all`: the files `*.all.ts`: other databases, browsers, workers, processes that are killed.
 *
 * With `COVERAGE=1`, each tier leaves its coverage in .tap/coverage. After the tier `all` the run fails if the coverage of
 * both is below the floor.
 */
import { globSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { belowFloor, COVERAGE } from './coverage.ts'
import { PostgresServer } from './postgres.ts'
import { TapReader } from './tap-reader.ts'
import { queueOf, runWorker, startStore } from './workers.ts'

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
]

const asked = process.argv.slice(2)
const isTier = asked.length === 0 || asked[0] === 'all'
const isCovered = process.env['COVERAGE'] !== undefined && isTier
const began = performance.now()

const files = isTier ? byLength(globSync(asked[0] === 'all' ? 'test/**/*.all.ts' : 'test/**/*.test.ts').sort()) : asked
const isAlone = (file: string): boolean => ALONE.some(name => file.endsWith(`${name}.ts`))
/** Files that wait for a process of their own. */
const alone = files.filter(isAlone)
const queue = queueOf(files.filter(file => !isAlone(file)))

if (isCovered && asked.length === 0) rmSync(COVERAGE, { recursive: true, force: true })
// One server for all test files that need one. It is quicker to start here than in each of them.
const postgres = files.some(file => !file.endsWith('.test.ts')) ? await PostgresServer.start() : undefined
const jobs = Math.min(JOBS, files.length)
const stores = await Promise.all(Array.from({ length: jobs }, startStore))
const reader = new TapReader(line => console.log(line))
await Promise.all(Array.from({ length: jobs }, (_, job) => work(job)))
await postgres?.stop()
for (const store of stores) await store.remove()
rmSync(queue, { recursive: true, force: true })
mkdirSync('.tap', { recursive: true })
writeFileSync(RESULTS, reader.lines.join('\n'))

const { passed, skipped } = reader
const failed = [...reader.failed, ...files.filter(file => !reader.ran.has(file)).map(file => `${file} has run no test`)]
if (isCovered && asked[0] === 'all') failed.push(...(await belowFloor()))
if (failed.length > 0)
  console.log(`\n${reader.diagnostics.join('\n')}\n\n${failed.map(name => `failed: ${name}`).join('\n')}`)
console.log(`\n${Math.round((performance.now() - began) / 1000)} s; all results are in ${RESULTS}`)
console.log(`${passed} passed, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
process.exit(failed.length > 0 ? 1 : 0)

/** Runs processes one after the other until nothing is left. One that dies is followed by another. */
async function work(job: number): Promise<void> {
  const env = {
    TAP_JOB_ID: String(job),
    TEST_REDIS: process.env['TEST_REDIS'] ?? process.env['REDIS_URL'] ?? stores.map(({ url }) => url).join(' '),
    ...(postgres && { TEST_POSTGRES: postgres.url }),
    ...(isCovered && { NODE_V8_COVERAGE: COVERAGE }),
  }
  for (let file = alone.shift(); file !== undefined; file = alone.shift()) {
    const own = queueOf([file])
    await runWorker(own, { reader, env })
    rmSync(own, { recursive: true, force: true })
  }
  while (readdirSync(queue).some(name => name.endsWith('.waiting'))) await runWorker(queue, { reader, env })
}

/** Puts the files that take longest first. */
function byLength(files: readonly string[]): string[] {
  const first = LONGEST.map(name => `test/${name}${name.endsWith('.all') ? '' : '.test'}.ts`)
  return [...first.filter(file => files.includes(file)), ...files.filter(file => !first.includes(file))]
}
