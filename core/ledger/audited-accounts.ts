/** How audits read accounts. */
import type { RecordedAccount } from '../records/account-rows.ts'
import type { Records } from '../records/records.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** How often an account that is in use is read again until both sides agree on what they have counted. */
export const TRIES = 50
/** Milliseconds between two of these readings. */
export const PAUSE_MS = 20

/** Accounts that are read at once. */
const PAGE = 500

/** Returns the pages of the given accounts, or of all. @throws GatewayError unavailable */
export async function* pagesOf(
  { accounts }: Pick<Records, 'accounts'>,
  ids: readonly string[] | undefined,
): AsyncGenerator<readonly RecordedAccount[]> {
  if (ids) yield await orUnavailable(accounts.withIds(ids))
  else yield* accounts.pages(PAGE)
}
