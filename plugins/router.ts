import {
  type Body,
  type Candidate,
  candidateOf,
  type Compacting,
  type Config,
  conversationKey,
  definePlugin,
  type Exchange,
  type Format,
  type Given,
  invalidBody,
  type KeyType,
  noneLeft,
  overflowOf,
  presented,
  Route,
  Translation,
  type Upstream,
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
  setup(_options, { config, ledger, log, longJobs, pool }) {
    /** Whether the replies to a key type's requests in a format may come from upstreams of several formats. */
    const spanning = new WeakMap<KeyType, Map<Format, boolean>>()

    function spans(type: KeyType, format: Format): boolean {
      const known = spanning.get(type) ?? new Map<Format, boolean>()
      spanning.set(type, known)
      const upstreams = (): Upstream[] => [...type.models.values()].flatMap(model => model.upstreams)
      if (!known.has(format))
        known.set(
          format,
          upstreams().some(({ speaks }) => !speaks.includes(format)),
        )
      return known.get(format) === true
    }

    /**
     * Replaces references to items that the gateway keeps by the items.
     * @throws GatewayError item_not_found for an item that the gateway made and no longer keeps
     */
    async function withItems(x: Known, items: Items, ids: readonly string[]): Promise<void> {
      const kept = await ledger.kept.read(ownerOf(x), ids)
      const own = ids.filter(id => !kept.has(id) && items.mayBeOwn(id))
      // A provider may have made such an id as well.
      const stored = own.length > 0 ? await ledger.storedSizes(x.key.id, own) : []
      const lost = own[stored.indexOf(undefined)]
      if (lost !== undefined) throw items.notFound(lost)
      items.inline(x.body, kept)
    }

    return {
      request(x) {
        const { items } = x.format
        const { references } = items ? x.body.contents : { references: [] }
        if (!items || references.length === 0) return routed(x)
        // Other formats have no references.
        const translates = x.model.entry.upstreams.some(({ speaks }) => !speaks.includes(x.format))
        const ids = references.flatMap(({ param, id }) => (param === items.param ? [id] : []))
        const wanted = translates ? ids : ids.filter(id => items.mayBeOwn(id))
        return wanted.length === 0 ? routed(x) : withItems(x, items, wanted).then(() => routed(x))
      },
      rewrite(x) {
        const { items } = x.format
        const type = config.keyTypes.get(x.key.type)
        if (!items || !type || x.delivered > KEPT_BYTES_MAX || !x.format.storesReply(x.body)) return undefined
        if (!x.route.translation && !spans(type, x.format)) return undefined
        return {
          matches: items.signs,
          event(event) {
            const made = event.data.length > KEPT_BYTES_MAX ? undefined : items.of(event.json)
            if (made && made.size > 0)
              ledger.kept
                .keep(ownerOf(x), made)
                .catch((err: unknown) => log.warn({ exchange: x.id, err }, 'cannot keep the items of a reply'))
            return undefined
          },
        }
      },
    }

    function routed(x: Known): Given<'route'> | Promise<Given<'route'>> {
      const { key, format } = x
      const { retry } = config.keyTypes.get(key.type) as KeyType
      const { upstreams, sends } = x.model.entry
      const accounts = pool.candidates(upstreams, sends, () =>
        conversationKey(x.body, format.conversationMember, x.headers, key.id),
      )
      const all = accounts.map(each => candidateOf(each, format))
      // What is not an inference is not translated.
      const fit = x.inference ? all : all.filter(each => each.format === format)
      const served = fit.length > 0 ? fit : all
      const compaction = x.inference ? format.compaction?.asked(x.path, x.body) : undefined
      const native = served.filter(each => each.format === format && each.upstream.compaction === 'native')
      const candidates = compaction && native.length > 0 ? native : served
      // Without a provider that makes compactions, the gateway makes it by translating the request for a summary.
      const client = compaction && native.length === 0 ? compaction : format
      const translate = (spoken: Format): Promise<Translation> | Translation | undefined => {
        if (spoken === client || !x.inference) return undefined
        const translation = translated(x, client, spoken)
        return translation instanceof Promise
          ? translation.then(each => withItsLimit(x, each))
          : withItsLimit(x, translation)
      }
      return routeOf(candidates)

      /** @param reason why the request cannot be translated for the candidates before these */
      function routeOf([first, ...others]: Candidate[], reason?: unknown): Given<'route'> | Promise<Given<'route'>> {
        if (!first) throw reason ?? noneLeft(pool.waitMs(upstreams, sends))
        const given = (translation?: Translation): Given<'route'> => ({
          route: new Route([first, ...others], retry, translate, translation, compaction && compacting(x)),
        })
        const skip = (thrown: unknown): ReturnType<typeof routeOf> =>
          routeOf(
            others.filter(({ format: spoken }) => spoken !== first.format),
            reason ?? thrown,
          )
        try {
          const translation = translate(first.format)
          return translation instanceof Promise ? translation.then(given, skip) : given(translation)
        } catch (thrown) {
          return skip(thrown)
        }
      }
    }

    function translated(x: Known, client: Format, spoken: Format): Promise<Translation> | Translation {
      const asked = {
        client,
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

/** Most bytes of a reply whose items are kept. */
const KEPT_BYTES_MAX = 262_144

/** Whose items are kept, and by which secret only they can be read. */
function ownerOf(x: Known): { account: string; secret: string } {
  return { account: x.key.id, secret: presented(x.headers) ?? '' }
}

/** How a request for a compaction gets shorter. */
function compacting({ body, format }: Known): Compacting {
  return {
    shorten: failure => {
      const overflow = overflowOf(failure)
      return overflow && format.compaction?.shorten(body, overflow)
    },
  }
}

/** Raises the request's output limit to what the upstream gets at least, so that it is held and charged. */
function withItsLimit({ body, format }: Known, translation: Translation): Translation {
  const { maxOutput } = translation
  if (maxOutput !== undefined && maxOutput > (format.outputLimit(body) ?? Infinity)) format.limitOutput(body, maxOutput)
  return translation
}

type Items = NonNullable<Format['items']>
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
