/** What several commands do: load the configuration, open the ledger, and report mistakes. */
import type { Config } from '../config/config.ts'
import { loadConfig, type ValidConfig } from '../config/load.ts'
import { reportOf } from '../config/locate.ts'
import { GatewayError } from '../errors.ts'
import { Keys } from '../ledger/keys.ts'
import { Ledger } from '../ledger/ledger.ts'
import { credentialsOf } from '../config/secrets.ts'
import { inWords } from '../store/connect.ts'
import { openStore, type Store } from '../store/store.ts'
import { checkChain } from '../chain/check-chain.ts'
import type { Environment } from '../lib/environment.ts'

/** Exit status for a configuration that cannot be used, from sysexits.h. */
const EX_CONFIG = 78

/** A mistake of the person at the keyboard: told in one line, exit status 2. */
export class UsageError extends Error {}

/** A store that failed a command, told in its own words: what customers are told is of no help to who looks after it. */
export class StoreFailure extends Error {}

/** The configuration of a file; complains and exits when it has problems. */
export async function configured(environment: Environment, file: string): Promise<Config> {
  return (await loadOrExit(environment, file)).config
}

/** As `configured`, with the file's text. */
export async function loadOrExit(environment: Environment, file: string): Promise<ValidConfig> {
  const loaded = await loadConfig(file, environment.env, checkChain)
  if (loaded.config) {
    environment.scrubber.watch(credentialsOf(loaded.config))
    return loaded
  }
  environment.complain(reportOf(loaded))
  return environment.exit(EX_CONFIG)
}

/** Runs a command on the store that the file names, beside a running gateway or without one. */
export async function onLedger<T>(
  environment: Environment,
  config: Config,
  use: (ledger: Ledger, keys: Keys, store: Store) => Promise<T>,
): Promise<T> {
  // A command is not in a hurry, and its person wants to hear the reason rather than a quick no.
  const store = await openStore({ ...config.store, commandTimeout: 10_000 }, 'guest', environment)
  try {
    const ledger = new Ledger(store, config, environment)
    return await use(ledger, new Keys(ledger, 0, environment.now), store)
  } catch (thrown) {
    throw thrown instanceof GatewayError && thrown.cause instanceof Error
      ? new StoreFailure(`the store failed: ${inWords(thrown.cause.message)}`)
      : thrown
  } finally {
    await store.close()
  }
}

/** A path as a environment takes it for one word. */
export function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`
}
