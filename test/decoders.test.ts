import { randomBytes } from 'node:crypto'
import { EventEmitter } from 'node:events'
import type { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { decoded } from '../core/lib/decoders.ts'
import { until } from './gateway.ts'

t.test('a compressed reply that breaks gives a reader that has paused all that had arrived', async t => {
  const source = Object.assign(new EventEmitter(), { readableEnded: false, pause() {}, resume() {} })
  const plain = decoded(source, 'gzip') as Readable
  let read = 0
  plain.on('data', (chunk: Buffer) => (read += chunk.length))
  plain.pause()
  const text = randomBytes(150_000).toString('hex')
  // All but the trailer of the file.
  source.emit('data', gzipSync(text).subarray(0, -8))
  source.emit('close')
  await until(() => plain.readableLength > 0)
  plain.resume()
  await new Promise(resolve => plain.on('error', resolve))
  t.equal(read, text.length)
})
