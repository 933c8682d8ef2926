/** The thread that large requests and replies are translated on: it gets jobs, and answers each with what came of it or the error. */
import { parentPort } from 'node:worker_threads'
import { GatewayError } from './errors.ts'
import { FORMATS, translateReply, translateRequest } from './formats/index.ts'
import { type Answer, handedOver, type Order } from './translations.ts'
// oxlint-disable unicorn/require-post-message-target-origin -- that is for windows

parentPort?.on('message', (order: Order) => {
  const answer = done(order)
  const bytes = 'error' in answer ? undefined : answer.result instanceof Uint8Array ? answer.result : answer.result.bytes
  parentPort?.postMessage(answer, bytes && handedOver(bytes))
})

function done(order: Order): Answer {
  const { number } = order
  const between = { client: FORMATS[order.client], upstream: FORMATS[order.upstream] }
  try {
    return { number, result: order.kind === 'request' ? translateRequest({ ...order, ...between }) : translateReply({ ...order, ...between }) }
  } catch (thrown) {
    const { code, details } = GatewayError.from(thrown)
    const { message, param, cause } = details
    const why = cause instanceof Error ? cause.message : undefined
    return {
      number,
      error: { code, details: { ...(message !== undefined && { message }), ...(param !== undefined && { param }), ...(why !== undefined && { cause: why }) } },
    }
  }
}
