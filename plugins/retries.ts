import { setTimeout as sleep } from 'node:timers/promises'
import {
  Attempt,
  definePlugin,
  digestOf,
  type Exchange,
  GatewayError,
  nameOf,
  type Outcome,
  type Reply,
  type With,
} from 'tollgate/plugin'

/** How often, and after how many milliseconds each, a name is looked at that is being given back. */
const ENDING = { times: 50, ms: 20 } as const
/** Characters of an idempotency key. */
const NAME_MAX = 255

type Known = Exchange & With<'key' | 'secret' | 'body'>

/**
 * Lets a retry have the reply of the attempt before it, from its start, so that one request is sent and charged once. A client
 * that names its requests by `idempotency-key` gets the reply of that name, whether it is under way or done. SDKs count their
 * retries; such a retry takes over an attempt with the same body whose client has left.
 */
export default definePlugin({
  name: 'retries',
  summary: 'Gives a retry the reply of the attempt before it: one request upstream, one charge.',
  on: 'inference',
  needs: ['key', 'secret', 'body'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      replyBytes: {
        type: 'integer',
        minimum: 1,
        default: 1_048_576,
        description: 'bytes of one reply that are kept for its retry; a larger one cannot be joined',
      },
    },
  },
  setup({ replyBytes }, { ledger, keys, attempts, log }) {
    /** Attempts by the exchanges that made them. */
    const made = new WeakMap<Exchange, Attempt>()

    function begin(x: Known, name?: string): Attempt {
      const attempt = new Attempt(x, name)
      x.outlet.keep(replyBytes, attempts.room)
      made.set(x, attempt)
      attempts.begin(attempt)
      return attempt
    }

    /**
     * The reply of an earlier attempt.
     * @throws GatewayError request_conflict when it cannot be had from its start any more
     */
    async function join(x: Known, before: Attempt): Promise<Reply> {
      await keys.usable(x.secret)
      const { reply } = before
      if (reply) return reply
      throw new GatewayError('request_conflict')
    }

    /** Sends a named request, unless another process has one of the same name. */
    async function beginNamed(x: Known, name: string): Promise<void> {
      const attempt = begin(x, name)
      try {
        const claim = await ledger.claim(x.key.id, name, attempt.digest)
        if (typeof claim === 'string')
          throw claim === attempt.digest ? new GatewayError('request_conflict') : otherBody()
        attempt.claim = claim
      } catch (thrown) {
        attempts.drop(attempt)
        throw thrown
      }
    }

    /** Looks for an attempt before; without one, this is the first. */
    async function retried(x: Known, header: unknown): Promise<Reply | void> {
      if (typeof header === 'string') {
        const name = named(header)
        // One that was given up just now gives its name back.
        for (let time = 0; time < ENDING.times && attempts.ending(x.key.id, name); time++) await sleep(ENDING.ms)
        if (attempts.ending(x.key.id, name)) throw new GatewayError('request_conflict')
        const before = attempts.named(x.key.id, name)
        if (!before) return beginNamed(x, name)
        if (before.digest !== digestOf(x)) throw otherBody()
        return join(x, before)
      }
      const before = Number(x.headers['x-stainless-retry-count']) > 0 ? attempts.abandoned(x.key.id, x) : undefined
      if (before) return join(x, before)
      begin(x)
    }

    return {
      request(x) {
        const header = x.headers['idempotency-key']
        return header === undefined && x.headers['x-stainless-retry-count'] === undefined
          ? undefined
          : retried(x, header)
      },
      settle(x, outcome) {
        const attempt = made.get(x)
        if (!attempt) return
        const { name, claim } = attempt
        const whole = x.complete && attempt.whole && !x.tally?.failure && isWhole(outcome)
        const kept = whole && (name !== undefined || (attempt.abandoned && attempt.reply !== undefined))
        if (kept) attempts.keep(attempt)
        else attempts.drop(attempt)
        if (!claim) return
        // A name that is done stays taken, also when its reply is kept no longer.
        const told = kept ? ledger.keepClaim(claim, attempts.keptMs) : ledger.unclaim(claim)
        told.catch((cause: unknown) =>
          log.warn({ exchange: x.id, err: cause }, 'the store was not told what became of an idempotency key'),
        )
      },
    }
  },
})

function isWhole(outcome: Outcome): boolean {
  return outcome.kind === 'relayed' || (outcome.kind === 'broken' && outcome.by === 'client')
}

function otherBody(): GatewayError {
  return new GatewayError('invalid_body', {
    message: 'This idempotency-key was used for another request. Send a new one with a new body.',
  })
}

/** The client's name for its request, as the store may know it. */
function named(header: string): string {
  if (header === '' || header.length > NAME_MAX)
    throw new GatewayError('invalid_body', { message: `An idempotency-key has 1 to ${NAME_MAX} characters.` })
  return nameOf(header)
}
