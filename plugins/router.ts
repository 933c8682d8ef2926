import { type Body, type Config, definePlugin, type Format, GatewayError, type KeyType, type Route, Translation } from '../core/plugin.ts'

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
  setup(_options, { config, longJobs }) {
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
        const asked = { ...between, requestId: x.id, startedAt: x.startedAt, elsewhere: longJobs.of(key.id) }
        check(x.body, config.limits)
        if (!isLarge(x.body)) return routed(new Translation(asked))
        const bytes = x.body.received.length * TRANSLATION_COPIES + (x.body.values + x.body.innerValues) * TRANSLATION_VALUE_BYTES
        x.reserve(bytes)
        return Translation.large(asked).then(translation => {
          x.release(bytes - translation.bytes.length)
          return routed(translation)
        })
      },
    }
  },
})

/** Bytes and values of a request from which on it is translated on another thread. */
const ON_THREAD_BYTES = 65_536
const ON_THREAD_VALUES = 4000
/** How many times more the bytes of a request are in memory while it is translated, and the bytes of a value then. */
const TRANSLATION_COPIES = 6
const TRANSLATION_VALUE_BYTES = 600

/** What tools were called with is JSON in a text, which only a translation reads: it has the limits of the request. @throws GatewayError invalid_body */
function check({ values, innerValues, innerDepth }: Body, limits: Pick<Config['limits'], 'values' | 'depth'>): void {
  const [size, nested] = [values + innerValues > limits.values, innerDepth > limits.depth]
  if (size) throw new GatewayError('invalid_body', { message: `The request, with the arguments of its calls, holds more than ${limits.values} values.` })
  if (nested) throw new GatewayError('invalid_body', { message: `The arguments of a call are nested more than ${limits.depth} levels deep.` })
}

function isLarge({ received, values, innerValues }: Body): boolean {
  return received.length > ON_THREAD_BYTES || values + innerValues > ON_THREAD_VALUES
}
