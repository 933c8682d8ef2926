/** Decoders of compressed bodies: of requests, and of replies whose upstream compressed them although nobody allowed it. */
import type { Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'

/**
 * Maximum bytes of one chunk that comes out. What a bomb costs beyond the limit of its reader is less than one, as the decoder waits
 * while its reader has paused.
 */
const CHUNKS = { chunkSize: 16 * 1024 }

/** Makes the decoder of an encoding. */
export const DECODERS = new Map<string, () => NodeJS.ReadWriteStream>([
  ['gzip', () => createGunzip(CHUNKS)],
  ['x-gzip', () => createGunzip(CHUNKS)],
  ['deflate', () => createInflate(CHUNKS)],
  ['br', () => createBrotliDecompress(CHUNKS)],
  ['zstd', () => createZstdDecompress(CHUNKS)],
])

/** What is decoded. */
interface Encoded {
  readonly readableEnded: boolean
  pause(): unknown
  resume(): unknown
  on(event: 'data', listener: (chunk: Buffer) => void): unknown
  on(event: 'end' | 'close', listener: () => void): unknown
}

/** Returns the content encoding of a message; `identity` for none. */
export function encodingOf({
  headers,
}: {
  readonly headers: { readonly 'content-encoding'?: string | undefined }
}): string {
  return (headers['content-encoding'] || 'identity').toLowerCase()
}

/**
 * Returns a body without its content encoding. It emits an error if the body is not what its encoding says, or breaks off. Undefined if
 * the encoding is unknown.
 */
export function decoded<B extends Encoded>(
  body: B,
  encoding: string,
): B | (Readable & NodeJS.WritableStream) | undefined {
  if (encoding === 'identity') return body
  const decoder = DECODERS.get(encoding)
  if (!decoder) return undefined
  const plain = decoder() as unknown as Readable & NodeJS.WritableStream
  body.on('data', chunk => {
    // A decoder that was given up takes nothing more, and must not stop the body from being read to its end.
    if (plain.destroyed || plain.write(chunk)) return
    body.pause()
    plain.once('drain', () => body.resume())
  })
  body.on('end', () => plain.end())
  body.on('close', () => {
    if (body.readableEnded) return
    // What has arrived comes out first, also to a reader that has paused.
    const destroy = (): void => {
      if (plain.readableLength > 0) plain.once('data', destroy)
      else plain.destroy(new Error('the connection was closed'))
    }
    plain.write(Buffer.alloc(0), destroy)
  })
  return plain
}
