/** What the gateway sends at the end of a stream that its upstream does not end: events of the client's own format. */
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import { GatewayError } from '../../errors.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { ReplyEvent, type Rewriter, type RunningStream, type StreamTranslation } from '../../formats/index.ts'
import type { Reading } from '../../formats/terms.ts'
import { type StreamEnd, stopError } from './endings.ts'
import { framed, lastBoundary } from './sse.ts'
import { rewritten } from './stream-filter.ts'

/** What is known of a running stream for its end. */
export class StreamEnding {
  /** The first event of the stream; undefined before it arrives. */
  opening: ReplyEvent | undefined
  rewriters: readonly Rewriter[] = []
  readonly #x: HttpExchange
  readonly #hooks: ReplyHooks
  readonly #translation: StreamTranslation | undefined
  /** Numbers of the parts of the reply that have begun, and of those that have ended. */
  readonly #opened = new Set<number>()
  readonly #closed = new Set<number>()
  /** Whether the event has come that ends the reply for its client: the last one, or a failure. */
  #endCame = false

  constructor(x: HttpExchange, hooks: ReplyHooks, translation: StreamTranslation | undefined) {
    this.#x = x
    this.#hooks = hooks
    this.#translation = translation
  }

  /** Notes the parts that an event begins and ends. @returns whether the reply is complete with it */
  note({ opens, closes, completes, endsStream, failure }: Reading): boolean {
    if (endsStream || failure) this.#endCame = true
    opens?.forEach(part => this.#opened.add(part))
    closes?.forEach(part => this.#closed.add(part))
    const { format } = this.#x.route
    return (
      completes === true || (closes !== undefined && format.isComplete(this.#closed.size, format.choices(this.#x.body)))
    )
  }

  /** The text that ends the stream; empty if the upstream has ended it. */
  text(end: Exclude<StreamEnd, 'client'>): string {
    const words = this.#words(end)
    const { recent } = this.#x
    // If the last event of the upstream lacks its blank line, it comes first.
    const unterminated = !this.#translation && recent && lastBoundary(recent) < recent.length
    return unterminated && words !== '' ? `\n\n${words}` : words
  }

  #words(end: Exclude<StreamEnd, 'client'>): string {
    const { id, format, body, recent } = this.#x
    const translated = this.#translation ? this.#translated(end, this.#translation) : undefined
    // If the translation is over and the stream is not, a stage has kept the end from the client.
    if (translated && (translated.length > 0 || end === 'complete')) return this.#rewritten(translated)
    if (end === 'complete') return this.#endCame ? '' : format.ending
    const { opening } = this
    const running: RunningStream = {
      choices: format.choices(body),
      opening,
      recent,
      opened: this.#opened,
      closed: this.#closed,
    }
    if (typeof end === 'string' || !('budget' in end)) return format.errorEvent(endError(end), id, running)
    const events = format.truncate(end.budget, running).map(({ type, data }) => new ReplyEvent(format, type, data))
    return this.#rewritten(events)
  }

  #translated(end: Exclude<StreamEnd, 'client'>, translation: StreamTranslation): readonly ReplyEvent[] {
    if (typeof end === 'object' && 'budget' in end) return translation.truncate(end.budget)
    return end === 'complete' ? translation.finish() : translation.fail(endError(end))
  }

  /** The events as the stages rewrite them. A rewriter that throws does not keep the end from the client. */
  #rewritten(events: readonly ReplyEvent[]): string {
    try {
      return framed(rewritten(this.#x.format, events, this.rewriters))
    } catch (cause) {
      this.#hooks.log.error({ exchange: this.#x.id, err: cause }, 'rewrite hook failed')
      return framed(events)
    }
  }
}

/** The error that a client is sent when its stream breaks. */
function endError(end: Exclude<StreamEnd, 'complete' | 'client' | { budget: unknown }>): GatewayError {
  if (end === 'timeout') return new GatewayError('upstream_timeout')
  if (typeof end === 'object' && 'failed' in end) return end.failed
  if (end !== 'upstream') return stopError(end)
  return new GatewayError('upstream_failed', {
    message: 'The provider closed the connection in the middle of the reply.',
  })
}
