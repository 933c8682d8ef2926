/** Objects that replies have stored at their providers: which key made them, where they are, and their sizes in tokens. */
import { orUnavailable } from '../records/unavailable.ts'
import type { Reads } from './reads.ts'
import type { Scripts } from './script/scripts.ts'
import { nameOf, type Spender } from './script/store-keys.ts'

/** Maximum ids per query. */
const IDS_AT_ONCE = 250

/** What a reply stored at its provider. */
export interface StoredByReply {
  /** The reply's id, or a substitute for it. */
  readonly reply: string
  /** Tokens of its input and output together: at most, and probably. */
  readonly total: number
  readonly likely: number
  /** Tokens of its output. */
  readonly output: number
  /** Ids of its items, containers and similar objects. */
  readonly others: readonly string[]
  /** The name of the upstream account that has them. */
  readonly at: string
}

/** What is known of an object at a provider. */
export interface StoredSize {
  /** The reply that it belongs to. */
  readonly reply: string
  /** Its tokens at most. */
  readonly tokens: number
  /** Its tokens, probably. */
  readonly likely: number
  /** The name of the upstream account that has it. */
  readonly at: string
}

/** The stored objects of one store. */
export class StoredObjects {
  readonly #scripts: Scripts
  readonly #reads: Reads
  readonly #keptMs: number
  /** By key: the running write. Once a client can have seen a reply, what it stored must be known. */
  readonly #writing = new Map<string, Promise<unknown>>()

  /** @param keptMs how long an object is remembered, in milliseconds */
  constructor(scripts: Scripts, reads: Reads, keptMs: number) {
    this.#scripts = scripts
    this.#reads = reads
    this.#keptMs = keptMs
  }

  /** Notes what a reply stored, and its size. @throws GatewayError unavailable */
  async note(spender: Spender, { reply, total, likely, output, others, at }: StoredByReply): Promise<void> {
    const pipeline = this.#scripts.redis.pipeline()
    const set = (id: string, tokens: number, probably: number): unknown =>
      pipeline.set(this.#scripts.keys.stored(spender, id), `${tokens} ${reply} ${at} ${probably}`, 'PX', this.#keptMs)
    for (const id of others) set(id, output, output)
    set(reply, total, likely)
    const name = nameOf(spender)
    const before = this.#writing.get(name)
    const noted = Promise.allSettled([before, orUnavailable(pipeline.exec())])
    this.#writing.set(name, noted)
    const [, outcome] = await noted
    if (this.#writing.get(name) === noted) this.#writing.delete(name)
    if (outcome.status === 'rejected') throw outcome.reason
  }

  /**
   * Returns what is known of objects, by their ids, in the same order. Undefined for objects of other keys.
   * @throws GatewayError unavailable
   */
  async sizes(spender: Spender, ids: readonly string[]): Promise<readonly (StoredSize | undefined)[]> {
    await this.#writing.get(nameOf(spender))
    const found: (string | null)[] = []
    for (let at = 0; at < ids.length; at += IDS_AT_ONCE) {
      const keys = ids.slice(at, at + IDS_AT_ONCE).map(id => this.#scripts.keys.stored(spender, id))
      found.push(...(await this.#reads.lookUp(redis => redis.mget(keys))))
    }
    return found.map(value => {
      const [tokens, reply = '', at = '', likely = tokens] = value?.split(' ') ?? []
      return tokens === undefined ? undefined : { reply, tokens: Number(tokens), likely: Number(likely), at }
    })
  }
}
