/** Relays a stream: whole events, as they come; whatever breaks it, it ends in the format's own words. */
import type { ReplyHooks } from '../chain/chain.ts'
import { deadline, type Deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import type { Outcome } from '../exchange/exchange.ts'
import { ReplyEvent, type Rewriter, type RunningStream, type StreamTranslation } from '../formats/index.ts'
import { endReasonOf } from '../exchange/abandoned-reply.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { Allowance, shortOfMemory } from '../exchange/memory.ts'
import { ByteBuffer } from '../lib/byte-buffer.ts'
import { type End, endError, lastTranslated, endedByClient, type MakeHead, type UpstreamPatience, failWith, stopError } from './endings.ts'
import { goOnInTurn, LONG_BYTES, type ReplyBody } from './reply-body.ts'
import { type StreamFilter, rewritten, PassThroughFilter, TranslatingFilter } from './stream-filter.ts'
import { firstEvent, framed, lastBoundary } from './sse.ts'
import { WholeEvents } from './whole-events.ts'

const KEEPALIVE = Buffer.from(': keepalive\n\n')

/** Milliseconds for which a client may take nothing before what becomes of its stream is its doing. */
const STUCK_MS = 1000

export class StreamRelay {
  readonly #x: HttpExchange
  readonly #up: ReplyHooks
  readonly #body: ReplyBody
  readonly #make: MakeHead
  readonly #patience: UpstreamPatience
  readonly #abort: () => void
  #silence: Deadline | undefined
  #stuck: (() => void) | undefined
  readonly #translation: StreamTranslation | undefined
  #scanner: StreamFilter | undefined
  #rewriters: readonly Rewriter[] = []
  #progress: (() => readonly Promise<unknown>[] | undefined) | undefined
  /** For how long clients have taken nothing of what waited for them, in milliseconds, and since when they take nothing now. */
  #stuckMs = 0
  #stuckSince = 0
  #stuckUntil = -Infinity
  /** How many wait for the upstream to be held back. */
  #holding = 0
  readonly #events: WholeEvents
  /** What has come before the first event. */
  readonly #comments = new ByteBuffer()
  readonly #commentsMemory: Allowance
  #opening: ReplyEvent | undefined
  readonly #opened = new Set<number>()
  readonly #closed = new Set<number>()
  #forget: () => void = () => {}
  #passing = false
  #end: End | undefined
  /** A reply that came whole goes out whole, with its length: what there is of it until its end. */
  #kept: ByteBuffer | undefined
  /** The last event there is has been seen. */
  #terminal = false
  /** The last event there is has come. */
  #ended = false
  #over = false
  #resolve: (outcome: Promise<Outcome>) => void = () => {}
  #reject: (error: unknown) => void = () => {}

  /** @param abort closes the upstream */
  constructor(x: HttpExchange, up: ReplyHooks, body: ReplyBody, make: MakeHead, patience: UpstreamPatience, abort: () => void) {
    this.#abort = abort
    this.#x = x
    this.#up = up
    this.#body = body
    this.#make = make
    this.#patience = patience
    this.#translation = x.route.translation?.replies.stream()
    this.#commentsMemory = new Allowance(x.memory)
    this.#events = new WholeEvents(x.route.format, x.limits.reply, x.memory)
  }

  run(): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
      if (this.#x.over) return this.#finish('client')
      this.#listen()
    })
  }

  /** Ends the stream at once, so that what came last and the end go out in one write; in the middle of events, behind them. */
  #finish(end: End): void {
    // A reply that has said its last is whole, however its connection ends then.
    this.#end ??= this.#x.complete && end !== 'client' && typeof end === 'string' ? 'complete' : end
    if (this.#passing || this.#over) return
    this.#over = true
    const now = performance.now()
    if (this.#stuck) this.#stuckMs += now - this.#stuckSince
    // What was long ago did not break it.
    else if (now - this.#stuckUntil > STUCK_MS) this.#stuckMs = 0
    this.#stop()
    // The upstream is not to go on while the client takes its last words.
    if (this.#end !== 'complete' && !this.#body.readableEnded) this.#abort()
    this.#resolve(this.#close(this.#end))
  }

  #fail(error: unknown): void {
    this.#over = true
    this.#stop()
    this.#reject(error)
  }

  #listen(): void {
    const { idle, total } = this.#patience
    const { keepalive } = this.#x.limits
    const started = performance.now()
    let heard = started
    // One limit a stream: it is up when the client has got nothing for a while, and then it is seen what that means.
    const silence = deadline(Math.min(keepalive, idle, total), () => {
      const now = performance.now()
      // While the upstream is held back, its silence is ours.
      if (this.#holding > 0) heard = now
      // One that has said its last and then neither ends nor goes on has ended.
      const patience = this.#x.complete ? Math.min(keepalive, idle) : idle
      if (now - heard >= patience || now - started >= total) return this.#finish('timeout')
      // Between events, as whole events are all that ever goes out.
      if (this.#x.begun) this.#write(KEEPALIVE)
      silence.refresh()
    })
    this.#silence = silence
    this.#forget = this.#x.whenOver(why => this.#finish(why === 'client' && this.#told && !this.#stuck ? 'complete' : why))
    this.#body.on('data', (chunk: Buffer) => {
      heard = performance.now()
      if (heard - started >= total) return this.#finish('timeout')
      this.#flush(chunk)
      if (this.#events.begun > LONG_BYTES && !this.#over) goOnInTurn(this.#body, this.#x.owner, () => this.#holding === 0 && !this.#over)
    })
    this.#body.on('end', () => {
      // The last event may lack its end.
      this.#flush()
      this.#finish('upstream')
    })
    this.#body.on('close', () => this.#finish('upstream'))
    if (this.#body.destroyed) this.#finish('upstream')
  }

  #stop(): void {
    this.#x.upstreamClock.stop()
    this.#silence?.clear()
    this.#stuck?.()
    this.#forget()
    this.#body.removeAllListeners('data')
  }

  /** @param chunk none: the upstream has said all */
  #flush(chunk?: Buffer): void {
    if (this.#over) return
    this.#passing = true
    try {
      this.#pass(chunk ? this.#events.take(chunk) : this.#events.last())
    } catch (error) {
      if (!this.#x.begun && !this.#end) return this.#fail(error)
      this.#up.log.error({ exchange: this.#x.id, err: error }, 'stream broken off')
      this.#end ??= 'upstream'
    }
    this.#passing = false
    if (this.#end) this.#finish(this.#end)
  }

  #pass(events: Buffer): void {
    if (events.length === 0) return
    if (this.#scanner) return this.#send(this.#scanner, events)
    const length = this.#comments.push(events)
    this.#opening = firstEvent(this.#x.route.format, events)
    if (this.#opening) {
      this.#commentsMemory.clear()
      return this.#send((this.#scanner = this.#begin(this.#opening)), this.#comments.take())
    }
    if (!this.#commentsMemory.cover(events)) throw shortOfMemory()
    // Comments alone do not tell whether there will be a reply.
    if (length > this.#x.limits.reply) throw new GatewayError('upstream_failed', { cause: new Error('no event in limits.reply bytes') })
  }

  #send(scanner: StreamFilter, bytes: Buffer): void {
    this.#x.recent = bytes
    if (scanner.changes) this.#write(scanner.push(bytes))
    else {
      // The bytes go out before they are looked at.
      this.#write(bytes)
      scanner.push(bytes)
    }
    if (scanner.delivered > this.#x.delivered) this.#x.upstreamClock.output()
    this.#x.delivered = scanner.delivered
    if (scanner.broken !== undefined) throw scanner.broken
    const waiting = this.#progress?.()
    if (!waiting) return
    for (const wait of waiting) {
      this.#hold()
      void wait.catch(() => {}).finally(() => this.#release())
    }
  }

  /** The first event decides whether there is a reply at all. */
  #begin(opening: ReplyEvent): StreamFilter {
    const x = this.#x
    const { failure } = opening.reading
    if (failure) {
      // What a failed reply says that it cost is billed all the same.
      if (opening.reading.usage) this.#up.event(opening)
      failWith(this.#up, this.#make(failure))
    }
    if (x.route.format.reportsInputFirst) x.upstreamClock.restart()
    const head = this.#make(undefined, opening)
    this.#up.response(head)
    const rewriters = (this.#rewriters = this.#up.rewriters(head))
    this.#progress = this.#up.progress()
    x.begin(head.status, { ...head.reply, 'x-accel-buffering': 'no' })
    if (this.#body.whole) this.#kept = new ByteBuffer()
    // What comes first may be nothing in the client's format.
    else if (this.#translation) x.outlet.sendHead()
    const wanted = { all: this.#up.wantsAll, rewriters, onEvent: (event: ReplyEvent) => this.#see(event) }
    return this.#translation ? new TranslatingFilter(x.route.format, x.format, this.#translation, wanted) : new PassThroughFilter(x.format, wanted)
  }

  #see(event: ReplyEvent): void {
    const x = this.#x
    const { opens, closes, last, terminal, final, encryptedBytes = 0 } = event.reading
    if (encryptedBytes > 0) x.upstreamClock.output(encryptedBytes)
    x.delivered = this.#scanner?.delivered ?? x.delivered
    opens?.forEach(part => this.#opened.add(part))
    closes?.forEach(part => this.#closed.add(part))
    if (last || (closes && x.route.format.isComplete(this.#closed.size, x.format.choices(x.body)))) x.complete = true
    if (x.gone && (x.complete || final)) x.abandonedReply?.rested()
    if (terminal && !x.gone) this.#terminal = x.lastEventSent = true
    if (terminal) this.#ended = true
    if (final) x.usageIsFinal = true
    // When all clients have left, nothing is of use behind the usage but what a retry may ask for.
    if (x.gone && (terminal || (final && !x.outlet.joinable))) this.#end ??= 'client'
    this.#up.event(event)
    if (x.gone && event.reading.usage) x.abandonedReply?.usageCame()
  }

  #write(bytes: Buffer): void {
    if (this.#kept) return void this.#kept.push(bytes)
    if (bytes.length > 0) this.#silence?.refresh()
    const { outlet } = this.#x
    if (bytes.length === 0 || outlet.write(bytes) || this.#stuck) return
    // A slow reader holds the upstream back; one that reads nothing at all is cut.
    this.#hold()
    const since = performance.now()
    this.#stuckSince = since
    this.#stuck = outlet.whenReady(() => {
      this.#stuck = undefined
      this.#stuckUntil = performance.now()
      this.#stuckMs += this.#stuckUntil - since
      this.#release()
    })
  }

  #hold(): void {
    if (this.#holding++ === 0) this.#body.pause()
    this.#x.heldBack = true
    const kept = this.#kept
    this.#kept = undefined
    // While its end is waited for, the client has what there is.
    if (kept) this.#write(kept.take())
  }

  #release(): void {
    if (--this.#holding > 0) return
    this.#x.heldBack = false
    this.#body.resume()
  }

  async #close(end: End): Promise<Outcome> {
    const x = this.#x
    // What the gateway ends when nobody listens any more is ended for those who left.
    if (end === 'client' || (x.gone && (end === 'drain' || typeof end === 'object'))) {
      // A reply is kept for a retry if its last event is there.
      if (this.#ended || (x.complete && x.usageIsFinal)) await x.outlet.end(this.#kept?.take())
      return endedByClient(x)
    }
    if (!x.begun) {
      if (end === 'drain' || typeof end === 'object') throw stopError(end)
      throw new GatewayError(end === 'timeout' ? 'upstream_timeout' : 'upstream_failed', { cause: new Error(`stream ended before its first event: ${end}`) })
    }
    const words = Buffer.from(this.#apart(this.#lastWords(end)))
    this.#kept?.push(words)
    await x.outlet.end(this.#kept ? this.#kept.take() : words)
    const { attempts } = x
    const { status } = x.outlet
    if (this.#translation?.unfinished) return { kind: 'broken', by: 'upstream', status, attempts }
    if (end === 'complete') return x.gone && !this.#told ? endedByClient(x) : { kind: 'relayed', status, attempts }
    return { kind: 'broken', by: end === 'upstream' || end === 'timeout' ? this.#breaker : endReasonOf(end), status, attempts }
  }

  /** Who broke the stream: an upstream that has to wait for a client that does not read breaks off by that client's doing. */
  get #breaker(): 'client' | 'upstream' {
    return this.#stuckMs >= STUCK_MS ? 'client' : 'upstream'
  }

  /** The last event has gone out: a client that leaves now, as SDKs do, has its reply. */
  get #told(): boolean {
    return this.#terminal && !this.#kept
  }

  /** What ends the stream in its format's own words, where its upstream did not. */
  #lastWords(end: Exclude<End, 'client'>): string {
    const { id, format, body } = this.#x
    const said = this.#translation ? lastTranslated(end, this.#translation) : undefined
    // Where the translation is over and the stream is not, a stage has kept its end from the client.
    if (said && (said.length > 0 || end === 'complete')) return this.#rewrittenLast(said)
    if (end === 'complete') return ''
    const running: RunningStream = { choices: format.choices(body), opening: this.#opening, recent: this.#x.recent, opened: this.#opened, closed: this.#closed }
    if (typeof end === 'string' || 'disabled' in end) return format.errorEvent(endError(end), id, running)
    const events = format.truncate(end.budget, running).map(({ type, data }) => new ReplyEvent(format, type, data))
    return this.#rewrittenLast(events)
  }

  /** Words that stand by themselves, where the upstream's last event lacks its end as well. */
  #apart(words: string): string {
    const open = !this.#translation && this.#x.recent && lastBoundary(this.#x.recent) < this.#x.recent.length
    return open && words !== '' ? `\n\n${words}` : words
  }

  /** A stage that cannot even rewrite the end must not keep it from the client. */
  #rewrittenLast(events: readonly ReplyEvent[]): string {
    try {
      return framed(rewritten(this.#x.format, events, this.#rewriters))
    } catch (cause) {
      this.#up.log.error({ exchange: this.#x.id, err: cause }, 'rewrite hook failed')
      return framed(events)
    }
  }
}
