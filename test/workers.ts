/** Processes that run test files, for the tiers and for the promises that are broken on purpose. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { freePort } from './ports.ts'
import { RealRedis } from './redis.ts'
import type { TapReader } from './tap-reader.ts'

/** The folder of the project. */
export const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** The processes that run. */
const running = new Set<ChildProcess>()

/** Ends the processes that run. */
export function killWorkers(): void {
  for (const child of running) kill(child)
}

/** Kills a process, and what it has started. */
function kill({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}

/** Returns what matches a title. The parts of a template count, not its values. */
export function titlePattern(title: string): RegExp {
  const parts = title.split(/\$\{[^}]*\}/)
  return new RegExp(parts.map(part => part.replaceAll(/[$()*+./?[\\\]^{|}]/g, String.raw`\$&`)).join('.*'))
}

/** Returns the value of `TAP_GREP` that selects the tests whose titles contain a text. */
export function grepOf(title: string): string {
  // The test `next` takes the files.
  return `/^next$|${titlePattern(title).source}/`
}

/** Makes a queue of files for processes that share it: a folder, which the caller removes. */
export function queueOf(files: readonly string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-queue-'))
  for (const [nth, file] of files.entries())
    writeFileSync(join(folder, `${String(nth).padStart(4, '0')}.waiting`), file)
  return folder
}

/** How a process runs. */
interface Working {
  readonly reader: TapReader
  /** Added to the environment of this process. */
  readonly env: Readonly<Record<string, string>>
  /** The folder of the project, or of a copy of it. */
  readonly folder?: string
  /** Whether its standard error is shown. */
  readonly isShown?: boolean
  /** How long a file may take before its process is killed, in milliseconds. */
  readonly limitMs: number
}

/** Runs a process on the files of a queue, until it has taken the last one or ends. */
export async function runWorker(
  queue: string,
  { reader, env, folder = ROOT, isShown = true, limitMs }: Working,
): Promise<void> {
  const child = spawn(process.execPath, ['test/worker.ts'], {
    cwd: folder,
    // A group of its own, which is killed as a whole.
    detached: true,
    stdio: ['ignore', 'pipe', isShown ? 'inherit' : 'ignore'],
    env: {
      ...process.env,
      // Without the cache, each process would strip the types of all sources again.
      NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/compile'),
      ...env,
      QUEUE: queue,
    },
  })
  const exit = new Promise<number | string>(resolve =>
    child.on('exit', (code, signal) => resolve(code ?? signal ?? '')),
  )
  running.add(child)
  const output = reader.begin()
  const limit = setTimeout(() => kill(child), limitMs)
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream }))
    if (output.read(line) === 'file') limit.refresh()
  output.end(await exit)
  clearTimeout(limit)
  running.delete(child)
}

/** Starts a Redis that test files share. It keeps its files like one of an operator, but does not wait for the disk. */
export async function startStore(): Promise<RealRedis> {
  const redis = new RealRedis(await freePort())
  await redis.run('--appendfsync', 'no', '--save', '', '--maxmemory-policy', 'noeviction')
  return redis
}
