import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import type { Test } from 'tap'
import { json, type ScriptedUpstream, sse } from '../upstream.ts'
import { type Client, eachReply, type Said, timeless } from './replies.ts'

const LAYOUTS: [string, (text: string) => string][] = [
  ['', text => text],
  ['with CRLF: ', text => text.replaceAll('\n', '\r\n')],
  ['with comments and a byte order mark: ', text => `\ufeff: hello\n\n${text.replaceAll('\n\n', '\n\n: ping\n\n')}`],
  ['without the last blank line: ', text => text.trimEnd()],
]

eachReply(async (t, upstream, said, clients) => {
  for (const client of clients) await t.test(`for ${client.format}`, t => told(t, upstream, said, client))
})

async function told(t: Test, upstream: ScriptedUpstream, said: Said, client: Client): Promise<void> {
  for (const [layout, lay] of LAYOUTS) {
    upstream.script = (_received, res) => sse(res, lay(said.sse))
    t.equal(await client.ask(true), client.told.sse, `${layout}the stream`)
  }
  const { json: whole } = said
  if (whole === undefined) return
  upstream.script = (_received, res) => json(res, whole)
  const answer = JSON.parse(await client.ask(false))
  t.equal(`${timeless(JSON.stringify(answer, null, 2))}\n`, client.told.json, 'the JSON reply')
  const spread = await gather(client)
  upstream.script = (_received, res) => sse(res, said.sse)
  const gathered = await gather(client)
  t.same(gathered, bare(answer), 'what the SDK makes of the stream is the JSON reply')
  t.same(spread, gathered, 'and of the stream made of a JSON reply')
}

/** What the official SDK collects from the stream. */
async function gather({ url, format, key, body }: Client): Promise<unknown> {
  const openai = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: 0 })
  if (format === 'responses')
    return bare(await openai.responses.stream({ ...body, stream: true } as never).finalResponse())
  if (format === 'messages')
    return bare(
      await new Anthropic({ apiKey: key, baseURL: url, maxRetries: 0 }).messages.stream(body as never).finalMessage(),
    )
  let snapshot: unknown
  // Uses the last snapshot, since the final completion discards a truncated reply.
  for await (const _chunk of openai.chat.completions
    .stream(body as never)
    .on('chunk', (_each, whole) => (snapshot = whole)))
    void _chunk
  return bare(snapshot)
}

/** Removes members without meaning: the SDK's own, nulls, empty strings, and the time. */
function bare(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map(item => bare(item))
  if (name === 'arguments') return JSON.stringify(JSON.parse(String(value)))
  if (typeof value !== 'object' || value === null) return name === 'id' ? '' : value
  const members = Object.entries(value).filter(
    ([key, each]) => !SDKS_OWN.has(key) && each !== null && each !== undefined && each !== '',
  )
  return Object.fromEntries(members.map(([key, each]) => [key, bare(each, key)]))
}

// The SDK does not know reasoning in chat chunks, and keeps the last piece.
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
