/** What a request's input weighs in tokens before anybody has counted it: its text, and what is attached or referred to. */
import type { Body } from '../formats/body.ts'
import type { Attachment } from '../formats/index.ts'
import type { JsonView } from '../lib/json/view.ts'
import type { Exchange, With } from '../exchange/exchange.ts'
import { type DocumentsJob, documentsTokens } from './documents.ts'

/** Tokens of what is no text: options of the stage that meters. */
export interface Weights {
  /** Tokens of one image. */
  readonly mediaTokens: number
  /** Tokens of one page of a document. */
  readonly pageTokens: number
  /** Bytes of encoded sound that count as one token. */
  readonly soundBytesPerToken: number
  /** Input tokens that one tool of the provider's may add by its results. */
  readonly toolTokens: number
}

/** The weight of a request's input. */
export interface Weight {
  /** Bytes of the body that are text, or may be. */
  readonly textBytes: number
  /** Tokens of what is attached or referred to. */
  readonly tokens: number
  /** It holds something whose size nobody can tell, such as a document behind a URL: only the context window bounds it. */
  readonly unbounded: boolean
  /** Of the tokens, those of sound and of images. */
  readonly soundTokens: number
  readonly imageTokens: number
  /** It lets the provider run tools, whose results become input of further passes. */
  readonly providerTools: boolean
  /** Of the tokens, those for the results of such tools. */
  readonly toolTokens: number
  /** Its input may be written into a prompt cache, for so long. */
  readonly caches: '5m' | '1h' | undefined
}

/** Input tokens of documents that have been weighed; those that only the context window bounds are not there. */
const weighed = new WeakMap<Attachment, number>()

/** Bytes of documents, as they are encoded, from which on they are weighed elsewhere. */
const LARGE_BYTES = 16_384
/** How many times these are in memory then: as they are encoded, as text, decoded and unpacked. */
const COPIES = 5

/**
 * Weighs the documents in a request, before `weigh` is called.
 * @param elsewhere weighs what is large
 * @throws GatewayError unavailable where there is no memory for that
 */
export async function weighDocuments(
  x: Pick<Exchange, 'reserve' | 'release'> & With<'body'>,
  pageTokens: number,
  elsewhere: (job: DocumentsJob) => Promise<readonly (number | undefined)[]>,
): Promise<void> {
  const documents = x.body.contents.attachments.filter(({ kind, encoded }) => kind === 'document' && encoded)
  if (documents.length === 0) return
  const job = { documents: documents.map(({ encoded }) => (encoded as JsonView).bytes), pageTokens }
  const bytes = documents.reduce((sum, attachment) => sum + encodedBytes(attachment), 0)
  let tokens: readonly (number | undefined)[]
  if (bytes > LARGE_BYTES) {
    x.reserve(bytes * COPIES)
    tokens = await elsewhere(job)
    x.release(bytes * COPIES)
  } else tokens = documentsTokens(job)
  documents.forEach((document, index) => {
    const size = tokens[index]
    if (size !== undefined) weighed.set(document, size)
  })
}

/**
 * Weighs a request's input.
 * @param tools how many tools the provider may run
 * @param storedTokens tokens of all the stored state that the request refers to; undefined where nobody recorded them
 */
export function weigh(body: Body, rates: Weights, storedTokens: number | undefined, tools: number): Weight {
  let textBytes = body.received.length
  const { attachments, caches } = body.contents
  const toolTokens = tools * rates.toolTokens
  let tokens = (storedTokens ?? 0) + toolTokens
  let unbounded = false
  const ofKind = { image: 0, sound: 0, document: 0 }
  for (const attachment of attachments) {
    textBytes -= encodedBytes(attachment)
    const size = tokensOf(attachment, rates, storedTokens !== undefined)
    if (size === undefined) unbounded = true
    else {
      tokens += size
      ofKind[attachment.kind] += size
    }
  }
  return {
    textBytes: Math.max(0, textBytes),
    tokens,
    unbounded,
    soundTokens: ofKind.sound,
    imageTokens: ofKind.image,
    providerTools: tools > 0,
    toolTokens,
    caches,
  }
}

/** Bytes of an attachment that stands in the request, without its quotes. */
function encodedBytes({ encoded }: Attachment): number {
  return encoded ? encoded.end - encoded.start - 2 : 0
}

/** Tokens of one attachment; undefined when only the context window bounds them. */
function tokensOf(attachment: Attachment, rates: Weights, recorded: boolean): number | undefined {
  const { kind, encoded, place } = attachment
  if (place === 'stored') return recorded ? 0 : undefined
  switch (kind) {
    case 'image':
      return rates.mediaTokens
    case 'sound':
      return encoded === undefined ? undefined : Math.ceil(encodedBytes(attachment) / rates.soundBytesPerToken)
    case 'document':
      return weighed.get(attachment)
  }
}
