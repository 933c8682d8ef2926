/** What happens to a reply after its clients have left, and the reasons why an exchange ends. */
import type { GatewayError } from '../errors.ts'
import type { StopReason } from './exchange.ts'
import type { Usage } from '../money/usage.ts'

/** What becomes of a reply whose clients have left. */
export interface AbandonedReply {
  /** Whether the reply may be given up now. If not, it is given up as soon as what the upstream has sent already has been read. */
  mayEnd(): boolean
  /** All clients have left. */
  left(): void
  /** A retry listens to it now. */
  joined(): void
  /** Some usage of the reply has come. */
  usageCame(): void
  /** The last content of the reply has come. */
  rested(): void
  /** The reply is over. */
  over(): void
}

/** Why an exchange ends before its reply does. */
export type EndCause = 'client' | 'drain' | { readonly budget: Usage } | { readonly disabled: GatewayError }

/** Why an exchange ended, as its outcome says it. */
export function endReasonOf(why: EndCause): 'client' | StopReason {
  if (typeof why === 'string') return why
  return 'budget' in why ? 'budget' : 'disabled'
}
