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
  /** Called when all clients have left. */
  left(): void
  /** Called when a retry joins the reply. */
  joined(): void
  /** Called when usage of the reply arrives. */
  usageCame(): void
  /** Called when the last content of the reply has arrived. */
  rested(): void
  /** Called when the reply ends. */
  over(): void
}

/** Why an exchange ends before its reply. */
export type EndCause = 'client' | 'drain' | { readonly budget: Usage } | { readonly disabled: GatewayError }

/** The reason, as the outcome of the exchange names it. */
export function endReasonOf(why: EndCause): 'client' | StopReason {
  if (typeof why === 'string') return why
  return 'budget' in why ? 'budget' : 'disabled'
}
