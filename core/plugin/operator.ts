/**
 * What the built-in plugins for operators and for look-ups import as `tollgate/plugin/operator`. It may change at any time:
 * a plugin of your own that imports it must be tested with each version of Tollgate.
 */
export * from './built-in.ts'
export * from '../operator/index.ts'

// Accounts and their history.
export { historyPage, historyWish, pricedEntries } from '../account/history-page.ts'
export { STATEMENT_COLUMNS, statementPage, statementSums } from '../account/statement-page.ts'
export { daysAsked, keyDays } from '../account/usage-days.ts'
export { duration } from '../config/units.ts'
export {
  type Allowance,
  allowance,
  balanceOf,
  dayUsage,
  limitsView,
  policyOf,
  PRIVATE,
  seenBy,
  shownAllowance,
  type Standing,
  standing,
  usageOf,
} from '../account/views.ts'
export { credits, MONEY_COLUMNS } from '../account/entry-view.ts'
export { planStanding, type PlanStanding, resetWord, shownWindow } from '../account/plan-views.ts'
export { limitsOf, modelsFor } from '../metering/bounds.ts'
export { reasoningIn } from '../exchange/model.ts'
export { typeOf } from '../metering/own-type.ts'
export { usualMs } from '../plans/calendar.ts'
export { periodOf, planFrom } from '../plans/plan.ts'
export { nameOf, usedShare, type WindowView } from '../plans/state.ts'
export type { Quota } from '../config/config.ts'
export { brokenRules } from '../money/assertions.ts'
export { leastOf } from '../config/key-types.ts'
export type { HistoryEntry } from '../records/entry.ts'
export { moneyLine, PAID_FROM } from '../records/money-line.ts'

// Requests and replies.
export { csvReply, type ListPage } from '../client/csv-reply.ts'
export { smallJson } from '../client/small-json.ts'
export { PLAIN_TEXT } from '../lib/printable.ts'
export { sentence } from '../lib/sentence.ts'
export { isoTime } from '../lib/iso-time.ts'
export { kept } from '../lib/kept.ts'
