import { defineBuiltIn, invalidBody, typeOf } from 'tollgate/plugin/metering'

/**
 * Adds the key type's default model to a request without a model if `fillDefault` is set. Otherwise such a request is
 * refused.
 */
export default defineBuiltIn({
  name: 'default-model',
  summary: 'Adds the default model to a request without a model if the key type has `fillDefault`.',
  on: ['inference', 'counting'],
  needs: ['key', 'body'],
  setup(_options, { config }) {
    return {
      request({ key, body }) {
        const asked = body.get('model')
        if (typeof asked === 'string') return
        const type = typeOf(config, key)
        if (asked !== undefined) throw invalidBody('"model" must be a string.', 'model')
        if (!type.fillDefault)
          throw invalidBody(
            `The required member "model" is missing; the default of this key's type is "${type.default.id}".`,
            'model',
          )
        body.set('model', type.default.id)
      },
    }
  },
})
