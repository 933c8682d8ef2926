import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

/** The programs that no tier runs in full, each with its smallest case. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))

const PROGRAMS: readonly {
  readonly name: string
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** What it prints at its end. */
  readonly says: RegExp
  /** Its exit status. A bench of one slice says nothing of its limits. */
  readonly codes?: readonly number[]
}[] = [
  {
    name: 'bench',
    args: [
      'test/bench/bench.ts',
      '--rows',
      'lone request',
      '--slices',
      '1',
      '--warm',
      '50',
      '--peers',
      'bare,tollgate',
    ],
    says: /lone request[^\n]*\d/,
    codes: [0, 1],
  },
  { name: 'siege', args: ['test/siege/siege.ts', 'wrong keys'], says: /held/ },
  {
    name: 'soak',
    args: ['test/soak/pools.ts'],
    env: { SOAK_MS: '15000', TAP_TIMEOUT: '600' },
    says: /replies in 15 s/,
  },
  {
    name: 'scale',
    args: ['test/scale/scale.ts'],
    env: { KEYS: '2000', EXCHANGES: '1000', RATE: '100' },
    says: /accounts with drift in the end +0/,
  },
  { name: 'matrix', args: ['test/matrix.ts', 'usage'], says: /passed, 0 failed/ },
  {
    name: 'simulate',
    args: ['test/run.ts', 'test/ledger/plan-simulation.test.ts', 'test/ledger/quota-simulation.test.ts'],
    env: { STEPS: '300', SEED: '1' },
    says: /passed, 0 failed/,
  },
  {
    name: 'explore',
    args: ['test/run.ts', 'test/explore/long.ts'],
    env: { SCOPE: 'the archiver dies' },
    says: /passed, 0 failed/,
  },
  { name: 'screenshots', args: ['test/screenshots.ts', 'key-page-phone'], says: /^$/ },
  { name: 'teeth', args: ['test/teeth/teeth.ts', 'rounding per request'], says: /1 passed, 0 failed/ },
]

for (const { name, args, env, says, codes = [0] } of PROGRAMS)
  t.test(`npm run ${name} works`, async t => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-program-'))
    t.teardown(() => rmSync(folder, { recursive: true, force: true }))
    const { TEST_REDIS: _redis, QUEUE: _queue, NODE_V8_COVERAGE: _coverage, ...own } = process.env
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      env: { ...own, NODE_V8_COVERAGE: '', IMAGES: folder, ...env },
    })
    let output = ''
    child.stdout.on('data', part => (output += String(part)))
    child.stderr.on('data', part => (output += String(part)))
    const code = await new Promise(resolve => child.on('close', resolve))
    t.ok(codes.includes(Number(code)), `it ended with ${String(code)}`, { output: output.slice(-3000) })
    t.match(output.slice(-20_000), says)
    if (name === 'screenshots') t.same(readdirSync(folder), ['key-page-phone.png'])
  })
