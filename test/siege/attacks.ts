/** The attacks of the siege. Each runs until it is stopped, and counts its answers. */
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { carried } from './line.ts'

/** The attackers' means. */
export interface Loot {
  readonly port: number
  /**
   * A key with almost no credits, one with a long history, and others with many credits. The provider of all is
   * hostile.
   */
  readonly keys: Readonly<Record<'poor' | 'old' | 'rich' | 'hostile' | 'ahead', string>>
}

/** `asked` is the number of requests. The other counts are answers by kind: a status, or how a connection ended. */
export type Answers = Record<string, number>

export interface Attack {
  readonly title: string
  /** Misbehaviour of the hostile provider. It must not get more requests than the gateway. */
  readonly deed?: string
  readonly needsHistory?: true
  run(loot: Loot, stop: AbortSignal, answers: Answers): Promise<void>
}

/** Each kind of attacker has an address of its own. The honest customers have 127.0.0.1. */
const ADDRESSES = {
  idle: '127.0.0.2',
  pipelines: '127.0.0.3',
  guesses: '127.0.0.4',
  bodies: '127.0.0.5',
  ahead: '127.0.0.6',
}

const PIECE_BYTES = 65_536
/** Milliseconds between two requests of a client with a hostile upstream. */
const PAUSE_MS = 50

const agent = new Agent({ keepAlive: true })

async function* pieces(body: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) {
    const piece = body.subarray(at, at + PIECE_BYTES)
    await carried(piece.length)
    yield piece
  }
}

function count(answers: Answers, answer: string | number): void {
  answers[answer] = (answers[answer] ?? 0) + 1
}

interface Call {
  readonly key: string
  readonly path: string
  readonly body?: Buffer
  readonly from?: string
  /** Opens a connection. */
  readonly alone?: boolean
}

/** Runs one request to the end of its reply. */
function call(
  { port }: Loot,
  { key, path, body, from = ADDRESSES.bodies, alone = false }: Call,
  stop: AbortSignal,
  answers: Answers,
): Promise<void> {
  count(answers, 'asked')
  return new Promise(resolve => {
    const headers = {
      authorization: `Bearer ${key}`,
      ...(body && { 'content-type': 'application/json', 'content-length': body.length }),
    }
    const method = body ? 'POST' : 'GET'
    const req = request(
      { agent: alone ? false : agent, port, host: '127.0.0.1', localAddress: from, path, method, headers },
      res => {
        count(answers, res.statusCode ?? 0)
        res.resume()
        res.on('error', () => {})
        res.on('close', resolve)
      },
    )
    const leave = (): void => void req.destroy()
    stop.addEventListener('abort', leave)
    let answered = false
    req.on('response', () => (answered = true))
    req.on('error', (cause: NodeJS.ErrnoException) => {
      if (!answered && !stop.aborted) count(answers, cause.code ?? cause.message)
      resolve()
    })
    req.on('close', () => stop.removeEventListener('abort', leave))
    if (body) Readable.from(pieces(body)).pipe(req)
    else req.end()
  })
}

/** Runs several identical loops until the stop. */
async function loops(times: number, stop: AbortSignal, once: () => Promise<void>): Promise<void> {
  const loop = async (): Promise<void> => {
    while (!stop.aborted) await once()
  }
  await Promise.all(Array.from({ length: times }, loop))
}

const CHAT = '/v1/chat/completions'
const repeated = (times: number, text: (index: number) => string): string =>
  Array.from({ length: times }, (_, index) => text(index)).join(',')
const wide = (member: string): Buffer =>
  Buffer.from(`{"model":"acme/famB-4.6","messages":[{"role":"user","content":"hi"}],"metadata":${member}}`)
const long = (bytes: number): Buffer =>
  Buffer.from(
    `{"model":"acme/famB-4.6","max_tokens":10,"messages":[{"role":"user","content":"${'word '.repeat(bytes / 5)}"}]}`,
  )

const EMPTY_OBJECTS = (): Buffer => wide(`[${repeated(9_500_000, () => '{}')}]`)
const MANY_MEMBERS = (members: number): Buffer =>
  wide(`{${repeated(members, index => `"m${String(index).padStart(7, '0')}":1`)}}`)

/** Loops that send one body. */
function sends(title: string, key: keyof Loot['keys'], times: number, body: () => Buffer, path = CHAT): Attack {
  return {
    title,
    async run(loot, stop, answers) {
      const bytes = body()
      await loops(times, stop, () => call(loot, { key: loot.keys[key], path, body: bytes, alone: true }, stop, answers))
    },
  }
}

/** Clients with a hostile provider. */
function asksFor(title: string, deed: string, times: number, more = ''): Attack {
  const body = Buffer.from(
    `{"model":"acme/famB-4.6","messages":[{"role":"user","content":"hi"}]${more},"user":"${deed}"}`,
  )
  return {
    title,
    deed,
    run: (loot, stop, answers) =>
      loops(times, stop, () =>
        call(loot, { key: loot.keys.hostile, path: CHAT, body }, stop, answers).then(() => sleep(PAUSE_MS)),
      ),
  }
}

/** Counts the final replies on a connection. */
function counting(socket: Socket, answers: Answers): void {
  socket.on('error', () => {})
  socket.setEncoding('latin1').on('data', (text: unknown) => {
    for (const [, status] of String(text).matchAll(/HTTP\/1\.1 ([2-5]\d\d)/g)) count(answers, status ?? '')
  })
}

