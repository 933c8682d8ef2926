import { formatCredits, GatewayError, type Key, type ModelEntry, Reply } from 'tollgate/plugin'
import {
  defineBuiltIn,
  type BuiltInExchange,
  modelsFor,
  presented,
  reasoningIn,
  typeOf,
  BOOLEAN,
  setting,
} from 'tollgate/plugin/operator'

/** A model in a shape that the clients of all formats accept. */
interface ListedModel {
  readonly id: string
  readonly object: 'model'
  readonly type: 'model'
  readonly created: number
  readonly created_at: string
  readonly owned_by: string
  readonly display_name: string
  readonly max_input_tokens?: number
  readonly max_tokens?: number
  /** Whether reasoning is `hidden`, `shown` or absent (`none`), which decides what a stream costs whose client leaves. */
  readonly reasoning: 'hidden' | 'shown' | 'none'
  /** Exact decimals. */
  readonly pricing?: object
}

/** The creation time of all models. Clients expect a stable one. */
const CREATED = 1_767_225_600

/** Lists the models: all of public key types, or those of a valid key. A wrong key is ignored, since the list is public. */
export default defineBuiltIn({
  name: 'models',
  summary: 'Answers GET /v1/models and GET /v1/models/{id}. A valid key sees only its own models.',
  on: ['GET /v1/models', 'GET /v1/models/*'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      prices: setting(
        BOOLEAN,
        false,
        'Whether each model has its price, as `pricing`. Without a key, it is that of the first key type with the model.',
      ),
    },
  },
  setup({ prices }, { config, keys }) {
    const all = listed(
      [...config.keyTypes.values()].filter(({ isPublic }) => isPublic).flatMap(({ models }) => [...models.values()]),
      prices,
    )
    const lists = new WeakMap<object, ReadonlyMap<string, ListedModel>>()
    /** Returns the models of a key, with the prices that it pays. Undefined if its type is not in the file. */
    const ofKey = (key: Key): ReadonlyMap<string, ListedModel> | undefined => {
      if (!config.keyTypes.has(key.type)) return undefined
      const type = typeOf(config, key)
      // Most keys have what their type has.
      const owner = key.limits ? key : type
      const list = lists.get(owner) ?? listed(modelsFor(type, key, config.groups), prices)
      lists.set(owner, list)
      return list
    }
    const listFor = async (x: BuiltInExchange): Promise<ReadonlyMap<string, ListedModel>> => {
      const secret = presented(x.headers)
      if (secret === undefined) return all
      // The public list does not depend on the store.
      const key = await Promise.resolve(keys.findRecent(secret)).catch(() => undefined)
      return (key?.status === 'active' && ofKey(key)) || all
    }
    return {
      async request(x) {
        const models = await listFor(x)
        const id = x.path.slice('/v1/models/'.length)
        if (id !== '') return Reply.json(one(models, decoded(id)))
        const list = page([...models.values()], x.query)
        // Codex asks so, and cannot read a list without this member. What it would need of a model includes the
        // instructions of the agent itself, so it keeps what it knows.
        return Reply.json(x.query.has('client_version') ? { ...list, models: [] } : list)
      },
    }
  },
})

function listed(entries: readonly ModelEntry[], prices: boolean): Map<string, ListedModel> {
  const models = new Map<string, ListedModel>()
  for (const entry of entries) if (!models.has(entry.id)) models.set(entry.id, describe(entry, prices))
  return models
}

function describe(entry: ModelEntry, prices: boolean): ListedModel {
  const { id, name, context, maxOutput, price } = entry
  return {
    id,
    object: 'model',
    type: 'model',
    created: CREATED,
    created_at: new Date(CREATED * 1000).toISOString(),
    owned_by: id.includes('/') ? (id.split('/')[0] ?? 'tollgate') : 'tollgate',
    display_name: name,
    ...(context !== undefined && { max_input_tokens: context }),
    ...(maxOutput !== undefined && { max_tokens: maxOutput }),
    reasoning: reasoningIn(entry),
    ...(prices && { pricing: { unit: 'credits per million tokens', ...pricingOf(price) } }),
  }
}

function pricingOf({ input, cacheRead, cacheWrite5m, cacheWrite1h, output, reasoning }: ModelEntry['price']): object {
  return {
    input: formatCredits(input),
    cache_read: formatCredits(cacheRead),
    cache_write_5m: formatCredits(cacheWrite5m),
    cache_write_1h: formatCredits(cacheWrite1h),
    output: formatCredits(output),
    reasoning: formatCredits(reasoning),
  }
}

/** Decodes an id. SDKs escape its slash, people do not. */
function decoded(id: string): string {
  try {
    return decodeURIComponent(id)
  } catch {
    return id
  }
}

function one(models: ReadonlyMap<string, ListedModel>, id: string): ListedModel {
  const model = models.get(id)
  if (!model)
    throw new GatewayError('model_not_found', { message: `There is no model "${id.slice(0, 100)}".`, param: 'model' })
  return model
}

/**
 * Returns the whole list, or a page if the client asks for one. A page after the last model is empty, which ends
 * paging.
 */
function page(models: readonly ListedModel[], query: URLSearchParams): object {
  const index = (name: string): number => models.findIndex(({ id }) => id === query.get(name))
  const after = index('after_id') === -1 ? models.length : index('after_id') + 1
  const start = query.has('after_id') ? after : 0
  const end = query.has('before_id') ? Math.max(index('before_id'), 0) : models.length
  const asked = Number(query.get('limit') ?? models.length)
  const limit = Number.isInteger(asked) && asked > 0 ? asked : models.length
  const data = query.has('before_id')
    ? models.slice(Math.max(0, end - limit), end)
    : models.slice(start, Math.min(end, start + limit))
  const more = query.has('before_id') ? end - data.length > 0 : start + data.length < end
  return {
    object: 'list',
    data,
    has_more: more && data.length > 0,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  }
}
