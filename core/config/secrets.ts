/** The credentials of a configuration, and how they are kept out of the log. */

import type { Log } from '../lib/log.ts'
import type { Scrubber } from '../lib/scrubber.ts'
import { secretsIn } from '../lib/prefixes.ts'
import type { Config } from './config.ts'

/** Applies the configured log level, and hides the configuration's credentials from the log. */
export function configureLog(
  { log, scrubber }: { readonly log: Log; readonly scrubber: Scrubber },
  config: Config,
): void {
  hideSecrets(scrubber, config)
  log.level = config.log
}

/** Keeps the credentials of a configuration out of everything that is written, and the secrets that it lets customers have. */
export function hideSecrets(scrubber: Scrubber, config: Config): void {
  scrubber.watch(credentialsOf(config))
  scrubber.watchFor(secretsIn(config.keys.prefixes))
}

/** Returns every credential of a configuration. */
export function credentialsOf({ upstreams, store, keys }: Config): string[] {
  const accounts = [...upstreams.values()].flatMap(upstream => upstream.accounts)
  const { password } = store.address ?? {}
  const records = store.records !== undefined && URL.canParse(store.records) ? new URL(store.records).password : ''
  return [
    ...accounts.map(({ key }) => key),
    ...accounts.flatMap(({ proxy }) => (proxy?.password ? [proxy.password, decodeURIComponent(proxy.password)] : [])),
    ...(keys.importSuffix === undefined ? [] : [keys.importSuffix]),
    ...(password === undefined ? [] : [password, encodeURIComponent(password)]),
    ...(records === '' ? [] : [records, decodeURIComponent(records)]),
  ].filter(key => key !== 'simulated')
}
