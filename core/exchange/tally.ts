/** The tally of a reply: what the reply has reported about itself so far, in its upstream's terms. */
import type { ModelEntry, Upstream } from '../config/config.ts'
import type { Body } from '../formats/body.ts'
import { type Failure, type Format, type Rewriter, type SaidReading, UsageTally } from '../formats/index.ts'

/** A request that a tally follows. */
interface Followed {
  readonly format: Format
  readonly body: Body
  readonly model: { readonly entry: ModelEntry }
  readonly route: { readonly format: Format; readonly upstream: Pick<Upstream, 'said'> }
}

/** The tally of one reply. */
export class Tally extends UsageTally {
  /** The failure that the reply reported, if any. */
  failure: Failure | undefined
  /** Whether later events can no longer change the usage. */
  usageIsFinal = false
  /** Removes from the client's stream what only the gateway requested. */
  hide: Rewriter | undefined

  /** Follows the route to an account: reads usage in its format, and makes it report usage. */
  follow({ format, body, model, route }: Followed): void {
    this.restart(route.format, route.upstream.said)
    // A translated request always asks for usage.
    if (route.format === format) this.hide ??= format.prepare(body, model.entry)
  }

  override restart(format: Format, said?: SaidReading): void {
    super.restart(format, said)
    this.failure = undefined
    this.usageIsFinal = false
  }
}
