/** The thread that large requests are translated on: it gets jobs, and answers each with the translated request or the error. */
import { parentPort } from 'node:worker_threads'
import { GatewayError } from './errors.ts'
import { FORMATS, translateRequest } from './formats/index.ts'
import type { Answer, Order } from './translations.ts'

// oxlint-disable unicorn/require-post-message-target-origin -- that is for windows

parentPort?.on('message', ({ number, client, upstream, ...job }: Order) => {
  let answer: Answer
  try {
    answer = { number, translated: translateRequest({ ...job, client: FORMATS[client], upstream: FORMATS[upstream] }) }
  } catch (thrown) {
    const { code, details } = GatewayError.from(thrown)
    const { message, param } = details
    answer = { number, error: { code, details: { ...(message !== undefined && { message }), ...(param !== undefined && { param }) } } }
  }
  parentPort?.postMessage(answer)
})
