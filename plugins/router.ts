import { definePlugin, type Format, type KeyType } from '../core/plugin.ts'

/** Where a request goes: to the accounts of its key type's upstream, in the order of the file, in the client's format
 * where the upstream speaks it, else in the first of those it speaks. */
export default definePlugin({
  name: 'router',
  summary: "Chooses the accounts of the key type's upstream that a request is sent to, and the format it is spoken to in.",
  on: ['inference', 'counting'],
  needs: ['key', 'model'],
  gives: ['route'],
  setup(_options, { config }) {
    return {
      request({ key, format }) {
        const { upstream } = config.keyTypes.get(key.type) as KeyType
        const spoken = upstream.speaks.includes(format) ? format : (upstream.speaks[0] as Format)
        return { route: { format: spoken, candidates: upstream.accounts.map(account => ({ upstream, account })) } }
      },
    }
  },
})
