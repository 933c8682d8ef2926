import { definePlugin, GatewayError, type KeyType } from 'tollgate/plugin'

/**
 * Adds the key type's default model to a request without a model if `fillDefault` is set. Otherwise such a request is
 * refused.
 */
export default definePlugin({
  name: 'default-model',
  summary: 'Adds the default model to a request without a model if the key type has `fillDefault`.',
  on: ['inference', 'counting'],
  needs: ['key', 'body'],
  setup(_options, { config }) {
    return {
      request({ key, body }) {
        const asked = body.get('model')
        if (typeof asked === 'string') return
        const type = config.keyTypes.get(key.type) as KeyType
        if (asked !== undefined) throw invalid('"model" must be a string.')
        if (!type.fillDefault)
          throw invalid(
            `The required member "model" is missing; the default of this key's type is "${type.default.id}".`,
          )
        body.set('model', type.default.id)
      },
    }
  },
})

function invalid(message: string): GatewayError {
  return new GatewayError('invalid_body', { param: 'model', message })
}
