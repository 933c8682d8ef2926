import {
  balanceOf,
  credits,
  definePlugin,
  isoTime,
  keyDays,
  type KeyType,
  type Quota,
  policyOf,
  PRIVATE,
  Reply,
  usageOf,
} from 'tollgate/plugin'

/** Returns the calling key's policy and a summary of its usage. Expired and exhausted keys may ask as well. */
export default definePlugin({
  name: 'key-info',
  summary: 'Answers GET /api/v1/key-info, and GET /api/v1/key-info/usage by day and model.',
  on: ['GET /api/v1/key-info', 'GET /api/v1/key-info/usage'],
  needs: ['key'],
  setup(_options, { config, keys, ledger, now }) {
    /**
     * Returns the quotas of the upstream accounts that the key's requests use, added up by their windows, each with the
     * key's share if some of them are shared fairly.
     */
    async function accountQuotas(type: KeyType, key: string): Promise<object> {
      const quotas = type.upstreams
        .flatMap(({ accounts }) => accounts)
        .flatMap(account => account.quotas.map(quota => ({ account: account.name, quota })))
      const sums = new Map<string, { all: Use; share?: Use; resetsAt: number }>()
      for (const { account, quota } of quotas) {
        const { used, resetsAt } = await ledger.quotaUsed(account, quota, now())
        const name = memberOf(quota)
        const sum = sums.get(name) ?? { all: { limit: 0n, used: 0n }, resetsAt }
        add(sum.all, { limit: quota.amount, used })
        if (quota.fairShare)
          add((sum.share ??= { limit: 0n, used: 0n }), await ledger.quotaShare(account, quota, key, now()))
        sum.resetsAt = Math.min(sum.resetsAt, resetsAt)
        sums.set(name, sum)
      }
      return Object.fromEntries(
        [...sums].map(([name, { all, share, resetsAt }]) => [
          name,
          { ...shown(all, resetsAt), ...(share && { share: shown(share, resetsAt) }) },
        ]),
      )
    }

    return {
      async request({ key, path, query }) {
        if (path.endsWith('/usage')) return Reply.json(await keyDays(ledger, key.id, query, now()), PRIVATE)
        const type = config.keyTypes.get(key.type) as KeyType
        const [record, balance, summary, quota] = await Promise.all([
          keys.record(key.id),
          balanceOf(ledger, key, now()),
          ledger.summary(key.id, now()),
          accountQuotas(type, key.id),
        ])
        const info = {
          object: 'key_info',
          id: key.id,
          label: key.label,
          name: record?.label ?? key.label,
          created_at: isoTime(record?.createdAt),
          ...balance,
          ...policyOf(config, type),
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

function add(sum: Use, { limit, used }: Use): void {
  sum.limit += limit
  // A key that was lent something has used more than its share, which takes nothing from its share of another account.
  sum.used += used < limit ? used : limit
}

function shown({ limit, used }: Use, resetsAt: number): object {
  return { limit: credits(limit), used: credits(used), remaining: credits(limit - used), reset_at: isoTime(resetsAt) }
}

const MEMBERS = { day: 'daily_quota', week: 'weekly_quota', month: 'monthly_quota' } as const

/** Returns the member of a key info that shows a quota. */
function memberOf({ name, window }: Quota): string {
  return 'rollingMs' in window ? `quota_of_${name}` : MEMBERS[window.per]
}
