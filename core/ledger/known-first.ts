/** What the store knows of a key before the records do. */
import type { RecordedKey } from '../records/key-records.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { FIELDS, readFields } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'

/** What the store knows first. */
export interface KnownFirst {
  /** The latest version of the record that the store has; 0 if it has none. */
  readonly version: number
  /** Whether the key was disabled, and the records do not know it. */
  readonly isDisabled: boolean
  /** The expiry since the first use, in milliseconds since the epoch, if the records do not know it. */
  readonly expiresAt: number | undefined
}

/**
 * Reads what the store knows of a key: at its account and, since it may have been moved at that moment, at the one before.
 * @throws GatewayError unavailable
 */
export async function knownFirst({ redis, keys }: Scripts, key: RecordedKey): Promise<KnownFirst> {
  const accounts = [key.account, ...(key.before === undefined ? [] : [key.before])]
  const names = ['version', 'status', 'expiresAt', 'ahead'] as const
  const found = await orUnavailable(
    Promise.all(accounts.map(account => readFields(redis, keys.record({ account, key: key.id }), names))),
  )
  const isDisabled = found.some(
    ({ status, ahead, version }) => status === 'disabled' && (ahead !== null || Number(version) >= key.version),
  )
  const begun = found.map(({ expiresAt }) => Number(expiresAt ?? 0)).filter(at => at > 0)
  const isUnused = key.lifetimeMs !== undefined && key.expiresAt === undefined
  return {
    version: Math.max(0, ...found.map(({ version }) => Number(version ?? 0))),
    isDisabled: key.status === 'active' && isDisabled,
    expiresAt: isUnused && begun.length > 0 ? Math.min(...begun) : undefined,
  }
}

/** Notes that the records know that a key is disabled. */
export async function forgetAhead({ redis, keys }: Scripts, key: RecordedKey): Promise<void> {
  const { id, account, before = account } = key
  for (const at of new Set([account, before]))
    await orUnavailable(redis.hdel(keys.record({ account: at, key: id }), FIELDS.ahead))
}
