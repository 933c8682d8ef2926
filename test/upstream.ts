/** A scripted provider on loopback. Each test scripts its answers and reads what it received. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import net, { type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'
import { refusalOf } from './formats/provider-rules.ts'

/** A request as the provider received it. */
export interface Received {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
  readonly json: Record<string, unknown>
  /** Resolves when the gateway closed the connection or the reply was complete. */
  readonly closed: Promise<void>
}

export type Script = (received: Received, res: ServerResponse) => void | Promise<void>

/** The endpoints at which a provider refuses what it cannot process. */
const PATHS: Readonly<Record<string, string>> = {
  'chat-completions': '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
}

/** A refusal as a provider of the format writes it. */
function refused(format: string, message: string): object {
  const error = { type: 'invalid_request_error', message }
  return format === 'messages' ? { type: 'error', error } : { error: { ...error, param: null, code: null } }
}

/** A provider that answers as its script says, and refuses what providers refuse. */
export class ScriptedUpstream {
  readonly requests: Received[] = []
  url = ''
  /** By default, chat completions of 10 tokens of input and 60 of output. */
  script: Script = (_received, res) => json(res, chatReply(10, 60))
  readonly #sockets = new Set<Socket>()
  readonly #server = createServer((req, res) => void this.#take(req, res))

  static async start(t: Test): Promise<ScriptedUpstream> {
    const upstream = new ScriptedUpstream()
    upstream.#server.on('connection', socket => {
      upstream.#sockets.add(socket)
      socket.on('close', () => upstream.#sockets.delete(socket))
    })
    upstream.url = await listening(upstream.#server)
    t.teardown(() => {
      upstream.#server.close()
      upstream.#server.closeAllConnections()
    })
    return upstream
  }

  /** Open connections, including idle ones. */
  get connections(): number {
    return this.#sockets.size
  }

  get last(): Received {
    return this.requests.at(-1) as Received
  }

  async #take(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString('utf8')
    const received: Received = {
      method: req.method ?? '',
      path: req.url ?? '',
      headers: req.headers,
      body,
      json: JSON.parse(body) as Record<string, unknown>,
      closed: new Promise(resolve => res.on('close', resolve)),
    }
    this.requests.push(received)
    const [path = ''] = received.path.split('?')
    const format = Object.keys(PATHS).find(name => path.endsWith(PATHS[name] as string))
    const words = format && refusalOf(format, received.json)
    if (format && words !== undefined) return json(res, refused(format, words), 400)
    await this.script(received, res)
  }
}

/** A provider that answers with raw bytes. */
export async function rawUpstream(
  t: Test,
  answer: (socket: Socket, request: string) => void,
): Promise<{ url: string; requests: string[]; sockets: Set<Socket> }> {
  const requests: string[] = []
  const sockets = new Set<Socket>()
  const server = net.createServer(socket => {
    let seen = ''
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    socket.on('data', chunk => {
      seen += chunk.toString('latin1')
      const head = seen.indexOf('\r\n\r\n')
      const length = Number(/content-length: (\d+)/i.exec(seen)?.[1] ?? 0)
      if (head === -1 || seen.length < head + 4 + length) return
      requests.push(seen)
      const request = seen
      seen = ''
      answer(socket, request)
    })
  })
  const url = await listening(server)
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { url, requests, sockets }
}

export async function listening(server: net.Server): Promise<string> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

export function json(res: ServerResponse, body: unknown, status = 200, headers: Record<string, string> = {}): void {
  res
    .writeHead(status, { 'content-type': 'application/json', ...headers })
    .end(typeof body === 'string' ? body : JSON.stringify(body))
}

/** A chat completion in one piece. */
export const chatReply = (prompt_tokens: number, completion_tokens: number, content = 'x'): object => ({
  choices: [{ message: { content }, finish_reason: 'stop' }],
  usage: { prompt_tokens, completion_tokens },
})

/** Lets an upstream begin each stream with these events. Returns the replies, which the test ends. */
export function begun(upstream: ScriptedUpstream, events: string): ServerResponse[] {
  const replies: ServerResponse[] = []
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(events)
    replies.push(res)
  }
  return replies
}

/** Answers with a stream of server-sent events, in one piece. */
export function sse(res: ServerResponse, text: string, headers: Record<string, string> = {}): void {
  res.writeHead(200, { 'content-type': 'text/event-stream', ...headers }).end(text)
}
