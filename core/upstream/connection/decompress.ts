/** Decompresses replies that an upstream compressed although the request did not allow it. */
import type { Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'
import { CHUNK_BYTES, type ReplyBody } from './reply-body.ts'
import type { UpstreamReply } from './send.ts'

const CHUNKS = { chunkSize: CHUNK_BYTES }

const DECOMPRESSORS = new Map<string, () => NodeJS.ReadWriteStream>([
  ['gzip', () => createGunzip(CHUNKS)],
  ['x-gzip', () => createGunzip(CHUNKS)],
  ['deflate', () => createInflate(CHUNKS)],
  ['br', () => createBrotliDecompress(CHUNKS)],
  ['zstd', () => createZstdDecompress(CHUNKS)],
])

/** Returns the content encoding of a reply. */
export function encodingOf({ headers }: Pick<UpstreamReply, 'headers'>): string {
  return (headers['content-encoding'] || 'identity').toLowerCase()
}

/** Returns the body of a reply without its content encoding. Undefined if the encoding is unknown. */
export function decompressed(reply: UpstreamReply): ReplyBody | undefined {
  const encoding = encodingOf(reply)
  if (encoding === 'identity') return reply.body
  const decompressor = DECOMPRESSORS.get(encoding)
  if (!decompressor) return undefined
  const plain = decompressor() as unknown as Readable & NodeJS.WritableStream
  reply.body.on('data', chunk => {
    if (plain.write(chunk)) return
    reply.body.pause()
    plain.once('drain', () => reply.body.resume())
  })
  reply.body.on('end', () => plain.end())
  reply.body.on('close', () => {
    if (reply.body.readableEnded) return
    // What has arrived comes out first, also to a reader that has paused.
    const destroy = (): void => {
      if (plain.readableLength > 0) plain.once('data', destroy)
      else plain.destroy(new Error('upstream closed the connection'))
    }
    plain.write(Buffer.alloc(0), destroy)
  })
  plain.on('error', () => reply.abort())
  return plain
}
