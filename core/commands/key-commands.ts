/** The commands on keys and balances, with their options. */
import type { Command } from 'commander'
import { type PlanChangeName, REQUIRED_MEMBERS } from '../operator/plan-change-names.ts'
import type { CreditsOptions } from './credits.ts'
import type { HistoryOptions } from './keys.ts'
import type { PlanOptions } from './plans.ts'
import { type CommandLine, JSON_OPTION } from './program.ts'
import type { Output, Subject } from './subjects.ts'

/** The code of the commands. */
const CODE = {
  balances: () => import('./balances.ts'),
  credits: () => import('./credits.ts'),
  edits: () => import('./key-edits.ts'),
  import: () => import('./import.ts'),
  keys: () => import('./keys.ts'),
  plans: () => import('./plans.ts'),
  reports: () => import('./reports.ts'),
  status: () => import('./key-status.ts'),
}

/** Adds `tollgate keys …`. */
export function addKeyCommands(line: CommandLine): void {
  const keys = line.program.command('keys').description("create and manage customers' keys").enablePositionalOptions()
  addKeyCreation(keys, line)
  addKeyImport(keys, line)
  addKeyReports(keys, line)
  addKeyChanges(keys, line)
}

function addKeyCreation(keys: Command, { does }: CommandLine): void {
  keys
    .command('create')
    .description('create keys and print them once')
    .option('--type <type>', 'key type from the configuration (required)')
    .option('--credits <amount>', 'credits of a balance of its own, such as 25 or 0.5')
    .option('--balance <id>', 'balance that it spends from, with others: the id of a balance or of its first key')
    .option('--cap <amount>', 'the most that it may use in its life')
    .option('--limits <yaml>', 'limits of this key alone, such as { requestsPerMinute: 60 }')
    .option('--name <name>', 'name for your own use')
    .option('--expires <when>', 'expiry, such as 30d, 12h or 2030-01-31')
    .option('--from-first-use', 'the duration of --expires begins with the first request')
    .option('--manage', 'its owner may create other keys for the balance: see keyTypes.….manages')
    .option('--count <number>', 'create so many keys at once: all or none')
    .option('--batch <name>', 'name of the batch, by which the keys are listed')
    .option('--csv', 'print comma-separated values')
    .option(...JSON_OPTION)
    .action(does(CODE.keys, 'createKeys', 'type'))
}

function addKeyImport(keys: Command, { does }: CommandLine): void {
  keys
    .command('import <file>')
    .description('take over the keys of another gateway from a CSV file, all or none; see docs/moving.md')
    .option('--type <type>', 'key type of the rows without one')
    .option('--per-credit <units>', 'how many units of the amounts in the file make one credit', '1')
    .option('--dry-run', 'print what would be done, and change nothing')
    .option(...JSON_OPTION)
    .action(does(CODE.import, 'importFile'))
}

function addKeyReports(keys: Command, line: CommandLine): void {
  const { does } = line
  keys
    .command('list')
    .description('print all keys, or some of them')
    .option('--search <text>', 'only keys with this in their id, name, batch or label')
    .option('--type <type>', 'only keys of this type')
    .option('--batch <name>', 'only keys of this batch')
    .option('--status <status>', 'only keys that are active, disabled, expired, exhausted or deleted')
    .option('--limit <number>', 'print at most so many keys')
    .option('--cursor <id>', 'continue after this key')
    .option(...JSON_OPTION)
    .action(does(CODE.keys, 'listKeys'))
  keys
    .command('show <id>')
    .description('print one key')
    .option(...JSON_OPTION)
    .action(does(CODE.keys, 'showKey'))
  addHistory(keys, 'key', line)
  keys
    .command('running-out')
    .description('print the keys that are used up soon, at their mean use of the last seven days')
    .option('--days <number>', 'used up within so many days', '7')
    .option('--limit <number>', 'print at most so many', '50')
    .option(...JSON_OPTION)
    .action(does(CODE.reports, 'listRunningOut'))
}

