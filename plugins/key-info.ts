import { type KeyType, Reply } from 'tollgate/plugin'
import {
  allowance,
  balanceOf,
  credits,
  defineBuiltIn,
  isoTime,
  keyDays,
  limitsOf,
  limitsView,
  modelsFor,
  type Quota,
  policyOf,
  PRIVATE,
  typeOf,
  usageOf,
  seenBy,
} from 'tollgate/plugin/operator'

/** Returns the calling key's policy and a summary of its usage. Expired and exhausted keys may ask as well. */
export default defineBuiltIn({
  name: 'key-info',
  summary: 'Answers GET /api/v1/key-info, and GET /api/v1/key-info/usage by day and model.',
  on: ['GET /api/v1/key-info', 'GET /api/v1/key-info/usage'],
  needs: ['key'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      quotas: {
        type: 'string',
        enum: ['own', 'all'],
        default: 'own',
        description:
          "What customers see of the accounts' quotas: their own share, and whether they are used up; or `all`, which is what all customers together have used, except in quotas in cost.",
      },
    },
  },
  setup(options, { config, keys, ledger, now }) {
    /**
     * Returns the quotas of the upstream accounts that the key's requests use, added up by their windows. Amounts of
     * quotas in cost are shown to no customer.
     */
    async function accountQuotas(type: KeyType, key: string): Promise<object> {
      const quotas = type.upstreams
        .flatMap(({ accounts }) => accounts)
        .flatMap(account => account.quotas.map(quota => ({ account: account.name, quota })))
      const sums = new Map<string, Sum>()
      for (const { account, quota } of quotas) {
        const { used, resetsAt } = await ledger.reads.quotaUsed(account, quota, now())
        const name = memberOf(quota)
        const sum: Sum = sums.get(name) ?? { resetsAt, usedUp: new Map() }
        sums.set(name, sum)
        sum.resetsAt = Math.min(sum.resetsAt, resetsAt)
        sum.usedUp.set(account, sum.usedUp.get(account) === true || used >= quota.amount)
        if (quota.unit === 'cost') continue
        if (options.quotas === 'all') add((sum.all ??= { limit: 0n, used: 0n }), { limit: quota.amount, used })
        if (quota.fairShare)
          add((sum.share ??= { limit: 0n, used: 0n }), await ledger.reads.quotaShare(account, quota, key, now()))
      }
      return Object.fromEntries([...sums].map(([name, sum]) => [name, shown(sum)]))
    }

    return {
      async request({ key, path, query }) {
        const whose = await seenBy(ledger, key)
        if (path.endsWith('/usage')) return Reply.json(await keyDays(ledger, whose, query, now()), PRIVATE)
        const type = typeOf(config, key)
        const limits = limitsOf(type, key)
        const [record, may, summary, quota] = await Promise.all([
          keys.changes.record(key.id),
          allowance(ledger, key, config, now()),
          ledger.reads.summary(whose, now()),
          accountQuotas(type, key.id),
        ])
        const info = {
          object: 'key_info',
          id: key.id,
          label: key.label,
          name: record?.label ?? key.label,
          created_at: isoTime(record?.createdAt),
          balance_id: key.account,
          manages_keys: record?.manage === true,
          ...(await balanceOf(ledger, key, may, now())),
          ...policyOf(config, type, modelsFor(type, key, config.groups)),
          ...limitsView(limits, may, now()),
          ...quota,
          ...usageOf(summary, now()),
        }
        return Reply.json(info, PRIVATE)
      },
    }
  },
})

/** A part of quotas, in nano-credits. */
interface Use {
  limit: bigint
  used: bigint
}

/** Quotas of one kind of window. `share` has those that are shared fairly. */
interface Sum {
  all?: Use
  share?: Use
  resetsAt: number
  /** By account: whether one of its quotas is used up. */
  readonly usedUp: Map<string, boolean>
}

function add(sum: Use, { limit, used }: Use): void {
  sum.limit += limit
  // A key that was lent something has used more than its share, which takes nothing from its share of another account.
  sum.used += used < limit ? used : limit
}

function shown({ all, share, resetsAt, usedUp }: Sum): object {
  return {
    ...(all && amounts(all)),
    ...(share && { share: amounts(share) }),
    used_up: [...usedUp.values()].every(Boolean),
    reset_at: isoTime(resetsAt),
  }
}

function amounts({ limit, used }: Use): object {
  return { limit: credits(limit), used: credits(used), remaining: credits(limit - used) }
}

const MEMBERS = { day: 'daily_quota', week: 'weekly_quota', month: 'monthly_quota' } as const

/** Returns the member of a key info that shows a quota. */
function memberOf({ name, window }: Quota): string {
  return 'rollingMs' in window ? `quota_of_${name}` : MEMBERS[window.per]
}
