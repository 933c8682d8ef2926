/** What operators see and do, for the stages and the commands that serve them. */
export { maskedText } from '../config/masked.ts'
export { CodeBook, type CreatedCode, newCodeText, type NewCodes, type Redeemed } from '../ledger/codes.ts'
export type { ChangeExtras, CreatedKey, KeyEdit, NewKeys, Reached } from '../ledger/key-changes.ts'
export { digestOf, newSecret, type Secret, seededBytes } from '../ledger/key-secrets.ts'
export { stored } from '../ledger/scripts.ts'
export { csvLine } from '../lib/csv.ts'
export { recordDisabled } from '../pool/sharing.ts'
export { addAudit, type AuditEntry, type NumberedEntry } from '../records/audit-log.ts'
export { type Code, CODE_STATES, CodeRefused, codeState } from '../records/codes.ts'
export type { Also, Sql } from '../records/database.ts'
export type { KeyRecord, RecordedKey } from '../records/key-records.ts'
export {
  countByType,
  cursorAt,
  type KeyCursor,
  KEY_ORDERS,
  type KeyOrder,
  type KeySearch,
  keyTotals,
  KEY_STATES,
  type KeyState,
} from '../records/key-search.ts'
export { addNotice, type Notice, spendingOf, type WaitingNotice } from '../records/notices.ts'
export { changeTold } from '../records/migrations.ts'
export { type DoneRequest, noteRequest, RequestDone } from '../records/requests.ts'
export { SCOPES, type Session, type Token, type TokenScope } from '../records/tokens.ts'
export { usageBy, USAGE_GROUPS } from '../records/usage.ts'
export { parseDecimal, MAX_AMOUNT } from '../money/credits.ts'
export { accountsOf, accountsView } from './accounts-view.ts'
export { checkerOf } from './check-input.ts'
export { keyView } from './key-view.ts'
export { type Overview, OverviewFeed } from './overview.ts'
export { countsView, usageView } from './usage-view.ts'
