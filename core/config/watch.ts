/** Tells when a configuration file has changed. */
import { readFileSync, stat, statSync, watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Log } from '../lib/log.ts'

/** Quiet time after a sign of a change before the file is read, in milliseconds: editors write in several steps. */
const DEBOUNCE_MS = 100
/** How often its status is asked for, in milliseconds. */
const STATUS_MS = 1000

/**
 * Watches a file. Its folder is watched, not the file: editors and deployments replace a file rather than write into it.
 * Where the file is reached by a link its folder may hear nothing of a change, so that its status is asked for, too.
 * @param text what it held when it was last read
 * @returns what stops it
 */
export function watchFile(file: string, text: string, log: Log, changed: () => void): () => void {
  let told: Buffer | undefined = Buffer.from(text)
  let quiet: NodeJS.Timeout | undefined
  const look = (): void => {
    clearTimeout(quiet)
    quiet = setTimeout(() => {
      const now = bytesOf(file)
      if (now === 'no file' || now === told || (now && told?.equals(now))) return
      told = now
      changed()
    }, DEBOUNCE_MS)
  }
  const watcher = watch(dirname(file), (_event, name) => {
    if (name === null || name === basename(file)) look()
  })
  watcher.on('error', cause =>
    log.warn(
      { err: cause },
      'the folder of the configuration is not watched any more; a change is noticed a second later',
    ),
  )
  // The first answer is a sign, too: the file may have changed since it was read.
  let status: string | undefined
  const asking = setInterval(() => {
    stat(file, (failed, found) => {
      const now = failed ? 'away' : `${found.ino} ${found.size} ${found.ctimeMs}`
      if (now === status) return
      status = now
      look()
    })
  }, STATUS_MS).unref()
  return () => {
    clearInterval(asking)
    clearTimeout(quiet)
    watcher.close()
  }
}

/** What a file holds; undefined where it is away. A pipe is not read: it says what it has to say once, and then its reader waits. */
function bytesOf(file: string): Buffer | 'no file' | undefined {
  try {
    return statSync(file).isFile() ? readFileSync(file) : 'no file'
  } catch {
    return undefined
  }
}
