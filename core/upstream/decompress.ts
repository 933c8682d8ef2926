/** Decompresses replies that an upstream compressed although the request did not allow it. */
import type { Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'
import { GatewayError } from '../errors.ts'
import type { ReplyBody } from './reply-body.ts'
import type { UpstreamReply } from './send.ts'

/** Bytes that are decompressed at a time. */
const CHUNKS = { chunkSize: 64 * 1024 }

const DECOMPRESSORS = new Map<string, () => NodeJS.ReadWriteStream>([
  ['gzip', () => createGunzip(CHUNKS)],
  ['x-gzip', () => createGunzip(CHUNKS)],
  ['deflate', () => createInflate(CHUNKS)],
  ['br', () => createBrotliDecompress(CHUNKS)],
  ['zstd', () => createZstdDecompress(CHUNKS)],
])

/**
 * Returns the body of a reply without its content encoding.
 * @throws GatewayError upstream_failed for an unknown encoding
 */
export function decompressed(reply: UpstreamReply): ReplyBody {
  const encoding = (reply.headers['content-encoding'] ?? 'identity').toLowerCase()
  if (encoding === 'identity') return reply.body
  const decompressor = DECOMPRESSORS.get(encoding)
  if (!decompressor) {
    reply.abort()
    throw new GatewayError('upstream_failed', { cause: new Error(`content-encoding ${encoding}`) })
  }
  const plain = decompressor() as unknown as Readable & NodeJS.WritableStream
  reply.body.on('data', chunk => {
    if (plain.write(chunk)) return
    reply.body.pause()
    plain.once('drain', () => reply.body.resume())
  })
  reply.body.on('end', () => plain.end())
  reply.body.on('close', () => {
    if (!reply.body.readableEnded) plain.destroy(new Error('upstream closed the connection'))
  })
  plain.on('error', () => reply.abort())
  return plain
}
