import { definePlugin, type KeyType } from '../core/plugin.ts'

/** Where a request goes: to the accounts of its key type's upstream, in the order of the file. */
export default definePlugin({
  name: 'router',
  summary: "Chooses the accounts of the key type's upstream that a request is sent to.",
  on: 'inference',
  needs: ['key', 'model'],
  gives: ['route'],
  setup(_options, { config }) {
    return {
      request({ key }) {
        const { upstream } = config.keyTypes.get(key.type) as KeyType
        return { route: { candidates: upstream.accounts.map(account => ({ upstream, account })) } }
      },
    }
  },
})
