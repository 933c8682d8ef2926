/** Estimates the tokens of a request's input before it is counted: its text, attachments and references. */
import type { Body } from '../formats/body.ts'
import type { Attachment } from '../formats/index.ts'
import type { JsonView } from '../lib/json/view.ts'
import type { Stored } from '../exchange/exchange.ts'
import type { BuiltInExchange, BuiltInWith } from '../exchange/built-in.ts'
import { type DocumentsJob, documentsTokens } from './documents.ts'

/** Token weights of contents other than text: options of the metering stage. */
export interface Weights {
  /** Tokens of one image. */
  readonly mediaTokens: number
  /** Tokens of one page of a document. */
  readonly pageTokens: number
  /** Bytes of encoded sound per token. */
  readonly soundBytesPerToken: number
  /** Input tokens of the results of one search at the provider, and of a call whose results have no limit. */
  readonly toolTokens: number
  readonly openToolTokens: number
}

/** The weight of a request's input. */
export interface Weight {
  /** Bytes of the body that are text, or may be text. */
  readonly textBytes: number
  /** Tokens of attachments, and the most that references can stand for. */
  readonly tokens: number
  /** How many of these tokens the references probably do not stand for. */
  readonly surplus: number
  /**
   * Whether it contains something of unknown size, such as a document behind a URL. Only the context window bounds it.
   */
  readonly unbounded: boolean
  /** The tokens of sound and of images among `tokens`. */
  readonly soundTokens: number
  readonly imageTokens: number
  /** Whether it lets the provider run tools, whose results become input of further passes. */
  readonly providerTools: boolean
  /** The lifetime of the prompt cache that the input may be written to. */
  readonly caches: '5m' | '1h' | undefined
}

/** Input tokens of weighed documents. Those that only the context window bounds are missing. */
const weighed = new WeakMap<Attachment, number>()

/** Encoded size in bytes from which a document is weighed on another thread. */
const LARGE_BYTES = 16_384
/** Number of copies of a document in memory while it is weighed: encoded, as text, decoded and unpacked. */
const COPIES = 5

/**
 * Weighs the documents in a request. Call it before `weigh`.
 * @param elsewhere weighs large documents
 * @throws GatewayError unavailable if there is not enough memory
 */
export async function weighDocuments(
  x: Pick<BuiltInExchange, 'reserve' | 'release'> & BuiltInWith<'body'>,
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
 * @param stored what the request refers to; undefined if it is unknown
 * @param most tokens that references can stand for
 * @param providerTools as in `Weight`
 */
export function weigh(
  body: Body,
  rates: Weights,
  {
    stored,
    most,
    providerTools,
  }: { readonly stored: Stored | undefined; readonly most: number; readonly providerTools: boolean },
): Weight {
  let textBytes = body.received.length + body.addedBytes
  const { attachments, caches } = body.contents
  const { tokens: storedTokens = 0, likely = 0 } = stored ?? {}
  let tokens = Math.min(storedTokens, most)
  const surplus = Math.max(0, tokens - likely)
  let unbounded = false
  const ofKind = { image: 0, sound: 0, document: 0 }
  for (const attachment of attachments) {
    textBytes -= encodedBytes(attachment)
    const size = tokensOf(attachment, rates, stored !== undefined)
    if (size === undefined) unbounded = true
    else {
      tokens += size
      ofKind[attachment.kind] += size
    }
  }
  return {
    textBytes: Math.max(0, textBytes),
    tokens,
    surplus,
    unbounded,
    soundTokens: ofKind.sound,
    imageTokens: ofKind.image,
    providerTools,
    caches,
  }
}

/** Returns the bytes of an inline attachment, without its quotes. */
function encodedBytes({ encoded }: Attachment): number {
  return encoded ? encoded.end - encoded.start - 2 : 0
}

/** Returns the tokens of one attachment. Undefined if only the context window bounds them. */
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
