/**
 * Runs the test files in several processes at a time. Most files share a process with others of their folder, which loads
 * and compiles the gateway only once: alone, most of them would take longer for that than for their tests.
 */
import { globSync } from 'node:fs'
import { dirname } from 'node:path'
import t from 'tap'

/** How long a process may take, in milliseconds. `npm run simulate` gives it more. */
const LIMIT_MS = Number(process.env['LIMIT_S'] ?? 600) * 1000
/** Files that share a process. */
const TOGETHER = 8

/**
 * Files with a process of their own: they take long, or they measure the process, its memory or its time. The longest
 * come first, so that none of them is left over at the end.
 */
const ALONE = [
  'story/thief',
  'story/last-byte',
  'story/offers',
  'story/pages',
  'plugins/webhooks',
  'ledger/loss',
  'story/crash',
  'story/wire',
  'story/stores',
  'chain',
  'story/charges',
  'story/admin-crash',
  'story/balances',
  'ledger/simulation',
  'explore/explorer',
  'story/memory',
  'story/large',
  'story/amplification',
].map(name => `test/${name}.test.ts`)

const files = process.env['TEST_FILES']?.split(' ') ?? globSync('test/**/*.test.ts').sort()
const { NODE_OPTIONS: instruments, ...env } = process.env
const isCovered = env['COVERAGE'] !== undefined

t.jobs = Number(process.env['JOBS'] ?? 1)
t.setTimeout(0)
for (const file of ALONE) if (files.includes(file)) run([file])
const others = files.filter(file => !ALONE.includes(file))
// The stories are the longest of them, and come late in the alphabet.
for (const folder of [...new Set(others.map(file => dirname(file)))].toReversed()) {
  const inFolder = others.filter(file => dirname(file) === folder)
  for (let at = 0; at < inFolder.length; at += TOGETHER) run(inFolder.slice(at, at + TOGETHER))
}

function run(together: readonly string[]): void {
  t.spawn(
    process.execPath,
    // tap's instruments collect the coverage, also of the processes that a test starts.
    [...(isCovered ? process.execArgv : []), 'test/together.ts'],
    {
      env: {
        ...env,
        TOGETHER: together.join(' '),
        TAP_TIMEOUT: String(LIMIT_MS / 1000),
        ...(isCovered && { NODE_OPTIONS: instruments }),
      },
      timeout: LIMIT_MS,
    },
    together.join(' '),
  )
}
