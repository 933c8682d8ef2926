import {
  balanceOf,
  credits,
  definePlugin,
  isoTime,
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
  summary: 'Answers GET /api/v1/key-info.',
  on: 'GET /api/v1/key-info',
  needs: ['key'],
  setup(_options, { config, keys, ledger, now }) {
    /** Returns the quotas of the upstream accounts that the key's requests use, added up by their windows. */
    async function accountQuotas(type: KeyType): Promise<object> {
      const quotas = type.upstreams
        .flatMap(({ accounts }) => accounts)
        .flatMap(account => account.quotas.map(quota => ({ account: account.name, quota })))
      const sums = new Map<string, { limit: bigint; used: bigint; resetsAt: number }>()
      for (const { account, quota } of quotas) {
        const { used, resetsAt } = await ledger.quotaUsed(account, quota, now())
        const name = memberOf(quota)
        const sum = sums.get(name) ?? { limit: 0n, used: 0n, resetsAt }
        sum.limit += quota.amount
        sum.used += used < quota.amount ? used : quota.amount
        sum.resetsAt = Math.min(sum.resetsAt, resetsAt)
        sums.set(name, sum)
      }
      return Object.fromEntries(
        [...sums].map(([name, { limit, used, resetsAt }]) => [
          name,
          { limit: credits(limit), used: credits(used), remaining: credits(limit - used), reset_at: isoTime(resetsAt) },
        ]),
      )
    }

    return {
      async request({ key }) {
        const type = config.keyTypes.get(key.type) as KeyType
        const [record, balance, summary, quota] = await Promise.all([
          keys.record(key.id),
          balanceOf(ledger, key, now()),
          ledger.summary(key.id, now()),
          accountQuotas(type),
        ])
        const info = {
          object: 'key_info',
          id: key.id,
          label: key.label,
          name: record?.name ?? '',
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

const MEMBERS = { day: 'daily_quota', week: 'weekly_quota', month: 'monthly_quota' } as const

/** Returns the member of a key info that shows a quota. */
function memberOf({ name, window }: Quota): string {
  return 'rollingMs' in window ? `quota_of_${name}` : MEMBERS[window.per]
}
