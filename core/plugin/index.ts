/** What a plugin imports as `tollgate/plugin`: the contract with authors. docs/plugins.md explains each name. */

// Defining a plugin.
export {
  type Awaitable,
  definePlugin,
  type Given,
  type Host,
  type KeyUsage,
  listenOption,
  type Plugin,
  type Scope,
  type Stage,
} from '../chain/stage.ts'
export type { FromSchema, JSONSchema } from 'json-schema-to-ts'

// What hooks receive.
export type { Config, KeyType, ModelEntry } from '../config/config.ts'
export type {
  Attempt,
  Exchange,
  Fact,
  Facts,
  Head,
  Outcome,
  ReplyTally,
  RequestBody,
  StopReason,
  With,
} from '../exchange/exchange.ts'
export type { Failure } from '../formats/index.ts'
export type { OutgoingEvent, ReplyEvent, Rewriter } from '../formats/events.ts'
export type { Key } from '../keys/keys.ts'
export type { Log } from '../lib/log.ts'
export type { Usage } from '../money/usage.ts'
export type { Balance, Count } from '../records/entry.ts'

// What hooks return and throw.
export { StreamedReply } from '../client/streamed-reply.ts'
export { GatewayError, Reply } from '../errors.ts'

// Helpers.
export { PerMinute } from '../client/per-minute.ts'
export { formatCredits, NANO } from '../money/credits.ts'
export { inputTokens } from '../money/usage.ts'
export { WebPage } from '../web/assets.ts'
