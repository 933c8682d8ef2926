/**
 * A provider of the siege, in a process of its own. `honest` is the simulated provider; `hostile` does what the `user`
 * of a request names. It answers with its address and with the number of requests of each name.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { setPriority } from 'node:os'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import { randomUUID } from 'node:crypto'
import { startSimulated } from '../../core/simulator/server.ts'
import { json, listening } from '../upstream.ts'
import { answering } from './helper.ts'
import { carried } from './line.ts'

export interface ProviderState {
  readonly url: string
  readonly reached: Readonly<Record<string, number>>
}

/** Milliseconds of work before it closes a connection on which it has answered before. */
const WORK_MS = 3000
/** Milliseconds that a stream runs. */
const STREAM_MS = 300
const EVENT_BYTES = 100_000_000
const PIECE = 'x'.repeat(100_000)
/** Gzip members of 16 MB each, 2 GB together. */
const BOMB = Buffer.concat(Array<Buffer>(128).fill(gzipSync(Buffer.alloc(2 ** 24, ' '))))

const USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }
const REPLY = {
  id: 'c',
  object: 'chat.completion',
  model: 'm',
  choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
}
const DELTA = {
  id: 'c',
  object: 'chat.completion.chunk',
  model: 'm',
  choices: [{ index: 0, delta: { content: 'ok' }, finish_reason: 'stop' }],
}

type Deed = (res: ServerResponse, isReused: boolean) => void

const answer: Deed = res => json(res, { ...REPLY, usage: USAGE })

/** Sends one event as fast as the line carries it. */
async function* event(): AsyncGenerator<string> {
  yield 'data: {"text":"'
  for (let sent = 0; sent < EVENT_BYTES; sent += PIECE.length) {
    await carried(PIECE.length)
    yield PIECE
  }
  yield '"}\n\n'
}

const DEEDS: Readonly<Record<string, Deed>> = {
  'closes late': (res, isReused) => {
    if (isReused) setTimeout(() => res.destroy(), WORK_MS)
    else answer(res, false)
  },
  'half a head': res => void res.socket?.end('HTTP/1.1 200 OK\r\ncontent-ty'),
  'only hints': res => void res.socket?.end('HTTP/1.1 103 Early Hints\r\n\r\n'),
  continues: res => {
    res.socket?.write('HTTP/1.1 100 Continue\r\n\r\n')
    answer(res, false)
  },
  'one event': res => void Readable.from(event()).pipe(res.writeHead(200, { 'content-type': 'text/event-stream' })),
  'a stream': res => {
    res
      .writeHead(200, { 'content-type': 'text/event-stream' })
      .write(`data: ${JSON.stringify({ ...DELTA, usage: null })}\n\n`)
    setTimeout(
      () => res.end(`data: ${JSON.stringify({ ...DELTA, choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`),
      STREAM_MS,
    )
  },
  bomb: res => void res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(BOMB),
}

const reached: Record<string, number> = {}
const served = new WeakSet<object>()

function take(req: IncomingMessage, res: ServerResponse): void {
  res.on('error', () => {})
  // The end of a request contains its user.
  let end = ''
  req.setEncoding('latin1').on('data', (part: string) => (end = (end + part).slice(-100)))
  req.on('end', () => {
    const name = /"(?:user|safety_identifier)":"([^"]+)"/.exec(end)?.[1] ?? 'answer'
    reached[name] = (reached[name] ?? 0) + 1
    ;(DEEDS[name] ?? answer)(res, served.has(req.socket))
    served.add(req.socket)
  })
}

async function start(): Promise<string> {
  if (process.argv[2] === 'honest') {
    const { url } = await startSimulated({ newId: randomUUID, now: Date.now })
    // Only the channel to its parent keeps this process alive.
    return url.origin
  }
  // It has a machine of its own, too.
  setPriority(19)
  return listening(createServer(take))
}

const url = start()
answering(async (): Promise<ProviderState> => ({ url: await url, reached }))
