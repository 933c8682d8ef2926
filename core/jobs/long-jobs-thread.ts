/** The thread for long jobs. It gets one job after the other, and answers each with its result or its error. */
import { parentPort } from 'node:worker_threads'
import { GatewayError } from '../errors.ts'
import { CLIENT_FORMATS, type Format, FORMATS, translateReply, translateRequest } from '../formats/index.ts'
import { documentsTokens } from '../metering/documents.ts'
import { type Answer, handedOver, type JobMessage, type Result } from './long-jobs.ts'
// oxlint-disable unicorn/require-post-message-target-origin -- that is for windows

parentPort?.on('message', (order: JobMessage) => {
  const answer = answered(order)
  parentPort?.postMessage(answer, 'result' in answer ? transferred(answer.result) : [])
})

function answered(order: JobMessage): Answer {
  try {
    return { result: done(order) }
  } catch (thrown) {
    const { code, details } = GatewayError.from(thrown)
    const { message, param, cause } = details
    const why = cause instanceof Error ? cause.message : undefined
    return {
      error: {
        code,
        details: {
          ...(message !== undefined && { message }),
          ...(param !== undefined && { param }),
          ...(why !== undefined && { cause: why }),
        },
      },
    }
  }
}

function done(order: JobMessage): Result {
  if (order.kind === 'documents') return documentsTokens(order)
  const between = { client: CLIENT_FORMATS.get(order.client) as Format, upstream: FORMATS[order.upstream] }
  return order.kind === 'request'
    ? translateRequest({ ...order, ...between })
    : translateReply({ ...order, ...between })
}

function transferred(result: Result): ArrayBuffer[] {
  if (result instanceof Uint8Array) return handedOver(result)
  return 'bytes' in result ? handedOver(result.bytes) : []
}
