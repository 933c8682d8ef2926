import { PerMinute } from 'tollgate/plugin'
import { defineBuiltIn, setting, whole } from 'tollgate/plugin/metering'

/** Limits the look-ups per key, so that no key takes the store's time from others. */
export default defineBuiltIn({
  name: 'lookup-limit',
  summary: 'Limits how often a key may look up its balance, policy, history and keys.',
  on: [
    'GET /api/v1/keys/lookup/balance',
    'GET /api/v1/key-info',
    'GET /api/v1/key-info/usage',
    'GET /api/v1/key-info/history',
    'GET /api/v1/keys',
    'GET /api/v1/keys/*',
  ],
  needs: ['key'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      perMinute: setting(whole(1), 120, 'Maximum look-ups per key and minute.'),
    },
  },
  setup({ perMinute }, { now }) {
    const looked = new PerMinute(now)
    return {
      request({ key }) {
        looked.limit(key.id, perMinute, 'This key looks things up too often.')
      },
    }
  },
})
