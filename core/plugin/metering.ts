/**
 * What the built-in plugins on the way of a request import as `tollgate/plugin/metering`. It may change at any time: a
 * plugin of your own that imports it must be tested with each version of Tollgate.
 */
export * from './built-in.ts'
export * from '../metering/index.ts'

// Requests and replies.
export type { Quota, Upstream } from '../config/config.ts'
export { afterWait } from '../errors.ts'
export {
  ClientRequest,
  mayBeSentAgain,
  resendPartOf,
  requestDigest,
  idempotencyName,
} from '../exchange/client-requests.ts'
export type { Extras } from '../exchange/built-in.ts'
export type { Stored } from '../exchange/exchange.ts'
export { type Candidate, candidateOf, type Compacting, Route, type RouteParts } from '../exchange/route.ts'
export { Tally } from '../exchange/tally.ts'
export { Body } from '../formats/body.ts'
export { BodyReader } from '../formats/body-reader.ts'
export { classify } from '../formats/classify.ts'
export { ModelRenamer } from '../formats/renaming.ts'
export { failureCause } from '../formats/failures.ts'
export {
  compactionsIn,
  conversationKey,
  DroppedFields,
  dropExtra,
  dropTools,
  dropUnlisted,
  type Extra,
  extrasOf,
  type Format,
  FORMATS,
  hasForeign,
  KNOWN_MEMBERS,
  mayReadAgain,
  modelsNamed,
  overflowOf,
  POLICIES,
  type Policy,
  predictedTokens,
  type ProviderTool,
  renameAdvisors,
  renameModels,
  reshaped,
  shapeOfBody,
  type StoredReference,
  storedIds,
  translateRequest,
  Translation,
} from '../formats/index.ts'
export { leastOf } from '../config/key-types.ts'
export { SwapList } from '../lib/swap-list.ts'
export { turn } from '../lib/turns.ts'
export { noneLeft } from '../pool/none-left.ts'
export { Traffic } from '../pool/traffic.ts'

// Money.
export { floorOf } from '../ledger/entries.ts'
export type { EndReason, Hold, HoldRequest, HoldStanding } from '../ledger/hold.ts'
export { NO_EXTRAS, oneOfEach } from '../metering/extras.ts'
export { allows, allowsAddress, type KeyLimits } from '../plans/limits.ts'
export { isValid } from '../plans/plan.ts'
export { ratesNow } from '../plans/rates.ts'
export { type ConditionName, type Conditions, type Price } from '../money/price.ts'
