/** Commands on the ledger, with or without a running gateway: opening the store and the records, and their failures. */
import { existsSync } from 'node:fs'
import type { Config } from '../config/config.ts'
import { GatewayError } from '../errors.ts'
import { Keys } from '../keys/keys.ts'
import { settingsOf } from '../keys/settings.ts'
import { Ledger } from '../ledger/ledger.ts'
import { openRecords } from '../ledger/open-records.ts'
import { noFileYet } from '../ledger/recovery/refusals.ts'
import { Scripts } from '../ledger/script/scripts.ts'
import type { Environment } from '../lib/environment.ts'
import { RecordsError } from '../records/database.ts'
import { fileOf, Records } from '../records/records.ts'
import { causeOf } from '../records/unavailable.ts'
import { inWords } from '../store/connect.ts'
import { refuseOther } from '../store/serving.ts'
import { openStore } from '../store/store.ts'

/** A failure of the store or of the records during a command, in their own words. */
export class StoreFailure extends Error {}

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
