/**
 * What upstreams reported about the input of earlier requests, for later requests with the same beginning whose own
 * input is never reported because the client leaves first. Only counts are stored, so anything added after a known
 * beginning is estimated in full. One request begins like another if all content of the other stands in it, in the same
 * order with nothing before it.
 */
import { LRUCache } from 'lru-cache'
import type { Body } from '../formats/body.ts'
import { DIGEST_LENGTH, type Format } from '../formats/index.ts'

/** What is known about the input of a request that begins like an earlier one. */
export interface KnownPrefix {
  /** Input tokens of the earlier request. */
  readonly inputTokens: number
  /**
   * Input tokens that the earlier request read from the prompt cache, and that this one can be assumed to read as well.
   */
  readonly cachedTokens: number
  /** Bytes of this request's content beyond the earlier one. */
  readonly restBytes: number
}

/**
 * The scope of comparison: requests of one key for one model in one format, at one account of an upstream. Another
 * account has a prompt cache of its own.
 */
export interface ConversationOwner {
  readonly key: string
  readonly account: string
  readonly model: string
  readonly format: Format
}

interface KnownRequest {
  /** Digests of the content, one per message or item. */
  readonly said: readonly string[]
  /** Digest of everything else that becomes input. */
  readonly frame: string
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly at: number
}

/** Maximum remembered requests per key, account and model. */
const REQUESTS_MAX = 8
/** Bytes of memory for all of them. */
const MEMORY_BYTES = 32 * 1024 * 1024

/** The remembered beginnings of conversations. */
export class Prefixes {
  readonly #known = new LRUCache<string, readonly KnownRequest[]>({
    maxSize: MEMORY_BYTES,
    sizeCalculation: all => 1 + all.reduce((sum, { said }) => sum + (said.length + 1) * DIGEST_LENGTH, 0),
  })

  /** Remembers the input of a request as its upstream reported it. */
  learn(
    of: ConversationOwner,
    body: Body,
    reported: Pick<KnownPrefix, 'inputTokens' | 'cachedTokens'>,
    now: number,
  ): void {
    const conversation = body.conversation(of.format.conversationMember)
    if (!conversation) return
    const name = conversationName(of)
    const { said, frame } = conversation
    const known: KnownRequest = { ...reported, said: said.map(({ digest }) => digest), frame, at: now }
    this.#known.set(name, [known, ...(this.#known.get(name) ?? [])].slice(0, REQUESTS_MAX))
  }

  /**
   * Returns what is known about a request, from the longest earlier request that it begins with.
   * @param lifetimeMs lifetime of a prompt cache
   */
  find(of: ConversationOwner, body: Body, now: number, lifetimeMs: number): KnownPrefix | undefined {
    const fresh = (this.#known.get(conversationName(of)) ?? []).filter(({ at }) => now - at <= lifetimeMs)
    if (fresh.length === 0) return undefined
    const conversation = body.conversation(of.format.conversationMember)
    if (!conversation) return undefined
    const { said, frame } = conversation
    const begins = fresh.filter(
      known => known.frame === frame && known.said.every((digest, at) => digest === said[at]?.digest),
    )
    const [best] = begins.sort((a, b) => b.said.length - a.said.length)
    if (!best) return undefined
    const restBytes = said.slice(best.said.length).reduce((sum, each) => sum + each.bytes, 0)
    return { inputTokens: best.inputTokens, cachedTokens: Math.min(best.cachedTokens, best.inputTokens), restBytes }
  }
}

function conversationName({ key, account, model, format }: ConversationOwner): string {
  return `${key} ${account} ${model} ${format.name}`
}
