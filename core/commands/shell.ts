/** What a command needs of the shell it was typed in. */
import type { Config } from '../config/config.ts'
import { loadConfig, type Loaded, type ValidConfig } from '../config/load.ts'
import { render } from '../config/locate.ts'
import type { Env } from '../config/yaml.ts'
import { GatewayError } from '../errors.ts'
import { Keys } from '../ledger/keys.ts'
import { Ledger } from '../ledger/ledger.ts'
import { credentialsOf } from '../config/secrets.ts'
import type { Log, Scrubber } from '../lib/log.ts'
import { inWords, openStore, type Store } from '../store/store.ts'
import { checkChain } from '../chain/check-chain.ts'

export interface Shell {
  readonly env: Env
  readonly pid: number
  readonly log: Log
  readonly scrubber: Scrubber
  readonly isTerminal: boolean
  print(line: string): void
  complain(line: string): void
  readonly now: () => number
  readonly newId: () => string
  onSignal(signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', handler: () => void): void
  /** Ends the process when what was printed has been read; a gateway, after a moment at the latest. */
  exit(code: number): Promise<never>
}

/** Exit status for a configuration that cannot be used, from sysexits.h. */
const EX_CONFIG = 78

/** A mistake of the person at the keyboard: told in one line, exit status 2. */
export class UsageError extends Error {}

/** A store that failed a command, told in its own words: what customers are told is of no help to who looks after it. */
export class StoreFailure extends Error {}

/** The configuration of a file; complains and exits when it has problems. */
export async function configured(shell: Shell, file: string): Promise<Config> {
  return (await loadOrExit(shell, file)).config
}

/** As `configured`, with the file's text. */
export async function loadOrExit(shell: Shell, file: string): Promise<ValidConfig> {
  const loaded = await loadConfig(file, shell.env, checkChain)
  if (loaded.config) {
    shell.scrubber.watch(credentialsOf(loaded.config))
    return loaded
  }
  complainAbout(shell, loaded)
  return shell.exit(EX_CONFIG)
}

export function complainAbout(shell: Shell, { problems, text }: Loaded): void {
  shell.complain(`${render(problems, text)}\n\n${problems.length} ${problems.length === 1 ? 'problem' : 'problems'}`)
}

/** Runs a command on the store that the file names, beside a running gateway or without one. */
export async function onLedger<T>(shell: Shell, config: Config, use: (ledger: Ledger, keys: Keys, store: Store) => Promise<T>): Promise<T> {
  // A command is not in a hurry, and its person wants to hear the reason rather than a quick no.
  const store = await openStore({ ...config.store, commandTimeout: 10_000 }, 'guest', shell.log, shell)
  try {
    const ledger = new Ledger(store, config, shell.log)
    return await use(ledger, new Keys(ledger, 0, shell.now), store)
  } catch (thrown) {
    throw thrown instanceof GatewayError && thrown.cause instanceof Error ? new StoreFailure(`the store failed: ${inWords(thrown.cause.message)}`) : thrown
  } finally {
    await store.close()
  }
}

/** A path as a shell takes it for one word. */
export function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`
}
