/**
 * Runs the suite and says at the end, in one plain line, how many assertions held. Arguments go to tap. A run of the
 * whole suite fails if it covers less than the floor.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

mkdirSync('.tap', { recursive: true })
/** The least share of lines and of branches, in per cent, that the whole suite must cover. */
const FLOOR = { lines: 97, branches: 91 } as const

const results = '.tap/results.tap'
const isWhole = process.argv.length === 2
const child = spawn('tap', ['run', `--output-file=${results}`, '--reporter=terse', ...process.argv.slice(2)], {
  stdio: 'inherit',
  // Each test file is a process of its own: without the cache, each strips the types of all the sources anew.
  env: {
    ...process.env,
    NODE_COMPILE_CACHE: fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)),
  },
})
child.on('exit', code => {
  const lines = readFileSync(results, 'utf8').split('\n')
  // Assertions are the lines at any depth that are not the sum of a deeper level.
  const points = lines.filter(line => /^\s*(?:not )?ok\b/.test(line) && !line.endsWith('{') && !/# time=/.test(line))
  const skipped = points.filter(line => /# skip/i.test(line)).length
  const failed = failures(lines)
  const passed = points.length - failed.length - skipped
  if (isWhole) failed.push(...belowFloor())
  // A file that could not even run has no assertion to its name.
  if (code !== 0 && failed.length === 0) failed.push('tap itself')
  // Once more, where nobody has to scroll, and below whatever the reporter left on the last line.
  console.log(['', ...failed.map(name => `failed: ${name}`)].join('\n'))
  console.log(`${passed} passed, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
  process.exit(code === 0 && failed.length > 0 ? 1 : (code ?? 1))
})

/** What the suite covers too little of. */
function belowFloor(): string[] {
  const { total } = JSON.parse(readFileSync('.tap/report/coverage-summary.json', 'utf8')) as {
    total: Record<keyof typeof FLOOR, { pct: number }>
  }
  console.log(`\n${total.lines.pct} % of lines and ${total.branches.pct} % of branches covered`)
  return (Object.keys(FLOOR) as (keyof typeof FLOOR)[])
    .filter(name => total[name].pct < FLOOR[name])
    .map(name => `coverage of ${name}: ${total[name].pct} % is less than ${FLOOR[name]} %`)
}

/** The failed assertions and the expired tests, each with the file and the tests that it is in. */
function failures(lines: string[]): string[] {
  const within: string[] = []
  return lines.flatMap((line, at) => {
    const [, indent = '', subtest, failed] = /^( *)(?:# Subtest: (.*)|not ok \d+(?: - )?(.*))$/.exec(line) ?? []
    const depth = indent.length / 4
    if (subtest !== undefined) within.splice(depth, Infinity, subtest)
    if (failed === undefined || /# (?:time=|todo|skip)/i.test(failed)) return []
    // A file that expired is told of at the end, among all the others.
    const expired = /^ {2}expired: (.*)/.exec(lines[at + 2] ?? '')?.slice(1)
    return [[...(expired ?? within.slice(0, depth)), failed].join(' > ')]
  })
}
