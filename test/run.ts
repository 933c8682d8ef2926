/**
 * Runs the suite and prints the number of passed and failed assertions in one line. Arguments go to tap. A run of the
 * whole suite fails if its coverage is below the floor.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { PostgresServer } from './postgres.ts'

mkdirSync('.tap', { recursive: true })
/** Minimum share of lines and of branches, in per cent, that the whole suite must cover. */
const FLOOR = { lines: 97, branches: 91 } as const

const results = '.tap/results.tap'
const isWhole = process.argv.length === 2
// The coverage of a few files says nothing.
const flags = isWhole ? [] : ['--disable-coverage']
// One server for all test files that need one. It is quicker to start here than in each of them.
const postgres = await PostgresServer.start()
const child = spawn(
  'tap',
  ['run', `--output-file=${results}`, '--reporter=terse', ...flags, ...process.argv.slice(2)],
  {
    stdio: 'inherit',
    // Each test file runs in a process of its own. Without the cache, each process would strip the types of all sources
    // again.
    env: {
      ...process.env,
      TEST_POSTGRES: postgres.url,
      NODE_COMPILE_CACHE: fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)),
    },
  },
)
child.on('exit', async code => {
  await postgres.stop()
  const lines = readFileSync(results, 'utf8').split('\n')
  // Assertions are the lines at any depth that do not sum up a deeper level.
  const points = lines.filter(line => /^\s*(?:not )?ok\b/.test(line) && !line.endsWith('{') && !/# time=/.test(line))
  const skipped = points.filter(line => /# skip/i.test(line)).length
  const failed = failures(lines)
  const passed = points.length - failed.length - skipped
  if (isWhole) failed.push(...belowFloor())
  // A file that could not run has no assertions.
  if (code !== 0 && failed.length === 0) failed.push('tap itself')
  // Prints the failures once more below the output of the reporter.
  console.log(['', ...failed.map(name => `failed: ${name}`)].join('\n'))
  console.log(`${passed} passed, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
  process.exit(code === 0 && failed.length > 0 ? 1 : (code ?? 1))
})

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

/** Returns the failed assertions and the expired tests, each with its file and its tests. */
function failures(lines: string[]): string[] {
  const within: string[] = []
  return lines.flatMap((line, at) => {
    const [, indent = '', subtest, failed] = /^( *)(?:# Subtest: (.*)|not ok \d+(?: - )?(.*))$/.exec(line) ?? []
    const depth = indent.length / 4
    if (subtest !== undefined) within.splice(depth, Infinity, subtest)
    if (failed === undefined || /# (?:time=|todo|skip)/i.test(failed)) return []
    // An expired file is reported at the end, among all others.
    const expired = /^ {2}expired: (.*)/.exec(lines[at + 2] ?? '')?.slice(1)
    return [[...(expired ?? within.slice(0, depth)), failed].join(' > ')]
  })
}
