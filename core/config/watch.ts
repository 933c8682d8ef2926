/** Tells when a configuration file has changed. */
import { statSync, unwatchFile, watch, watchFile as watchStatus } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Log } from '../log.ts'

/** Quiet time after a change of the file before it is told, in milliseconds: editors write in several steps. */
const DEBOUNCE_MS = 100
/** How often its status is asked for, in milliseconds. */
const STATUS_MS = 1000

/**
 * Watches a file. Its folder is watched, not the file: editors and deployments replace a file rather than write into it.
 * Where the file is reached by a link its folder may hear nothing of a change, so that its status is asked for, too.
 * @returns what stops it
 */
export function watchFile(file: string, log: Log, changed: () => void): () => void {
  let timer: NodeJS.Timeout | undefined
  let told = version(file)
  const look = (): void => {
    clearTimeout(timer)
    timer = setTimeout(() => {
      const now = version(file)
      if (now === told) return
      told = now
      changed()
    }, DEBOUNCE_MS)
  }
  const watcher = watch(dirname(file), (_event, name) => {
    if (name === null || name === basename(file)) look()
  })
  watcher.on('error', cause => log.warn({ err: cause }, 'the folder of the configuration is not watched any more; a change is noticed a second later'))
  watchStatus(file, { interval: STATUS_MS, persistent: false }, look)
  return () => {
    clearTimeout(timer)
    watcher.close()
    unwatchFile(file, look)
  }
}

/** Another text for whatever has been done to the file. */
function version(file: string): string {
  try {
    const { ino, size, ctimeMs } = statSync(file)
    return `${ino} ${size} ${ctimeMs}`
  } catch {
    return 'away'
  }
}
