/** Translates large requests and replies on a thread of their own, so that they hold nobody up. What runs out of memory there ends there. */
import { Worker } from 'node:worker_threads'
import { deadline, type Deadline } from './deadline.ts'
import { type ErrorCode, type ErrorDetails, GatewayError } from './errors.ts'
import type { Elsewhere, FormatName, ReplyJob, TranslatedRequest, TranslationJob } from './formats/index.ts'
import type { Log } from './log.ts'
import { shortOfMemory } from './memory.ts'
import { SLICE_BYTES, turn } from './turns.ts'

/** A job as it is sent to the thread: formats by their names. */
type Sent<Job> = Omit<Job, 'client' | 'upstream'> & { readonly number: number; readonly client: FormatName; readonly upstream: FormatName }
export type Order = ({ readonly kind: 'request' } & Sent<TranslationJob>) | ({ readonly kind: 'reply' } & Sent<ReplyJob>)

/** What goes to another thread without a copy: these bytes, unless others share their memory. */
export function handedOver({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && byteLength > buffer.byteLength / 2 ? [buffer] : []
}

/** What the thread answers. */
export type Answer = { readonly number: number } & (
  { readonly result: TranslatedRequest | Uint8Array } | { readonly error: { readonly code: ErrorCode; readonly details: ErrorDetails } }
)

interface Waiting {
  resolve(result: never): void
  reject(error: GatewayError): void
}

const MIB = 1024 * 1024
/** The least heap of the thread, in MiB. */
const HEAP_LEAST = 256

/** A copy that shares its memory with nothing. */
async function copied(bytes: Uint8Array): Promise<Uint8Array> {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) {
    if (at > 0) await turn()
    copy.set(bytes.subarray(at, at + SLICE_BYTES), at)
  }
  return copy
}

export class Translations implements Elsewhere {
  readonly #log: Log
  readonly #limitMs: () => number
  /** The most that the thread's heap may have, in MiB. */
  readonly #heapMax: number
  readonly #waiting = new Map<number, Waiting>()
  #thread: Worker | undefined
  #count = 0
  /** When the thread is to have answered next. */
  #late: Deadline | undefined

  /**
   * @param memory bytes that requests may take in all
   * @param limitMs how long the thread may take for one job
   */
  constructor(memory: number, limitMs: () => number, log: Log) {
    this.#limitMs = limitMs
    this.#heapMax = Math.max(HEAP_LEAST, Math.ceil(memory / MIB))
    this.#log = log
  }

  request({ client, upstream, bytes, ...job }: TranslationJob): Promise<TranslatedRequest> {
    return this.#order(bytes, (copy, number) => ({ ...job, kind: 'request', bytes: copy, number, client: client.name, upstream: upstream.name }))
  }

  reply({ client, upstream, bytes, ...job }: ReplyJob): Promise<Uint8Array> {
    return this.#order(bytes, (copy, number) => ({ ...job, kind: 'reply', bytes: copy, number, client: client.name, upstream: upstream.name }))
  }

  /** Has the thread do a job; it is started when it is first needed. @throws GatewayError unavailable when it ends for want of memory, internal when it ends otherwise */
  async #order<T>(bytes: Uint8Array, make: (copy: Uint8Array, number: number) => Order): Promise<T> {
    const number = this.#count++
    // The thread gets a copy, as the bytes may be asked for again here.
    const copy = await copied(bytes)
    return new Promise((resolve, reject) => {
      const thread = (this.#thread ??= this.#start())
      thread.postMessage(make(copy, number), handedOver(copy))
      this.#waiting.set(number, { resolve, reject })
      this.#late ??= this.#limited(thread)
    })
  }

  /** Ends the thread. */
  async close(): Promise<void> {
    await this.#thread?.terminate()
  }

  /** Ends the thread where its next answer takes too long. */
  #limited(thread: Worker): Deadline {
    return deadline(this.#limitMs(), () => {
      this.#log.error('a translation takes too long: its thread is ended')
      void thread.terminate()
    })
  }

  #start(): Worker {
    const thread = new Worker(new URL('./translation-thread.ts', import.meta.url), {
      name: 'translations',
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMax },
    })
    thread.on('message', (answer: Answer) => {
      const waiting = this.#waiting.get(answer.number)
      this.#waiting.delete(answer.number)
      this.#late?.clear()
      this.#late = this.#waiting.size > 0 ? this.#limited(thread) : undefined
      if ('result' in answer) waiting?.resolve(answer.result as never)
      else waiting?.reject(new GatewayError(answer.error.code, answer.error.details))
    })
    let fault: unknown
    thread.on('error', cause => {
      fault = cause
      this.#log.error({ err: cause }, 'the thread for translations has ended; the next one is started when it is needed')
    })
    thread.on('exit', () => {
      if (this.#thread === thread) this.#thread = undefined
      this.#late?.clear()
      this.#late = undefined
      const error =
        (fault as { code?: string } | undefined)?.code === 'ERR_WORKER_OUT_OF_MEMORY'
          ? shortOfMemory()
          : new GatewayError('internal', { cause: fault ?? new Error('the thread for translations was ended') })
      for (const waiting of this.#waiting.values()) waiting.reject(error)
      this.#waiting.clear()
    })
    // It keeps no process alive.
    thread.unref()
    return thread
  }
}
