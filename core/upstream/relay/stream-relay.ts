/**
 * Relays a stream. Only whole events go out, so that a stream that breaks can always be ended by events of the client's
 * own format.
 */
import { GatewayError } from '../../errors.ts'
import type { Outcome } from '../../exchange/exchange.ts'
import { Allowance, shortOfMemory } from '../../client/memory.ts'
import { KEEPALIVE } from '../../exchange/waiting.ts'
import { isSummary, type ReplyEvent, type StreamTranslation } from '../../formats/index.ts'
import { ByteBuffer } from '../../lib/byte-buffer.ts'
import { deadline, type Deadline } from '../../lib/deadline.ts'
import { BackPressure } from './back-pressure.ts'
import {
  brokenBy,
  type StreamEnd,
  endedByClient,
  FailedAttempt,
  failedWith,
  type Relayed,
  tooLarge,
  unbegun,
} from './endings.ts'
import { LONG_BYTES } from '../../lib/turns.ts'
import { goOnInTurn } from '../connection/reply-body.ts'
import { eventsIn, firstEvent } from './sse.ts'
import { StreamEnding } from './stream-ending.ts'
import { PassThroughFilter, type StreamFilter, TranslatingFilter } from './stream-filter.ts'
import { WholeEvents } from './whole-events.ts'

/** Relays one stream. */
export class StreamRelay {
  readonly #relayed: Relayed
  readonly #translation: StreamTranslation | undefined
  readonly #pressure: BackPressure
  readonly #ending: StreamEnding
  readonly #wholeEvents: WholeEvents
  /** The bytes that came before the reply began. */
  readonly #comments = new ByteBuffer()
  readonly #commentsMemory: Allowance
  /** Ends the time for which the events before the first content wait. */
  #opening: Deadline | undefined
  /** Set when the reply has begun. */
  #filter: StreamFilter | undefined
  #progress: (() => readonly Promise<unknown>[] | undefined) | undefined
  #silence: Deadline | undefined
  #forget: () => void = () => {}
  /** Events are being passed on: the stream ends behind them. */
  #passing = false
  #end: StreamEnd | undefined
  /** Bytes that are held back: of a reply that arrived whole, or of the end while the stages decide. */
  #unsent: ByteBuffer | undefined
  /** The stages have decided about the reply; its end goes out after that. */
  #decided: Promise<unknown> | undefined
  /** The last event of the stream has arrived. */
  #endCame = false
  /** It has gone to a client. */
  #endSent = false
  #over = false
  readonly #ended = Promise.withResolvers<Outcome>()

  constructor(relayed: Relayed) {
    const { x, hooks, body } = relayed
    this.#relayed = relayed
    this.#translation = x.route.translation?.replies.stream()
    this.#pressure = new BackPressure(x, body)
    this.#ending = new StreamEnding(x, hooks, this.#translation)
    this.#commentsMemory = new Allowance(x.memory)
    this.#wholeEvents = new WholeEvents(x.route.format, x.limits.replyBytes, x.memory)
  }

