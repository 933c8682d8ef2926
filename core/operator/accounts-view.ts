/** The accounts of the upstreams as operators see them: health, quotas and counts. */
import type { UpstreamAccount, Config, Quota, Upstream } from '../config/config.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import { healthWords } from '../pool/health-words.ts'
import type { Pool } from '../pool/pool.ts'
import type { PoolSharing } from '../pool/sharing.ts'

/** A quota of an account. Amounts are exact decimals. */
export interface QuotaView {
  readonly window: string
  /** Whether it counts what customers are charged, or what the upstream charges. */
  readonly unit: Quota['unit']
  readonly credits: string
  readonly used: string
  readonly resets_at: string | null
}

/** An account. */
export interface AccountView {
  /** `<upstream>/<name>`. */
  readonly account: string
  readonly upstream: string
  /** Its health in words. `ok` if it may be asked. */
  readonly health: string
  /** Requests that all processes sent by it, and those that it failed to answer. */
  readonly requests: number
  readonly failures: number
  readonly quotas: readonly QuotaView[]
  readonly weight: number
  readonly simulated: boolean
  readonly last_failure: string | null
  readonly last_failure_at: string | null
}

/** Where the state of the accounts is found. */
export interface AccountsSeen {
  readonly config: Config
  readonly ledger: Ledger
  readonly pool: Pool
  readonly sharing: PoolSharing
  /** Milliseconds since the epoch. */
  readonly now: number
}

/** Returns all accounts. @throws GatewayError unavailable */
export async function accountsView({ config, ledger, pool, sharing, now }: AccountsSeen): Promise<AccountView[]> {
  const asked = await sharing.asked()
  const shown = accountsOf(config).map(async ({ upstream, account }) => {
    const health = pool.health(account)
    const { state } = health
    const quotas = account.quotas.map(async quota => {
      const { used, resetsAt } = await ledger.reads.quotaUsed(account.name, quota, now)
      const [limit, spent] = [formatCredits(quota.amount), formatCredits(used)]
      return { window: quota.name, unit: quota.unit, credits: limit, used: spent, resets_at: isoTime(resetsAt) }
    })
    return {
      account: account.name,
      upstream: upstream.name,
      health: healthWords(health, now),
      ...asked(account.name),
      quotas: await Promise.all(quotas),
      weight: account.weight,
      simulated: upstream.simulated,
      last_failure: state.lastFailure?.reason ?? null,
      last_failure_at: isoTime(state.lastFailure?.at),
    }
  })
  return Promise.all(shown)
}

/** Returns the accounts of a configuration with their upstreams. */
export function accountsOf(config: Config): { upstream: Upstream; account: UpstreamAccount }[] {
  return [...config.upstreams.values()].flatMap(upstream => upstream.accounts.map(account => ({ upstream, account })))
}

/** Returns the name of the cheapest model that an account serves, as its provider knows it. */
export function cheapestOf({ keyTypes }: Config, upstream: Upstream, { models }: UpstreamAccount): string | undefined {
  return [...keyTypes.values()]
    .flatMap(type => [...type.models.values()])
    .filter(({ upstreams, sends }) => upstreams.includes(upstream) && (models?.has(sends) ?? true))
    .sort((a, b) => Number(a.price.output - b.price.output))[0]?.sends
}
