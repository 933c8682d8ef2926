import type { Config, Key, KeyType } from 'tollgate/plugin'
import {
  type Body,
  type Candidate,
  candidateOf,
  type Compacting,
  conversationKey,
  defineBuiltIn,
  type BuiltInExchange,
  type BuiltInHost,
  type Format,
  type BuiltInGiven,
  noneLeft,
  overflowOf,
  presented,
  Route,
  type RouteParts,
  Translation,
  type Upstream,
  type BuiltInWith,
  typeOf,
} from 'tollgate/plugin/metering'

/**
 * Chooses the accounts that may serve a request, in the order in which they are asked: by upstream in the order of the
 * file, and among the accounts of an upstream by the conversation. An upstream is asked in the client's format if it
 * speaks it, otherwise in the first format that it speaks, translated.
 */
export default defineBuiltIn({
  name: 'router',
  summary: 'Chooses the upstream accounts and the format for a request. Translates the request if necessary.',
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['route'],
  setup(_options, host) {
    const { config, ledger, log } = host
    const routing = new Routing(host)
    return {
      request(x) {
        const { items } = x.format
        const { references } = items ? x.body.contents : { references: [] }
        if (!items || references.length === 0) return routing.routed(x)
        const { upstreams } = x.model.entry
        const ids = references.flatMap(({ param, id }) => (param === items.param ? [id] : []))
        const isTranslated = upstreams.some(upstream => !upstream.speaks.includes(x.format) || isMade(x, upstream))
        const type = config.keyTypes.get(x.key.type)
        const isSimple = !isTranslated && !(type && routing.spans(type)) && !ids.some(id => items.mayBeOwn(id))
        return ids.length === 0 || isSimple
          ? routing.routed(x)
          : routing.withItems(x, items, ids, isTranslated).then(() => routing.routed(x))
      },
      rewrite(x) {
        const { items } = x.format
        const type = config.keyTypes.get(x.key.type)
        const owner = ownerOf(x)
        if (!items || !type || !owner || x.delivered > KEPT_BYTES_MAX || !x.format.storesReply(received(x.body)))
          return undefined
        if (!x.route.translation && !routing.spans(type)) return undefined
        return {
          matches: x.format.signals,
          event(event) {
            const made = event.data.length > KEPT_BYTES_MAX ? undefined : items.of(event.json)
            if (!made || made.size === 0) return undefined
            // The last bytes wait until this is on its way to the store, together with the settlement.
            ledger.kept
              .keep(owner, made)
              .catch((err: unknown) => log.warn({ exchange: x.id, err }, 'cannot keep the items of a reply'))
            return undefined
          },
        }
      },
    }
  },
})

/** How the requests of one configuration are routed. */
class Routing {
  readonly #host: BuiltInHost
  /** By key type: whether its models have several upstreams, so that a conversation may leave the one that has its items. */
  readonly #spanning = new WeakMap<KeyType, boolean>()

  constructor(host: BuiltInHost) {
    this.#host = host
  }

  /** Whether the models of a key type have several upstreams. */
  spans(type: KeyType): boolean {
    const isSpanning =
      this.#spanning.get(type) ?? new Set([...type.models.values()].flatMap(({ upstreams }) => upstreams)).size > 1
    this.#spanning.set(type, isSpanning)
    return isSpanning
  }

  /**
   * Replaces references by the items that the gateway keeps, unless the provider has them.
   * @param isTranslated whether an upstream may get the request translated: it cannot look references up
   * @throws GatewayError item_not_found for an item that neither the gateway nor a provider has
   */
  async withItems(x: Known, items: Items, ids: readonly string[], isTranslated: boolean): Promise<void> {
    const owner = ownerOf(x)
    const kept = owner ? await this.#host.ledger.kept.read(owner, ids) : new Map<string, string>()
    const stored = await this.#host.ledger.storedObjects.sizes(x.key.spender, ids)
    const having = x.model.entry.upstreams.filter(each => each.speaks.includes(x.format) && !isMade(x, each))
    const accounts = new Set(having.flatMap(upstream => upstream.accounts.map(({ name }) => name)))
    const isThere = (index: number): boolean => accounts.has(stored[index]?.at ?? '')
    const lost = ids.find(
      (id, index) => !kept.has(id) && !isThere(index) && (isTranslated || (!stored[index] && items.mayBeOwn(id))),
    )
    if (lost !== undefined) throw items.notFound(lost)
    if (isTranslated || !ids.every((_id, index) => isThere(index))) items.inline(x.body, kept)
  }

