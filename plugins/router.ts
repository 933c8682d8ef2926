import {
  type Body,
  type Candidate,
  candidateOf,
  type Config,
  conversationKey,
  definePlugin,
  type Exchange,
  type Format,
  type Given,
  invalidBody,
  type KeyType,
  noneLeft,
  Route,
  Translation,
  type With,
} from 'tollgate/plugin'

/**
 * Chooses the accounts that may serve a request, in the order in which they are asked: by upstream in the order of the
 * file, and among the accounts of an upstream by the conversation. An upstream is asked in the client's format if it
 * speaks it, otherwise in the first format that it speaks, translated.
 */
export default definePlugin({
  name: 'router',
  summary: 'Chooses the upstream accounts and the format for a request. Translates the request if necessary.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['route'],
  setup(_options, { config, longJobs, pool }) {
    return {
      request(x) {
        const { key, format } = x
        const { retry } = config.keyTypes.get(key.type) as KeyType
        const { upstreams, sends } = x.model.entry
        const accounts = pool.candidates(upstreams, sends, () =>
          conversationKey(x.body, format.conversationMember, x.headers, key.id),
        )
        const all = accounts.map(each => candidateOf(each, format))
        // What is not an inference is not translated.
        const fit = x.inference ? all : all.filter(each => each.format === format)
        const candidates = fit.length > 0 ? fit : all
        const translate = (spoken: Format): Promise<Translation> | Translation | undefined =>
          spoken === format || !x.inference ? undefined : translated(x, spoken)
        return routeOf(candidates)

        /** @param reason why the request cannot be translated for the candidates before these */
        function routeOf([first, ...others]: Candidate[], reason?: unknown): Given<'route'> | Promise<Given<'route'>> {
          if (!first) throw reason ?? noneLeft(pool.waitMs(upstreams, sends))
          const routed = (translation?: Translation): Given<'route'> => ({
            route: new Route([first, ...others], retry, translate, translation),
          })
          const skip = (thrown: unknown): ReturnType<typeof routeOf> =>
            routeOf(
              others.filter(({ format: spoken }) => spoken !== first.format),
              reason ?? thrown,
            )
          try {
            const translation = translate(first.format)
            return translation instanceof Promise ? translation.then(routed, skip) : routed(translation)
          } catch (thrown) {
            return skip(thrown)
          }
        }
      },
    }

    function translated(x: Known, spoken: Format): Promise<Translation> | Translation {
      const asked = {
        client: x.format,
        upstream: spoken,
        body: x.body,
        headers: x.headers,
        asked: x.model.asked,
        limits: x.model.entry,
        requestId: x.id,
        startedAt: x.startedAt,
        elsewhere: longJobs.of(x.key.id, x),
      }
      if (x.body.innerTexts === 0 && !isLarge(x.body, x.body.values)) return new Translation(asked)
      return largeTranslation(x, asked, config.limits)
    }
  },
})

type Known = Exchange & With<'key' | 'body' | 'model'>

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
async function largeTranslation(
  x: Known,
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
