/** Processes that run test files, for the tiers and for the promises that are broken on purpose. */
import { spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { freePort } from './ports.ts'
import { RealRedis } from './redis.ts'
import type { TapReader } from './tap-reader.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

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
  /** When it is killed, in milliseconds. */
  readonly limitMs?: number
}

/** Runs a process on the files of a queue, until it has taken the last one or ends. */
export async function runWorker(
  queue: string,
  { reader, env, folder = ROOT, isShown = true, limitMs = 0 }: Working,
): Promise<void> {
  const child = spawn(process.execPath, ['test/worker.ts'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', isShown ? 'inherit' : 'ignore'],
    env: {
      ...process.env,
      // Without the cache, each process would strip the types of all sources again.
      NODE_COMPILE_CACHE: join(ROOT, 'node_modules/.cache/compile'),
      ...env,
      QUEUE: queue,
    },
    timeout: limitMs,
  })
  const exit = new Promise<number | string>(resolve =>
    child.on('exit', (code, signal) => resolve(code ?? signal ?? '')),
  )
  const output = reader.begin()
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) output.read(line)
  output.end(await exit)
}

/** Starts a Redis that test files share. It keeps its files like one of an operator, but does not wait for the disk. */
export async function startStore(): Promise<RealRedis> {
  const redis = new RealRedis(await freePort())
  await redis.run('--appendfsync', 'no', '--save', '', '--maxmemory-policy', 'noeviction')
  return redis
}
