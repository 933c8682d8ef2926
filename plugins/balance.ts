import { Reply } from 'tollgate/plugin'
import { allowance, balanceOf, defineBuiltIn, PRIVATE } from 'tollgate/plugin/operator'

/** Returns what is left of the calling key's allocation. Expired and exhausted keys may ask as well. */
export default defineBuiltIn({
  name: 'balance',
  summary: 'Answers GET /api/v1/keys/lookup/balance.',
  on: 'GET /api/v1/keys/lookup/balance',
  needs: ['key'],
  setup(_options, { config, ledger, now }) {
    return {
      async request({ key }) {
        const at = now()
        return Reply.json(await balanceOf(ledger, key, await allowance(ledger, key, config, at), at), PRIVATE)
      },
    }
  },
})
