/** `tollgate upstreams`: the accounts of the upstreams, their health, and what an operator does about it. */
import type { UpstreamAccount, Config, Upstream } from '../config/config.ts'
import { suggestion } from '../lib/suggest.ts'
import { probe } from '../upstream/connection/probe.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Environment } from '../lib/environment.ts'
import { accountsOf, accountsView, type AccountView, cheapestOf } from '../operator/accounts-view.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { addAudit } from '../records/audit-log.ts'
import type { Also } from '../records/database.ts'
import { Pool } from '../pool/pool.ts'
import { PoolSharing, recordDisabled } from '../pool/sharing.ts'
import { auditEntry } from './audited.ts'
import type { Output } from './subjects.ts'
import { inOneLine } from '../lib/printable.ts'
import { UsageError } from './program.ts'
import { onLedger, StoreFailure } from './on-ledger.ts'

/** What an operator can do with an account. */
export type AccountAction = 'disable' | 'enable' | 'reset'

/** Prints every account with its health, quota and counts. */
export async function listAccounts(environment: Environment, config: Config, options: Output): Promise<void> {
  const lines = await onLedger(environment, config, async ledger => {
    const { pool, sharing } = await poolOf(environment, config, ledger)
    return accountsView({ config, ledger, pool, sharing, now: environment.now() })
  })
  for (const line of lines) {
    if (options.json) environment.print(JSON.stringify(line))
    else environment.print(inWords(line))
  }
}

function inWords({ account, health, requests, failures, quotas, last_failure, last_failure_at }: AccountView): string {
  const used = quotas.map(
    each =>
      `${each.unit === 'cost' ? 'cost: ' : ''}${each.used} of ${each.credits} credits per ${each.window} until ${each.resets_at}`,
  )
  const last = last_failure === null ? [] : [`last failure ${last_failure_at}: ${inOneLine(last_failure)}`]
  const rest = [`${requests} requests, ${failures} failed`, ...used, ...last].join('; ')
  return `${account.padEnd(20)}  ${health.padEnd(24)}  ${rest}`
}

/** Disables an account, enables it again, or brings it back. */
export async function changeAccount(
  environment: Environment,
  config: Config,
  name: string,
  action: AccountAction,
): Promise<void> {
  const { account } = findAccount(config, name)
  await onLedger(environment, config, async ledger => {
    const { pool, sharing } = await poolOf(environment, config, ledger)
    const audit = auditEntry(environment, `account.${action}`, account.name)
    if (action === 'reset') {
      await orUnavailable(ledger.records.audit.add(audit))
      pool.health(account).reset(environment.now())
      await sharing.write(account.name)
    } else {
      // The records come first: a store may lose it.
      const also: Also = sql => addAudit(sql, audit)
      await sharing.disable(await recordDisabled(ledger.records, account.name, action === 'disable', also))
    }
  })
  environment.print(`${account.name} ${DONE[action]}. Running gateways follow within two seconds.`)
}

/** Sends one small request by an account, which its provider bills, and prints how it went. */
export async function testAccount(environment: Environment, config: Config, name: string): Promise<void> {
  const { upstream, account } = findAccount(config, name)
  const model = cheapestOf(config, upstream, account)
  if (model === undefined) throw new UsageError(`no key type has a model that ${account.name} serves`)
  if (account.url === undefined) return environment.print(`${account.name} is simulated.`)
  const { ms, failure } = await probe(upstream, account, model)
  if (failure !== undefined) throw new StoreFailure(`${account.name} failed after ${ms} ms: ${failure}`)
  environment.print(`${account.name} answered in ${ms} ms (model ${model}).`)
}

const DONE: Readonly<Record<AccountAction, string>> = {
  disable: 'is disabled',
  enable: 'is enabled',
  reset: 'is asked again',
}

async function poolOf(
  environment: Environment,
  config: Config,
  ledger: Ledger,
): Promise<{ pool: Pool; sharing: PoolSharing }> {
  const pool = new Pool(environment)
  const sharing = new PoolSharing(pool, ledger.scripts, environment.log, true)
  await sharing.load(config, ledger.records)
  return { pool, sharing }
}

/** Finds an account by its name. @throws UsageError if there is none */
function findAccount(config: Config, name: string): { upstream: Upstream; account: UpstreamAccount } {
  const found = accountsOf(config).find(({ account }) => account.name === name)
  if (found) return found
  const names = accountsOf(config).map(({ account }) => account.name)
  throw new UsageError(`there is no account ${inOneLine(name)}${suggestion(name, names)}`)
}
