import { formatCredits, GatewayError, type Key } from 'tollgate/plugin'
import {
  beginsAsSecret,
  credentialOf,
  allowsAddress,
  defineBuiltIn,
  type BuiltInExchange,
  type BuiltInGiven,
  isValid,
  leastOf,
  limitsOf,
  tooFewCredits,
  typeOf,
} from 'tollgate/plugin/metering'

/**
 * Identifies the caller. Unknown, disabled and malformed keys get the same answer. Expired and exhausted keys may still
 * read their balance and history but not buy. A key that cannot buy is refused before the request's body is read. A
 * cached record is trusted if it allows the request, and read again if it does not.
 */
export default defineBuiltIn({
  name: 'auth',
  summary: 'Identifies the key in `Authorization: Bearer` or `x-api-key`. Stages below it run only with a valid key.',
  on: 'all',
  gives: ['key', 'secret'],
  setup(_options, { clientRequests, config, keys, now }) {
    /** Returns why a key cannot be used for a request. Undefined if it can. */
    function fault(x: BuiltInExchange, key: Key | undefined): GatewayError | undefined {
      if (!key) return new GatewayError('invalid_key')
      const type = key.status === 'active' ? config.keyTypes.get(key.type) : undefined
      // The client reads the same as for an unknown key.
      if (!type) return new GatewayError('key_disabled')
      const counts = x.path === x.format.counting
      if (!x.inference && !counts) return undefined
      if (key.expiresAt !== undefined && key.expiresAt <= now()) return new GatewayError('key_expired')
      if (!allowsAddress(limitsOf(type, key), x.address)) return new GatewayError('address_refused')
      // The hold asks the windows of a plan.
      if (counts || (key.plan && isValid(key.plan, now()))) return undefined
      if (key.plan) keys.plans.noteLapse(key.account, key.plan)
      const least = leastOf(typeOf(config, key))
      // A resend may get the reply that exhausted the key. Whether it does is known only after its body has been read.
      return least > 0n && key.balance < least && !clientRequests.mayJoin(key.id, x)
        ? tooFewCredits(key, `the smallest request needs ${formatCredits(least)}.`, {
            contact: config.contact,
            now: now(),
          })
        : undefined
    }

    function admit(x: BuiltInExchange, secret: string, key: Key | undefined): BuiltInGiven<'key' | 'secret'> {
      if (key) x.identify(key)
      const error = fault(x, key)
      if (error) throw error
      return { key: key as Key, secret }
    }

    return {
      request(x) {
        const secret = credentialOf(x.headers)
        if (secret === undefined) throw new GatewayError('missing_key')
        if (!beginsAsSecret(secret, config.keys.prefixes)) throw new GatewayError('invalid_key')
        const found = x.inference ? keys.find(secret) : keys.findRecent(secret)
        const isRead = found instanceof Promise
        // A key that was just enabled or topped up is accepted, and one whose balance just got other keys sees only its own
        // requests.
        const isDoubtful = !isRead && found && ((!x.inference && x.path !== x.format.counting) || fault(x, found))
        if (!isRead && !isDoubtful) return admit(x, secret, found)
        return Promise.resolve(isRead ? found : keys.refind(secret)).then(key => {
          x.keyIsCurrent = true
          return admit(x, secret, key)
        })
      },
    }
  },
})
