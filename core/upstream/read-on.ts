/** What becomes of a reply whose clients have left: whether it is read on, and for how long. */
import type { ReplyHooks } from '../chain/chain.ts'
import type { Upstream } from '../config/config.ts'
import { reasoningOf } from '../exchange/model.ts'
import type { AbandonedReply } from '../exchange/abandoned-reply.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'

/** Milliseconds for which what an upstream has sent already is read. */
const UNREAD_MS = 1000

/**
 * A whole reply is read to its end. A stream is read on for its usage where its last content has come; before that, its
 * upstream's setting decides, or else how much would stay unknown of one that is cut short.
 */
export class ReadOn implements AbandonedReply {
  readonly #x: HttpExchange
  readonly #up: ReplyHooks
  readonly #upstream: Upstream
  #timer: NodeJS.Timeout | undefined
  #insisting: NodeJS.Timeout | undefined
  /** What the upstream has sent already is still being read; and the reply is to be given up after that. */
  #insists = false
  #givesUp = false
  #abandoned = false
  /** It is read on until its input is told, and no further. */
  #forInput = false

  constructor(x: HttpExchange, up: ReplyHooks, upstream: Upstream) {
    this.#x = x
    this.#up = up
    this.#upstream = upstream
  }

  left(): void {
    const { timeouts } = this.#upstream
    const { phase, usageIsFinal, outlet, heldBack } = this.#x
    const lastEventSent = phase === 'sent'
    // What the upstream has sent and nobody has read is billed as well.
    if (heldBack && !lastEventSent && !usageIsFinal) this.#insist()
    // A reply that may be asked for again is read to its last byte.
    if (lastEventSent || (usageIsFinal && !outlet.joinable)) this.#x.giveUp()
    else if (this.#whole) this.#abandon()
    else if (this.#rests) this.#wait(timeouts.usage)
    else if (this.#finishes) {
      this.#wait(timeouts.finish)
      this.#abandon()
    } else if (this.#insists) this.#wait(UNREAD_MS)
    // An input that is told first is waited for.
    else if (this.#x.route.format.reportsInputFirst && !this.#x.begun) {
      this.#forInput = true
      this.#wait(timeouts.usage)
    } else this.#x.giveUp()
  }

  usageCame(): void {
    if (this.#forInput) this.#x.giveUp()
  }

  joined(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#forInput = this.#givesUp = false
    if (this.#abandoned) this.#up.listening(true)
    this.#abandoned = false
  }

  rested(): void {
    if (this.#x.gone && !this.#whole) this.#wait(this.#upstream.timeouts.usage)
  }

  mayEnd(): boolean {
    this.#givesUp ||= this.#insists
    return !this.#insists
  }

  over(): void {
    clearTimeout(this.#timer)
    clearTimeout(this.#insisting)
    this.#insists = false
  }

  /** The request asks for no stream: its reply comes whole. */
  get #whole(): boolean {
    return this.#x.body.get('stream') !== true
  }

  /** The stream has sent its last content, or may have. */
  get #rests(): boolean {
    const { complete, recent, route } = this.#x
    return complete || route.format.mayBeComplete(recent?.toString('latin1') ?? '')
  }

  get #finishes(): boolean {
    const { onDisconnect } = this.#upstream
    const { route, headers, format, body, extras } = this.#x
    if (onDisconnect !== undefined) return onDisconnect === 'finish'
    // A client that names its request wants to be able to come back for the reply. What several replies at once and the
    // provider's tools cost is told at the end alone.
    if (
      headers['idempotency-key'] !== undefined ||
      format.choices(body) > 1 ||
      (!route.translation && body.contents.providerTools.length > 0)
    )
      return true
    // What media cost is not seen in the bytes of a reply.
    if (extras && extras.media.length > 0) return true
    return !route.format.reportsInputFirst && reasoningOf(this.#x) === 'hidden'
  }

  #insist(): void {
    this.#insists = true
    clearTimeout(this.#insisting)
    this.#insisting = setTimeout(() => {
      this.#insists = false
      if (this.#givesUp) this.#x.giveUp()
    }, UNREAD_MS)
  }

  #wait(ms: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#insists = false
      this.#x.giveUp()
    }, ms)
  }

  #abandon(): void {
    this.#abandoned = true
    this.#up.listening(false)
  }
}
