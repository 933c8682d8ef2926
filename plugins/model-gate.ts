import { GatewayError, type KeyType, type Rewriter } from 'tollgate/plugin'
import {
  allows,
  defineBuiltIn,
  type Format,
  limitsOf,
  listedIds,
  modelsFor,
  ModelRenamer,
  typeOf,
} from 'tollgate/plugin/metering'

/** Maximum length of a model name that an error repeats. */
const SHOWN = 100

/**
 * Allows a key only the formats and models of its type. A model is sent under the upstream's name, and the reply names
 * it as the client did, since clients use it for look-ups and prices.
 */
export default defineBuiltIn({
  name: 'model-gate',
  summary: "Allows the formats and models of the key's type. Resolves aliases and name suffixes.",
  on: ['inference', 'counting'],
  needs: ['key', 'body'],
  gives: ['model'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      suffixes: {
        type: 'object',
        default: {},
        description: 'Suffixes of model names, each with the request headers that it stands for.',
        propertyNames: { minLength: 1, expected: 'a suffix of at least one character' },
        additionalProperties: { type: 'object', additionalProperties: { type: 'string', pattern: '^[ -~]*$' } },
      },
    },
  },
  setup({ suffixes }, { config }) {
    /** Splits a model name into the name itself and the headers that its suffix stands for. */
    function bare(name: string): { name: string; headers: Record<string, string> } {
      const lower = name.toLowerCase()
      const suffix = Object.keys(suffixes).find(end => lower.endsWith(end.toLowerCase()))
      return suffix === undefined
        ? { name, headers: {} }
        : { name: name.slice(0, -suffix.length), headers: suffixes[suffix] ?? {} }
    }

    return {
      request({ key, body, format }) {
        const type = typeOf(config, key)
        if (!type.formats.includes(format)) {
          const served = type.formats.map(({ path }) => `POST ${path}`).join(', ')
          throw new GatewayError('format_not_allowed', {
            message: `Keys of type ${type.name} may not use ${format.path}. They may use ${served}.`,
          })
        }
        const asked = body.get('model') as string
        const { name, headers } = bare(asked)
        const entry = type.models.get(name)
        const allowed = entry && allows(limitsOf(type, key), listedIds({ entry }), config.groups)
        if (!entry || !allowed)
          throw unknown(
            asked,
            modelsFor(type, key, config.groups).map(({ id }) => id),
            type,
          )
        if (entry.sends !== asked) body.set('model', entry.sends)
        return { model: { asked, entry, headers } }
      },
      rewrite({ model, format }, head): Rewriter | undefined {
        // If the reply already has the right name, its bytes pass unchanged.
        return head.model === model.asked ? undefined : called(model.asked, format, head.model)
      },
    }
  },
})

/**
 * Replaces the model name in each event.
 * @param reported the name in the first event
 */
function called(name: string, format: Format, reported: string | undefined): Rewriter {
  const renamer = new ModelRenamer(reported, name)
  return {
    matches: [renamer.unlikeNew],
    // Other formats have the name in few events, inside an object.
    ...(format.replyMember === undefined && { edit: (text: string) => renamer.edit(text) }),
    event(event) {
      const { json } = event
      const other = format.modelOf(json)
      if (other === undefined || other === name) return undefined
      renamer.expect(other)
      const { replyMember } = format
      const path =
        replyMember !== undefined && Object.hasOwn(json as object, replyMember) ? [replyMember, 'model'] : ['model']
      return [event.renamed(path, name)]
    },
  }
}

function unknown(asked: string, models: readonly string[], type: KeyType): GatewayError {
  const shown = asked.length > SHOWN ? `${asked.slice(0, SHOWN)}...` : asked
  return new GatewayError('model_not_found', {
    param: 'model',
    message: `The model "${shown}" does not exist, or keys of type ${type.name} may not use it. This key may use: ${models.join(', ')}.`,
  })
}
