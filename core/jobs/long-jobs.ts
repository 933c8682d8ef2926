/**
 * Runs large translations and the measuring of documents on another thread, so that the event loop stays free. Keys
 * take turns: however many jobs one key has, another key waits for one of them at most.
 */
import { Worker } from 'node:worker_threads'
import { deadline } from '../lib/deadline.ts'
import { type ErrorCode, type ErrorDetails, GatewayError } from '../errors.ts'
import type { BuiltInExchange } from '../exchange/built-in.ts'
import {
  formatKey,
  type FormatName,
  type ReplyJob,
  type TranslatedRequest,
  type TranslationJob,
  type Translator,
} from '../formats/index.ts'
import type { DocumentsJob } from '../metering/documents.ts'
import type { Log } from '../lib/log.ts'
import { shortOfMemory } from '../client/memory.ts'
import { Rotation } from '../lib/rotation.ts'
import { SLICE_BYTES, turn } from '../lib/turns.ts'

/** A job as it is sent to the thread: formats by name. */
type Sent<Job> = Omit<Job, 'client' | 'upstream'> & { readonly client: string; readonly upstream: FormatName }
/** A job, as the thread gets it. */
export type JobMessage =
  | ({ readonly kind: 'request' } & Sent<TranslationJob>)
  | ({ readonly kind: 'reply' } & Sent<ReplyJob>)
  | ({ readonly kind: 'documents' } & DocumentsJob)

/** The result of a job. */
export type Result = TranslatedRequest | Uint8Array | readonly (number | undefined)[]
/** What the thread answers. */
export type Answer =
  { readonly result: Result } | { readonly error: { readonly code: ErrorCode; readonly details: ErrorDetails } }

/**
 * The buffers that can be moved to another thread without a copy: those of these bytes, unless others share their
 * memory.
 */
