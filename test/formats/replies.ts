import { readdirSync, readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { ScriptedUpstream } from '../upstream.ts'

/**
 * Replies as upstreams give them, each in the words of the other two formats. A case is a folder:
 * `upstream.<format>.sse` and `.json` are the upstream's replies, `<format>.sse` and `.json` are what a client of that
 * format gets, and `request.<format>.json` is the client's request if it matters.
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

/** The replies to a request for a stream and, in some cases, for JSON. */
export interface Said {
  readonly sse: string
  readonly json: string | undefined
}

/** A client of a format that its upstream does not speak. */
export interface Client {
  readonly url: string
  readonly format: FormatName
  readonly key: string
  readonly body: Record<string, any>
  /** The expected reply. */
  readonly told: Said
  /** Sends a request and returns the text of the answer. */
  readonly ask: (stream: boolean) => Promise<string>
}

/** Declares a test for each case, with its upstream, its reply and its client. */
export function eachReply(
  test: (t: Test, upstream: ScriptedUpstream, said: Said, clients: readonly Client[]) => Promise<void>,
): void {
  let upstream: ScriptedUpstream
  let g: TestGateway
  const keys = new Map<string, string>()
  t.before(async () => {
    upstream = await ScriptedUpstream.start(t)
    // famC speaks only one format, so that both others are translated.
    g = await startGateway(t, {
      upstream: upstream.url,
      edit: file => file.set('upstreams.famC.speaks', ['responses']),
    })
    for (const { type } of Object.values(KEYS)) keys.set(type, await g.key(type))
  })
  const formats = Object.keys(FORMATS) as FormatName[]
  for (const name of readdirSync(CASES).sort()) {
    const spoken = formats.find(format => read(name, `upstream.${format}.sse`) !== undefined) as FormatName
    const { type, model } = KEYS[spoken]
    const said = (start: string): Said => ({
      sse: read(name, `${start}.sse`) as string,
      json: read(name, `${start}.json`),
    })
    const client = (format: FormatName): Client => {
      const key = keys.get(type) as string
      const body = { ...ASKED[format], ...JSON.parse(read(name, `request.${format}.json`) ?? '{}'), model }
      const ask = async (stream: boolean): Promise<string> =>
        timeless((await g.call(FORMATS[format].path, { key, body: { ...body, stream } })).text)
      return { url: g.url, format, key, body, told: said(format), ask }
    }
    t.test(name, t =>
      test(t, upstream, said(`upstream.${spoken}`), formats.filter(format => format !== spoken).map(client)),
    )
  }
}

function read(name: string, file: string): string | undefined {
  try {
    return readFileSync(new URL(`${name}/${file}`, CASES), 'utf8')
  } catch {
    return undefined
  }
}

/** The time of a reply is the request's own. */
export const timeless = (text: string): string =>
  text.replaceAll(/"created(_at)?": ?\d+/g, '"created$1":0').replaceAll(/"request_id":"[^"]*"/g, '"request_id":"…"')
