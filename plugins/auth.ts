import {
  credentialOf,
  definePlugin,
  type Exchange,
  formatCredits,
  GatewayError,
  type Given,
  type Key,
  type KeyType,
  leastCharge,
} from 'tollgate/plugin'

declare module 'tollgate/plugin' {
  interface Facts {
    /** What the customer presented, for those who must look the key up anew. */
    secret: string
  }
}

/**
 * Who is calling. Unknown, disabled and malformed keys get one and the same answer. An expired key may still look up its
 * balance and history, as may an exhausted one; it may not buy. A key that cannot buy is refused here, before the body of its
 * request is read: what was read of a key some seconds ago is believed when it is good, and is read anew when it is not.
 */
export default definePlugin({
  name: 'auth',
  summary: 'Finds the key of `Authorization: Bearer` or `x-api-key`; requests below it in the chain need one.',
  on: 'all',
  gives: ['key', 'secret'],
  setup(_options, { attempts, config, keys, now }) {
    const leastCharges = new Map<KeyType, bigint>()

    /** What the smallest request of a key type costs at its cheapest model. */
    function leastOf(type: KeyType): bigint {
      let least = leastCharges.get(type)
      if (least === undefined)
        leastCharges.set(type, (least = leastCharge([...type.models.values()].map(({ price }) => price))))
      return least
    }

    /** Why a key cannot be used for a request; undefined when it can. */
    function fault(x: Exchange, key: Key | undefined): GatewayError | undefined {
      const type = key?.status === 'active' ? config.keyTypes.get(key.type) : undefined
      if (!key || !type) return new GatewayError('invalid_key')
      const counts = x.path === x.format.counting
      if (!x.inference && !counts) return undefined
      if (key.expiresAt !== undefined && key.expiresAt <= now()) return new GatewayError('key_expired')
      if (counts) return undefined
      const least = leastOf(type)
      // A retry may get the reply that used the key up: whether it does is known when its body has been read.
      return key.balance < least && !attempts.mayJoin(key.id, x) ? exhausted(key.balance, least) : undefined
    }

    function admit(x: Exchange, secret: string, key: Key | undefined): Given<'key' | 'secret'> {
      const error = fault(x, key)
      if (error) throw error
      return { key: key as Key, secret }
    }

    return {
      request(x) {
        const secret = credentialOf(x.headers)
        if (secret === undefined) throw new GatewayError('missing_key')
        if (!secret.startsWith('sk-')) throw new GatewayError('invalid_key')
        const found = keys.find(secret)
        if (found instanceof Promise) return found.then(key => admit(x, secret, key))
        // A key that has been enabled or topped up just now is served.
        return found && fault(x, found)
          ? keys.refind(secret).then(key => admit(x, secret, key))
          : admit(x, secret, found)
      },
    }
  },
})

function exhausted(balance: bigint, least: bigint): GatewayError {
  const [has, needs] = [formatCredits(balance), formatCredits(least)]
  return new GatewayError('allocation_exhausted', {
    message: `This key has ${has} credits left; the smallest request needs ${needs}.`,
  })
}
