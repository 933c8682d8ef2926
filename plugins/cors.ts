import { Reply } from 'tollgate/plugin'
import { defineBuiltIn, type BuiltInExchange, setting, whole } from 'tollgate/plugin/metering'

/** Lets pages of other sites call the gateway from a browser. */
export default defineBuiltIn({
  name: 'cors',
  summary:
    'Answers the preflight requests of browsers, and adds CORS headers to the replies of all stages, also to errors.',
  on: 'OPTIONS /*',
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      origins: {
        type: 'array',
        minItems: 1,
        default: ['*'],
        items: {
          type: 'string',
          pattern: String.raw`^(?:\*|https?://[^/*\s]+)$`,
          expected: 'an origin such as https://app.example.com, or *',
        },
        description: 'Origins of the pages that may call; `*` for all.',
      },
      maxAge: setting(whole(0), 600, 'Seconds for which a browser may remember the answer to a preflight request.'),
    },
  },
  setup({ origins, maxAge }) {
    const all = origins.includes('*')
    const allowed = (x: BuiltInExchange): string | undefined => {
      const { origin } = x.headers
      if (origin === undefined) return undefined
      return all ? '*' : origins.find(each => each === origin)
    }
    return {
      arrive(x) {
        const origin = allowed(x)
        if (!all) x.addHeaders({ vary: 'origin' })
        if (origin !== undefined)
          x.addHeaders({
            'access-control-allow-origin': origin,
            // A page that has the key may read every header of its replies.
            'access-control-expose-headers': '*',
          })
      },
      request(x) {
        if (allowed(x) === undefined) return new Reply(204, '')
        const asked = x.headers['access-control-request-headers']
        return new Reply(204, '', {
          'access-control-allow-methods': METHODS,
          // A key is sent by the page itself, never by the browser, so a page gains nothing by any header.
          'access-control-allow-headers':
            typeof asked === 'string' && LIST.test(asked) ? asked : 'authorization, content-type',
          'access-control-max-age': String(maxAge),
        })
      },
    }
  },
})

const LIST = /^[\w!#$%&'*+.^`|~-]+(?:, ?[\w!#$%&'*+.^`|~-]+)*$/

/** The methods of all endpoints. */
const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'
