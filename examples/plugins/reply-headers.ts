/** Adds headers to replies. It shows the `response` hook and an option that is a mapping. */
import { definePlugin } from 'tollgate/plugin'

export default definePlugin({
  name: 'reply-headers',
  summary: 'Adds fixed headers to each reply of a model.',
  on: 'inference',
  needs: ['model'],
  options: {
    type: 'object',
    additionalProperties: false,
    required: ['headers'],
    properties: {
      headers: {
        type: 'object',
        additionalProperties: { type: 'string', pattern: '^[ -~]*$', expected: 'printable ASCII characters' },
        propertyNames: { pattern: '^[a-z0-9-]+$', expected: 'a header name: lower-case letters, digits and -' },
        description: 'Headers by name. `{model}` in a value becomes the name that the client asked for.',
      },
    },
  },
  setup({ headers }) {
    return {
      response({ model }, head) {
        for (const [name, value] of Object.entries(headers)) head.reply[name] = value.replaceAll('{model}', model.asked)
      },
    }
  },
})
