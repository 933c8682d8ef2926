/** Requests `/health` of a gateway again and again, and reports the longest answer time since the last report. */
import { Agent, request } from 'node:http'
import { parentPort, workerData } from 'node:worker_threads'
// oxlint-disable unicorn/require-post-message-target-origin -- that is for windows

const agent = new Agent({ keepAlive: true })
let longest = 0
let began = performance.now()

function ask(): void {
  began = performance.now()
  request({ agent, port: workerData as number, host: '127.0.0.1', path: '/health' }, res => {
    res.resume().on('end', () => {
      longest = Math.max(longest, performance.now() - began)
      setTimeout(ask, 1)
    })
  }).end()
}

parentPort?.on('message', () => {
  parentPort?.postMessage(longest)
  longest = 0
})
ask()
