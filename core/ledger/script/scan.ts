/** Iterates over the accounts, keys, holds and slots of a store. */
import { mastersOf } from '../../store/masters.ts'
import type { Scripts } from './scripts.ts'
import { OF_QUOTAS } from './store-keys.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** Names that are read at once, about. */
const PAGE = 500

/** What a page of names has. */
export interface NamesInStore {
  /** Ids of accounts, also of quotas. */
  readonly accounts: readonly string[]
  /** Keys with other names than their accounts. One that was moved is in both. */
  readonly keys: readonly { readonly account: string; readonly key: string }[]
  /** Accounts that have slots for replies whose clients left, or shares. */
  readonly slots: readonly string[]
  readonly holds: readonly { readonly account: string; readonly id: string }[]
}

/** Iterates over a store in pages. What is there all the time comes at least once. @throws GatewayError unavailable */
export async function* namesIn({ redis, keys }: Scripts): AsyncGenerator<NamesInStore> {
  const pattern = keys.inShard(0, '[abhk]:*').replace('{0}', '{*}')
  const start = pattern.length - '{*}:[abhk]:*'.length
  for (const server of mastersOf(redis)) {
    let cursor = '0'
    do {
      const [next, names] = await orUnavailable(server.scan(cursor, 'MATCH', pattern, 'COUNT', PAGE))
      cursor = next
      const accounts: string[] = []
      const customers: { account: string; key: string }[] = []
      const slots: string[] = []
      const holds: { account: string; id: string }[] = []
      for (const name of names) {
        const own = name.slice(name.indexOf('}:', start) + '}:'.length)
        const rest = own.slice('a:'.length)
        // The name of a quota may have colons. An id has none.
        const [before, id] = [rest.slice(0, rest.lastIndexOf(':')), rest.slice(rest.lastIndexOf(':') + 1)]
        if (own.startsWith('a:')) accounts.push(rest)
        else if (own.startsWith('h:')) holds.push({ account: before, id })
        else if (own.startsWith('k:')) customers.push({ account: before, key: id })
        else slots.push(rest.startsWith(OF_QUOTAS) ? rest : (rest.split(':', 1)[0] ?? ''))
      }
      if (names.length > 0) yield { accounts, keys: customers, slots, holds }
    } while (cursor !== '0')
  }
}
