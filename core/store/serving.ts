/**
 * The lock of a data folder, which the gateway that uses the folder holds while it runs. Beside it stands which store and
 * which records that gateway uses, so that a command with other settings does not work on others by mistake.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { StoreConfig } from '../config/config.ts'
import { describeAddress } from '../config/store-address.ts'
import type { Environment } from '../lib/environment.ts'
import { type FileLock, lockFile } from '../lib/file-lock.ts'
import { findServer } from './managed.ts'

/** Descriptions without credentials. */
export interface Served {
  readonly store: string
  readonly records: string
}

/** How long a gateway, or a command, waits for a command that looks whether a gateway runs, in milliseconds. */
const PROBED_MS = { gateway: 1000, command: 200 } as const

const files = (data: string): { text: string; lock: string } => ({
  text: join(data, 'serving.json'),
  lock: join(data, 'serving.lock'),
})

/** Describes what a configuration uses. @param env in which a redis-server is looked for */
export function servedBy({ address, data, records }: StoreConfig, env: Environment['env']): Served {
  const url = records === undefined ? undefined : new URL(records)
  const kind = findServer(env) === undefined ? 'embedded' : 'managed'
  return {
    store: address ? describeAddress(address) : `the ${kind} store in ${data}`,
    records: url ? `PostgreSQL at ${url.host}${url.pathname}` : `SQLite in ${data}`,
  }
}

/**
 * Takes the lock of the data folder for a gateway, and notes what it uses, until it releases the lock or ends.
 * @returns undefined if another gateway has it and uses the same given store; if it uses another one, the records refuse
 * one of them
 * @throws Error for the operator if another gateway has it and the store belongs to the folder
 */
export function claimFolder(config: StoreConfig, { env }: Pick<Environment, 'env'>): FileLock | undefined {
  const { text, lock } = files(config.data)
  mkdirSync(config.data, { recursive: true, mode: 0o700 })
  // A command that looks whether a gateway runs has the lock for a moment.
  const held = lockFile(lock, PROBED_MS.gateway)
  if (held) writeFileSync(text, JSON.stringify(servedBy(config, env)), { mode: 0o600 })
  else if (!config.address)
    throw new Error(`another gateway uses ${config.data}; set another store.data, or the same REDIS_URL for both`)
  return held
}

/** @throws Error for the operator if a running gateway of the data folder uses another store or other records */
export function refuseOther(config: StoreConfig, { env }: Pick<Environment, 'env'>): void {
  const { text } = files(config.data)
  let running: Served
  try {
    running = JSON.parse(readFileSync(text, 'utf8')) as Served
  } catch {
    return
  }
  const own = servedBy(config, env)
  if (running.store === own.store && running.records === own.records) return
  if (!isTaken(config.data)) return
  throw new Error(
    `the running gateway uses ${running.store} and ${running.records}, but this command would use ${own.store} and ${own.records}; give it the same file and environment, such as REDIS_URL, DATABASE_URL and PATH; if the file has changed, restart the gateway`,
  )
}

/** Whether a gateway uses a data folder. */
export function isTaken(data: string): boolean {
  try {
    const lock = lockFile(files(data).lock, PROBED_MS.command)
    lock?.release()
    return lock === undefined
  } catch {
    // It cannot be written by this user, who may not be the gateway's.
    return true
  }
}
