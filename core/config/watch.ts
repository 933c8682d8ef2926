/** Watches a configuration file for changes. */
import { createHash } from 'node:crypto'
import { readFileSync, stat, statSync, watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import type { Log } from '../lib/log.ts'

/** How long the file must stay unchanged before it is read, in milliseconds. Editors write in several steps. */
const DEBOUNCE_MS = 100
/** Interval of the status checks, in milliseconds. */
const STATUS_MS = 1000

/** A file that is watched. */
export interface Watched {
  readonly file: string
  /** The content when the file was last read. */
  readonly text: string
  readonly log: Log
  /** Called when the file, or another one that it reads values from, has changed. */
  readonly changed: () => void
  /** Returns the files that it reads values from at this moment. */
  readonly others?: () => readonly string[]
}

/**
 * Watches a file through its folder, since editors and deployments replace a file instead of writing into it. A change
 * of a symbolic link's target may cause no event in the folder, so the file's status is checked as well.
 * @returns a function that stops watching
 */
export function watchFile({ file, text, log, changed, others = () => [] }: Watched): () => void {
  let lastRead: Buffer | undefined = Buffer.from(text)
  let debounce: NodeJS.Timeout | undefined
  const scheduleRead = (): void => {
    clearTimeout(debounce)
    debounce = setTimeout(() => {
      const now = bytesOf(file)
      if (now === 'no file' || now === lastRead || (now && lastRead?.equals(now))) return
      lastRead = now
      changed()
    }, DEBOUNCE_MS)
  }
  const watcher = watch(dirname(file), (_event, name) => {
    if (name === null || name === basename(file)) scheduleRead()
  })
  watcher.on('error', cause =>
    log.warn(
      { err: cause },
      'cannot watch the folder of the configuration any more; changes are noticed within two seconds',
    ),
  )
  // The first status check schedules a read too: the file may have changed since it was read.
  let status: string | undefined
  let known = contentsOf(others())
  let otherDebounce: NodeJS.Timeout | undefined
  const statusTimer = setInterval(() => {
    const now = contentsOf(others())
    if (now !== known) {
      known = now
      clearTimeout(otherDebounce)
      otherDebounce = setTimeout(changed, DEBOUNCE_MS)
    }
    stat(file, (failed, found) => {
      const now = failed ? 'away' : `${found.ino} ${found.size} ${found.ctimeMs}`
      if (now === status) return
      status = now
      scheduleRead()
    })
  }, STATUS_MS).unref()
  return () => {
    clearInterval(statusTimer)
    clearTimeout(debounce)
    clearTimeout(otherDebounce)
    watcher.close()
  }
}

/** What tells the contents of files apart. A secret's file is small. */
function contentsOf(files: readonly string[]): string {
  const hash = createHash('sha256')
  for (const file of files) {
    const bytes = bytesOf(file)
    hash.update(`${file} ${typeof bytes === 'object'} `).update(typeof bytes === 'object' ? bytes : '')
  }
  return hash.digest('base64')
}

/** Reads a file; undefined if it is missing. A pipe is never read again: its writer has already finished. */
function bytesOf(file: string): Buffer | 'no file' | undefined {
  try {
    return statSync(file).isFile() ? readFileSync(file) : 'no file'
  } catch {
    return undefined
  }
}
