/**
 * What operators see and do, for the stages that serve them. Such a stage writes to the records in the same transactions as
 * the gateway, so it is trusted like the gateway itself.
 */
export { maskedText } from '../config/masked.ts'
export { CodeBook, newCodeText } from '../keys/codes.ts'
export type { Reached } from '../keys/recorded.ts'
export { secretDigest, newSecret, type Secret, seededBytes } from '../keys/secrets.ts'
export { orUnavailable } from '../records/unavailable.ts'
export { recordDisabled } from '../pool/sharing.ts'
export { addAudit, type AuditEntry } from '../records/audit-log.ts'
export { type Code, CODE_KINDS, CODE_STATES, CodeRefused, codeState } from '../records/codes.ts'
export type { Also, Sql } from '../records/database.ts'
export type { Whose } from '../records/entry.ts'
export { type RecordedKey, whoseOf } from '../records/key-records.ts'
export {
  countByType,
  countOn,
  cursorAt,
  type KeyCursor,
  KEY_ORDERS,
  type KeyOrder,
  type KeySearch,
  keyTotals,
  KEY_STATES,
  type KeyState,
} from '../records/key-search.ts'
export type { PlanEvent } from '../records/watcher.ts'
export { addNotices, type Notice, type WaitingNotice } from '../records/notices.ts'
export { changeTold } from '../records/migrations.ts'
export { type DoneRequest, noteRequest, RequestDone } from '../records/requests.ts'
export { SCOPES, type Token, type TokenScope } from '../records/tokens.ts'
export { usageBy, USAGE_GROUPS } from '../records/usage.ts'
export { parseDecimal, MAX_AMOUNT } from '../money/credits.ts'
export { accountsOf, accountsView, cheapestOf } from './accounts-view.ts'
export { type BalanceView, balanceViews } from './balance-view.ts'
export { checkerOf } from './check-input.ts'
export { COLUMNS as IMPORT_COLUMNS, importDetails, importRows, type ImportRow, importView } from './import.ts'
export type { Imported } from '../records/key-import.ts'
export { Balances } from '../keys/balances.ts'
export { plansEnding, type RecordedAccount } from '../records/account-rows.ts'
export { GIVEN_AMOUNT, GIVEN_DURATION, GIVEN_NAME, GIVEN_REASON, isFunded } from './given.ts'
export { Impossible } from '../records/database.ts'
export { keyView } from './key-view.ts'
export type { LimitTerms } from '../plans/limits.ts'
export { GIVEN_LIMITS, type GivenLimits, limitsGiven } from './limits-given.ts'
export { PLAN_CHANGES, type PlanChangeName } from './plan-change-names.ts'
export { CHANGE_MEMBERS, changePlan, type GivenChange } from './plan-changes.ts'
export { planFacts, planWindowView } from './plan-view.ts'
export { OverviewFeed } from './overview.ts'
export { probe } from '../upstream/connection/probe.ts'
export { type FailureFilter, type RecordedFailure } from '../records/failures.ts'
export { refund, refundView } from './refund.ts'
export { NO_STORY, requestStory } from './story.ts'
export { isId } from '../lib/ids.ts'
export { Trend } from './trend.ts'
export { newToken, TOKEN_PREFIX, tokenView } from './token-view.ts'
export { usageView } from './usage-view.ts'