  /** Relays the stream to its end. @throws FailedAttempt while nothing has gone to the client; what a stage throws */
  run(): Promise<Outcome> {
    if (this.#relayed.x.over) this.#finish('client')
    else this.#listen()
    return this.#ended.promise
  }

  #listen(): void {
    const { x, body, patience } = this.#relayed
    const { idleMs, totalMs } = patience
    const { keepaliveMs } = x.limits
    const startedMs = performance.now()
    let heardMs = startedMs
    // One timer for each stream: it fires when the client has got nothing for a while.
    const silence = deadline(Math.min(keepaliveMs, idleMs, totalMs), () => {
      const now = performance.now()
      // While the upstream is paused, its silence is the gateway's doing.
      if (this.#pressure.isPausing) heardMs = now
      // An upstream that neither ends nor goes on after its last content has ended. Without a client, its usage may come.
      const silentMs = x.complete && !x.gone ? Math.min(keepaliveMs, idleMs) : idleMs
      if (now - heardMs >= silentMs || now - startedMs >= totalMs) return this.#finish('timeout')
      if (x.begun && !this.#endCame) this.#write(KEEPALIVE)
      silence.refresh()
    })
    this.#silence = silence
    this.#forget = x.whenOver(cause => {
      this.#finish(cause === 'client' && this.#clientHasAll && !this.#pressure.stuck ? 'complete' : cause)
    })
    body.on('data', (chunk: Buffer) => {
      heardMs = performance.now()
      if (heardMs - startedMs >= totalMs) return this.#finish('timeout')
      this.#take(chunk)
      // A long event takes its turns, too.
      const length = this.#wholeEvents.begun
      if (!this.#over) goOnInTurn(body, { length, added: chunk.length }, x.owner, this.#isWanted)
    })
    body.on('end', () => {
      this.#take(undefined)
      this.#finish('upstream')
    })
    body.on('close', () => this.#finish('upstream'))
    if (body.destroyed) this.#finish('upstream')
  }

  readonly #isWanted = (): boolean => !this.#pressure.isPausing && !this.#over

  /**
   * Passes on what has arrived.
   * @param chunk undefined when the upstream has ended: its last event may lack a blank line
   */
  #take(chunk: Buffer | undefined): void {
    if (!this.#over) this.#guarded(() => this.#pass(chunk ? this.#wholeEvents.take(chunk) : this.#wholeEvents.last()))
  }

  /** Passes something on, and ends the stream if that fails or is its end. */
  #guarded(pass: () => void): void {
    const { x, hooks } = this.#relayed
    this.#passing = true
    try {
      pass()
    } catch (error) {
      if (!x.begun && !this.#end) {
        this.#stop()
        return this.#ended.reject(error)
      }
      const isTooLarge = error instanceof FailedAttempt
      const failed = isTooLarge ? error.error : GatewayError.from(error)
      hooks.log.error({ exchange: x.id, err: isTooLarge ? failed : error }, 'stream interrupted')
      // A stream over a limit of the gateway is ended by the gateway.
      this.#end ??= isTooLarge || !failed.code.startsWith('upstream_') ? { failed } : 'upstream'
    }
    this.#passing = false
    if (this.#end) this.#finish(this.#end)
  }

  #pass(events: Buffer): void {
    if (events.length === 0) return
    if (this.#filter) return this.#send(this.#filter, events)
    const { x } = this.#relayed
    const length = this.#comments.push(events)
    this.#ending.opening ??= firstEvent(x.route.reader, events)
    if (this.#ending.opening && !this.#holdsBack(events)) return this.#begin()
    if (!this.#commentsMemory.cover(events)) throw shortOfMemory()
    // Comments alone do not tell whether there will be a reply.
    if (length > x.limits.replyBytes) throw tooLarge('no event in limits.reply bytes')
  }

  /**
   * Whether events wait, because another account can be asked as long as there is no content.
   * @param events the latest ones
   * @throws FailedAttempt if one of them reports a failure
   */
  #holdsBack(events: Buffer): boolean {
    const { x, mayAskAnother, makeHead } = this.#relayed
    const isFirst = this.#comments.length === events.length
    const first = this.#ending.opening as ReplyEvent
    const arrived = mayAskAnother ? eventsIn(x.route.reader, events, isFirst) : [first]
    for (const { json, reading } of arrived) {
      if (reading.failure) throw failedWith(makeHead(reading.failure))
      if (!mayAskAnother || x.gone || !x.route.format.isOpening(json)) return false
    }
    this.#opening ??= deadline(x.route.retry.openingMs, () => this.#guarded(() => this.#begin()))
    return true
  }

  /** What a reply that never began reports as used is billed all the same. */
  #countUsage(): void {
    const { x, hooks } = this.#relayed
    if (!this.#ending.opening) return
    for (const event of eventsIn(x.route.reader, this.#comments.take(), true))
      if (event.reading.usage) hooks.event(event)
  }

  /** Begins the reply with the events that have waited. */
  #begin(): void {
    const { x, hooks, body, makeHead, begun } = this.#relayed
    this.#opening?.clear()
    begun()
    if (x.route.format.reportsInputFirst) x.upstreamClock.restart()
    const head = makeHead(undefined, this.#ending.opening)
    hooks.response(head)
    const rewriters = (this.#ending.rewriters = hooks.rewriters(head))
    this.#progress = hooks.progress()
    x.begin(head.status, { ...head.reply, 'x-accel-buffering': 'no' })
    if (body.whole) this.#unsent = new ByteBuffer()
    // The first events may have no counterpart in the client's format.
    else if (this.#translation) x.outlet.sendHead()
    const wanted = { all: hooks.wantsAll, rewriters, onEvent: (event: ReplyEvent) => this.#see(event) }
    this.#filter = this.#translation
      ? new TranslatingFilter(x.route.reader, x.format, this.#translation, wanted)
      : new PassThroughFilter(x.route.reader, wanted)
    this.#commentsMemory.clear()
    this.#send(this.#filter, this.#comments.take())
    // No other account is asked now, so the conversation is not needed again.
    if (!hooks.bodyIsReadLate && x.body.conversationBytes > LONG_BYTES)
      x.releaseBody().catch((cause: unknown) =>
        hooks.log.error({ exchange: x.id, err: cause }, 'the conversation of a request cannot be released'),
      )
  }

  #send(filter: StreamFilter, bytes: Buffer): void {
    const { x } = this.#relayed
    x.recent = bytes
    const before = x.delivered
    let out: Buffer
    try {
      out = filter.push(bytes)
    } catch (thrown) {
      // None of these bytes goes out.
      x.delivered = before
      throw thrown
    }
    if (filter.delivered > x.delivered && !isSummary(x.route.format, bytes)) x.upstreamClock.output()
    x.delivered = filter.delivered
    if (this.#endCame && filter.broken === undefined) this.#decide()
    this.#write(out)
    if (filter.broken !== undefined) throw filter.broken
    for (const wait of this.#progress?.() ?? []) {
      this.#pauseForProgress()
      void wait.catch(() => {}).finally(() => this.#pressure.release())
    }
  }

  #see(event: ReplyEvent): void {
    const { x, hooks } = this.#relayed
    const { endsStream, encryptedBytes = 0, usage } = event.reading
    if (encryptedBytes > 0) x.upstreamClock.output(encryptedBytes)
    x.delivered = this.#filter?.delivered ?? x.delivered
    if (this.#ending.note(event.reading)) x.completed()
    if (endsStream) this.#endCame = true
    if (endsStream && !x.gone) {
      this.#endSent = true
      x.phase = 'sent'
    }
    const usageIsFinal = event.reading.usageIsFinal === true && (x.complete || x.route.format.marksFinalUsage)
    if (usageIsFinal) x.usageIsFinal = true
    if (x.gone && (x.complete || usageIsFinal)) x.readOnPolicy?.rested()
    // When all clients have left, only what a resend may ask for is of use after the usage.
    if (x.gone && (endsStream || (usageIsFinal && !x.outlet.joinable))) this.#end ??= 'client'
    hooks.event(event)
    if (x.gone && usage) x.readOnPolicy?.usageCame()
  }

  /** Lets the stages decide before the end of the reply goes out, which waits for them. */
  #decide(): void {
    const { x, hooks } = this.#relayed
    if (this.#decided || x.gone || !x.complete || !x.usageIsFinal || this.#translation?.unfinished) return
    this.#decided = hooks.decide({ kind: 'relayed', status: x.outlet.status, attempts: x.attempts })
    if (!this.#decided || this.#unsent) return
    this.#unsent = new ByteBuffer()
    void this.#decided.then(() => this.#release())
  }

  #release(): void {
    const unsent = this.#unsent
    this.#unsent = undefined
    if (unsent) this.#write(unsent.take())
  }

  #write(bytes: Buffer): void {
    if (this.#unsent) return void this.#unsent.push(bytes)
    if (bytes.length === 0) return
    this.#silence?.refresh()
    if (!this.#relayed.x.outlet.write(bytes) && !this.#pressure.stuck) this.#pressure.waitForClient()
  }

  #pauseForProgress(): void {
    this.#pressure.pause()
    // The client gets what there is while the end is waited for.
    if (!this.#decided) this.#release()
  }

  /** The last event has gone out: a client that leaves now, as SDKs do, has its reply. */
  get #clientHasAll(): boolean {
    return this.#endSent && !this.#unsent
  }

  /** Ends the stream: at once, or behind the events that are being passed on. */
  #finish(end: StreamEnd): void {
    const { x, body, abort } = this.#relayed
    // A reply that has reported its end is whole, however its connection ends then.
    this.#end ??= x.complete && end !== 'client' && typeof end === 'string' ? 'complete' : end
    if (this.#passing || this.#over) return
    this.#stop()
    // The upstream must not go on while the client takes the last bytes.
    if (this.#end !== 'complete' && !body.readableEnded) abort()
    this.#ended.resolve(this.#close(this.#end))
  }

  #stop(): void {
    const { x, body } = this.#relayed
    this.#over = true
    this.#opening?.clear()
    if (!this.#filter) this.#countUsage()
    // Another account may be asked, whose reply needs memory too.
    this.#commentsMemory.clear()
    this.#wholeEvents.drop()
    x.upstreamClock.stop()
    this.#silence?.clear()
    this.#pressure.stop()
    this.#forget()
    body.removeAllListeners('data')
  }

  async #close(end: StreamEnd): Promise<Outcome> {
    const { x } = this.#relayed
    // If the gateway ends a stream whose clients have left, the clients ended it.
    if (end === 'client' || (x.gone && (end === 'drain' || typeof end === 'object'))) {
      // A reply is kept for a resend if its last event is there.
      if (this.#endCame || (x.complete && x.usageIsFinal)) await x.outlet.end(this.#unsent?.take())
      return endedByClient(x)
    }
    if (!x.begun) throw unbegun(end)
    const words = Buffer.from(this.#ending.text(end))
    if (end === 'complete') this.#decide()
    await this.#decided
    this.#unsent?.push(words)
    await x.outlet.end(this.#unsent ? this.#unsent.take() : words)
    const at = { status: x.outlet.status, attempts: x.attempts }
    if (this.#translation?.unfinished) return { kind: 'broken', by: 'upstream', ...at }
    if (end === 'complete') return x.gone && !this.#clientHasAll ? endedByClient(x) : { kind: 'relayed', ...at }
    return { kind: 'broken', by: brokenBy(end, this.#pressure.clientWasStuck), ...at }
  }
}
