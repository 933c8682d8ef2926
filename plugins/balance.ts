import { balanceOf, definePlugin, PRIVATE, Reply } from 'tollgate/plugin'

/** Returns what is left of the calling key's allocation. Expired and exhausted keys may ask as well. */
export default definePlugin({
  name: 'balance',
  summary: 'Answers GET /api/v1/keys/lookup/balance.',
  on: 'GET /api/v1/keys/lookup/balance',
  needs: ['key'],
  setup(_options, { ledger, now }) {
    return {
      async request({ key }) {
        return Reply.json(await balanceOf(ledger, key, now()), PRIVATE)
      },
    }
  },
})
