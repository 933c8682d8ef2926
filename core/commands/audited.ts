/** Lines of the audit log for what commands change. */
import type { Environment } from '../lib/environment.ts'
import type { AuditEntry } from '../records/audit-log.ts'

/** Returns a line for a change that a command makes. */
export function auditEntry(
  { now, env, uid }: Pick<Environment, 'now' | 'env' | 'uid'>,
  action: string,
  target: string,
  details: Readonly<Record<string, unknown>> = {},
): AuditEntry {
  // A service, and a container, has no user name.
  const user = env['SUDO_USER'] ?? env['USER'] ?? env['LOGNAME'] ?? (uid === undefined ? undefined : `uid ${uid}`)
  const actor = user === undefined ? 'command line' : `command line (${user.slice(0, 100)})`
  return { at: now(), actor, address: '', action, target, details }
}