  /** Returns the accounts that may serve a request. */
  routed(x: Known): BuiltInGiven<'route'> | Promise<BuiltInGiven<'route'>> {
    const { config, pool } = this.#host
    const { key, format, body } = x
    const { upstreams, sends } = x.model.entry
    const accounts = pool.candidates(upstreams, sends, () =>
      conversationKey(body, format.conversationMember, x.headers, key.id),
    )
    const all = accounts.map(each => candidateOf(each, format))
    // What is not an inference is not translated.
    const fit = x.inference ? all : all.filter(each => each.format === format)
    const served = fit.length > 0 ? fit : all
    const compaction = x.inference ? format.compaction?.asked(x.path, body) : undefined
    const limit = new RaisedLimit(x)
    const translate = (candidate: Candidate): Promise<Translation> | Translation | undefined => {
      const client = compaction && candidate.upstream.compaction === 'gateway' ? compaction : format
      limit.restore()
      if (candidate.format === client || !x.inference) return undefined
      const translation = this.#translated(x, client, candidate)
      return translation instanceof Promise ? translation.then(made => limit.raise(made)) : limit.raise(translation)
    }
    const { retry } = typeOf(config, key)
    const parts = { retry, translate, compacting: compaction && compacting(x) }
    const noneCanServe = (): unknown => noneLeft(pool, upstreams, sends)
    return firstServing(compaction ? nativeFirst(served) : served, parts, noneCanServe)
  }

  #translated(x: Known, client: Format, { format, upstream }: Candidate): Promise<Translation> | Translation {
    const asked = {
      client,
      upstream: format,
      said: upstream.said,
      body: x.body,
      headers: x.headers,
      asked: x.model.asked,
      traits: x.model.entry,
      requestId: x.id,
      startedAt: x.startedAt,
      elsewhere: this.#host.longJobs.of(x.key.id, x),
    }
    if (x.body.innerTexts === 0 && !isLarge(x.body, x.body.values)) return new Translation(asked)
    return largeTranslation(x, asked, this.#host.config.limits)
  }
}

/** The output limit of a request, while an upstream accepts none as low. */
class RaisedLimit {
  readonly #x: Known
  /** The limit of the client, and what it became. */
  #raised: { readonly from: number; readonly to: number } | undefined

  constructor(x: Known) {
    this.#x = x
  }

  /** Undoes what an upstream that is no longer asked has needed. */
  restore(): void {
    const { format, body } = this.#x
    if (this.#raised && format.outputLimit(body) === this.#raised.to) format.limitOutput(body, this.#raised.from)
  }

  /** Raises the request's output limit to what the upstream gets at least, so that it is held and charged. */
  raise(translation: Translation): Translation {
    const { format, body } = this.#x
    const { maxOutput: to } = translation
    const from = format.outputLimit(body)
    if (to === undefined || from === undefined || to <= from) return translation
    this.#raised = { from, to }
    format.limitOutput(body, to)
    return translation
  }
}

/**
 * Returns a route that begins with the first candidate that the request can be translated for.
 * @param noneCanServe returns the error if there is no candidate
 * @param reason why the request cannot be translated for the candidates before these
 */
function firstServing(
  [first, ...others]: Candidate[],
  parts: Omit<RouteParts, 'candidates' | 'translation'>,
  noneCanServe: () => unknown,
  reason?: unknown,
): BuiltInGiven<'route'> | Promise<BuiltInGiven<'route'>> {
  if (!first) throw reason ?? noneCanServe()
  const given = (translation?: Translation): BuiltInGiven<'route'> => ({
    route: new Route({ ...parts, candidates: [first, ...others], translation }),
  })
  const skip = (thrown: unknown): ReturnType<typeof firstServing> => {
    const different = others.filter(
      each => each.format !== first.format || each.upstream.compaction !== first.upstream.compaction,
    )
    return firstServing(different, parts, noneCanServe, reason ?? thrown)
  }
  try {
    const translation = parts.translate(first)
    return translation instanceof Promise ? translation.then(given, skip) : given(translation)
  } catch (thrown) {
    return skip(thrown)
  }
}

/** Most bytes of a reply whose items are kept. */
const KEPT_BYTES_MAX = 262_144

/** The members that the client sent. A policy may have the request store nothing at the provider. */
function received(body: Body): Pick<Body, 'get'> {
  return { get: name => body.receivedView(name)?.json }
}

/** The owner of the items of a reply. Undefined for a request without a secret: only a secret can encrypt them. */
function ownerOf(x: Known): { spender: Key['spender']; secret: string } | undefined {
  const secret = presented(x.headers)
  return secret === undefined ? undefined : { spender: x.key.spender, secret }
}

/** Whether the gateway makes the compaction that a request asks for, if this upstream serves. */
function isMade({ format, path, body, inference }: Known, { compaction }: Upstream): boolean {
  return inference && compaction === 'gateway' && format.compaction?.asked(path, body) !== undefined
}

function rank({ lastResort, upstream }: Candidate): number {
  return (lastResort ? 2 : 0) + (upstream.compaction === 'native' ? 0 : 1)
}

/** The candidates with those first that make compactions themselves, as long as they can serve. */
function nativeFirst(candidates: readonly Candidate[]): Candidate[] {
  return candidates.toSorted((one, other) => rank(one) - rank(other))
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

type Items = NonNullable<Format['items']>
type Known = BuiltInExchange & BuiltInWith<'key' | 'body' | 'model'>

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
  const values = await x.body.allValues(limits)
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
