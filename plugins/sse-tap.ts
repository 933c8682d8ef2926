import { definePlugin, type Failure, type Format, type Rewriter, UsageTally } from 'tollgate/plugin'

/** What a reply has told of itself so far, in its upstream's words. */
export class Tally extends UsageTally {
  /** The failure it reported, if it did. */
  failure: Failure | undefined
  /** No later event can change the usage. */
  final = false
  /** Takes what was asked for on the customer's behalf out of his stream again. */
  readonly hide: Rewriter | undefined

  constructor(format: Format, hide: Rewriter | undefined) {
    super(format)
    this.hide = hide
  }
}

declare module 'tollgate/plugin' {
  interface Facts {
    tally: Tally
  }
}

/** Listens to the reply as it passes and keeps the tally; sees to it that there is something to hear. */
export default definePlugin({
  name: 'sse-tap',
  summary: 'Reads usage, failures and the end out of the passing reply; asks the upstream to report usage.',
  on: 'inference',
  needs: ['body', 'model', 'route'],
  gives: ['tally'],
  setup() {
    return {
      events: 'signals',
      request({ format, body, model, route }) {
        // What is translated is asked for with its usage as a matter of course.
        const hide = route.format === format ? format.prepare(body, model.entry) : undefined
        return { tally: new Tally(route.format, hide) }
      },
      rewrite: ({ tally }, head) => (head.stream ? tally.hide : undefined),
      event({ tally, route }, { reading, json }) {
        tally.model ??= route.format.modelOf(json)
        tally.observe(reading)
        if (reading.usage) {
          tally.addUsage(reading.usage)
          tally.final = reading.final === true
        }
        if (reading.failure) tally.failure ??= reading.failure
      },
    }
  },
})
