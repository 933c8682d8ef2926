import {
  type Body,
  type Config,
  definePlugin,
  type Exchange,
  type Format,
  invalidBody,
  type KeyType,
  type Route,
  Translation,
  type With,
} from 'tollgate/plugin'

/**
 * Chooses the upstream accounts for a request: those of the key type's upstream, in the order of the file, in the
 * client's format if the upstream supports it, otherwise translated into the first format that it supports.
 */
export default definePlugin({
  name: 'router',
  summary: 'Chooses the upstream account and the format for a request. Translates the request if necessary.',
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
        const between = {
          client: format,
          upstream: spoken,
          body: x.body,
          headers: x.headers,
          asked: x.model.asked,
          limits: x.model.entry,
        }
        const asked = { ...between, requestId: x.id, startedAt: x.startedAt, elsewhere: longJobs.of(key.id, x) }
        if (x.body.innerTexts === 0 && !isLarge(x.body, x.body.values)) return routed(new Translation(asked))
        return translated(x, asked, config.limits).then(routed)
      },
    }
  },
})

/** Size of a request, in bytes and in values, from which it is translated on another thread. */
const ON_THREAD_BYTES = 65_536
const ON_THREAD_VALUES = 4000
/** Additional memory for translating a request: copies of its bytes, and bytes per value. */
const TRANSLATION_COPIES = 6
const TRANSLATION_VALUE_BYTES = 600

/**
 * Translates a request, on another thread if it is large. The arguments of tool calls are JSON inside a string, which
 * only a translation parses; the limits for requests apply to them as well.
 * @throws GatewayError invalid_body beyond the limits; unavailable if there is no memory
 */
async function translated(
  x: Exchange & With<'body'>,
  asked: Asked,
  limits: Pick<Config['limits'], 'values' | 'depth'>,
): Promise<Translation> {
  const inner = await x.body.inner()
  const values = x.body.values + inner.values
  if (values > limits.values)
    throw invalidBody(`The request, including the arguments of its calls, has more than ${limits.values} values.`)
  if (inner.depth > limits.depth)
    throw invalidBody(`The arguments of a call are nested more than ${limits.depth} levels deep.`)
  if (!isLarge(x.body, values)) return new Translation(asked)
  const bytes = x.body.received.length * TRANSLATION_COPIES + values * TRANSLATION_VALUE_BYTES
  x.reserve(bytes)
  const translation = await Translation.large(asked)
  x.release(bytes - translation.bytes.length)
  return translation
}

type Asked = Parameters<typeof Translation.large>[0]

function isLarge({ received }: Body, values: number): boolean {
  return received.length > ON_THREAD_BYTES || values > ON_THREAD_VALUES
}
