import { credentialOf, definePlugin, type Exchange, GatewayError, type Given, type Key } from '../core/plugin.ts'

declare module '../core/exchange.ts' {
  interface Facts {
    /** What the customer presented, for those who must look the key up anew. */
    secret: string
  }
}

/** The wait told to an address that has failed too often, in milliseconds, and the time over which failures count. */
const WINDOW_MS = 60_000
/** Addresses remembered at a time; beyond that all are forgotten, which costs guessers nothing worth having. */
const MOST_ADDRESSES = 100_000

/**
 * Who is calling. Unknown, disabled and malformed keys get one and the same answer. An expired key may still look up its
 * balance and history, as may an exhausted one; it may not buy.
 */
export default definePlugin({
  name: 'auth',
  summary: 'Finds the key of `Authorization: Bearer` or `x-api-key`; requests below it in the chain need one.',
  on: 'all',
  gives: ['key', 'secret'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      failuresPerMinute: {
        type: 'integer',
        minimum: 1,
        default: 600,
        description: 'the wrong keys one address may try in a minute before it is told to wait',
      },
    },
  },
  setup({ failuresPerMinute }, { config, keys, now }) {
    const failures = new Map<string, { count: number; since: number }>()

    function fail(address: string, error: GatewayError): never {
      const seen = failures.get(address)
      if (seen && now() - seen.since < WINDOW_MS) seen.count++
      else {
        if (failures.size >= MOST_ADDRESSES) failures.clear()
        failures.set(address, { count: 1, since: now() })
      }
      throw error
    }

    function checkAddress(address: string): void {
      const seen = failures.get(address)
      if (!seen || seen.count < failuresPerMinute) return
      const left = seen.since + WINDOW_MS - now()
      if (left <= 0) failures.delete(address)
      else throw new GatewayError('rate_limited', { message: 'Too many wrong API keys from this address.', retryAfterMs: left })
    }

    function usable(key: Key | undefined): key is Key {
      return key !== undefined && key.status === 'active' && config.keyTypes.has(key.type)
    }

    function admit(x: Exchange, secret: string, key: Key | undefined): Given<'key' | 'secret'> {
      if (!usable(key)) {
        // Only who has no key is held up: behind a proxy all customers may share one address.
        checkAddress(x.address)
        return fail(x.address, new GatewayError('invalid_key'))
      }
      if (x.inference && key.expiresAt !== undefined && key.expiresAt <= now()) throw new GatewayError('key_expired')
      return { key, secret }
    }

    return {
      request(x) {
        const secret = credentialOf(x.headers)
        if (secret === undefined) throw new GatewayError('missing_key')
        const found = secret.startsWith('sk-') ? keys.find(secret) : undefined
        return found instanceof Promise ? found.then(key => admit(x, secret, key)) : admit(x, secret, found)
      },
    }
  },
})
