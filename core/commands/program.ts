/**
 * What the definitions of commands share. A definition imports the code of its command when the command is chosen, since
 * most of the time of a short command is the loading of code.
 */
import type { Command } from 'commander'
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'

/** The configuration of commands without `-c`. */
export const DEFAULT_FILE = 'gateway.yaml'

/** The option of commands that can print JSON. */
export const JSON_OPTION = ['--json', 'print JSON'] as const

/** A mistake in the command line. It is reported in one line, with exit status 2. */
export class UsageError extends Error {}

/** What the command line itself needs of its process, and how the command that is chosen gets the rest. */
export interface Terminal extends Pick<Environment, 'print' | 'complain' | 'exit'> {
  /** For `start`. */
  readonly logging: () => Promise<Environment>
  /** For all other commands: nothing is logged, since they print their results. */
  readonly quiet: () => Promise<Environment>
}

/** The program to which commands are added, and how their actions run. */
export interface CommandLine {
  readonly program: Command
  readonly terminal: Terminal
  /** Returns the file that a command was given, or else the one of `--config`. */
  readonly file: (given?: string) => string
  /** Imports the code of a command and runs it. */
  readonly run: <Code>(
    load: () => Promise<Code>,
    use: (code: Code, environment: Environment) => Promise<void>,
  ) => Promise<void>
  /** The same for a command that needs the configuration. Its stages are not checked. */
  readonly onConfig: <Code>(
    load: () => Promise<Code>,
    use: (code: Code, environment: Environment, config: Config) => Promise<void>,
  ) => Promise<void>
  /** Returns an action that hands its arguments and options, some of which are required, to a function of that code. */
  readonly does: <Code>(
    load: () => Promise<Code>,
    name: keyof Code,
    ...required: readonly string[]
  ) => (...given: readonly any[]) => Promise<void>
}

/**
 * Commander would report a missing option before a misspelled one, so required options are checked here.
 * @throws UsageError naming the first option that is missing
 */
export function requireOptions(options: Readonly<Record<string, unknown>>, names: readonly string[]): void {
  const missing = names.find(name => options[name] === undefined)
  if (missing !== undefined) throw new UsageError(`option --${missing} is required`)
}
