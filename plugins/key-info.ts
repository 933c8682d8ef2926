import {
  balanceOf,
  credits,
  definePlugin,
  isoTime,
  type KeyType,
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
    /** Returns the quota of the upstream account that the key's requests use, if it has one. */
    async function accountQuota(type: KeyType): Promise<object> {
      const account = type.upstreams.flatMap(({ accounts }) => accounts).find(({ quota }) => quota)
      if (!account?.quota) return {}
      const { used, resetsAt } = await ledger.quotaUsed(account.name, account.quota, now())
      const limit = account.quota.amount
      const left = limit > used ? limit - used : 0n
      return {
        [account.quota.per === 'week' ? 'weekly_quota' : 'daily_quota']: {
          limit: credits(limit),
          used: credits(used),
          remaining: credits(left),
          reset_at: isoTime(resetsAt),
        },
      }
    }

    return {
      async request({ key }) {
        const type = config.keyTypes.get(key.type) as KeyType
        const [record, balance, summary, quota] = await Promise.all([
          keys.record(key.id),
          balanceOf(ledger, key, now()),
          ledger.summary(key.id, now()),
          accountQuota(type),
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
