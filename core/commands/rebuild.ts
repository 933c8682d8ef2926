/** `tollgate rebuild`: fills an empty store from the records. */
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { onLedger } from './on-ledger.ts'

/** Fills the store and prints how many keys it has now. */
export async function runRebuild(environment: Environment, config: Config): Promise<void> {
  const keys = await onLedger(environment, config, ledger => ledger.continuity.rebuildAll(), 'unchecked')
  environment.print(`Restored ${keys} keys from ${describe(config)}. Now run: npx tollgate audit`)
}

function describe({ store }: Config): string {
  return store.records === undefined ? 'the records in store.data' : 'the records in PostgreSQL'
}
