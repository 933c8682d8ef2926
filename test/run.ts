/**
 * Runs the suite, or the files that are given, and prints the number of passed and failed assertions in one line. With
 * `COVERAGE=1`, it fails if the coverage is below the floor.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { PostgresServer } from './postgres.ts'
import { freePort } from './ports.ts'
import { RealRedis } from './redis.ts'

/** Minimum share of lines and of branches, in per cent, that the whole suite must cover. */
const FLOOR = { lines: 97, branches: 91 } as const
/** Processes of tests that run at once, each with a Redis. On two cores, two more fill the time of waits. */
const JOBS = 4

const SUITE = 'test/suite.ts'
const RESULTS = '.tap/results.tap'
const files = process.argv.slice(2)
const isCovered = process.env['COVERAGE'] !== undefined
/** Levels of results above the processes: tap's command puts the suite itself above them. */
const ABOVE = isCovered ? 1 : 0
const began = performance.now()

// One server for all test files that need one. It is quicker to start here than in each of them.
const postgres = await PostgresServer.start()
const stores = await Promise.all(Array.from({ length: JOBS }, startStore))
// Only tap's own command collects the coverage. Without it, each file takes a third less.
const [command = '', ...args] = isCovered
  ? ['tap', 'run', '--reporter=tap', '--timeout=3600', SUITE]
  : [process.execPath, SUITE]
const child = spawn(command, args, {
  stdio: ['ignore', 'pipe', 'inherit'],
  // Without the cache, each process would strip the types of all sources again.
  env: {
    ...process.env,
    JOBS: String(JOBS),
    ...(files.length > 0 && { TEST_FILES: files.join(' ') }),
    TEST_REDIS: process.env['TEST_REDIS'] ?? process.env['REDIS_URL'] ?? stores.map(({ url }) => url).join(' '),
    TEST_POSTGRES: postgres.url,
    NODE_COMPILE_CACHE: fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)),
  },
})
const exit = new Promise<number>(resolve => child.on('exit', code => resolve(code ?? 1)))
const lines: string[] = []
/** Seconds by file, of those whose process has not ended yet. */
const seconds = new Map<string, number>()
/** What did not run, though its process may say that all is well. */
const absent: string[] = []
let file = ''
for await (const line of createInterface({ input: child.stdout })) {
  lines.push(line)
  file = fileAt(line) ?? file
  const [, indent, is, said = '', ms = 0] = /^( *)(ok|not ok) \d+(.*?)(?: # time=([\d.]+)ms.*)?$/.exec(line) ?? []
  const depth = (indent?.length ?? Infinity) / 4 - ABOVE
  if (depth === 1) seconds.set(file, (seconds.get(file) ?? 0) + Number(ms) / 1000)
  else if (depth === 0) {
    for (const [name, s] of seconds)
      console.log(`${s.toFixed(1).padStart(6)} s  ${name}${is === 'ok' ? '' : ' (failed)'}`)
    const ran = said.match(/test\/\S+/g) ?? []
    absent.push(...ran.filter(name => !seconds.has(name)).map(name => `${name} has run no test`))
    seconds.clear()
  }
}
const code = await exit
await postgres.stop()
for (const store of stores) await store.remove()
mkdirSync('.tap', { recursive: true })
writeFileSync(RESULTS, lines.join('\n'))

// Assertions are the lines at any depth that do not sum up a deeper level.
const points = lines.filter(line => /^\s*(?:not )?ok\b/.test(line) && !line.endsWith('{') && !/# time=/.test(line))
const skipped = points.filter(line => /# skip/i.test(line)).length
const failed = failures()
const passed = points.length - failed.length - skipped
failed.push(...absent)
if (isCovered && files.length === 0) failed.push(...belowFloor())
// A file that could not run has no assertions.
if (code !== 0 && failed.length === 0) failed.push('a file could not run')
if (failed.length > 0)
  console.log(`\n${diagnostics().join('\n')}\n\n${failed.map(name => `failed: ${name}`).join('\n')}`)
console.log(`\n${Math.round((performance.now() - began) / 1000)} s; all results are in ${RESULTS}`)
console.log(`${passed} passed, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
process.exit(failed.length > 0 ? code || 1 : code)

/** Starts a Redis that test files share. It keeps its files like one of an operator, but does not wait for the disk. */
async function startStore(): Promise<RealRedis> {
  const redis = new RealRedis(await freePort())
  await redis.run('--appendfsync', 'no', '--save', '', '--maxmemory-policy', 'noeviction')
  return redis
}

/** Returns the kinds of coverage below the floor. */
function belowFloor(): string[] {
  const { total } = JSON.parse(readFileSync('.tap/report/coverage-summary.json', 'utf8')) as {
    total: Record<keyof typeof FLOOR, { pct: number }>
  }
  console.log(`\n${total.lines.pct} % of lines and ${total.branches.pct} % of branches covered`)
  return (Object.keys(FLOOR) as (keyof typeof FLOOR)[])
    .filter(name => total[name].pct < FLOOR[name])
    .map(name => `coverage of ${name}: ${total[name].pct} % is less than ${FLOOR[name]} %`)
}

/** Returns the file whose tests follow, if a line says so. */
function fileAt(line: string): string | undefined {
  return /^ {4,8}# (test\/\S+)$/.exec(line)?.[1]
}

/** Returns the failed assertions and the expired tests, each with its file and its tests. */
function failures(): string[] {
  const within: string[] = []
  return lines.flatMap((line, at) => {
    const [, indent = '', subtest, failed] = /^( *)(?:# Subtest: (.*)|not ok \d+(?: - )?(.*))$/.exec(line) ?? []
    const depth = indent.length / 4
    const of = fileAt(line)
    if (of !== undefined) within.splice(0, Infinity, of)
    else if (subtest !== undefined) within.splice(depth, Infinity, subtest)
    if (failed === undefined || /# (?:time=|todo|skip)/i.test(failed)) return []
    // An expired file is reported at the end, among all others.
    const expired = /^ {2}expired: (.*)/.exec(lines[at + 2] ?? '')?.slice(1)
    return [[...(expired ?? within.slice(0, depth)), failed].join(' > ')]
  })
}

/** Returns the failed assertions with what tap says about each. */
function diagnostics(): string[] {
  let said = false
  return lines.filter(line => {
    if (/^\s*not ok\b/.test(line) && !/# time=/.test(line)) said = true
    else if (/^\s*(?:ok\b|# Subtest|\d+\.\.\d+)/.test(line)) said = false
    return said
  })
}
