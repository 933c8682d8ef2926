/**
 * Measures how long others wait while one large request, or its reply, passes: the longest answer time of `/health`
 * meanwhile. The gateway and the provider run in processes of their own. Every format goes to every format.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { startPeer } from './peers.ts'

/** What a request contains: text in the place of a message's content, or beside the messages. */
interface Large {
  readonly title: string
  /** A member of the request. */
  readonly member?: string
  /** JSON of a message's content. */
  readonly content?: string
  /** Size of the provider's reply. Without it the reply is small. */
  readonly reply?: 'text' | 'members'
}

const repeated = (count: number, text: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => text(index)).join(',')
const TEXT = (bytes: number): string =>
  JSON.stringify('Lorem ipsum dolor sit amet, consetetur sadipscing elitr.\n'.repeat(Math.ceil(bytes / 58)))

const LARGE: readonly Large[] = [
  {
    title: '1.4 MB, 100,000 members in a member',
    member: `{${repeated(100_000, index => `"m${String(index).padStart(6, '0')}":1`)}}`,
  },
  { title: '1.4 MB, 100,000 empty parts', content: `[${repeated(100_000, () => '{"type":"x"}')}]` },
  {
    title: '16 MB, a million members',
    member: `{${repeated(1_000_000, index => `"m${String(index).padStart(7, '0')}":12`)}}`,
  },
  { title: '28 MB of {}', member: `[${repeated(9_500_000, () => '{}')}]` },
  { title: '1 MB of text', content: TEXT(1_000_000) },
  { title: '30 MB of text', content: TEXT(30_000_000) },
  {
    title: '28 MB of base64',
    content: `[{"type":"image_url","image_url":{"url":"data:image/png;base64,${'QUJD'.repeat(7_000_000)}"}}]`,
  },
  { title: 'a reply of 30 MB of text', reply: 'text' },
  { title: 'a reply of 100,000 members', reply: 'members' },
]

const PATHS = {
  'chat-completions': '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
} as const
type Spoken = keyof typeof PATHS

function bodyOf(format: Spoken, { member, content = '"hi"' }: Large): string {
  const role = `{"role":"user","content":${content}}`
  const said = format === 'responses' ? `"input":[${role}]` : `"messages":[${role}]`
  return `{"model":"acme/famC-5.5",${format === 'messages' ? '"max_tokens":10,' : ''}${said}${member === undefined ? '' : `,"metadata":${member}`}}`
}

/** A reply in the format of a path. */
function replyOf(path: string, text: string, more: string): string {
  const usage = '"input_tokens":10,"output_tokens":5'
  if (path.endsWith('/messages'))
    return `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":${text}}],"stop_reason":"end_turn","usage":{${usage}}${more}}`
  if (path.endsWith('/responses'))
    return `{"id":"r","object":"response","status":"completed","model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":${text}}]}],"usage":{${usage}}${more}}`
  return `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":${text}},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5}${more}}`
}

/** A probe on a thread of its own, so that the work of this process does not count. */
class Probe {
  readonly #thread: Worker

  constructor(port: number) {
    this.#thread = new Worker(new URL('probe.ts', import.meta.url), { workerData: port })
  }

  /** The longest wait since the last call, in milliseconds. */
  async longest(): Promise<number> {
    const told = once(this.#thread, 'message')
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- that is for windows
    this.#thread.postMessage('longest')
    return (await told)[0] as number
  }

  async stop(): Promise<void> {
    await this.#thread.terminate()
  }
}

/** Sends a body. Resolves with the status when the whole reply has arrived. */
function post(port: number, path: string, key: string, body: Buffer): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-length': body.length,
    }
    const req = request({ port, host: '127.0.0.1', path, method: 'POST', headers, agent: false }, res => {
      res.resume().on('end', () => resolve(res.statusCode ?? 0))
    })
    // A gateway that refuses a body early may close before all of it has been sent. The answer arrives all the same.
    req.on('error', (cause: NodeJS.ErrnoException) =>
      cause.code === 'EPIPE' || cause.code === 'ECONNRESET' ? resolve(0) : reject(cause),
    )
    req.end(body)
  })
}

/** Small requests before the large ones, so that the measured code is compiled. */
const WARM_UP = 300
/** How often each large body is sent. */
const TIMES = 3

/** Maximum milliseconds for which one request may delay all others. */
const MOST_MS = 50

/** Prints how long others wait while large bodies pass, in every format and direction. @returns whether it is short enough */
export async function longestWaits(): Promise<boolean> {
  console.log(`the longest wait of /health while large bodies pass, at most ${MOST_MS} ms`)
  const provider = await replying()
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  let longest = 0
  for (const speaks of Object.keys(PATHS) as Spoken[]) {
    const place = { folder: join(folder, speaks), upstream: provider.url, keys: 1, speaks }
    const gateway = await startPeer('tollgate', place)
    longest = Math.max(longest, await waits(gateway.port, gateway.secret, speaks, provider.kind))
    await gateway.stop()
  }
  provider.close()
  rmSync(folder, { recursive: true, force: true })
  return longest <= MOST_MS
}

/**
 * Sends each body in each format, and prints how long others waited.
 * @param spoken what the gateway's upstream speaks
 * @param kind told before each request what the provider is to answer
 * @returns the longest wait of all, in milliseconds
 */
async function waits(
  port: number,
  key: string,
  spoken: Spoken,
  kind: (reply: Large['reply']) => void,
): Promise<number> {
  const probe = new Probe(port)
  let longest = 0
  for (const format of Object.keys(PATHS) as Spoken[]) {
    kind(undefined)
    for (let times = 0; times < WARM_UP; times++)
      await post(port, PATHS[format], key, Buffer.from(bodyOf(format, { title: '', content: TEXT(20_000) })))
    for (const large of LARGE) {
      kind(large.reply)
      const body = Buffer.from(bodyOf(format, large))
      await probe.longest()
      const statuses: number[] = []
      for (let times = 0; times < TIMES; times++) statuses.push(await post(port, PATHS[format], key, body))
      const ms = await probe.longest()
      longest = Math.max(longest, ms)
      console.log(
        `  ${format.padEnd(16)} to ${spoken.padEnd(16)} ${large.title.padEnd(37)} ${ms.toFixed(0).padStart(5)} ms   ${[...new Set(statuses)].join(', ')}`,
      )
    }
  }
  await probe.stop()
  return longest
}

/** A provider that gives the configured answer in the format of the path. */
async function replying(): Promise<{
  readonly url: string
  readonly kind: (reply: Large['reply']) => void
  readonly close: () => void
}> {
  let kind: Large['reply']
  const server = createServer((req, res) => {
    req.resume().on('end', () => {
      const body = replyOf(
        req.url ?? '',
        kind === 'text' ? TEXT(30_000_000) : '"ok"',
        kind === 'members' ? `,"metadata":${LARGE[0]?.member}` : '',
      )
      res.writeHead(200, { 'content-type': 'application/json' }).end(body)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, kind: reply => void (kind = reply), close: () => void server.close() }
}
