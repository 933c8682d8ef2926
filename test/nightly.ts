/**
 * Runs the long programs one after the other, and prints a table of what they found. Their output is in .tap/long.
 * SEED, STEPS and CASES change their counts.
 *
 * npm run nightly             all of a night
 * npm run nightly -- teeth    some of them
 * npm run weekly              the long explorations, and many more cases
 */
import { spawn } from 'node:child_process'
import { createWriteStream, mkdirSync } from 'node:fs'

/** A program. */
interface Program {
  readonly name: string
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** The number that it is given, or what its output says it has tried. Each match counts by its first group, or else as one. */
  readonly cases: RegExp | number
  /** Finds what it has found wrong. */
  readonly found: RegExp
}

const FOLDER = '.tap/long'
/** Lines that name a failure. */
const FAILED = /^(?:failed: |without teeth: )/gm
const SEED = process.env['SEED'] ?? String(Math.floor(Date.now() / 1000))

/** @param counts how many steps or cases it has, by the name of the variable that changes it */
function simulate(name: string, files: readonly string[], counts: Readonly<Record<string, string>> = {}): Program {
  const [[variable, number] = []] = Object.entries(counts)
  return {
    name: variable ? `${name}, ${variable.toLowerCase()}` : name,
    args: ['test/run.ts', ...files],
    env: { SEED, LIMIT_S: '40000', ...counts },
    cases: variable ? Number(process.env[variable] ?? number) : /^(\d+) passed/gm,
    found: FAILED,
  }
}

const SIMULATIONS = ['simulation', 'quota-simulation', 'plan-simulation'].map(name => `test/ledger/${name}.test.ts`)

const POOLS = 'test/pool/simulation.test.ts'
const BROKEN = simulate('simulate: broken rules', ['test/ledger/broken-rules.ts'])

const NIGHT: readonly Program[] = [
  simulate('simulate: ledger', SIMULATIONS, { STEPS: '20000' }),
  simulate('simulate: pools', [POOLS], { STEPS: '200000' }),
  simulate('simulate: customers', ['test/story/thief.test.ts'], { CASES: '5000' }),
  BROKEN,
  { name: 'teeth', args: ['test/teeth/teeth.ts'], cases: /^ *[\d.]+ s {2}\w/gm, found: FAILED },
  { name: 'matrix', args: ['test/matrix.ts'], cases: /^(\d+) passed/gm, found: FAILED },
  { name: 'siege', args: ['test/siege/siege.ts'], cases: /^.+ [\d.]+ ms +[\d.]+ ms\b/gm, found: FAILED },
  {
    name: 'soak',
    args: ['test/soak/pools.ts'],
    env: { TAP_TIMEOUT: '600' },
    cases: /# (\d+) replies in/gm,
    found: /^ *not ok .*$/gm,
  },
  {
    name: 'scale',
    args: ['test/scale/scale.ts'],
    env: { KEYS: '100000', EXCHANGES: '1000000' },
    cases: /^recording (\d+) exchanges/gm,
    found: /^accounts with drift in the end +[1-9]\d*$/gm,
  },
  {
    name: 'agents',
    args: ['test/agents/agents.ts'],
    env: { TAP_TIMEOUT: '900' },
    cases: /^ok /gm,
    found: /^ *not ok .*$/gm,
  },
  {
    name: 'agents: cursor',
    args: ['test/agents/cursor.ts'],
    env: { TAP_TIMEOUT: '900' },
    cases: /^ok /gm,
    found: /^ *not ok .*$/gm,
  },
  {
    name: 'agents: sessions',
    args: ['test/agents/sessions.ts'],
    env: { TAP_TIMEOUT: '900' },
    cases: /^ok /gm,
    found: /^ *not ok .*$/gm,
  },
]

const WEEK: readonly Program[] = [
  simulate('simulate: ledger', SIMULATIONS, { STEPS: '100000' }),
  simulate('simulate: pools', [POOLS], { STEPS: '1000000' }),
  simulate('simulate: customers', ['test/story/thief.test.ts'], { CASES: '100000' }),
  BROKEN,
  {
    name: 'explore',
    args: ['test/run.ts', 'test/explore/long.ts'],
    env: { LIMIT_S: '86000' },
    cases: /^(\d+) passed/gm,
    found: FAILED,
  },
]

/** Sums up the matches of a pattern. */
function count(text: string, pattern: RegExp | number): number {
  if (typeof pattern === 'number') return pattern
  return [...text.matchAll(pattern)].reduce((sum, [, number]) => sum + (number === undefined ? 1 : Number(number)), 0)
}

async function run({ name, args, env, cases, found }: Program): Promise<{ row: readonly string[]; isWell: boolean }> {
  const began = performance.now()
  const log = createWriteStream(`${FOLDER}/${name.replaceAll(/\W+/g, '-')}.log`)
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env, ...process.env },
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (part: Buffer) => {
      text += part.toString()
      log.write(part)
      if (asked.length > 0) process.stdout.write(part)
    })
  const exit = await new Promise<number | string>(resolve =>
    child.on('close', (code, signal) => resolve(code ?? signal ?? '')),
  )
  log.end()
  const seconds = String(Math.round((performance.now() - began) / 1000))
  const faults = text.match(found)?.length ?? 0
  const tried = typeof cases === 'number' && exit !== 0 ? 0 : count(text, cases)
  const row = [name, String(tried), seconds, String(faults), String(exit)]
  console.log(row.join('  '))
  return { row, isWell: exit === 0 && faults === 0 }
}

const [first = '', ...others] = process.argv.slice(2)
const asked = first === 'weekly' ? others : [first, ...others].filter(Boolean)
const tier = first === 'weekly' ? WEEK : NIGHT
const programs = tier.filter(({ name }) => asked.length === 0 || asked.some(word => name.startsWith(word)))
if (programs.length === 0) {
  console.error(`There is no such program. There are: ${tier.map(({ name }) => name).join(', ')}.`)
  process.exit(2)
}
mkdirSync(FOLDER, { recursive: true })
console.log(`SEED=${SEED}`)
const ended = []
for (const program of programs) ended.push(await run(program))
console.log('\n| program | cases | seconds | found | exit |\n|---|---|---|---|---|')
for (const { row } of ended) console.log(`| ${row.join(' | ')} |`)
process.exit(ended.every(({ isWell }) => isWell) ? 0 : 1)