function addKeyChanges(keys: Command, line: CommandLine): void {
  const { onConfig, does } = line
  addCredits(keys, 'key', line)
  keys
    .command('edit <id>')
    .description('change what you choose of a key')
    .option('--name <name>', 'name for your own use')
    .option('--label <label>', 'what its customer sees instead of the secret; empty for its end')
    .option('--type <type>', 'another key type from the configuration')
    .option('--expires <when>', 'expiry, such as 30d, 12h or 2030-01-31; never for none')
    .option('--cap <amount>', 'the most that it may use in its life; none for no limit')
    .option('--limits <yaml>', 'limits of this key alone, such as { requestsPerMinute: 60 }; none for no limits')
    .option('--manage [answer]', 'yes or no: whether its owner may create other keys for the balance')
    .option(...JSON_OPTION)
    .action(does(CODE.edits, 'editKey'))
  keys
    .command('move <id> <balance>')
    .description('let a key spend from another balance; what runs ends on the old one, and history stays there')
    .option(...JSON_OPTION)
    .action((id: string, balance: string, options: Output) =>
      onConfig(CODE.edits, ({ moveKey }, environment, config) =>
        moveKey(environment, config, { id, balance }, options),
      ),
    )
  keys
    .command('delete <id>')
    .description('delete a key for good; its history stays')
    .option(...JSON_OPTION)
    .action(does(CODE.edits, 'deleteKey'))
  keys
    .command('disable <id>')
    .description('disable a key')
    .option(...JSON_OPTION)
    .action((id: string, options: Output) =>
      onConfig(CODE.status, ({ setStatus }, environment, config) =>
        setStatus(environment, config, { id, status: 'disabled' }, options),
      ),
    )
  keys
    .command('enable <id>')
    .description('enable a disabled key')
    .option(...JSON_OPTION)
    .action((id: string, options: Output) =>
      onConfig(CODE.status, ({ setStatus }, environment, config) =>
        setStatus(environment, config, { id, status: 'active' }, options),
      ),
    )
  keys
    .command('rotate <id>')
    .description('give a key a new secret; balance and history stay')
    .option(...JSON_OPTION)
    .action(does(CODE.keys, 'rotateKey'))
}

/** Adds `tollgate balances …`. */
export function addBalanceCommands(line: CommandLine): void {
  const { program, does } = line
  const balances = program
    .command('balances')
    .description('create and manage balances, from which several keys may spend')
    .enablePositionalOptions()
  balances
    .command('create')
    .description('create a balance without a key')
    .option('--name <name>', 'name for your own use')
    .option('--external-id <id>', 'what your shop calls it')
    .option('--credits <amount>', 'first credits, such as 25 or 0.5')
    .option(...JSON_OPTION)
    .action(does(CODE.balances, 'createBalance'))
  balances
    .command('list')
    .description('print balances, the newest first')
    .option('--search <text>', 'only balances with this in their id, name or external id, or in those of a key')
    .option('--external-id <id>', 'only those with this external id')
    .option('--limit <number>', 'print at most so many', '50')
    .option('--cursor <id>', 'continue after this balance')
    .option(...JSON_OPTION)
    .action(does(CODE.balances, 'listBalances'))
  balances
    .command('show <id>')
    .description('print one balance with its keys')
    .option(...JSON_OPTION)
    .action(does(CODE.balances, 'showBalance'))
  balances
    .command('edit <id>')
    .description('change the name or the external id of a balance')
    .option('--name <name>', 'name for your own use')
    .option('--external-id <id>', 'what your shop calls it')
    .option(...JSON_OPTION)
    .action(does(CODE.balances, 'editBalance'))
  addCredits(balances, 'balance', line)
  addHistory(balances, 'balance', line)
  addPlanCommands(balances, line)
}

