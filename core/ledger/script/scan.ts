/** Iterates over all accounts and holds of a store. */
import { mastersOf } from '../../store/masters.ts'
import type { Scripts } from './scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** Names that are read at once, about. */
const PAGE = 500

/** What a page of names has: ids of accounts, also of quotas, and the holds among them. */
export interface NamesInStore {
  readonly accounts: readonly string[]
  readonly holds: readonly { readonly account: string; readonly id: string }[]
}

/** Iterates over a store in pages. What is there all the time comes at least once. @throws GatewayError unavailable */
export async function* namesIn({ redis, keys }: Scripts): AsyncGenerator<NamesInStore> {
  const pattern = keys.inShard(0, '[ah]:*').replace('{0}', '{*}')
  const start = pattern.length - '{*}:[ah]:*'.length
  for (const server of mastersOf(redis)) {
    let cursor = '0'
    do {
      const [next, names] = await orUnavailable(server.scan(cursor, 'MATCH', pattern, 'COUNT', PAGE))
      cursor = next
      const accounts: string[] = []
      const holds: { account: string; id: string }[] = []
      for (const name of names) {
        const own = name.slice(name.indexOf('}:', start) + '}:'.length)
        const rest = own.slice('a:'.length)
        if (own.startsWith('a:')) accounts.push(rest)
        // The name of a quota may have colons. An id has none.
        else holds.push({ account: rest.slice(0, rest.lastIndexOf(':')), id: rest.slice(rest.lastIndexOf(':') + 1) })
      }
      if (names.length > 0) yield { accounts, holds }
    } while (cursor !== '0')
  }
}
