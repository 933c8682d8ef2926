/**
 * Runs the real coding agents, each through the gateway on models of the other families, against a scripted provider:
 * one task with a tool and two rounds. `npm run agents` installs them on demand, as they are too large to be
 * dependencies. No agent is logged in anywhere.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DroppedFields, FORMATS, formatOf, frame, type FormatName } from '../../core/formats/index.ts'
import type { Reply, Request, ReplyContext } from '../../core/formats/translate/neutral.ts'
import { eventsOf } from '../../core/formats/translate/part-order.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import type { Edit } from '../gateway-file.ts'
import { startGateway } from '../gateway.ts'
import { ScriptedUpstream, type Received } from '../upstream.ts'
import { type Agent, AGENTS, install, PATIENCE, run } from './agent.ts'

const TASK = 'Write the word tollgate into the file made.txt, then tell me that it is done.'

const MODELS: Readonly<Record<FormatName, { type: string; model: string }>> = {
  messages: { type: 'famA', model: 'acme/famA-medium-5' },
  responses: { type: 'famC', model: 'acme/famC-5.5' },
  'chat-completions': { type: 'editor', model: 'acme/famB-4.6' },
}

/** The provider's replies in the format of the request: first a command, and after its result a final word. */
function plays(upstream: ScriptedUpstream): void {
  let count = 0
  upstream.script = (received, res) => {
    const format = formatOf(pathOf(received.path))
    if (!format) return void res.writeHead(404).end()
    const request = format.codec.decodeRequest(received.json, {}, new DroppedFields())
    const reply = next(request, ++count)
    const telling: ReplyContext = {
      model: request.model,
      at: 1,
      usageAsked: request.usageAsked,
      tools: new Map(),
      member: name => received.json[name],
    }
    const usage = format.encodeUsage({ ...NO_USAGE, input: 100, output: 10 })
    if (!request.stream)
      return void res
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify(format.codec.encodeReply(reply, usage, telling)))
    const encoder = format.codec.encoder(telling)
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const event of eventsOf(reply)) {
      const out = event.kind === 'end' ? encoder.end(usage) : encoder.write(event)
      for (const { type, data } of out) res.write(frame(type, data))
    }
    res.end()
  }
}

function next({ items, tools }: Request, count: number): Reply {
  const id = `resp_${count}`
  const done = items.some(item => item.kind === 'result')
  const tool = tools.find(({ name }) => /^(?:exec_command|shell_command|shell|Bash)$/.test(name))
  if (done || !tool)
    return { id, parts: [{ kind: 'text', text: 'It is done, says the provider.' }], stop: { reason: 'stop' } }
  const line = 'echo tollgate > made.txt'
  const input = {
    exec_command: { cmd: line },
    shell_command: { command: line },
    shell: { command: ['bash', '-lc', line] },
    Bash: { command: line, description: 'Writes.' },
  }
  return {
    id,
    parts: [
      { kind: 'text', text: 'I shall.' },
      { kind: 'call', id: `call_${count}`, name: tool.name, input: JSON.stringify(input[tool.name as 'shell']) },
    ],
    stop: { reason: 'calls' },
  }
}

/** A path without its query. */
function pathOf(path: string): string {
  return path.replace(/\?.*/, '')
}

const METRICS = 'a-token-of-a-collector'

install()

for (const agent of AGENTS) {
  for (const format of Object.keys(FORMATS) as FormatName[]) {
    t.test(`${agent.name} on a model that speaks ${format}`, { timeout: PATIENCE + 10_000 }, t =>
      works(t, agent, format),
    )
  }
}

async function works(t: Test, agent: Agent, format: FormatName): Promise<void> {
  const upstream = await ScriptedUpstream.start(t)
  plays(upstream)
  const edit: Edit = file => file.insertBefore('access-log', { metrics: { token: METRICS } })
  const g = await startGateway(t, { upstream: upstream.url, edit })
  const { type, model } = MODELS[format]
  const key = await g.key(type, 100n)
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-agent-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const { file, args, env } = agent.command({ g, key, model, folder, task: TASK })
  const { code, said } = await run(file, args, folder, env)
  t.equal(code, 0, said.slice(-2000))
  t.match(said, 'It is done, says the provider.')
  t.match(
    existsSync(join(folder, 'made.txt')) ? readFileSync(join(folder, 'made.txt'), 'utf8') : '',
    'tollgate',
    'the tool was run',
  )
  t.ok(
    upstream.requests.some(({ path }: Received) => pathOf(path) === FORMATS[format].path),
    'the upstream was spoken to in its own format',
  )
  const entries = await g.settled(key)
  t.ok(entries.length >= 2, `${entries.length} requests, each metered`)
  t.ok(entries.every(({ status }) => status === 'ok'))
  const metrics = await g.call('/metrics', { key: METRICS })
  t.notMatch(metrics.text, /^tollgate_dropped_members_total\{/m, 'every member that the agent sends is listed')
}
