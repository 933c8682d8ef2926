/** What happens to a reply after its clients have left, and the reasons why an exchange ends early. */
import type { GatewayError } from '../errors.ts'
import type { StopReason } from './exchange.ts'
import type { Usage } from '../money/usage.ts'

/** Decides whether a reply is read after its clients have left. The relay reports to it what happens to the reply. */
export interface AbandonedReply {
  /**
   * Whether the reply may be given up now. If not, it is given up when everything that the upstream has already sent
   * has been read.
   */
  mayEnd(): boolean
  /** All clients have left. */
  left(): void
  /** A retry has joined the reply. */
  joined(): void
  /** Some usage of the reply has arrived. */
  usageCame(): void
  /** The last content of the reply has arrived. */
  rested(): void
  /** The reply has ended. */
  over(): void
}

/** Why an exchange ends before its reply. */
export type EndCause = 'client' | 'drain' | { readonly budget: Usage } | { readonly disabled: GatewayError }

/** The reason, as the outcome of the exchange names it. */
export function endReasonOf(why: EndCause): 'client' | StopReason {
  if (typeof why === 'string') return why
  return 'budget' in why ? 'budget' : 'disabled'
}
