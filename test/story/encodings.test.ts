import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { ScriptedUpstream } from '../upstream.ts'

/** Request bodies that are compressed. */

const CHAT = '/v1/chat/completions'
const MODEL = 'acme/famB-4.6'
const ENCODINGS: Readonly<Record<string, (body: string | Buffer) => Buffer>> = {
  gzip: gzipSync,
  'x-gzip': gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
  GZIP: gzipSync,
}

let g: TestGateway
let provider: ScriptedUpstream
let key: string
t.before(async () => {
  provider = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: provider.url, edit: file => file.set('limits.body', '2MiB') })
  key = await g.key('editor', 1000n)
})

const asking = (content: string): string => JSON.stringify({ model: MODEL, max_tokens: 10, messages: [{ role: 'user', content }] }) // prettier-ignore
const ask = (body: Buffer, encoding: string) =>
  g.call(CHAT, { key, body, headers: { 'content-encoding': encoding, 'content-type': 'application/json' } })

for (const [encoding, encode] of Object.entries(ENCODINGS))
  t.test(`a body in ${encoding} is served as it would be without`, async t => {
    for (const content of ['short', randomBytes(200_000).toString('hex')]) {
      const answer = await ask(encode(asking(content)), encoding)
      t.equal(answer.status, 200, answer.text)
      t.match(provider.last.json, { messages: [{ content }] })
      t.notOk(provider.last.headers['content-encoding'])
    }
  })

t.test('limits apply to what comes out, and a bomb costs no more', async t => {
  const large = asking('x'.repeat(200_000_000))
  for (const [encoding, encode] of Object.entries(ENCODINGS)) {
    const bomb = encode(large)
    t.ok(bomb.length < 2 ** 20, `${encoding}: ${bomb.length} bytes`)
    const before = g.gateway.memory.taken
    t.match(await ask(bomb, encoding), { status: 413, json: { error: { code: 'body_too_large' } } }, encoding)
    t.equal(g.gateway.memory.taken, before)
  }
  t.equal((await ask(gzipSync(asking('after it')), 'gzip')).status, 200, 'others are served')
})

t.test('a body that is not what it says is refused', async t => {
  const reached = provider.requests.length
  for (const [encoding, encode] of Object.entries(ENCODINGS)) {
    const whole = encode(asking('hello'))
    for (const [what, body] of [
      ['plain', Buffer.from(asking('hello'))],
      ['cut off', whole.subarray(0, -10)],
      ['empty', Buffer.alloc(0)],
    ] as const) {
      const { status, json } = await ask(body, encoding)
      t.match([status, json.error.type], [400, 'invalid_request_error'], `${encoding}, ${what}`)
    }
  }
  t.match(await ask(gzipSync(asking('hello')), 'gzip, br'), { status: 415, json: { error: { message: /gzip, deflate, br or zstd/ } } }) // prettier-ignore
  t.equal(provider.requests.length, reached)
})

/** Sends a compressed body that never comes to an end, and from which nothing comes out. Resolves with the status of the answer. */
function endless(url: string, customer: string, everyMs: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${customer}`, 'content-type': 'application/json', 'content-encoding': 'gzip' } // prettier-ignore
    const req = request(`${url}${CHAT}`, { method: 'POST', headers }, res => {
      clearInterval(timer)
      res.resume().on('close', () => resolve(res.statusCode ?? 0))
      req.destroy()
    })
    req.on('error', reject)
    // The name of a file in the head of gzip may have any length.
    req.write(Buffer.from([0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3]))
    const chunk = Buffer.alloc(everyMs === 0 ? 65_536 : 100, 'x')
    const timer = setInterval(() => req.write(chunk), everyMs)
  })
}

t.test('limits of bytes and of time apply although nothing comes out', async t => {
  t.equal(await endless(g.url, key, 0), 413)
  const quick = await startGateway(t, { upstream: provider.url, edit: file => file.set('limits.bodyTime', '1s') })
  t.equal(await endless(quick.url, await quick.key('editor', 1000n), 20), 408)
})

t.test('two slashes in a path count as one', async t => {
  for (const path of ['//v1/chat/completions', '/v1//chat/completions', '///v1/chat//completions?x=//y'])
    t.equal((await g.call(path, { key, body: asking('hello') })).status, 200, path)
  t.match(await g.call('//chat//completions', { key, body: asking('hello') }), { status: 404, json: { error: { message: /Did you mean \/v1\/chat\/completions/ } } }) // prettier-ignore
})
