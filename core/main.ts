/** The process that runs a command. This is the only file that accesses `process`. */
import { totalmem } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { runCommandLine } from './commands/command-line.ts'
import type { Environment } from './lib/environment.ts'
import type { Log } from './lib/log.ts'
import { printable } from './lib/printable.ts'
import { reasonOf } from './lib/reason.ts'
import { Scrubber } from './lib/scrubber.ts'

/** Milliseconds to wait at the end for the reader of the output. */
const LAST_WORDS_MS = 2000
/** Alarms in a minute about one rule about money. */
const ALARMS_PER_MINUTE = 10

const scrubber = new Scrubber()
/** The log of a gateway. Other commands have none: they print what they have to say. */
let log: Log | undefined

const print: Environment['print'] = line => void process.stdout.write(`${printable(line)}\n`)
const complain: Environment['complain'] = line => void process.stderr.write(`${printable(scrubber.scrub(line))}\n`)

/** Returns the environment of a gateway, which runs for long. */
async function gatewayEnvironment(): Promise<Environment> {
  const [{ collectBuffersEarly }, { createLog }] = await Promise.all([import('./lib/heap.ts'), import('./lib/log.ts')])
  collectBuffersEarly(process.versions.v8)
  log = createLog(scrubber, 'info', process.stdout)
  return environmentWith(log)
}

/** Returns the environment of a command that ends by itself. */
async function quietEnvironment(): Promise<Environment> {
  const { SILENT_LOG } = await import('./lib/silent-log.ts')
  return environmentWith(SILENT_LOG)
}

async function environmentWith(own: Log): Promise<Environment> {
  const { timedId } = await import('./lib/ids.ts')
  await raiseAlarms()
  return {
    env: process.env,
    log: own,
    scrubber,
    memoryBytes: Math.min(process.constrainedMemory() || Infinity, totalmem()),
    openFiles,
    uid: process.getuid?.(),
    print,
    complain,
    now: Date.now,
    newId: () => timedId(Date.now()),
    onSignal: (signal, handler) => void process.on(signal, handler),
    exit,
  }
}

/** Reports a broken rule about money: in the log of a gateway, and on standard error of any other command. */
async function raiseAlarms(): Promise<void> {
  const [{ alarmOnBrokenRules, factsText }, { PerMinute }] = await Promise.all([
    import('./money/assertions.ts'),
    import('./client/per-minute.ts'),
  ])
  // A broken sum is noticed at each look-up. The metric counts every failed assertion.
  const alarmsPerMinute = new PerMinute(Date.now)
  const broken = 'a rule about money is broken'
  alarmOnBrokenRules((rule, facts) => {
    if (alarmsPerMinute.take(rule, ALARMS_PER_MINUTE) > 0) return
    if (log) log.error({ rule, ...facts }, broken)
    else complain(`${broken}: ${rule} (${factsText(facts)})`)
  })
}

function openFiles(): number {
  // Asking for the names of the machine's addresses may take long.
  Object.assign(process.report, { excludeNetwork: true })
  const { userLimits } = process.report.getReport() as { userLimits?: { open_files?: { soft: number | string } } }
  const limit = Number(userLimits?.open_files?.soft)
  return limit > 0 ? limit : Infinity
}

async function exit(code: number): Promise<never> {
  // Node reports a promise that nobody handles at the end of a turn.
  await new Promise(setImmediate)
  // A gateway ends although nobody reads its log.
  await (log ? Promise.race([printed(), sleep(LAST_WORDS_MS)]) : printed())
  return process.exit(code)
}

/** Resolves when the output has been read. A pipe buffers only a little. */
async function printed(): Promise<void> {
  await new Promise<void>(resolve => (log ? log.flush(() => resolve()) : resolve()))
  for (const stream of [process.stdout, process.stderr])
    await new Promise<void>(resolve => void stream.write('', () => resolve()))
}

// The gateway continues if the reader of its output goes away.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})
// A worker ends immediately when its host dies.
process.on('exit', () => log?.flush())
process.on('unhandledRejection', cause => {
  if (log) log.error({ err: cause }, 'unhandled rejection')
  else complain(`unhandled rejection: ${reasonOf(cause)}`)
})
process.on('uncaughtException', cause => {
  log?.fatal({ err: cause }, 'uncaught exception')
  complain(`uncaught exception: ${cause.stack ?? cause.message}`)
  process.exit(1)
})

await runCommandLine(process.argv.slice(2), {
  print,
  complain,
  exit,
  logging: gatewayEnvironment,
  quiet: quietEnvironment,
})
// The gateway runs.
if (log) (await import('./lib/heap.ts')).releaseMemory()
