/** From a routed exchange to its outcome: tries the route's candidates in order, then relays the one that answered. */
import type { Forward, ReplyHooks } from '../chain/chain.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt, Outcome } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { endedByClient } from './endings.ts'
import { upwardHeaders } from './headers.ts'
import { ReadOn } from './read-on.ts'
import { relay } from './relay.ts'
import { type Sender, type TakenBack, Unsent, type UpstreamReply } from './send.ts'

/**
 * Makes the function that chains end in.
 * @param simulated base address of the simulated provider, for upstreams without a URL of their own
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
            'sent again: the upstream closed a kept connection as the request was sent',
          )
        })
      } catch (thrown) {
        failure = GatewayError.from(thrown)
        x.attempts.push({ ...name, failure: failure.message })
        // A request that an upstream may work on is not sent to the next.
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
    // A chain without a router has nothing to send to; the path exists only because some stage is scoped to it. What is
    // no inference can go to an upstream of the same format only.
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
