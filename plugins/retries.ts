import { createHash } from 'node:crypto'
import { Attempt, definePlugin, digestOf, type Exchange, GatewayError, type Outcome, type Reply, type With } from '../core/plugin.ts'

/** Characters of an idempotency key. */
const NAME_MAX = 255

type Known = Exchange & With<'key' | 'body'>

/**
 * Lets a retry have the reply of the attempt before it, from its start, so that one request is sent and charged once. A client
 * that names its requests by `idempotency-key` gets the reply of that name, whether it is under way or done. SDKs count their
 * retries; such a retry takes over an attempt with the same body whose client has left.
 */
export default definePlugin({
  name: 'retries',
  summary: 'Gives a retry the reply of the attempt before it: one request upstream, one charge.',
  on: 'inference',
  needs: ['key', 'body'],
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
  setup({ replyBytes }, { ledger, attempts, log }) {
    /** Attempts by the exchanges that made them. */
    const made = new WeakMap<Exchange, Attempt>()

    function begin(x: Known, name?: string): Attempt {
      const attempt = new Attempt(x, name)
      x.outlet.keep(replyBytes)
      made.set(x, attempt)
      attempts.begin(attempt)
      return attempt
    }

    /** Sends a named request, unless another process has one of the same name. */
    async function beginNamed(x: Known, name: string): Promise<void> {
      const attempt = begin(x, name)
      try {
        const taken = await ledger.claim(x.key.id, name, attempt.digest)
        if (taken === undefined) return
        throw taken === attempt.digest ? new GatewayError('request_conflict') : otherBody()
      } catch (thrown) {
        attempts.drop(attempt)
        throw thrown
      }
    }

    return {
      request(x) {
        const header = x.headers['idempotency-key']
        const count = x.headers['x-stainless-retry-count']
        if (typeof header === 'string') {
          const name = named(header)
          const before = attempts.named(x.key.id, name)
          if (!before) return beginNamed(x, name)
          if (before.digest !== digestOf(x)) throw otherBody()
          return replyOf(before)
        }
        if (count === undefined) return undefined
        const before = Number(count) > 0 ? attempts.abandoned(x.key.id, x) : undefined
        if (before) return replyOf(before)
        begin(x)
        return undefined
      },
      settle(x, outcome) {
        const attempt = made.get(x)
        if (!attempt) return
        const { name } = attempt
        const kept = x.complete && isWhole(outcome) && (name !== undefined || (attempt.abandoned && attempt.reply !== undefined))
        if (kept) attempts.keep(attempt)
        else if (!attempts.drop(attempt)) return
        if (name === undefined) return
        // A name that is done stays taken, also when its reply is kept no longer.
        const told = kept ? ledger.keepClaim(x.key.id, name, attempts.keptMs) : ledger.unclaim(x.key.id, name)
        told.catch((cause: unknown) => log.warn({ exchange: x.id, err: cause }, 'the store was not told what became of an idempotency key'))
      },
    }
  },
})

/** @throws GatewayError request_conflict when the reply cannot be had from its start any more */
function replyOf({ reply }: Attempt): Reply {
  if (reply) return reply
  throw new GatewayError('request_conflict')
}

function isWhole(outcome: Outcome): boolean {
  return outcome.kind === 'relayed' || (outcome.kind === 'broken' && outcome.by === 'client')
}

function otherBody(): GatewayError {
  return new GatewayError('invalid_body', { message: 'This idempotency-key was used for another request. Send a new one with a new body.' })
}

/** The client's name for its request, as the store may know it. */
function named(header: string): string {
  if (header === '' || header.length > NAME_MAX) throw new GatewayError('invalid_body', { message: `An idempotency-key has 1 to ${NAME_MAX} characters.` })
  return createHash('sha256').update(header).digest('hex').slice(0, 32)
}
