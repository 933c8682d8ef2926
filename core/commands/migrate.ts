/** `tollgate migrate`: moves a store of the version before to the records. */
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { Migration } from '../ledger/migrate.ts'
import { onLedger } from './shared.ts'

/** Moves the store, and prints what was moved. */
export async function runMigrate(environment: Environment, config: Config): Promise<void> {
  const { accounts, entries, holds } = await onLedger(
    environment,
    config,
    async (ledger, _keys, store) => {
      if (await store.served()) throw new Error('a gateway uses this store; stop all gateways first')
      return new Migration(ledger, config.store.prefix).run()
    },
    'unchecked',
  )
  const ended = holds === 0 ? '' : ` ${holds} holds of gateways that were killed were charged what was delivered.`
  environment.print(`Moved ${accounts} keys and ${entries} entries.${ended} Now run: npx tollgate audit`)
}
