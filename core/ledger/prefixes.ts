/**
 * What upstreams told of the input of earlier requests, for requests that begin with the same bytes and whose own input is
 * never told: the client leaves first. Only counts are kept, never a share of them, so what is added behind a known
 * beginning is estimated in full.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { SAFE_BYTES_PER_TOKEN } from './input.ts'
import { inputTokens, type Usage } from './money.ts'

/** What is known of the input of a request that begins as an earlier one did. */
export interface KnownPrefix {
  /** Bytes of the request body that are the same. */
  readonly bytes: number
  /** Input tokens of the whole earlier request: those of the same bytes are no more. */
  readonly inputTokens: number
  /** Input tokens that the earlier request read from the prompt cache, and this one can be taken to read as well. */
  readonly cachedTokens: number
}

interface Known {
  /** 16 bytes for each block of the body. */
  readonly digests: Buffer
  readonly bodyBytes: number
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly at: number
}

/** Bytes of a body that are compared as one. */
const BLOCK = 4096
const DIGEST = 16
/** Bytes of a body from which on it is worth remembering. */
const WORTH = 2 * BLOCK
/** Conversations of one key and model that are remembered at a time. */
const MOST = 8
/** Bytes of memory for all of them. */
const MEMORY = 32 * 1024 * 1024

export class Prefixes {
  readonly #known = new LRUCache<string, readonly Known[]>({
    maxSize: MEMORY,
    sizeCalculation: all => 1 + all.reduce((sum, { digests }) => sum + digests.length, 0),
  })

  /** Remembers the input of a request, as its upstream told it. */
  learn(account: string, model: string, body: Buffer, usage: Usage, now: number): void {
    if (body.length < WORTH) return
    const name = `${account} ${model}`
    const known: Known = { digests: digestsOf(body), bodyBytes: body.length, inputTokens: inputTokens(usage), cachedTokens: usage.cacheRead, at: now }
    // A conversation that went on takes the place of its beginning.
    const others = (this.#known.get(name) ?? []).filter(other => commonBlocks(other.digests, known.digests) < other.digests.length / DIGEST)
    this.#known.set(name, [known, ...others].slice(0, MOST))
  }

  /** What is known of a request, by the earlier one with which it has the longest beginning in common. @param lifetimeMs of a prompt cache */
  find(account: string, model: string, body: Buffer, now: number, lifetimeMs: number): KnownPrefix | undefined {
    if (body.length < WORTH) return undefined
    const fresh = (this.#known.get(`${account} ${model}`) ?? []).filter(({ at }) => now - at <= lifetimeMs)
    if (fresh.length === 0) return undefined
    const digests = digestsOf(body)
    const [best] = fresh.map(known => ({ known, blocks: commonBlocks(known.digests, digests) })).sort((a, b) => b.blocks - a.blocks)
    if (!best || best.blocks === 0) return undefined
    const { bodyBytes, inputTokens: input, cachedTokens: cached } = best.known
    const bytes = best.blocks * BLOCK
    // The bytes that are not the same again held at most so many of the tokens.
    const lost = Math.ceil((bodyBytes - bytes) / SAFE_BYTES_PER_TOKEN)
    return { bytes, inputTokens: input, cachedTokens: Math.max(0, Math.min(cached, input - lost)) }
  }
}

function digestsOf(body: Buffer): Buffer {
  const blocks = Math.floor(body.length / BLOCK)
  const digests = Buffer.allocUnsafe(blocks * DIGEST)
  for (let block = 0; block < blocks; block++) {
    hash('sha256', body.subarray(block * BLOCK, (block + 1) * BLOCK), 'buffer').copy(digests, block * DIGEST, 0, DIGEST)
  }
  return digests
}

/** How many blocks two bodies have in common at their beginnings. */
function commonBlocks(a: Buffer, b: Buffer): number {
  const most = Math.min(a.length, b.length) / DIGEST
  let block = 0
  while (block < most && a.compare(b, block * DIGEST, (block + 1) * DIGEST, block * DIGEST, (block + 1) * DIGEST) === 0) block++
  return block
}
