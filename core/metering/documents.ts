/**
 * Input tokens of documents inside a request. They depend only on the documents' bytes, so they may be computed on
 * another thread.
 */
import { type Budget, BUDGET_BYTES, pdfSize } from './pdf.ts'

/** Text rarely has more than one token per two bytes, so such a hold is rarely too small. */
export const SAFE_BYTES_PER_TOKEN = 2

/** The documents of one request, in a form that can be passed to another thread. */
export interface DocumentsJob {
  /** The documents as encoded in the request's JSON strings. */
  readonly documents: readonly Uint8Array[]
  readonly pageTokens: number
}

/** Returns the input tokens of each document. Undefined for one that is bounded only by the context window. */
export function documentsTokens({ documents, pageTokens }: DocumentsJob): (number | undefined)[] {
  const budget: Budget = { bytes: BUDGET_BYTES }
  return documents.map(({ buffer, byteOffset, byteLength }) => {
    const text = JSON.parse(Buffer.from(buffer, byteOffset, byteLength).toString('latin1')) as string
    return documentTokens(text, pageTokens, budget)
  })
}

function documentTokens(encoded: string, pageTokens: number, budget: Budget): number | undefined {
  const bytes = Buffer.from(encoded.slice(encoded.indexOf(',') + 1), 'base64')
  // A ZIP-based document hides its text.
  if (bytes.subarray(0, 2).toString('latin1') === 'PK') return undefined
  if (!bytes.subarray(0, 1024).includes('%PDF-')) return Math.ceil(bytes.length / SAFE_BYTES_PER_TOKEN)
  const size = pdfSize(bytes, budget)
  return size && Math.max(size.pages * pageTokens, Math.ceil(size.textBytes / SAFE_BYTES_PER_TOKEN))
}
