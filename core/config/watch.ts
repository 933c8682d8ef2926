/** Tells when a configuration file has changed. */
import { watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Log } from '../log.ts'

/** Quiet time after a change of the file before it is told, in milliseconds: editors write in several steps. */
const DEBOUNCE_MS = 100

/**
 * Watches a file. The folder is watched, not the file: editors and deployments replace a file rather than write into it.
 * @returns what stops it
 */
export function watchFile(file: string, log: Log, changed: () => void): () => void {
  let timer: NodeJS.Timeout | undefined
  const watcher = watch(dirname(file), (_event, name) => {
    if (name !== null && name !== basename(file)) return
    clearTimeout(timer)
    timer = setTimeout(changed, DEBOUNCE_MS)
  })
  watcher.on('error', cause => log.warn({ err: cause }, 'the configuration is not watched any more; SIGHUP still reloads it'))
  return () => {
    clearTimeout(timer)
    watcher.close()
  }
}
