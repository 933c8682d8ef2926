import { definePlugin, type Format, GatewayError, type KeyType, Translation, type With } from '../core/plugin.ts'

/**
 * Where a request goes: to the accounts of its key type's upstream, in the order of the file, in the client's format where
 * the upstream speaks it, else translated into the first of those it speaks.
 */
export default definePlugin({
  name: 'router',
  summary: "Chooses the accounts of the key type's upstream that a request is sent to, and the format it is spoken to in.",
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['route'],
  setup(_options, { config }) {
    return {
      request(x) {
        const { key, format } = x
        const { upstream } = config.keyTypes.get(key.type) as KeyType
        const spoken = upstream.speaks.includes(format) ? format : (upstream.speaks[0] as Format)
        const translation = x.inference && spoken !== format ? between(x, spoken, config.limits.values) : undefined
        return { route: { format: spoken, translation, candidates: upstream.accounts.map(account => ({ upstream, account })) } }
      },
    }
  },
})

/** How many times more the bytes of a request are in memory while it is translated, and the bytes of a value then. */
const TRANSLATED_COPIES = 6
const TRANSLATED_VALUE_BYTES = 600

/** What is needed to translate. @param most values. @throws GatewayError invalid_body for a request that cannot be; unavailable for lack of memory */
function between(x: With<'body' | 'model'>, upstream: Format, most: number): Translation {
  const { format: client, body, headers, model, id: requestId, startedAt } = x
  // What tools were called with is JSON in a text, which only a translation reads.
  const values = body.values + body.innerValues
  if (values > most) throw new GatewayError('invalid_body', { message: `The request, with the arguments of its calls, holds more than ${most} values.` })
  if (body.received.length > SMALL_BYTES) x.reserve(body.received.length * TRANSLATED_COPIES + values * TRANSLATED_VALUE_BYTES)
  return new Translation({ client, upstream, body, headers, asked: model.asked, limits: model.entry, requestId, startedAt })
}

/** Bytes of a request whose translation takes no memory to speak of. */
const SMALL_BYTES = 16_384
