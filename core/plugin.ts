/** All that a plugin imports, as `tollgate/plugin`: the contract first, then helpers. */

// The contract: what a plugin declares, what its hooks receive, and what they may return.
export * from './chain/stage.ts'
export * from './exchange/exchange.ts'
export { type Candidate, candidateOf, type Compacting, Route } from './exchange/route.ts'
export { afterWait, GatewayError, invalidBody, Reply } from './errors.ts'
export { StreamedReply } from './client/streamed-reply.ts'
export { csvReply, type ListPage } from './client/csv-reply.ts'
export type { Account, Config, KeyType, ModelEntry, Quota, Upstream } from './config/config.ts'
export { Body } from './formats/body.ts'
export { BodyReader } from './formats/body-reader.ts'
export type { JsonView } from './lib/json/view.ts'

// Helpers: pages for browsers.
export { WebPage } from './web/assets.ts'

// Helpers: credentials, retries and time.
export { ClientAttempt, attemptPartOf, digestOf, nameOf } from './exchange/attempts.ts'
export { credentialOf, presented } from './client/credential.ts'
export { modelOf } from './exchange/model.ts'
export { requestEnd } from './exchange/request-end.ts'
export { smallJson } from './client/small-json.ts'
export { addTo } from './lib/add-to.ts'
export { PerMinute } from './lib/per-minute.ts'
export { PLAIN_TEXT } from './lib/printable.ts'
export { sentence } from './lib/sentence.ts'
export { SwapList } from './lib/swap-list.ts'
export { turn } from './lib/turns.ts'

// Helpers: requests and replies.
export {
  dropExtra,
  KNOWN_MEMBERS,
  dropTools,
  dropUnlisted,
  type Extra,
  extrasOf,
  mayReadAgain,
  modelsNamed,
  POLICIES,
  type Policy,
  predictedTokens,
  type ProviderTool,
  DroppedFields,
  renameAdvisors,
  renameModels,
} from './formats/index.ts'
export {
  compactionsIn,
  storedIds,
  type StoredReference,
  type CountedUsage,
  overflowOf,
  type RawUsage,
  Translation,
  UsageTally,
} from './formats/index.ts'
export { classify } from './formats/classify.ts'
export { failureCause } from './formats/failures.ts'
export { conversationKey, waitAsked } from './formats/index.ts'
export { noneLeft } from './pool/none-left.ts'
export { Traffic } from './pool/traffic.ts'

// Helpers: money, accounts and their history.
export { formatCredits, NANO } from './money/credits.ts'
export { type ConditionName, type Conditions, leastCharge, type Price } from './money/price.ts'
export { inputTokens, type Usage } from './money/usage.ts'
export { oneOfEach, NO_EXTRAS } from './metering/extras.ts'
export {
  balanceOf,
  credits,
  dayUsage,
  isoTime,
  policyOf,
  pricedEntry,
  PRIVATE,
  shownEntry,
  usageOf,
} from './account/views.ts'
export { historyPage, historyWish, pricedEntries } from './account/history-page.ts'
export { STATEMENT_COLUMNS, statementPage, statementSums } from './account/statement-page.ts'
export { daysAsked, keyDays } from './account/usage-days.ts'
export type { AttemptPart, EndReason, Hold, HoldAnswer, HoldRequest } from './ledger/hold.ts'
export { type HistoryEntry, type Notes, STATUSES } from './records/entry.ts'
export { floorOf } from './ledger/entries.ts'
export * as metering from './metering/index.ts'
export * as operator from './operator/index.ts'
export type { FromSchema, JSONSchema } from 'json-schema-to-ts'
