/**
 * Loaded into a gateway's process: counts what requests cost. On SIGUSR2 it adds the
 * counts since the start of the process as a line to the file that COUNTS names. The bytes of buffers are those without
 * garbage if the process runs with --expose-gc.
 */
import { createHook } from 'node:async_hooks'
import { subscribe } from 'node:diagnostics_channel'
import { appendFileSync, readFileSync } from 'node:fs'
import { performance } from 'node:perf_hooks'
import { Worker } from 'node:worker_threads'
import { Redis } from 'ioredis'

const counts = { promises: 0, parsed: 0, messages: 0, roundTrips: 0 }

createHook({ init: (_id, type) => void (counts.promises += type === 'PROMISE' ? 1 : 0) }).enable()

/** Calls a function before each call of a method. */
function before(owner, method, use) {
  const original = owner[method]
  owner[method] = function (...args) {
    use(...args)
    return original.apply(this, args)
  }
}
before(JSON, 'parse', () => counts.parsed++)
before(Worker.prototype, 'postMessage', () => counts.messages++)

/** Round trips to Redis since the last request came: commands that are sent together are one. */
let trips = 0
let isAnswered = true
before(Redis.prototype, 'sendCommand', command => {
  if (isAnswered) trips++
  isAnswered = false
  command.promise.then(
    () => (isAnswered = true),
    () => (isAnswered = true),
  )
})
subscribe('http.server.request.start', () => {
  trips = 0
  isAnswered = true
})
subscribe('undici:client:sendHeaders', () => (counts.roundTrips += trips))

/** Calls of the system that this process has made to read and to write. */
function calls() {
  const text = readFileSync('/proc/self/io', 'utf8')
  const numberOf = name => Number(new RegExp(`${name}: (\\d+)`).exec(text)?.[1])
  return { reads: numberOf('syscr'), writes: numberOf('syscw') }
}

process.on('SIGUSR2', () => {
  const { loopCount: turns } = performance.nodeTiming.uvMetricsInfo
  const now = { ...counts, turns, ...calls() }
  // The second collection waits until the buffers of the first one are freed.
  for (let time = 0; time < 2; time++) globalThis.gc?.()
  const line = { ...now, bufferBytes: process.memoryUsage().arrayBuffers }
  appendFileSync(process.env['COUNTS'] ?? '', `${JSON.stringify(line)}\n`)
})
