/**
 * Locks on files that end with their process, however it ends, and that other containers on the same machine see: those
 * that SQLite takes. A process number would not do, since every container has a process 1.
 */
import { DatabaseSync } from 'node:sqlite'

/** A lock of this process. */
export interface FileLock {
  release(): void
}

/** What SQLite says of a file that another process has locked. */
const SQLITE_BUSY = 5

/**
 * Locks a file, and creates it if it is missing.
 * @param waitMs how long to wait for another process; this process does nothing else meanwhile
 * @returns undefined if another process has it
 * @throws Error if the file cannot be locked for another reason
 */
export function lockFile(file: string, waitMs = 0): FileLock | undefined {
  let database: DatabaseSync | undefined
  try {
    database = new DatabaseSync(file, { timeout: waitMs })
    // Both keep the lock until the connection is closed.
    database.exec('PRAGMA locking_mode = EXCLUSIVE')
    database.exec('BEGIN EXCLUSIVE')
    const open = database
    return { release: () => void (open.isOpen && open.close()) }
  } catch (cause) {
    database?.close()
    if ((cause as { errcode?: number }).errcode === SQLITE_BUSY) return undefined
    const { message } = cause as Error
    throw new Error(`cannot lock ${file}: ${message}; run this as the user of the gateway`, { cause })
  }
}
