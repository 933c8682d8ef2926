/**
 * The simulated provider: a server on loopback that speaks all three formats, so that a first start has something to
 * meter. It repeats what it was sent, and reports the matching number of tokens.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { formatOf, frame, type Format } from '../formats/index.ts'
import { object, text } from '../formats/json.ts'
import { SPELLINGS, type Said } from './replies.ts'
import type { Environment } from '../lib/environment.ts'

/** Milliseconds between the parts of a stream, so that a person can see it arrive. */
const PACE_MS = 30

/** A running simulated provider. */
export interface SimulatedProvider {
  readonly url: URL
  close(): void
}

/** Starts the simulated provider on a free port. */
export async function startSimulated({ newId, now }: Pick<Environment, 'newId' | 'now'>): Promise<SimulatedProvider> {
  const server = createServer((req, res) => {
    answer(req, res, newId(), now()).catch(() => res.destroy())
  })
  // Each worker has its own; only the gateway's port is shared.
  await new Promise<void>(resolve => server.listen({ port: 0, host: '127.0.0.1', exclusive: true }, resolve))
  server.unref()
  const { port } = server.address() as AddressInfo
  return {
    url: new URL(`http://127.0.0.1:${port}`),
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}

async function answer(req: IncomingMessage, res: ServerResponse, id: string, nowMs: number): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of req) chunks.push(chunk as Buffer)
  const format = formatOf(req.url ?? '')
  const body = object(JSON.parse(Buffer.concat(chunks).toString('utf8')))
  if (!format || !body) {
    res.writeHead(404).end()
    return
  }
  const said = say(format, body, id, nowMs)
  const spelling = SPELLINGS[format.name]
  if (body['stream'] !== true) {
    res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(spelling.json(said)))
    return
  }
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const { type, data } of spelling.events(said)) {
    if (res.destroyed) return
    res.write(frame(type, data))
    await sleep(PACE_MS)
  }
  res.end()
}

function say(format: Format, body: Readonly<Record<string, unknown>>, id: string, nowMs: number): Said {
  const heard = lastText(body['messages'] ?? body['input'])
  const words = `Hello from the simulated provider. You said: ${heard.slice(0, 200)}`.split(/(?<=\s)/)
  const limit = format.outputLimit({ get: name => body[name] }) ?? words.length
  const pieces = words.slice(0, limit)
  return {
    id: id.replace(/[^A-Za-z0-9]/g, ''),
    model: text(body['model']) ?? '',
    pieces,
    inputTokens: Math.ceil(Buffer.byteLength(JSON.stringify(body['messages'] ?? body['input'] ?? '')) / 4),
    outputTokens: pieces.length,
    cut: pieces.length < words.length,
    createdAt: Math.floor(nowMs / 1000),
    request: body,
  }
}

/** Returns the last text of a conversation in any format. */
function lastText(value: unknown): string {
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return lastText(value.at(-1))
  const json = object(value)
  return json ? lastText(json['content'] ?? json['text'] ?? '') : ''
}
