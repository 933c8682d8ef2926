import { definePlugin, type Failure, type Format, type Rewriter, UsageTally } from 'tollgate/plugin'

/** What a reply has reported about itself so far, in the upstream's terms. */
export class Tally extends UsageTally {
  /** The failure that the reply reported, if any. */
  failure: Failure | undefined
  /** Whether later events can no longer change the usage. */
  final = false
  /** Removes from the client's stream what only the gateway requested. */
  hide: Rewriter | undefined

  constructor(format: Format, hide: Rewriter | undefined) {
    super(format)
    this.hide = hide
  }

  override restart(format: Format): void {
    super.restart(format)
    this.failure = undefined
    this.final = false
  }
}

declare module 'tollgate/plugin' {
  interface Facts {
    tally: Tally
  }
}

/** Observes the reply and keeps the tally. Makes sure that the upstream reports usage. */
export default definePlugin({
  name: 'sse-tap',
  summary: 'Reads usage, failures and the end from the passing reply. Makes the upstream report usage.',
  on: 'inference',
  needs: ['body', 'model', 'route'],
  gives: ['tally'],
  setup() {
    return {
      events: 'signals',
      request({ format, body, model, route }) {
        // A translated request always asks for usage.
        const hide = route.format === format ? format.prepare(body, model.entry) : undefined
        return { tally: new Tally(route.format, hide) }
      },
      reroute({ format, body, model, route, tally }) {
        tally.restart(route.format)
        if (route.format === format) tally.hide ??= format.prepare(body, model.entry)
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
