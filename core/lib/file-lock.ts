/**
 * Locks on files that end with their process, however it ends, and that other containers on the same machine see: those
 * that SQLite takes. A process number would not do, since every container has a process 1.
 */
import { DatabaseSync } from 'node:sqlite'

/** A lock that this process holds. */
export interface FileLock {
  release(): void
}

/** Locks a file, and creates it if it is missing. @returns undefined if another process has it */
export function lockFile(file: string): FileLock | undefined {
  const database = new DatabaseSync(file, { timeout: 0 })
  try {
    // Both keep the lock until the connection is closed.
    database.exec('PRAGMA locking_mode = EXCLUSIVE')
    database.exec('BEGIN EXCLUSIVE')
    return { release: () => void (database.isOpen && database.close()) }
  } catch {
    database.close()
    return undefined
  }
}
