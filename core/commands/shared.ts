/** What several commands share: loading the configuration, opening the ledger, and reporting mistakes. */
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

/** Exit status for an invalid configuration, from sysexits.h. */
const EX_CONFIG = 78

/** A mistake in the command line. It is reported in one line, with exit status 2. */
export class UsageError extends Error {}

/**
 * An error of the store during a command. Its message is the store's own, because the message for customers has no
 * details.
 */
export class StoreFailure extends Error {}

/** Loads the configuration. Prints its problems and exits if there are any. */
export async function configured(environment: Environment, file: string): Promise<Config> {
  return (await loadOrExit(environment, file)).config
}

/** Like `configured`, with the file's text. */
export async function loadOrExit(environment: Environment, file: string): Promise<ValidConfig> {
  const loaded = await loadConfig(file, environment.env, checkChain)
  if (loaded.config) {
    environment.scrubber.watch(credentialsOf(loaded.config))
    return loaded
  }
  environment.complain(reportOf(loaded))
  return environment.exit(EX_CONFIG)
}

/** Runs a command on the configured store, with or without a running gateway. */
export async function onLedger<T>(
  environment: Environment,
  config: Config,
  use: (ledger: Ledger, keys: Keys, store: Store) => Promise<T>,
): Promise<T> {
  // A command can wait longer than a request, in order to report the real cause.
  const store = await openStore({ ...config.store, commandTimeoutMs: 10_000 }, 'guest', environment)
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

/** Quotes a path for a shell if necessary. */
export function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`
}
