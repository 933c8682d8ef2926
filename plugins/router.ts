import { definePlugin, type Format, type KeyType, Translation, type With } from '../core/plugin.ts'

/**
 * Where a request goes: to the accounts of its key type's upstream, in the order of the file, in the client's format where
 * the upstream speaks it, else translated into the first of those it speaks.
 */
export default definePlugin({
  name: 'router',
  summary: "Chooses the accounts of the key type's upstream that a request is sent to, and the format it is spoken to in.",
  on: ['inference', 'counting'],
  needs: ['key', 'body', 'model'],
  gives: ['route'],
  setup(_options, { config }) {
    return {
      request(x) {
        const { key, format } = x
        const { upstream } = config.keyTypes.get(key.type) as KeyType
        const spoken = upstream.speaks.includes(format) ? format : (upstream.speaks[0] as Format)
        const translation = x.inference && spoken !== format ? between(x, spoken) : undefined
        return { route: { format: spoken, translation, candidates: upstream.accounts.map(account => ({ upstream, account })) } }
      },
    }
  },
})

/** What is needed to translate. @throws GatewayError invalid_body for a request that cannot be */
function between(x: With<'body' | 'model'>, upstream: Format): Translation {
  const { format: client, body, headers, model, id: requestId, startedAt } = x
  return new Translation({ client, upstream, body, headers, asked: model.asked, limits: model.entry, requestId, startedAt })
}
