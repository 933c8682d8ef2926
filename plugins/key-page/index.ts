import { GatewayError, PerMinute, Reply, WebPage } from 'tollgate/plugin'
import {
  defineBuiltIn,
  type BuiltInExchange,
  policyOf,
  prefixesOf,
  presented,
  PRIVATE,
  BOOLEAN,
  setting,
} from 'tollgate/plugin/operator'

/** Secrets that one address may ask about in a minute: each is looked up in the store. */
const ASKED_MAX = 120

/**
 * The customers' page: what is left of a key, its usage and its set-up. The page itself has no data; it asks the look-ups
 * of the gateway with the key that a customer pastes.
 */
export default defineBuiltIn({
  name: 'key-page',
  summary: "Answers GET / of a browser with the customers' page. Other clients get what stands below it.",
  on: ['GET /', 'GET /page/*'],
  page: { path: '/', words: 'Customers see what they have left at' },
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      title: { type: 'string', maxLength: 60, default: 'Tollgate', description: 'Name at the top of the page.' },
      baseUrl: {
        type: 'string',
        pattern: String.raw`^(?:https?://[^\s?#]+)?$`,
        default: '',
        expected: 'an address such as https://api.example.com, or nothing',
        description: "Address for the customers' clients. If it is empty, the one in the browser's address bar.",
      },
      prices: setting(BOOLEAN, true, 'Whether everybody may see the models and prices of each key type.'),
    },
  },
  setup({ title, baseUrl, prices }, { config, keys, now }) {
    const asked = new PerMinute(now)
    const page = new WebPage(new URL('./page/', import.meta.url), '/page')
    const tables = [...config.keyTypes.values()]
      .filter(({ isPublic }) => isPublic)
      .map(type => {
        const { key_type: name, models, aliases, prices: rates } = policyOf(config, type)
        return { key_type: name, models, aliases, prices: rates }
      })
    const { contact } = config
    const settings = {
      title,
      contact,
      base_url: baseUrl.replace(/\/$/, ''),
      prefixes: prefixesOf(config.keys.prefixes),
      ...(prices && { key_types: tables }),
    }

    /** Tells the holder of a secret what its key is. A stranger cannot guess a secret. */
    async function stateOf(x: BuiltInExchange): Promise<string | undefined> {
      const secret = presented(x.headers)
      if (secret === undefined) return undefined
      const retryAfterMs = asked.take(x.addressGroup, ASKED_MAX)
      if (retryAfterMs > 0)
        throw new GatewayError('rate_limited', { message: 'This address asks about keys too often.', retryAfterMs })
      const key = await keys.refind(secret)
      if (!key) return 'unknown'
      if (key.status === 'deleted') return 'deleted'
      return key.status === 'active' && config.keyTypes.has(key.type) ? 'valid' : 'disabled'
    }

    return {
      async request(x) {
        if (x.path === '/') {
          const isBrowser = x.method === 'GET' && /\btext\/html\b/.test(x.headers.accept ?? '')
          return isBrowser ? page.page : undefined
        }
        if (x.path === '/page/settings') return Reply.json({ ...settings, key: (await stateOf(x)) ?? null }, PRIVATE)
        const file = page.file(x.path, x.headers['accept-encoding'])
        if (!file) throw new GatewayError('not_found')
        return file
      },
    }
  },
})
