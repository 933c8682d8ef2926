/** Refuses key types at night. It shows options, facts, errors and the outcome of an exchange. */
import { definePlugin, GatewayError } from 'tollgate/plugin'

export default definePlugin({
  name: 'quiet-hours',
  summary: 'Refuses the named key types between two hours (UTC).',
  on: 'inference',
  needs: ['key'],
  options: {
    type: 'object',
    additionalProperties: false,
    required: ['types'],
    properties: {
      types: { type: 'array', items: { type: 'string' }, description: 'Key types to refuse.' },
      from: { type: 'integer', minimum: 0, maximum: 23, default: 0, description: 'First hour.' },
      to: { type: 'integer', minimum: 0, maximum: 23, default: 6, description: 'First hour after.' },
    },
  },
  setup({ types, from, to }, { now, log }) {
    let events = 0 // of all exchanges, since this configuration is in force
    return {
      request({ key }) {
        const hour = new Date(now()).getUTCHours()
        const night = from < to ? hour >= from && hour < to : hour >= from || hour < to
        if (types.includes(key.type) && night) {
          throw new GatewayError('rate_limited', {
            message: `${key.type} keys are not served before ${to}:00 UTC.`,
            retry: false,
          })
        }
      },
      event() {
        events++
      },
      settle(x, outcome) {
        log.info({ exchange: x.id, outcome: outcome.kind, events }, 'seen')
      },
    }
  },
})
