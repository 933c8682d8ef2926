/** The credentials that a configuration holds, and how the log is kept free of them. */

import type { Log, Scrubber } from '../lib/log.ts'
import type { Config } from './config.ts'

/** Has a log write what a configuration asks for, and nothing that it keeps secret. */
export function configureLog(
  { log, scrubber }: { readonly log: Log; readonly scrubber: Scrubber },
  config: Config,
): void {
  scrubber.watch(credentialsOf(config))
  log.level = config.log
}

/** Every credential that a configuration holds. */
export function credentialsOf({ upstreams, store }: Config): string[] {
  const accounts = [...upstreams.values()].flatMap(upstream => upstream.accounts)
  const { password } = store.address ?? {}
  return [
    ...accounts.map(({ key }) => key),
    ...(password === undefined ? [] : [password, encodeURIComponent(password)]),
  ].filter(key => key !== 'simulated')
}
