/** `tollgate keys disable` and `enable`. Disabling works while the records are away. */
import type { Config } from '../config/config.ts'
import { disableInStore } from '../keys/changes.ts'
import { digestsOf, isPublicId } from '../keys/secrets.ts'
import type { Environment } from '../lib/environment.ts'
import { RecordsError } from '../records/database.ts'
import { addAudit } from '../records/audit-log.ts'
import type { KeyRecord } from '../records/key-records.ts'
import { keyView } from '../operator/key-view.ts'
import { auditEntry } from './audited.ts'
import { spenderAt } from '../ledger/script/store-keys.ts'
import { find, type Output, report } from './subjects.ts'
import { UsageError } from './program.ts'
import { onLedger, onStore, StoreFailure } from './on-ledger.ts'

const NOT_RECORDED =
  'The key is disabled in the store. The records do not answer; a running gateway records it as soon as they do.'

/** Disables or enables a key. */
export async function setStatus(
  environment: Environment,
  config: Config,
  { id, status }: { readonly id: string; readonly status: Exclude<KeyRecord['status'], 'deleted'> },
  options: Output,
): Promise<void> {
  const change = onLedger(environment, config, async (ledger, keys) => {
    const key = await find(keys, id)
    if (status === 'active') {
      const audit = auditEntry(environment, 'key.enable', key.id)
      const reached = await keys.changes.enable(key.id, { also: sql => addAudit(sql, audit) })
      report(environment, reached)
      // The store would say nothing else.
      if (reached !== 'store') return undefined
    } else {
      const reached = await keys.changes.disable(key.id)
      // Without the records, the key is disabled all the same.
      await ledger.records.audit.add(auditEntry(environment, 'key.disable', key.id)).catch(() => {})
      if (reached === 'unrecorded') environment.complain(NOT_RECORDED)
      else report(environment, reached)
      if (reached === 'records' || reached === 'unknown') return undefined
    }
    return keyView(ledger, { ...key, status }, config, environment.now())
  })
  const shown = await change.catch(async (thrown: unknown) => {
    const isAway = thrown instanceof StoreFailure && thrown.cause instanceof RecordsError
    if (!isAway || status !== 'disabled') throw thrown
    await disableWithoutRecords(environment, config, id)
    return undefined
  })
  if (!shown) return
  environment.print(options.json ? JSON.stringify(shown) : `${shown.id} is now ${shown.status}.`)
}

/** Disables a key while the records are away. */
async function disableWithoutRecords(environment: Environment, config: Config, id: string): Promise<void> {
  await onStore(environment, config, async scripts => {
    let key = isPublicId(id) ? id : undefined
    for (const digest of digestsOf(id, config.keys.importSuffix)) {
      const pointer = key === undefined ? await scripts.redis.get(scripts.keys.pointer(digest)) : null
      if (pointer !== null) key = spenderAt(pointer).key
    }
    if (key === undefined || !(await disableInStore(scripts, key)))
      throw new UsageError('the store has no such key, and the records do not answer')
  })
  environment.complain(NOT_RECORDED)
}
