/** What several commands share: loading the configuration, opening the ledger, and reporting mistakes. */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Config } from '../config/config.ts'
import { loadConfig, type ValidConfig } from '../config/load.ts'
import { reportOf } from '../config/locate.ts'
import { GatewayError } from '../errors.ts'
import { Keys } from '../keys/keys.ts'
import { settingsOf } from '../keys/settings.ts'
import { Ledger } from '../ledger/ledger.ts'
import { noFileYet } from '../ledger/recovery/refusals.ts'
import { Scripts } from '../ledger/script/scripts.ts'
import { causeOf } from '../records/unavailable.ts'
import { hideSecrets } from '../config/secrets.ts'
import { inWords } from '../store/connect.ts'
import { RecordsError } from '../records/database.ts'
import { beginsAsSecret } from '../lib/prefixes.ts'
import { isPlain } from '../lib/printable.ts'
import { openRecords } from '../ledger/open-records.ts'
import { fileOf, Records } from '../records/records.ts'
import { refuseOther } from '../store/serving.ts'
import { openStore } from '../store/store.ts'
import { checkChain } from '../chain/check-chain.ts'
import type { Environment } from '../lib/environment.ts'

/** The configuration of commands without `-c`. */
export const DEFAULT_FILE = 'gateway.yaml'

/** Exit status for an invalid configuration, from sysexits.h. */
export const EX_CONFIG = 78

/** A mistake in the command line. It is reported in one line, with exit status 2. */
export class UsageError extends Error {}

/** A failure of the store or of the records during a command, in their own words. */
export class StoreFailure extends Error {}

/** Loads the configuration. Prints its problems and exits if there are any. */
export async function configured(environment: Environment, file: string): Promise<Config> {
  return (await loadOrExit(environment, file)).config
}

/** Like `configured`, with the file's text. */
export async function loadOrExit(environment: Environment, file: string): Promise<ValidConfig> {
  const loaded = await loadConfig(file, environment.env, checkChain)
  if (loaded.config) {
    hideSecrets(environment.scrubber, loaded.config)
    return loaded
  }
  environment.complain(reportOf(loaded))
  return environment.exit(EX_CONFIG)
}

/**
 * Runs a command on the configured store and records, with or without a running gateway.
 * @param unchecked whether the store may be one that these records do not know
 */
export async function onLedger<T>(
  environment: Environment,
  config: Config,
  use: (ledger: Ledger, keys: Keys) => Promise<T>,
  unchecked?: 'unchecked',
): Promise<T> {
  refuseOther(config.store, environment)
  // A command can wait longer than a request, in order to report the real cause.
  const store = await openStore({ ...config.store, commandTimeoutMs: 10_000 }, 'guest', environment)
  let records: Records | undefined
  let ledger: Ledger | undefined
  try {
    records = await openRecords(environment, config.store, store)
    ledger = new Ledger({ store, records, config, environment })
    if (!unchecked) await ledger.continuity.start(false)
    return await use(ledger, new Keys(ledger, 0, environment.now, settingsOf(config)))
  } catch (thrown) {
    throw failureOf(thrown)
  } finally {
    ledger?.continuity.close()
    // What the command has done is reported in any case.
    await Promise.allSettled([store.close(), records?.close()])
  }
}

/** Runs a command on the store alone, without the records. */
export async function onStore<T>(
  environment: Environment,
  config: Config,
  use: (scripts: Scripts) => Promise<T>,
): Promise<T> {
  const store = await openStore({ ...config.store, commandTimeoutMs: 10_000 }, 'guest', environment)
  try {
    return await use(new Scripts(store, config.store.prefix))
  } catch (thrown) {
    throw failureOf(thrown)
  } finally {
    await store.close()
  }
}

/** Returns a failure of the store or of the records in its own words. Anything else stays as it is. */
function failureOf(thrown: unknown): unknown {
  const cause = causeOf(thrown)
  if (cause instanceof RecordsError) return new StoreFailure(`the records failed: ${cause.message}`, { cause })
  if (!(thrown instanceof GatewayError && cause instanceof Error)) return thrown
  return new StoreFailure(`the store failed: ${inWords(cause.message)}`, { cause })
}

/** Runs a command on the records alone, without the store. @throws Error for the operator if their file is missing */
export async function onRecords<T>(
  environment: Environment,
  config: Config,
  use: (records: Records) => Promise<T>,
): Promise<T> {
  refuseOther(config.store, environment)
  const file = fileOf(config.store)
  // An empty file in the place of a lost one would keep the gateway from saying that it is lost.
  if (file !== undefined && !existsSync(file)) throw new StoreFailure(noFileYet(file))
  const records = await Records.open(config.store, environment)
  try {
    return await use(records)
  } catch (thrown) {
    throw failureOf(thrown)
  } finally {
    await records.close()
  }
}

/** Parses the value of an option that is a whole number from 1 on. @throws UsageError for any other value */
export function wholeOption(text: string, name: string, most: number): number {
  const number = /^\d{1,9}$/.test(text) ? Number(text) : 0
  if (number < 1 || number > most) throw new UsageError(`${name} is a whole number from 1 to ${most}`)
  return number
}

/** Checks a name that an operator gives. @throws UsageError if it has characters that hide what it is */
export function checkName(option: string, name: string): void {
  if (isPlain(name)) return
  throw new UsageError(`${option} has invisible characters, or some that change the writing direction`)
}

/** Returns the idempotency key that was given, or a new one. @throws UsageError */
export function idempotencyKeyOf(given: string | undefined, { newId }: Environment, { keys }: Config): string {
  const key = given ?? newId()
  // The key may be pasted into a shell, so characters with a special meaning there are refused.
  if (!beginsAsSecret(key, keys.prefixes) && /^[A-Za-z0-9][\w.:/@+=-]{0,99}$/.test(key)) return key
  throw new UsageError(
    'an idempotency key has 1 to 100 letters, digits and . _ : / @ + = -, begins with a letter or a digit, and is not an API key',
  )
}

/** Quotes a path for a shell if necessary. */
export function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`
}

/** Returns the option with which a printed command uses a configuration. */
export function fileOption(file: string): string {
  return resolve(file) === resolve(DEFAULT_FILE) ? '' : ` -c ${quoted(file)}`
}
