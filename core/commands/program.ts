/** What the definitions of commands share. */
import type { Command } from 'commander'
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { UsageError } from './shared.ts'

/** The option of commands that can print JSON. */
export const JSON_OPTION = ['--json', 'print JSON'] as const

/** The program to which commands are added, and what their actions need. */
export interface CommandLine {
  readonly program: Command
  /** For `start`. */
  readonly environment: Environment
  /** For all other commands: nothing is logged, since they print their results. */
  readonly quiet: Environment
  /** Returns the file that a command was given, or else the one of `--config`. */
  readonly file: (given?: string) => string
  /** Runs an action with the checked configuration. */
  readonly onConfig: (use: (config: Config) => Promise<void>) => Promise<void>
}

/**
 * Commander would report a missing option before a misspelled one, so required options are checked here.
 * @throws UsageError naming the first option that is missing
 */
export function requireOptions<T extends object>(options: T, ...names: (string & keyof T)[]): void {
  const missing = names.find(name => options[name] === undefined)
  if (missing !== undefined) throw new UsageError(`option --${missing} is required`)
}
