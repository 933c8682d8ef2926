/** What several commands share: loading the configuration, and reading options. */
import { resolve } from 'node:path'
import type { Config } from '../config/config.ts'
import { type CheckChain, entryOf, loadConfig, type ValidConfig } from '../config/load.ts'
import { reportOf } from '../config/locate.ts'
import { hideSecrets } from '../config/secrets.ts'
import type { Environment } from '../lib/environment.ts'
import { beginsAsSecret } from '../lib/prefixes.ts'
import { isPlain } from '../lib/printable.ts'
import { DEFAULT_FILE, UsageError } from './program.ts'

/** Exit status for an invalid configuration, from sysexits.h. */
export const EX_CONFIG = 78

/** Takes the stages as they are written. Checking them would load all plugins, which most commands do not use. */
const asWritten: CheckChain = (_source, chain) => Promise.resolve({ entries: chain.map(entryOf), problems: [] })

/** Loads the configuration without checking its stages. Prints its problems and exits if there are any. */
export async function configured(environment: Environment, file: string): Promise<Config> {
  return (await loadOrExit(environment, file, asWritten)).config
}

/** Loads the configuration, and returns it with its text. Prints its problems and exits if there are any. */
export async function loadOrExit(environment: Environment, file: string, checkChain: CheckChain): Promise<ValidConfig> {
  const loaded = await loadConfig(file, environment.env, checkChain)
  if (loaded.config) {
    hideSecrets(environment.scrubber, loaded.config)
    return loaded
  }
  environment.complain(reportOf(loaded))
  return environment.exit(EX_CONFIG)
}

/** Parses the value of an option that is a whole number from 1 on. @throws UsageError for any other value */
export function wholeOption(text: string, name: string, most: number): number {
  const number = /^\d{1,16}$/.test(text) ? Number(text) : 0
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
