import { setTimeout as sleep } from 'node:timers/promises'
import { GatewayError, type Outcome, type Reply } from 'tollgate/plugin'
import {
  ClientRequest,
  defineBuiltIn,
  requestDigest,
  type BuiltInExchange,
  type BuiltInHost,
  idempotencyName,
  mayBeSentAgain,
  type BuiltInWith,
  setting,
  whole,
} from 'tollgate/plugin/metering'

/** How often and how long, in milliseconds, to wait for a name that is just being released. */
const ENDING = { times: 50, ms: 20 } as const
/** Maximum characters of an idempotency key. */
const NAME_MAX = 255

type Known = BuiltInExchange & BuiltInWith<'key' | 'secret' | 'body'>

/**
 * Returns the reply of an earlier request to a resend, so that a request is sent and charged once. A client that sends
 * an `idempotency-key` gets the running or finished reply of that key. A resend that an SDK counts takes over the
 * request with the same body whose client has left.
 */
export default defineBuiltIn({
  name: 'retries',
  summary: 'Returns the reply of an earlier request to a resend: one request upstream, one charge.',
  on: 'inference',
  needs: ['key', 'secret', 'body'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      replyBytes: setting(whole(1), 1_048_576, 'Maximum size in bytes of a reply that is kept for a resend.'),
    },
  },
  setup({ replyBytes }, host) {
    const { ledger, clientRequests, log } = host
    const requests = new Requests(host, replyBytes)
    return {
      request(x) {
        const header = x.headers['idempotency-key']
        // A request that begins again is the same one.
        if (requests.requestOf(x)) return
        return mayBeSentAgain(x.headers) ? requests.retried(x, header) : undefined
      },
      settle(x, outcome) {
        const request = requests.requestOf(x)
        if (!request) return
        const { name, claim } = request
        const whole = x.complete && request.whole && !x.tally?.failure && isWhole(outcome)
        const kept = whole && (name !== undefined || (request.abandoned && request.reply !== undefined))
        if (kept) clientRequests.keep(request)
        else clientRequests.drop(request)
        if (!claim) return
        // A finished name stays taken even if its reply is no longer kept.
        const recorded = kept ? ledger.claims.keep(claim, clientRequests.keptMs) : ledger.claims.release(claim)
        recorded.catch((cause: unknown) =>
          log.warn({ exchange: x.id, err: cause }, 'the store does not know the result of an idempotency key'),
        )
      },
    }
  },
})

/** The requests that may be sent again, as this configuration keeps them. */
class Requests {
  readonly #host: BuiltInHost
  readonly #replyBytes: number
  /** Requests by their exchanges. */
  readonly #made = new WeakMap<BuiltInExchange, ClientRequest>()

  /** @param replyBytes most bytes of a reply that is kept for a resend */
  constructor(host: BuiltInHost, replyBytes: number) {
    this.#host = host
    this.#replyBytes = replyBytes
  }

  /** The request that an exchange is. */
  requestOf(x: BuiltInExchange): ClientRequest | undefined {
    return this.#made.get(x)
  }

  #begin(x: Known, name?: string): ClientRequest {
    const request = new ClientRequest(x, name)
    x.outlet.keep(this.#replyBytes, this.#host.clientRequests.room)
    this.#made.set(x, request)
    this.#host.clientRequests.begin(request)
    return request
  }

  /**
   * Returns the reply of an earlier request.
   * @throws GatewayError request_conflict if its beginning is no longer available
   */
  async #join(x: Known, before: ClientRequest): Promise<Reply> {
    await this.#host.keys.usable(x.secret)
    const { reply } = before
    if (reply) return reply
    throw new GatewayError('request_conflict')
  }

  /** Sends a named request, unless another process has a request of the same name. */
  async #beginNamed(x: Known, name: string): Promise<void> {
    const request = this.#begin(x, name)
    try {
      const claim = await this.#host.ledger.claims.claim(x.key.spender, name, request.digest)
      if (typeof claim === 'string') throw claim === request.digest ? new GatewayError('request_conflict') : otherBody()
      request.claim = claim
    } catch (thrown) {
      this.#host.clientRequests.drop(request)
      throw thrown
    }
  }

  /** Looks for an earlier request. If there is none, this is the first. */
  async retried(x: Known, header: unknown): Promise<Reply | void> {
    if (typeof header === 'string') {
      const name = named(header)
      // A request that was just cancelled is about to release its name.
      for (let time = 0; time < ENDING.times && this.#host.clientRequests.ending(x.key.id, name); time++)
        await sleep(ENDING.ms)
      if (this.#host.clientRequests.ending(x.key.id, name)) throw new GatewayError('request_conflict')
      const before = this.#host.clientRequests.named(x.key.id, name)
      if (!before) return this.#beginNamed(x, name)
      if (before.digest !== requestDigest(x)) throw otherBody()
      return this.#join(x, before)
    }
    const before =
      Number(x.headers['x-stainless-retry-count']) > 0 ? this.#host.clientRequests.abandoned(x.key.id, x) : undefined
    if (before) return this.#join(x, before)
    this.#begin(x)
  }
}

function isWhole(outcome: Outcome): boolean {
  return outcome.kind === 'relayed' || (outcome.kind === 'broken' && outcome.by === 'client')
}

function otherBody(): GatewayError {
  return new GatewayError('invalid_body', {
    message: 'This idempotency-key was used for another request. Use a new key for a new body.',
  })
}

/** Returns the client's name for its request in a form that is safe in the store. */
function named(header: string): string {
  if (header === '' || header.length > NAME_MAX)
    throw new GatewayError('invalid_body', { message: `An idempotency-key has 1 to ${NAME_MAX} characters.` })
  return idempotencyName(header)
}
