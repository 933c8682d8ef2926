import { readdirSync, readFileSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/**
 * Replies as upstreams give them, each in the words of the other two formats. A case is a folder: `upstream.<format>.sse`
 * and `.json` hold what the upstream says, `<format>.sse` and `.json` what a client of that format gets for it, and
 * `request.<format>.json` what the client asked where that matters.
 */
const CASES = new URL('replies/', import.meta.url)

const KEYS: Readonly<Record<FormatName, { type: string; model: string }>> = {
  messages: { type: 'famA', model: 'acme/famA-medium-5' },
  responses: { type: 'famC', model: 'acme/famC-5.5' },
  'chat-completions': { type: 'editor', model: 'acme/famB-4.6' },
}

const ASKED: Readonly<Record<FormatName, object>> = {
  messages: { max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] },
  responses: { input: 'Hello' },
  'chat-completions': { messages: [{ role: 'user', content: 'Hello' }], stream_options: { include_usage: true } },
}

let g: TestGateway
let upstream: ScriptedUpstream
const keys = new Map<FormatName, string>()
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  // Of what famC speaks only the one, so that both others are translated.
  g = await startGateway(t, { upstream: upstream.url, edit: yaml => yaml.replace('speaks: [responses, chat-completions]', 'speaks: [responses]') })
  for (const [format, { type }] of Object.entries(KEYS)) keys.set(format as FormatName, await g.key(type))
})

function read(name: string, file: string): string | undefined {
  try {
    return readFileSync(new URL(`${name}/${file}`, CASES), 'utf8')
  } catch {
    return undefined
  }
}

/** The moment of a reply is the request's own. */
const timeless = (text: string): string => text.replaceAll(/"created(_at)?": ?\d+/g, '"created$1":0').replaceAll(/"request_id":"[^"]*"/g, '"request_id":"…"')

const LAYOUTS: [string, (text: string) => string][] = [
  ['', text => text],
  ['with CRLF: ', text => text.replaceAll('\n', '\r\n')],
  ['with comments and a byte order mark: ', text => `\ufeff: hello\n\n${text.replaceAll('\n\n', '\n\n: ping\n\n')}`],
  ['without the last blank line: ', text => text.trimEnd()],
]

for (const name of readdirSync(CASES).sort()) {
  const spoken = Object.keys(FORMATS).find(format => read(name, `upstream.${format}.sse`) !== undefined) as FormatName
  for (const client of Object.keys(FORMATS) as FormatName[]) {
    if (client !== spoken) t.test(`${name}, for ${client}`, t => told(t, name, spoken, client))
  }
}

async function told(t: Test, name: string, spoken: FormatName, client: FormatName): Promise<void> {
  const { model } = KEYS[spoken]
  const key = keys.get(spoken) as string
  const { path } = FORMATS[client]
  const body = { ...ASKED[client], ...JSON.parse(read(name, `request.${client}.json`) ?? '{}'), model }
  const sse = read(name, `upstream.${spoken}.sse`) as string
  const ask = async (text: string, bytewise: boolean): Promise<string> => {
    upstream.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      if (!bytewise) return void res.end(text)
      for (const byte of Buffer.from(text)) {
        res.write(Buffer.from([byte]))
        await turn()
      }
      res.end()
    }
    return timeless((await g.call(path, { key, body: { ...body, stream: true } })).text)
  }
  const stream = read(name, `${client}.sse`)
  for (const [layout, lay] of LAYOUTS) t.equal(await ask(lay(sse), false), stream, `${layout}the stream`)
  t.equal(await ask(sse, true), stream, 'the same when every byte comes alone')

  const whole = read(name, `upstream.${spoken}.json`)
  if (whole === undefined) return
  upstream.script = (_received, res) => json(res, whole)
  const answer = await g.call(path, { key, body: { ...body, stream: false } })
  t.equal(`${timeless(JSON.stringify(JSON.parse(timeless(answer.text)), null, 2))}\n`, read(name, `${client}.json`), 'the JSON reply')
  const spread = timeless((await g.call(path, { key, body: { ...body, stream: true } })).text)
  upstream.script = (_received, res) => void res.writeHead(200, { 'content-type': 'text/event-stream' }).end(sse)
  const gathered = await gather(client, key, body)
  t.same(gathered, bare(JSON.parse(answer.text)), 'what the SDK makes of the stream is the JSON reply')
  upstream.script = (_received, res) => json(res, whole)
  t.same(await gather(client, key, body), gathered, `and of the stream made of a JSON reply (${spread.length} characters)`)
}

/** What the official SDK gathers from the stream. */
async function gather(client: FormatName, key: string, body: Record<string, any>): Promise<unknown> {
  const openai = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  if (client === 'responses') return bare(await openai.responses.stream({ ...body, stream: true } as never).finalResponse())
  if (client === 'messages') return bare(await new Anthropic({ apiKey: key, baseURL: g.url, maxRetries: 0 }).messages.stream(body as never).finalMessage())
  let snapshot: unknown
  // The last snapshot rather than the final completion, which throws away a reply that was cut.
  for await (const _chunk of openai.chat.completions.stream(body as never).on('chunk', (_each, whole) => (snapshot = whole))) void _chunk
  return bare(snapshot)
}

/** Without what tells nothing: members of the SDK's own, nulls, empty strings, and the moment. */
function bare(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map(item => bare(item))
  if (name === 'arguments') return JSON.stringify(JSON.parse(String(value)))
  if (typeof value !== 'object' || value === null) return name === 'id' ? '' : value
  const members = Object.entries(value).filter(([key, each]) => !SDKS_OWN.has(key) && each !== null && each !== undefined && each !== '')
  return Object.fromEntries(members.map(([key, each]) => [key, bare(each, key)]))
}

// The SDK keeps of reasoning in chat chunks, which it does not know, the last piece.
const SDKS_OWN = new Set([
  'reasoning_content',
  'reasoning_details',
  'parsed',
  'parsed_output',
  'parsed_arguments',
  'output_text',
  'created',
  'created_at',
  'object',
  'annotations',
  'index',
  'instructions',
])
