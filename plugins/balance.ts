import { balanceOf, definePlugin, PRIVATE, Reply } from 'tollgate/plugin'

/** What is left of the calling key's allocation; also for expired and exhausted keys. */
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