/** Adds `tollgate balances plan …`. */
function addPlanCommands(balances: Command, { onConfig, does }: CommandLine): void {
  const plans = balances
    .command('plan')
    .description('show and change the plan of a balance; a key that was created alone has a balance with its id')
    .enablePositionalOptions()
  plans
    .command('show <balance>')
    .description('print the plan of a balance, with what is left of its windows')
    .option(...JSON_OPTION)
    .action(does(CODE.plans, 'showPlan'))
  const change = (
    name: PlanChangeName,
    usage: string,
    description: string,
    options: readonly [string, string][] = [],
  ) => {
    const command = plans.command(`${name} ${usage}`).description(description)
    for (const [flags, words] of options) command.option(flags, words)
    const isNeeded = REQUIRED_MEMBERS[name].some(member => member === 'reason')
    command
      .option('--reason <text>', `reason, which the statement shows${isNeeded ? ' (required)' : ''}`)
      .option('--idempotency-key <key>', 'id of this change, such as an invoice number; a repeated id changes nothing')
      .option(...JSON_OPTION)
      .action((...given: unknown[]) => {
        const [id, window, amount] = given.slice(0, usage.split(' ').length) as (string | undefined)[]
        const wish = { change: name, id: id ?? '', window, amount }
        return onConfig(CODE.plans, ({ changeBalancePlan }, environment, config) =>
          changeBalancePlan(environment, config, wish, command.opts<PlanOptions>()),
        )
      })
  }
  change('set', '<balance>', 'give a balance a plan, in the place of the one that it has', [
    ['--type <type>', 'key type whose plan it is'],
    ['--terms <yaml>', 'terms of its own, such as { windows: [{ credits: 20, per: month }] }'],
  ])
  change('extend', '<balance>', 'extend a plan by one period')
  change('end', '<balance>', 'end a plan now')
  change('reset', '<balance> <window>', 'let a window begin anew now; windows are numbered from 1')
  change('add', '<balance> <window> <amount>', 'add to what may be used in a window until it begins anew')
}

/** Adds the commands that change what is left. */
function addCredits(group: Command, kind: Subject['kind'], { onConfig }: CommandLine): void {
  const words = kind === 'key' ? 'the balance of a key' : 'a balance'
  for (const [action, what] of [
    ['topup', `add to ${words}`],
    ['deduct', `take something of ${words} back, at most what is left`],
  ] as const) {
    const command = group
      .command(`${action} <id> <credits>`)
      .description(what)
      .option('--reason <text>', `reason, which the statement shows${action === 'deduct' ? ' (required)' : ''}`)
      .option('--idempotency-key <key>', 'id of this change, such as an invoice number; a repeated id changes nothing')
      .option(...JSON_OPTION)
      .action((id: string, credits: string, options: CreditsOptions) =>
        onConfig(CODE.credits, ({ changeCredits }, environment, config) =>
          changeCredits(environment, config, { subject: { kind, id }, action, credits }, options),
        ),
      )
    if (kind === 'key' && action === 'topup')
      command.option('--extend-by <duration>', 'also extend the expiry of the key, from now or from its expiry on')
  }
}

/** Adds the commands that print what happened. */
function addHistory(group: Command, kind: Subject['kind'], { onConfig }: CommandLine): void {
  group
    .command('history <id>')
    .description(`print the requests of a ${kind}, newest first`)
    .option('--limit <number>', 'print at most so many entries', '50')
    .option('--cursor <number>', 'continue after this entry')
    .option(...JSON_OPTION)
    .action((id: string, options: HistoryOptions) =>
      onConfig(CODE.keys, ({ showHistory }, environment, config) =>
        showHistory(environment, config, { kind, id }, options),
      ),
    )
  group
    .command('statement <id>')
    .description(`print what changed ${kind === 'key' ? 'the balance of a key' : 'a balance'}, newest first`)
    .option('--limit <number>', 'print at most so many lines', '50')
    .option('--cursor <cursor>', 'continue after an earlier page')
    .option('--csv', 'print comma-separated values')
    .option(...JSON_OPTION)
    .action((id: string, options) =>
      onConfig(CODE.reports, ({ showStatement }, environment, config) =>
        showStatement(environment, config, { kind, id }, options),
      ),
    )
}
