/** Input tokens of documents that stand in a request. A function of their bytes, which may run on another thread. */
import { type Budget, BUDGET_BYTES, pdfSize } from './pdf.ts'

/** Text has hardly ever more than one token for two bytes, so a hold on so many rarely falls short. */
export const SAFE_BYTES_PER_TOKEN = 2

/** The documents of one request. All of it can be handed to another thread. */
export interface DocumentsJob {
  /** Each one encoded, as the JSON string that stands in the request. */
  readonly documents: readonly Uint8Array[]
  readonly pageTokens: number
}

/** Input tokens of each document; undefined for one that only the context window bounds. */
export function documentsTokens({ documents, pageTokens }: DocumentsJob): (number | undefined)[] {
  const budget: Budget = { bytes: BUDGET_BYTES }
  return documents.map(({ buffer, byteOffset, byteLength }) => {
    const text = JSON.parse(Buffer.from(buffer, byteOffset, byteLength).toString('latin1')) as string
    return documentTokens(text, pageTokens, budget)
  })
}

function documentTokens(encoded: string, pageTokens: number, budget: Budget): number | undefined {
  const bytes = Buffer.from(encoded.slice(encoded.indexOf(',') + 1), 'base64')
  // The text of packed documents is not in sight.
  if (bytes.subarray(0, 2).toString('latin1') === 'PK') return undefined
  if (!bytes.subarray(0, 1024).includes('%PDF-')) return Math.ceil(bytes.length / SAFE_BYTES_PER_TOKEN)
  const size = pdfSize(bytes, budget)
  return size && Math.max(size.pages * pageTokens, Math.ceil(size.textBytes / SAFE_BYTES_PER_TOKEN))
}
