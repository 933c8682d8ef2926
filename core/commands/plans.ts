/** `tollgate balances plan …`: shows and changes the plans of balances. */
import { parse } from 'yaml'
import type { Config } from '../config/config.ts'
import { GatewayError } from '../errors.ts'
import type { Environment } from '../lib/environment.ts'
import { type BalanceView, balanceViews } from '../operator/balance-view.ts'
import { checkerOf } from '../operator/check-input.ts'
import type { PlanChangeName } from '../operator/plan-change-names.ts'
import { CHANGE_MEMBERS, changePlan, type GivenChange } from '../operator/plan-changes.ts'
import type { PlanView, PlanWindowView } from '../operator/plan-view.ts'
import { addAudit } from '../records/audit-log.ts'
import { auditEntry } from './audited.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import { checkName, idempotencyKeyOf, wholeOption } from './shared.ts'
import { findBalance, type Output } from './subjects.ts'

/** Options of the commands that change a plan. */
export interface PlanOptions extends Output {
  readonly type?: string
  /** As in gateway.yaml. */
  readonly terms?: string
  readonly reason?: string
  readonly idempotencyKey?: string
}

/** A change of a plan. */
export interface PlanChangeWish {
  readonly change: PlanChangeName
  /** The id of a balance. */
  readonly id: string
  readonly window?: string | undefined
  readonly amount?: string | undefined
}

/** Changes the plan of a balance, and prints it. */
export async function changeBalancePlan(
  environment: Environment,
  config: Config,
  { change, id, window, amount }: PlanChangeWish,
  options: PlanOptions,
): Promise<void> {
  const { type, terms, reason } = options
  if (change === 'set' && (type === undefined) === (terms === undefined))
    throw new UsageError('give either --type for the plan of a key type, or --terms for terms of its own')
  const idempotencyKey = idempotencyKeyOf(options.idempotencyKey, environment, config)
  checkName('--reason', reason ?? '')
  const given: GivenChange = {
    ...(type !== undefined && { type }),
    ...(terms !== undefined && { plan: yamlOption('--terms', terms) as never }),
    ...(window !== undefined && { window: wholeOption(window, 'the number of a window', 8) }),
    ...(amount !== undefined && { amount }),
    ...(reason !== undefined && { reason }),
  }
  const { properties, required } = CHANGE_MEMBERS[change]
  const fault = checkerOf({ type: 'object', additionalProperties: false, properties, required })(given)
  if (fault) throw new UsageError(fault.message)
  const [made, view] = await onLedger(environment, config, async (ledger, keys) => {
    const { id: account } = await findBalance(ledger, id)
    const audit = auditEntry(environment, `plan.${change}`, account, { ...given })
    const wish = {
      account,
      id: `plan.${change}:${idempotencyKey}`,
      also: (sql: Parameters<typeof addAudit>[0]) => addAudit(sql, audit),
    }
    const isMade = await changePlan({ plans: keys.plans, config }, change, wish, given).catch(asMistake)
    return [isMade, (await balanceViews(ledger, [await findBalance(ledger, account)]))[0]] as const
  })
  if (!made) environment.complain('This idempotency key was already used, so nothing was changed.')
  if (view) print(environment, view, options)
}

/** Prints the plan of a balance. */
export async function showPlan(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  const [view] = await onLedger(environment, config, async ledger =>
    balanceViews(ledger, [await findBalance(ledger, id)]),
  )
  if (view) print(environment, view, options)
}

/** Reads the value of an option that is YAML, such as `{ requestsPerMinute: 60 }`. @throws UsageError */
export function yamlOption(name: string, text: string): unknown {
  try {
    return parse(text)
  } catch (cause) {
    throw new UsageError(`${name} is not YAML: ${(cause as Error).message.split('\n')[0]}`)
  }
}

/** What cannot be done, and what is not valid, is a mistake of the command line. */
export function asMistake(thrown: unknown): never {
  const isMistake = thrown instanceof RangeError || (thrown instanceof GatewayError && thrown.status === 400)
  throw isMistake ? new UsageError(thrown.message) : thrown
}

function print(environment: Environment, { id, plan }: BalanceView, { json }: Output): void {
  if (json) return environment.print(JSON.stringify({ id, plan }))
  if (!plan) return environment.print(`${id} has no plan.`)
  for (const line of planLines(id, plan)) environment.print(line)
}

/** Returns what a plan is, and what is left of each of its windows, in lines. @param id whose plan it is */
export function planLines(id: string, { type, valid, ends_at: ends, renews_at: renews, windows }: PlanView): string[] {
  const until = ends === null ? 'does not end' : `${valid ? 'ends' : 'ended'} at ${ends}`
  const renewal = renews === null ? '' : ` and renews at ${renews}`
  const what = type === null ? 'a plan of its own' : `the plan of ${type}`
  return [`${id} has ${what}, which ${until}${renewal}.`, ...windows.map(lineOf)]
}

function lineOf({ window, unit, per, models, limit, used, left, resets_at: resets }: PlanWindowView): string {
  const which = models ? ` of ${models.join(', ')}` : ''
  return `  ${window}  ${limit} ${unit}${which} per ${per}: ${used} used, ${left} left${resets === null ? '' : `, resets at ${resets}`}`
}
