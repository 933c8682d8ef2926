import { definePlugin, type Failure, type CountedUsage, type Format, type RawUsage, type Rewriter } from '../core/plugin.ts'

/** What a reply has told of itself so far. */
export class Tally {
  /** The failure it reported, if it did. */
  failure: Failure | undefined
  /** Takes what was asked for on the customer's behalf out of his stream again. */
  readonly hide: Rewriter | undefined
  readonly #format: Format
  #raw: RawUsage | undefined
  #mostOutput = 0

  constructor(format: Format, hide: Rewriter | undefined) {
    this.hide = hide
    this.#format = format
  }

  /** Later events lay their counters over earlier ones: vendors report totals so far, never increments. */
  learn(usage: RawUsage): void {
    const told = Object.entries(usage).filter(([, value]) => value !== null && value !== undefined)
    this.#raw = { ...this.#raw, ...Object.fromEntries(told) }
    this.#mostOutput = Math.max(this.#mostOutput, this.#format.count(this.#raw)?.usage.output ?? 0)
  }

  /** The usage as reported; undefined when none was. `sound` is false when its numbers make no sense. */
  usage(): CountedUsage | undefined {
    const counted = this.#raw && this.#format.count(this.#raw)
    // What was put out once stays put out. Input may shrink: a prompt that was first told whole is then told in its classes.
    return counted && { ...counted, usage: { ...counted.usage, output: Math.max(counted.usage.output, this.#mostOutput) } }
  }
}

declare module '../core/exchange.ts' {
  interface Facts {
    tally: Tally
  }
}

/** Listens to the reply as it passes and keeps the tally; sees to it that there is something to hear. */
export default definePlugin({
  name: 'sse-tap',
  summary: 'Reads usage, failures and the end out of the passing reply; asks the upstream to report usage.',
  on: 'inference',
  needs: ['body', 'model'],
  gives: ['tally'],
  setup() {
    return {
      events: 'telling',
      request({ format, body, model }) {
        return { tally: new Tally(format, format.prepare(body, model.entry)) }
      },
      rewrite: ({ tally }, head) => (head.stream ? tally.hide : undefined),
      event({ tally }, { reading }) {
        if (reading.usage) tally.learn(reading.usage)
        if (reading.failure) tally.failure ??= reading.failure
      },
    }
  },
})
