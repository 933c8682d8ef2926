/** Requests that are refused before any stage sees them. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type ErrorCode, errorHeaders, GatewayError } from '../errors.ts'
import { PLAIN } from '../formats/index.ts'

/** Maximum headers of one request. Each takes several times its size in memory. */
export const HEADER_COUNT_MAX = 128

/** Headers that may appear only once: two readers of the request could interpret a repeated one differently. */
const SINGLE = new Set(['authorization', 'x-api-key', 'host', 'content-type'])

/** Returns an error for requests that Node's parser accepts but the gateway does not. */
export function malformed(req: IncomingMessage, urlLimit: number): GatewayError | undefined {
  if (req.rawHeaders.length > 2 * HEADER_COUNT_MAX) return new GatewayError('headers_too_large')
  if ((req.url?.length ?? 0) > urlLimit) return new GatewayError('url_too_long')
  if (req.httpVersionMajor !== 1)
    return new GatewayError('bad_request', { message: 'Only HTTP/1.0 and HTTP/1.1 are supported.' })
  const seen: string[] = []
  for (let at = 0; at < req.rawHeaders.length; at += 2) {
    const name = req.rawHeaders[at]?.toLowerCase() ?? ''
    if (!SINGLE.has(name)) continue
    if (seen.includes(name)) return new GatewayError('bad_request', { message: `The header ${name} appears twice.` })
    seen.push(name)
  }
  return undefined
}

/** What a client gets for some of the parser's errors. */
const BROKEN: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Sockets whose malformed request has been answered. The parser may report several errors. */
const answered = new WeakSet<Socket>()

/**
 * Answers a malformed request once, with a plain error, unless another reply is being sent.
 * @param lingerMs how long the client may take to read the answer
 */
export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket, lingerMs: number): void {
  const replying = (socket as Socket & { _httpMessage?: ServerResponse })._httpMessage?.headersSent
  if (!socket.writable || replying || answered.has(socket)) {
    socket.destroy()
    return
  }
  answered.add(socket)
  const broken = new GatewayError(BROKEN[error.code ?? ''] ?? 'bad_request')
  const body = JSON.stringify(PLAIN.error(broken, ''))
  const headers = { ...errorHeaders(broken), 'content-length': Buffer.byteLength(body), connection: 'close' }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${broken.status} Error\r\n${lines.join('')}\r\n${body}`)
  // A client that does not close its side is disconnected soon.
  setTimeout(() => socket.destroy(), lingerMs).unref()
}
