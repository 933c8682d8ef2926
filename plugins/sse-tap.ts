import { defineBuiltIn, Tally } from 'tollgate/plugin/metering'

/** Observes the reply and keeps the tally. Makes sure that the upstream reports usage. */
export default defineBuiltIn({
  name: 'sse-tap',
  summary: 'Reads usage, failures and the end from the passing reply. Makes the upstream report usage.',
  on: 'inference',
  needs: ['body', 'model', 'route'],
  gives: ['tally'],
  setup() {
    return {
      events: 'signals',
      request(x) {
        const tally = new Tally(x.route.format)
        tally.follow(x)
        return { tally }
      },
      attempt: x => x.tally.follow(x),
      rewrite: ({ tally }, head) => (head.stream ? tally.hide : undefined),
      event({ tally, route, complete }, { reading, json }) {
        tally.model ??= route.format.modelOf(json)
        tally.observe(reading)
        if (reading.usage) {
          tally.addUsage(reading.usage)
          tally.usageIsFinal = reading.usageIsFinal === true && (complete || route.format.marksFinalUsage)
        }
        if (reading.failure) tally.failure ??= reading.failure
      },
    }
  },
})
