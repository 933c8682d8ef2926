import {
  definePlugin,
  type Exchange,
  type Failure,
  type Format,
  type Rewriter,
  UsageTally,
  type With,
} from 'tollgate/plugin'

/** What a reply has reported about itself so far, in the upstream's terms. */
export class Tally extends UsageTally {
  /** The failure that the reply reported, if any. */
  failure: Failure | undefined
  /** Whether later events can no longer change the usage. */
  final = false
  /** Removes from the client's stream what only the gateway requested. */
  hide: Rewriter | undefined

  /** Follows the route to an account: reads usage in its format, and makes it report usage. */
  follow({ format, body, model, route }: Pick<Exchange, 'format'> & With<'body' | 'model' | 'route'>): void {
    this.restart(route.format)
    // A translated request always asks for usage.
    if (route.format === format) this.hide ??= format.prepare(body, model.entry)
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
      request(x) {
        const tally = new Tally(x.route.format)
        tally.follow(x)
        return { tally }
      },
      reroute: x => x.tally.follow(x),
      rewrite: ({ tally }, head) => (head.stream ? tally.hide : undefined),
      event({ tally, route, complete }, { reading, json }) {
        tally.model ??= route.format.modelOf(json)
        tally.observe(reading)
        if (reading.usage) {
          tally.addUsage(reading.usage)
          tally.final = reading.final === true && (complete || route.format.marksFinalUsage)
        }
        if (reading.failure) tally.failure ??= reading.failure
      },
    }
  },
})
