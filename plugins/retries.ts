import { setTimeout as sleep } from 'node:timers/promises'
import { GatewayError, type Outcome, type Reply } from 'tollgate/plugin'
import {
  ClientAttempt,
  defineBuiltIn,
  digestOf,
  type BuiltInExchange,
  nameOf,
  type BuiltInWith,
} from 'tollgate/plugin/metering'

/** How often and how long, in milliseconds, to wait for a name that is just being released. */
const ENDING = { times: 50, ms: 20 } as const
/** Maximum characters of an idempotency key. */
const NAME_MAX = 255

type Known = BuiltInExchange & BuiltInWith<'key' | 'secret' | 'body'>

/**
 * Returns the reply of the previous attempt to a retry, so that a request is sent and charged once. A client that sends
 * an `idempotency-key` gets the running or finished reply of that key. A retry that an SDK counts takes over the
 * attempt with the same body whose client has left.
 */
export default defineBuiltIn({
  name: 'retries',
  summary: 'Returns the reply of the previous attempt to a retry: one request upstream, one charge.',
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
        description: 'Maximum size in bytes of a reply that is kept for a retry.',
      },
    },
  },
  setup({ replyBytes }, { ledger, keys, attempts, log }) {
    /** Attempts by their exchanges. */
    const made = new WeakMap<BuiltInExchange, ClientAttempt>()

    function begin(x: Known, name?: string): ClientAttempt {
      const attempt = new ClientAttempt(x, name)
      x.outlet.keep(replyBytes, attempts.room)
      made.set(x, attempt)
      attempts.begin(attempt)
      return attempt
    }

    /**
     * Returns the reply of an earlier attempt.
     * @throws GatewayError request_conflict if its beginning is no longer available
     */
    async function join(x: Known, before: ClientAttempt): Promise<Reply> {
      await keys.usable(x.secret)
      const { reply } = before
      if (reply) return reply
      throw new GatewayError('request_conflict')
    }

    /** Sends a named request, unless another process has a request of the same name. */
    async function beginNamed(x: Known, name: string): Promise<void> {
      const attempt = begin(x, name)
      try {
        const claim = await ledger.claims.claim(x.key.id, name, attempt.digest)
        if (typeof claim === 'string')
          throw claim === attempt.digest ? new GatewayError('request_conflict') : otherBody()
        attempt.claim = claim
      } catch (thrown) {
        attempts.drop(attempt)
        throw thrown
      }
    }

    /** Looks for an earlier attempt. If there is none, this is the first. */
    async function retried(x: Known, header: unknown): Promise<Reply | void> {
      if (typeof header === 'string') {
        const name = named(header)
        // An attempt that was just cancelled is about to release its name.
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
        // A finished name stays taken even if its reply is no longer kept.
        const recorded = kept ? ledger.claims.keep(claim, attempts.keptMs) : ledger.claims.release(claim)
        recorded.catch((cause: unknown) =>
          log.warn({ exchange: x.id, err: cause }, 'the store does not know the result of an idempotency key'),
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
    message: 'This idempotency-key was used for another request. Use a new key for a new body.',
  })
}

/** Returns the client's name for its request in a form that is safe in the store. */
function named(header: string): string {
  if (header === '' || header.length > NAME_MAX)
    throw new GatewayError('invalid_body', { message: `An idempotency-key has 1 to ${NAME_MAX} characters.` })
  return nameOf(header)
}