export function handedOver({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && byteLength > buffer.byteLength / 2 ? [buffer] : []
}

interface Job {
  /** Its bytes are copied when its turn comes. */
  readonly order: JobMessage
  resolve(result: Result): void
  reject(error: unknown): void
}

const MIB = 1024 * 1024
/** The smallest heap of the thread, in MiB. */
const HEAP_MIN = 256

/** The jobs of one key. */
export interface KeyJobs extends Translator {
  /** Input tokens of each document; undefined for a document that only the context window bounds. */
  documents(job: DocumentsJob): Promise<readonly (number | undefined)[]>
}

/** The jobs of the process, and their thread. */
export class LongJobs {
  readonly #log: Log
  readonly #limitMs: () => number
  /** Most MiB of the thread's heap. */
  readonly #heapMax: number
  /** Jobs that wait, by key. */
  readonly #waiting = new Rotation<Job>()
  #running: Job | undefined
  #thread: Worker | undefined

  /**
   * @param memory bytes that requests may take
   * @param limitMs how long one job may take, in milliseconds
   */
  constructor(memory: number, limitMs: () => number, log: Log) {
    this.#limitMs = limitMs
    this.#heapMax = Math.max(HEAP_MIN, Math.ceil(memory / MIB))
    this.#log = log
  }

  /**
   * The jobs of a key for one exchange. A job that still waits when the exchange is over is dropped. A job fails with
   * `unavailable` if the thread runs out of memory, and with `internal` if it ends otherwise.
   */
  of(key: string, x: Pick<BuiltInExchange, 'whenClosed'>): KeyJobs {
    const order = <T>(order: JobMessage): Promise<T> => this.#order(key, x, order) as Promise<T>
    return {
      request: ({ client, upstream, ...job }) =>
        order({ ...job, kind: 'request', client: formatKey(client), upstream: upstream.name }),
      reply: ({ client, upstream, ...job }) =>
        order({ ...job, kind: 'reply', client: formatKey(client), upstream: upstream.name }),
      documents: job => order({ ...job, kind: 'documents' }),
    }
  }

  /** Ends the thread and the jobs that wait. */
  async close(): Promise<void> {
    for (const job of this.#waiting.clear())
      job.reject(new GatewayError('unavailable', { message: 'The gateway is stopping. Try again.' }))
    await this.#thread?.terminate()
  }

  #order(key: string, x: Pick<BuiltInExchange, 'whenClosed'>, order: JobMessage): Promise<Result> {
    return new Promise((resolve, reject) => {
      const job: Job = {
        order,
        resolve: result => {
          forget()
          resolve(result)
        },
        reject: error => {
          forget()
          reject(error)
        },
      }
      const forget = x.whenClosed(() => this.#drop(key, job))
      this.#waiting.add(key, job)
      this.#next()
    })
  }

  /** Drops a job that still waits: its exchange has given its memory back. */
  #drop(key: string, job: Job): void {
    if (!this.#waiting.remove(key, job)) return
    job.reject(new GatewayError('internal', { cause: new Error('the exchange is over') }))
  }

  /** Sends the next job to the thread, which is started if there is none. */
  #next(): void {
    if (this.#running) return
    const job = (this.#running = this.#waiting.next())
    if (!job) return
    this.#give(job).catch((cause: unknown) => {
      this.#running = undefined
      job.reject(cause)
      this.#next()
    })
  }

  async #give(job: Job): Promise<void> {
    const copies = await copiesOf(job.order)
    const thread = (this.#thread ??= this.#start())
    thread.postMessage(copies, transferred(copies))
    const late = deadline(this.#limitMs(), () => {
      this.#log.error({ job: job.order.kind }, 'a long job took too long; its thread is terminated')
      void thread.terminate()
    })
    const over = (): void => {
      late.clear()
      this.#running = undefined
      this.#next()
    }
    const done = (answer: Answer): void => {
      thread.off('exit', gone)
      if ('result' in answer) job.resolve(answer.result)
      else job.reject(new GatewayError(answer.error.code, answer.error.details))
      over()
    }
    const gone = (): void => {
      thread.off('message', done)
      job.reject(this.#ended(thread))
      over()
    }
    thread.once('message', done).once('exit', gone)
  }

  /** The error for the job whose thread has ended. */
  #ended(thread: Worker): GatewayError {
    const fault = faults.get(thread) as { code?: string } | undefined
    if (fault?.code === 'ERR_WORKER_OUT_OF_MEMORY') return shortOfMemory()
    return new GatewayError('internal', { cause: fault ?? new Error('the thread for long jobs was terminated') })
  }

  #start(): Worker {
    const thread = new Worker(new URL('./long-jobs-thread.ts', import.meta.url), {
      name: 'long jobs',
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMax },
    })
    thread.on('error', cause => {
      faults.set(thread, cause)
      this.#log.error({ err: cause }, 'the thread for long jobs ended; it is restarted when needed')
    })
    thread.on('exit', () => {
      if (this.#thread === thread) this.#thread = undefined
    })
    // The thread does not keep the process alive.
    thread.unref()
    return thread
  }
}

/** The errors that threads ended with. */
const faults = new WeakMap<Worker, unknown>()

/** The job with copies of its bytes: this thread may need them again. */
async function copiesOf(order: JobMessage): Promise<JobMessage> {
  if (order.kind !== 'documents') return { ...order, bytes: await copied(order.bytes) }
  const documents: Uint8Array[] = []
  for (const each of order.documents) documents.push(await copied(each))
  return { ...order, documents }
}

function transferred(order: JobMessage): ArrayBuffer[] {
  return order.kind === 'documents' ? order.documents.flatMap(handedOver) : handedOver(order.bytes)
}

/** A copy with memory of its own. */
async function copied(bytes: Uint8Array): Promise<Uint8Array> {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) {
    if (at > 0) await turn()
    copy.set(bytes.subarray(at, at + SLICE_BYTES), at)
  }
  return copy
}
