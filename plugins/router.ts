import { type Body, definePlugin, type Format, GatewayError, type KeyType, type Route, Translation, type With } from '../core/plugin.ts'

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
  setup(_options, { config, translations }) {
    return {
      request(x) {
        const { key, format } = x
        const { upstream } = config.keyTypes.get(key.type) as KeyType
        const spoken = upstream.speaks.includes(format) ? format : (upstream.speaks[0] as Format)
        const routed = (translation?: Translation): { route: Route } => ({
          route: { format: spoken, translation, candidates: upstream.accounts.map(account => ({ upstream, account })) },
        })
        if (!x.inference || spoken === format) return routed()
        const between = { client: format, upstream: spoken, body: x.body, headers: x.headers, asked: x.model.asked, limits: x.model.entry }
        const asked = { ...between, requestId: x.id, startedAt: x.startedAt, elsewhere: translations }
        if (!isLarge(x.body, config.limits.values)) return routed(new Translation(asked))
        reserve(x)
        return Translation.large(asked).then(routed)
      },
    }
  },
})

/** Bytes and values of a request from which on it is translated on another thread. */
const LARGE_BYTES = 65_536
const LARGE_VALUES = 4000
/** How many times more the bytes of a request are in memory while it is translated, and the bytes of a value then. */
const COPIES = 6
const VALUE_BYTES = 600

/** @param most values. @throws GatewayError invalid_body for more of them */
function isLarge({ received, values, innerValues }: Body, most: number): boolean {
  // What tools were called with is JSON in a text, which only a translation reads.
  if (values + innerValues > most) {
    throw new GatewayError('invalid_body', { message: `The request, with the arguments of its calls, holds more than ${most} values.` })
  }
  return received.length > LARGE_BYTES || values + innerValues > LARGE_VALUES
}

/** Takes the memory that a translation needs. @throws GatewayError unavailable */
function reserve(x: With<'body'>): void {
  x.reserve(x.body.received.length * COPIES + (x.body.values + x.body.innerValues) * VALUE_BYTES)
}
