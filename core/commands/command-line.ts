/** The command line: its commands with their options, and what becomes of mistakes. */
import { Command, CommanderError } from 'commander'
import manifest from '../../package.json' with { type: 'json' }
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { addBalanceCommands, addKeyCommands } from './key-commands.ts'
import { type CommandLine, DEFAULT_FILE, JSON_OPTION, requireOptions, type Terminal, UsageError } from './program.ts'
import type { SchemaOptions } from './schema.ts'

/** What a command does. */
type Action = (environment: Environment, config: Config, ...given: readonly any[]) => Promise<void>

/** The code of the commands. */
const CODE = {
  audit: () => import('./audit.ts'),
  check: () => import('./check.ts'),
  credit: () => import('./credit.ts'),
  notices: () => import('./notices.ts'),
  plugins: () => import('./new-plugin.ts'),
  rebuild: () => import('./rebuild.ts'),
  records: () => import('./records.ts'),
  reports: () => import('./reports.ts'),
  schema: () => import('./schema.ts'),
  tokens: () => import('./tokens.ts'),
  upstreams: () => import('./upstreams.ts'),
  usage: () => import('./usage.ts'),
  why: () => import('./why.ts'),
}

/**
 * Runs a command line to its end. A gateway that has started goes on.
 * @param args without the name of the program
 */
export async function runCommandLine(args: readonly string[], terminal: Terminal): Promise<void> {
  try {
    await programOf(terminal).parseAsync(args, { from: 'user' })
  } catch (thrown) {
    // Commander has already printed its help or its error.
    if (thrown instanceof CommanderError) return terminal.exit(thrown.exitCode === 0 ? 0 : 2)
    terminal.complain(`tollgate: ${(thrown as Error).message}`)
    await terminal.exit(thrown instanceof UsageError ? 2 : 1)
  }
}

function programOf(terminal: Terminal): Command {
  const program = new Command('tollgate')
    .description('The gateway for resellers of language-model access.')
    .version(manifest.version, '-v, --version', 'print the version')
    // Options after a command belong to that command: an option's value may look like an option of the program.
    .enablePositionalOptions()
    .option('-c, --config <file>', 'the configuration', DEFAULT_FILE)
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput({
      writeOut: text => terminal.print(text.trimEnd()),
      writeErr: text => terminal.complain(text.trimEnd()),
    })
  /** The configuration file named by the command, or by one above it. */
  let chosen = ''
  program.hook('preAction', (_program, command) => {
    for (let at: Command | null = command; at && chosen === ''; at = at.parent)
      chosen = at.opts<{ config?: string }>().config ?? ''
  })
  const file = (given?: string): string => given ?? chosen
  const line: CommandLine = {
    program,
    terminal,
    file,
    run: async (load, use) => {
      const [environment, code] = await Promise.all([terminal.quiet(), load()])
      return use(code, environment)
    },
    onConfig: async (load, use) => {
      const [environment, { configured }] = await Promise.all([terminal.quiet(), import('./shared.ts')])
      const config = await configured(environment, file())
      return use(await load(), environment, config)
    },
    does:
      (load, name, ...required) =>
      async (...given) => {
        // Commander appends the command.
        requireOptions(given.at(-2), required)
        await line.onConfig(load, (code, environment, config) =>
          (code[name] as Action)(environment, config, ...given.slice(0, -1)),
        )
      },
  }
  addFileCommands(line)
  addPluginCommands(line)
  addLedgerCommands(line)
  addReportCommands(line)
  addKeyCommands(line)
  addBalanceCommands(line)
  addTokenCommands(line)
  addUpstreamCommands(line)
  takeConfig(program.commands)
  return program
}

function addFileCommands({ program, terminal, file, run }: CommandLine): void {
  program
    .command('start [file]')
    .description('run the gateway')
    .action(async (given?: string) => {
      const { start } = await import('./start.ts')
      return start(await terminal.logging(), file(given))
    })
  program
    .command('check [file]')
    .description('print all problems of the configuration; exit status 78 if there are any')
    .option('--strict', 'refuse warnings, too')
    .action((given: string | undefined, options: { strict?: boolean }) =>
      run(CODE.check, ({ check }, environment) => check(environment, file(given), options)),
    )
  program
    .command('plan [file]')
    .description('print each endpoint with the stages of its requests')
    .action((given?: string) => run(CODE.check, ({ plan }, environment) => plan(environment, file(given))))
  program
    .command('schema [file]')
    .description('print the JSON Schema of the configuration, for editors')
    .option('--markdown', 'print the reference of all options instead')
    .action((given: string | undefined, options: SchemaOptions) =>
      run(CODE.schema, ({ printSchema }, environment) => printSchema(environment, file(given), options)),
    )
}

