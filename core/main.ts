/** The process that runs a command. This is the only file that accesses `process`. */
import { totalmem } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { runCommandLine } from './commands/command-line.ts'
import { collectBuffersEarly, releaseMemory } from './lib/heap.ts'
import { printable } from './lib/printable.ts'
import { timedId } from './lib/ids.ts'
import { createLog, Scrubber } from './lib/log.ts'
import { PerMinute } from './lib/per-minute.ts'
import type { Environment } from './lib/environment.ts'
import { alarmOnBrokenRules, factsText } from './money/assertions.ts'

/** Milliseconds to wait at the end for the reader of the output. */
const LAST_WORDS_MS = 2000
/** Alarms in a minute about one rule about money. */
const ALARMS_PER_MINUTE = 10

const scrubber = new Scrubber()
const log = createLog(scrubber, 'info', process.stdout)

const environment: Environment = {
  env: process.env,
  log,
  scrubber,
  memoryBytes: Math.min(process.constrainedMemory() || Infinity, totalmem()),
  openFiles,
  uid: process.getuid?.(),
  print: line => void process.stdout.write(`${printable(line)}\n`),
  complain: line => void process.stderr.write(`${printable(scrubber.scrub(line))}\n`),
  now: Date.now,
  newId: () => timedId(Date.now()),
  onSignal: (signal, handler) => void process.on(signal, handler),
  exit: exitAfter(() => Promise.race([printed(), sleep(LAST_WORDS_MS)])),
}

/** For commands other than `start`, nothing is logged: they print their results. */
const quiet: Environment = {
  ...environment,
  log: createLog(scrubber, 'silent', process.stdout),
  exit: exitAfter(printed),
}

function openFiles(): number {
  // Asking for the names of the machine's addresses may take long.
  Object.assign(process.report, { excludeNetwork: true })
  const { userLimits } = process.report.getReport() as { userLimits?: { open_files?: { soft: number | string } } }
  const limit = Number(userLimits?.open_files?.soft)
  return limit > 0 ? limit : Infinity
}

function exitAfter(read: () => Promise<void>): Environment['exit'] {
  return async code => {
    await read()
    return process.exit(code)
  }
}

/** Resolves when the output has been read. A pipe buffers only a little. */
async function printed(): Promise<void> {
  await new Promise<void>(resolve => log.flush(() => resolve()))
  await new Promise<void>(resolve => process.stderr.write('', () => resolve()))
}

// The gateway continues if the reader of its output goes away.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})
// A worker ends immediately when its host dies.
process.on('exit', () => log.flush())
process.on('unhandledRejection', cause => log.error({ err: cause }, 'unhandled rejection'))
process.on('uncaughtException', cause => {
  log.fatal({ err: cause }, 'uncaught exception')
  environment.complain(`uncaught exception: ${cause.stack ?? cause.message}`)
  process.exit(1)
})

// A broken sum is noticed at each look-up. The metric counts every failed assertion.
const alarmsPerMinute = new PerMinute(Date.now)
const BROKEN = 'a rule about money is broken'
alarmOnBrokenRules((rule, facts) => {
  if (alarmsPerMinute.take(rule, ALARMS_PER_MINUTE) > 0) return
  // The standard output of a command has its results.
  if (process.argv[2] === 'start') log.error({ rule, ...facts }, BROKEN)
  else environment.complain(`${BROKEN}: ${rule} (${factsText(facts)})`)
})

collectBuffersEarly(process.versions.v8)
await runCommandLine(process.argv.slice(2), environment, quiet)
// The gateway runs.
if (process.argv[2] === 'start') releaseMemory()