const pipelines: Attack = {
  title: 'pipelines GET / and GET /v1/models at 1 MB/s',
  async run({ port }, stop, answers) {
    const pair = ['/', '/v1/models'].map(path => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`).join('')
    const piece = pair.repeat(Math.ceil(10_000 / pair.length))
    let socket: Socket | undefined
    while (!stop.aborted) {
      if (!socket || socket.destroyed)
        counting((socket = connect({ port, host: '127.0.0.1', localAddress: ADDRESSES.pipelines })), answers)
      socket.write(piece)
      await sleep(10)
    }
    socket?.destroy()
  },
}

const longHistories: Attack = {
  title: 'four loops of history?page=4&page_size=500',
  needsHistory: true,
  run: (loot, stop, answers) =>
    loops(4, stop, () =>
      call(loot, { key: loot.keys.old, path: '/api/v1/key-info/history?page=4&page_size=500' }, stop, answers),
    ),
}

const idleConnections: Attack = {
  title: '10,000 idle connections of one address',
  async run({ port }, stop, answers) {
    const sockets: Socket[] = []
    while (sockets.length < 10_000 && !stop.aborted) {
      const batch = Array.from({ length: 250 }, () =>
        connect({ port, host: '127.0.0.1', localAddress: ADDRESSES.idle }).on('error', () => {}),
      )
      sockets.push(...batch)
      await Promise.all(batch.map(socket => once(socket, 'connect').catch(() => {})))
    }
    if (!stop.aborted) await once(stop, 'abort')
    answers['open'] = sockets.filter(socket => !socket.destroyed).length
    answers['closed'] = sockets.length - answers['open']
    for (const socket of sockets) socket.destroy()
  },
}

const newConnections: Attack = {
  title: 'opens and closes connections, beside three uploads',
  async run(loot, stop, answers) {
    const body = long(8_000_000)
    const uploads = loops(3, stop, () =>
      call(loot, { key: loot.keys.rich, path: CHAT, body, alone: true }, stop, answers),
    )
    while (!stop.aborted) {
      for (let connections = 0; connections < 10; connections++) {
        const socket = connect({ port: loot.port, host: '127.0.0.1', localAddress: ADDRESSES.idle })
        socket.on('connect', () => {
          count(answers, 'opened')
          socket.resetAndDestroy()
        })
        socket.on('error', () => {})
      }
      await sleep(5)
    }
    await uploads
  },
}

const wrongKeys: Attack = {
  title: '400 wrong keys a second, half of them at /v1/models',
  async run(loot, stop, answers) {
    for (let guess = 0; !stop.aborted; guess++) {
      const key = `sk-guess-${guess}`
      const body = guess % 2 === 0 ? { body: Buffer.from('{}') } : {}
      void call(
        loot,
        { key, path: guess % 2 === 0 ? CHAT : '/v1/models', from: ADDRESSES.guesses, ...body },
        stop,
        answers,
      )
      await sleep(2.5)
    }
  },
}

const malformedBehind: Attack = {
  title: 'malformed bytes behind a running stream',
  async run({ port, keys }, stop, answers) {
    const body = `{"model":"acme/famB-4.6","stream":true,"messages":[{"role":"user","content":"hi"}],"user":"a stream"}`
    const asked = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${keys.ahead}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    await loops(8, stop, async () => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: ADDRESSES.ahead }).on('error', () => {})
      let text = ''
      socket.setEncoding('latin1').on('data', (part: unknown) => (text += String(part)))
      count(answers, 'asked')
      socket.write(`${asked}\0\0 malformed \r\n\r\n`)
      await once(socket, 'close')
      count(answers, text.includes('[DONE]') ? 'whole' : 'broken')
    })
  },
}

export const ATTACKS: readonly Attack[] = [
  sends('8 × 28 MB of {}, a key without credits', 'poor', 8, EMPTY_OBJECTS),
  sends('40 × 31 MB of text, a key without credits', 'poor', 40, () => long(31_000_000)),
  sends('8 × 28 MB of {}', 'rich', 8, EMPTY_OBJECTS),
  sends('40 × 31 MB of text', 'rich', 40, () => long(31_000_000)),
  sends('20 × 31 MB of text to translate', 'rich', 20, () => long(31_000_000), '/v1/messages'),
  sends('1.4 MB with 100,000 members', 'rich', 1, () => MANY_MEMBERS(100_000)),
  sends('16 MB with a million members', 'rich', 1, () => MANY_MEMBERS(1_000_000)),
  sends('28 MB of {}, one after the other', 'rich', 1, EMPTY_OBJECTS),
  pipelines,
  longHistories,
  idleConnections,
  newConnections,
  wrongKeys,
  asksFor('the upstream closes a reused connection after 3 s', 'closes late', 4),
  asksFor('the upstream closes after half a head', 'half a head', 4),
  asksFor('the upstream closes after a 103', 'only hints', 4),
  asksFor('the upstream sends an unasked 100', 'continues', 4),
  asksFor('the upstream sends an event of 100 MB', 'one event', 8, ',"stream":true'),
  asksFor('the upstream sends 2 GB in 2 MB of gzip', 'bomb', 8),
  malformedBehind,
]
