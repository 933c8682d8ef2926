/**
 * Runs the real coding agents, each through the gateway on models of the other families, against a scripted provider:
 * one task with a tool and two rounds. `npm run agents` installs them on demand, as they are too large to be
 * dependencies. No agent is logged in anywhere.
 */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { FORMATS, formatOf, frame, type FormatName } from '../../core/formats/index.ts'
import type { Reply, Request, ReplyContext } from '../../core/formats/translate/neutral.ts'
import { eventsOf } from '../../core/formats/translate/part-order.ts'
import { NO_USAGE } from '../../core/money/usage.ts'
import type { Edit } from '../gateway-file.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { ScriptedUpstream, type Received } from '../upstream.ts'

const PACKAGES = { '@openai/codex': '0.169.0', '@anthropic-ai/claude-code': '2.1.329' }
const HOME = fileURLToPath(new URL('../../.agents/', import.meta.url))
/** Milliseconds that one task may take. */
const PATIENCE = 120_000

const MODELS: Readonly<Record<FormatName, { type: string; model: string }>> = {
  messages: { type: 'famA', model: 'acme/famA-medium-5' },
  responses: { type: 'famC', model: 'acme/famC-5.5' },
  'chat-completions': { type: 'editor', model: 'acme/famB-4.6' },
}

interface Agent {
  readonly name: string
  readonly speaks: FormatName
  /** Arguments and environment of a run in a folder. */
  command(
    g: TestGateway,
    key: string,
    model: string,
    folder: string,
  ): { file: string; args: string[]; env: Record<string, string> }
}

const TASK = 'Write the word tollgate into the file made.txt, then tell me that it is done.'

const AGENTS: readonly Agent[] = [
  {
    name: 'codex',
    speaks: 'responses',
    command(g, key, model, folder) {
      const home = join(folder, '.codex')
      mkdirSync(home)
      const provider = {
        name: 'Tollgate',
        base_url: `${g.url}/v1`,
        env_key: 'TOLLGATE_KEY',
        wire_api: 'responses',
        request_max_retries: 0,
        stream_max_retries: 0,
      }
      const toml = Object.entries(provider).map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
      writeFileSync(
        join(home, 'config.toml'),
        [
          `model = ${JSON.stringify(model)}`,
          'model_provider = "tollgate"',
          '[model_providers.tollgate]',
          ...toml,
          '',
        ].join('\n'),
      )
      const args = ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '-C', folder, TASK]
      return { file: join(HOME, 'node_modules/.bin/codex'), args, env: { CODEX_HOME: home, TOLLGATE_KEY: key } }
    },
  },
  {
    name: 'claude code',
    speaks: 'messages',
    command(g, key, model, folder) {
      const env = {
        ANTHROPIC_BASE_URL: g.url,
        ANTHROPIC_AUTH_TOKEN: key,
        ANTHROPIC_MODEL: model,
        ANTHROPIC_SMALL_FAST_MODEL: model,
        CLAUDE_CONFIG_DIR: join(folder, '.claude'),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        IS_SANDBOX: '1',
      }
      return {
        file: join(HOME, 'node_modules/.bin/claude'),
        args: ['-p', TASK, '--dangerously-skip-permissions', '--output-format', 'text'],
        env,
      }
    },
  },
]

/** Installs the missing agents. Each brings programs for its platform. */
function install(): void {
  if (existsSync(join(HOME, 'node_modules/.bin/codex')) && existsSync(join(HOME, 'node_modules/.bin/claude'))) return
  mkdirSync(HOME, { recursive: true })
  writeFileSync(join(HOME, 'package.json'), JSON.stringify({ private: true, dependencies: PACKAGES }))
  execFileSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: HOME, stdio: 'inherit' })
  execFileSync('node', ['install.cjs'], { cwd: join(HOME, 'node_modules/@anthropic-ai/claude-code'), stdio: 'inherit' })
}

/** The provider's replies in the format of the request: first a command, and after its result a final word. */
function plays(upstream: ScriptedUpstream): void {
  let count = 0
  upstream.script = (received, res) => {
    const format = formatOf(pathOf(received.path))
    if (!format) return void res.writeHead(404).end()
    const request = format.codec.decodeRequest(received.json, {}, { add() {}, have() {}, beyond() {} } as never)
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

/** What a program printed, and how it ended. */
function run(
  file: string,
  args: string[],
  cwd: string,
  env: Record<string, string>,
): Promise<{ code: number | null; said: string }> {
  return new Promise(resolve => {
    const { PATH = '', LANG = 'C.UTF-8' } = process.env
    const child = spawn(file, args, {
      cwd,
      env: { PATH, LANG, HOME: cwd, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PATIENCE,
    })
    let said = ''
    child.stdout.on('data', chunk => (said += String(chunk)))
    child.stderr.on('data', chunk => (said += String(chunk)))
    child.on('close', code => resolve({ code, said }))
  })
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
  const { file, args, env } = agent.command(g, key, model, folder)
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