function addPluginCommands({ program, file, run, does }: CommandLine): void {
  const plugins = program
    .command('plugins [file]')
    .description('print all plugins')
    .action((given?: string) =>
      run(CODE.check, ({ listPlugins }, environment) => listPlugins(environment, file(given))),
    )
  plugins
    .command('new <name>')
    .description('write a plugin, and a test of it, to change')
    .option('--folder <folder>', 'where to write it, relative to gateway.yaml', './plugins')
    .action(does(CODE.plugins, 'newPlugin'))
  plugins
    .command('test [tests...]')
    .description('run tests of plugins; by default those in plugins/ beside gateway.yaml')
    .action((tests: readonly string[]) =>
      run(CODE.plugins, ({ testPlugins }, environment) => testPlugins(environment, file(), tests)),
    )
}

function addLedgerCommands({ program, does }: CommandLine): void {
  program
    .command('audit')
    .description('compare every balance with the records; exit status 1 if any differs')
    .option('--key <id>', 'only this key')
    .option('--repair', 'first correct the held sum of each account from its holds')
    .option('--reprice', 'also recompute each charge from its usage and prices')
    .option('--json', 'print JSON')
    .action(does(CODE.audit, 'runAudit'))

  program
    .command('credit <entry>')
    .description('refund what an entry of the history charged')
    .option('--reason <text>', 'reason, stored with the entry (required)')
    .option('--as <purse>', 'credits: give back as credits what a plan has paid')
    .option('--key <id>', 'key that the entry belongs to')
    .option('--json', 'print JSON')
    .action(does(CODE.credit, 'creditEntry', 'reason'))
  program
    .command('rebuild')
    .description('fill an empty store from the records')
    .action(does(CODE.rebuild, 'runRebuild'))
  program
    .command('records')
    .description('move the records to another database')
    .enablePositionalOptions()
    .command('copy')
    .description('copy the records from SQLite to PostgreSQL, or back, while all gateways are stopped')
    .option('--to <address>', 'address of an empty PostgreSQL database, or auto for the SQLite file (required)')
    .option(...JSON_OPTION)
    .action(does(CODE.records, 'copyRecords', 'to'))
}

function addReportCommands({ program, does }: CommandLine): void {
  program
    .command('usage')
    .description('print requests, tokens, credits, cost, errors and times, summed up by UTC day')
    .option('--since <day>', 'first day: today, yesterday, 7d or 2026-01-31', 'yesterday')
    .option('--until <day>', 'last day, which is included', 'today')
    .option(
      '--by <group>',
      'key, balance, model, served (the model that answered), type, account (upstream account), day, status or code (of errors)',
      'model',
    )
    .option('--limit <number>', 'print at most so many groups, the highest charges first', '1000')
    .option('--csv', 'print comma-separated values')
    .option('--json', 'print JSON')
    .action(does(CODE.usage, 'showUsage'))
  program
    .command('failures')
    .description('print why requests failed, newest first')
    .option('--key <id>', 'only of this key')
    .option('--code <code>', 'only with this code of an error, such as upstream_failed')
    .option('--limit <number>', 'print at most so many', '50')
    .option(...JSON_OPTION)
    .action(does(CODE.reports, 'listFailures'))
  program
    .command('why <request>')
    .description('print what happened to one request, and why')
    .option(...JSON_OPTION)
    .action(does(CODE.why, 'explainRequest'))
}

function addTokenCommands({ program, does }: CommandLine): void {
  const tokens = program
    .command('tokens')
    .description('create and revoke the tokens of operators, for the admin API and its page')
    .enablePositionalOptions()
  tokens
    .command('create')
    .description('create a token and print it once')
    .option('--name <name>', 'who uses it (required)')
    .option('--scope <scope>', 'read, keys (also sells) or all', 'all')
    .option(...JSON_OPTION)
    .action(does(CODE.tokens, 'createToken', 'name'))
  tokens
    .command('list')
    .description('print all tokens')
    .option(...JSON_OPTION)
    .action(does(CODE.tokens, 'listTokens'))
  tokens
    .command('revoke <id>')
    .description('revoke a token, and end its sessions')
    .action(does(CODE.tokens, 'revokeToken'))
}

function addUpstreamCommands({ program, onConfig, does }: CommandLine): void {
  const upstreams = program
    .command('upstreams')
    .description('print the accounts of all upstreams with their health')
    .option(...JSON_OPTION)
    .action(does(CODE.upstreams, 'listAccounts'))
  for (const [action, description] of [
    ['disable', 'ask an account no more'],
    ['enable', 'ask a disabled account again'],
    ['reset', 'ask an account again that failed or that its provider refused'],
  ] as const)
    upstreams
      .command(`${action} <name>`)
      .description(description)
      .action((name: string) =>
        onConfig(CODE.upstreams, ({ changeAccount }, environment, config) =>
          changeAccount(environment, config, name, action),
        ),
      )
  upstreams
    .command('test <name>')
    .description('send one small request by an account, which its provider bills')
    .action(does(CODE.upstreams, 'testAccount'))
  program
    .command('webhooks')
    .description('try the stage that tells another system what happens')
    .command('test')
    .description('let the running gateway send a test, and print whether it was delivered')
    .action(does(CODE.notices, 'testNotices'))
}

/** Accepts `--config` after any command. */
function takeConfig(commands: readonly Command[]): void {
  for (const command of commands) {
    command.option('-c, --config <file>', 'the configuration')
    takeConfig(command.commands)
  }
}
