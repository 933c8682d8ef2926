/**
 * Loaded into a gateway's process: counts promises, calls of JSON.parse, messages to threads, and commands to Redis. On
 * SIGUSR2 it writes the counts to the file that COUNTS names, with the bytes of all buffers, and begins again at zero.
 * The bytes are those without garbage if the process runs with --expose-gc.
 */
import { createHook } from 'node:async_hooks'
import { renameSync, writeFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { Redis } from 'ioredis'

const none = { promises: 0, parsed: 0, messages: 0, redisCalls: 0 }
let counts = { ...none }

createHook({ init: (_id, type) => void (counts.promises += type === 'PROMISE' ? 1 : 0) }).enable()

/** Counts the calls of a method. */
function count(owner, method, name) {
  const original = owner[method]
  owner[method] = function (...args) {
    counts[name]++
    return original.apply(this, args)
  }
}
count(JSON, 'parse', 'parsed')
count(Worker.prototype, 'postMessage', 'messages')
count(Redis.prototype, 'sendCommand', 'redisCalls')

process.on('SIGUSR2', () => {
  const file = process.env['COUNTS'] ?? ''
  // The second collection waits until the buffers of the first one are freed.
  for (let time = 0; time < 2; time++) globalThis.gc?.()
  writeFileSync(`${file}.new`, JSON.stringify({ ...counts, bufferBytes: process.memoryUsage().arrayBuffers }))
  counts = { ...none }
  renameSync(`${file}.new`, file)
})
