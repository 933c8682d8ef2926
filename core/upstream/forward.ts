/** Forwards a routed exchange: tries the route's candidates in order, then relays the first answer. */
import type { Forward } from '../chain/chain.ts'
import type { ReplyHooks } from '../chain/reply-hooks.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt, Outcome } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { endedByClient } from './endings.ts'
import { upwardHeaders } from './headers.ts'
import { ReadOn } from './read-on.ts'
import { relay } from './relay.ts'
import { type Sender, type TakenBack, Unsent, type UpstreamReply } from './send.ts'

/**
 * Creates the function at the end of every chain.
 * @param simulated returns the base address of the simulated provider, for upstreams without a URL
 */
export function forwarder(sender: Sender, simulated: () => URL): Forward {
  const tryAll = async (x: HttpExchange, up: ReplyHooks, bytes: Buffer): Promise<Outcome> => {
    let failure: GatewayError | undefined
    for (const { upstream, account } of x.route.candidates) {
      const name = { upstream: upstream.name, account: account.name }
      const to = { url: upstream.url ?? simulated(), timeouts: upstream.timeouts }
      x.abandonedReply = new ReadOn(x, up, upstream)
      let reply: UpstreamReply | TakenBack
      try {
        const headers = upwardHeaders(
          x.headers,
          x.route.format,
          account,
          x.model.headers,
          x.route.translation !== undefined,
        )
        reply = await sender.send(to, x.inference ? x.route.format.path : x.path, headers, bytes, x, () => {
          sender.repeated++
          up.log.info(
            { exchange: x.id, ...name },
            'request sent again: the upstream closed an idle connection as the request was sent',
          )
        })
      } catch (thrown) {
        failure = GatewayError.from(thrown)
        x.attempts.push({ ...name, failure: failure.message })
        // If an upstream may be working on the request, it is not sent to the next one.
        if (!(thrown instanceof Unsent)) throw failure
        continue
      }
      if (reply === 'unsent') return endedByClient(x)
      const attempt: Attempt = { ...name, ...(reply !== 'sent' && { status: reply.status }) }
      x.attempts.push(attempt)
      return reply === 'sent' ? endedByClient(x) : await relay(x, up, reply, attempt, upstream.timeouts)
    }
    throw failure ?? new GatewayError('unavailable')
  }

  return async (x, up) => {
    // Without a router there is no upstream; the path exists only because some stage is scoped to it. A request that is
    // not an inference can only go to an upstream of the same format.
    if (!x.route || (!x.inference && x.route.format !== x.format)) throw new GatewayError('not_found')
    try {
      const { translation } = x.route
      return await tryAll(x, up, translation ? await translation.limited(x.format.outputLimit(x.body)) : x.body.bytes())
    } finally {
      x.upstreamClock.stop()
      x.endAbandonedReply()
    }
  }
}
