/** What a request's input weighs in tokens before anybody has counted it: its text, and what is attached or referred to. */
import type { Body } from '../body.ts'
import type { Attachment } from '../formats/index.ts'
import { type Budget, BUDGET_BYTES, pdfSize } from './pdf.ts'

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

/** Text has hardly ever more than one token for two bytes, so a hold on so many rarely falls short. */
export const SAFE_BYTES_PER_TOKEN = 2

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
  const budget: Budget = { bytes: BUDGET_BYTES }
  for (const attachment of attachments) {
    textBytes -= encodedBytes(attachment)
    const size = tokensOf(attachment, rates, storedTokens !== undefined, budget)
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
function tokensOf(attachment: Attachment, rates: Weights, recorded: boolean, budget: Budget): number | undefined {
  const { kind, encoded, place } = attachment
  if (place === 'stored') return recorded ? 0 : undefined
  switch (kind) {
    case 'image':
      return rates.mediaTokens
    case 'sound':
      return encoded === undefined ? undefined : Math.ceil(encodedBytes(attachment) / rates.soundBytesPerToken)
    case 'document':
      return encoded === undefined ? undefined : documentTokens(encoded.text ?? '', rates, budget)
  }
}

function documentTokens(encoded: string, { pageTokens }: Weights, budget: Budget): number | undefined {
  const bytes = Buffer.from(encoded.slice(encoded.indexOf(',') + 1), 'base64')
  // The text of packed documents is not in sight.
  if (bytes.subarray(0, 2).toString('latin1') === 'PK') return undefined
  if (!bytes.subarray(0, 1024).includes('%PDF-')) return Math.ceil(bytes.length / SAFE_BYTES_PER_TOKEN)
  const size = pdfSize(bytes, budget)
  return size && Math.max(size.pages * pageTokens, Math.ceil(size.textBytes / SAFE_BYTES_PER_TOKEN))
}
