/** Decides whether a reply is read after its clients have left, and for how long. */
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import type { Upstream } from '../../config/config.ts'
import { reasoningOf } from '../../exchange/model.ts'
import type { ReadOnPolicy } from '../../exchange/read-on-policy.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'

/** How long to read what an upstream has already sent, in milliseconds. */
const UNREAD_MS = 1000

/**
 * The policy of one attempt. A reply in one piece is read to its end. A stream is read for its usage after its last content. Before that, the
 * upstream's setting decides, or how much of the usage would stay unknown.
 */
export class ReadOn implements ReadOnPolicy {
  readonly #x: HttpExchange
  readonly #up: ReplyHooks
  readonly #upstream: Upstream
  #timer: NodeJS.Timeout | undefined
  #sentBytesTimer: NodeJS.Timeout | undefined
  /** Whether bytes are read that the upstream has sent already. */
  #readsSentBytes = false
  /** Whether the reply is given up after these bytes. */
  #endsAfterSentBytes = false
  #abandoned = false
  /** Whether it is read only until its input is reported. */
  #forInput = false

  constructor(x: HttpExchange, up: ReplyHooks, upstream: Upstream) {
    this.#x = x
    this.#up = up
    this.#upstream = upstream
  }

  left(): void {
    const { timeouts } = this.#upstream
    const { phase, usageIsFinal, outlet, isPaused } = this.#x
    const lastEventSent = phase === 'sent'
    // What the upstream has sent and the gateway has not read is billed as well.
    if (isPaused && !lastEventSent && !usageIsFinal) this.#readSentBytes()
    // A reply that a resend may ask for is read to its last byte.
    if (lastEventSent || (usageIsFinal && !outlet.joinable)) this.#x.giveUp()
    else if (this.#whole) this.#abandon()
    else if (this.#isAtRest) this.#wait(timeouts.usageMs)
    else if (this.#finishes) {
      this.#wait(timeouts.finishMs)
      this.#abandon()
    } else if (this.#readsSentBytes) this.#wait(UNREAD_MS)
    // If the format reports input first, wait for that report.
    else if (this.#x.route.format.reportsInputFirst && !this.#x.begun) {
      this.#forInput = true
      this.#wait(timeouts.usageMs)
    } else this.#x.giveUp()
  }

  usageCame(): void {
    if (this.#forInput) this.#x.giveUp()
  }

  joined(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#forInput = this.#endsAfterSentBytes = false
    if (this.#abandoned) this.#up.listening(true)
    this.#abandoned = false
  }

  rested(): void {
    if (this.#x.gone && !this.#whole) this.#wait(this.#upstream.timeouts.usageMs)
  }

  mayEnd(): boolean {
    this.#endsAfterSentBytes ||= this.#readsSentBytes
    return !this.#readsSentBytes
  }

  over(): void {
    clearTimeout(this.#timer)
    clearTimeout(this.#sentBytesTimer)
    this.#readsSentBytes = false
  }

  /** Whether the request asks for a reply in one piece. */
  get #whole(): boolean {
    return this.#x.body.get('stream') !== true
  }

  /** Whether the stream may have sent its last content. */
  get #isAtRest(): boolean {
    const { complete, recent, route } = this.#x
    return complete || route.format.mayBeComplete(recent?.toString('latin1') ?? '')
  }

  get #finishes(): boolean {
    const { onDisconnect } = this.#upstream
    const { route, headers, format, body, extras } = this.#x
    if (onDisconnect !== undefined) return onDisconnect === 'finish'
    // A client that names its request wants to be able to fetch the reply later. The cost of several choices and of
    // tools at the provider is reported only at the end.
    if (
      headers['idempotency-key'] !== undefined ||
      format.choices(body) > 1 ||
      (!route.translation && body.contents.providerTools.length > 0)
    )
      return true
    // The bytes of a reply do not show the cost of media.
    if (extras && extras.media.length > 0) return true
    return !route.format.reportsInputFirst && reasoningOf(this.#x) === 'hidden'
  }

  #readSentBytes(): void {
    this.#readsSentBytes = true
    clearTimeout(this.#sentBytesTimer)
    this.#sentBytesTimer = setTimeout(() => {
      this.#readsSentBytes = false
      if (this.#endsAfterSentBytes) this.#x.giveUp()
    }, UNREAD_MS)
  }

  #wait(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#readsSentBytes = false
      this.#x.giveUp()
    }, ms)
  }

  #abandon(): void {
    this.#abandoned = true
    this.#up.listening(false)
  }
}
