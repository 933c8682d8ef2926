/** The real coding agents: how they are installed and run. They are too large to be dependencies. */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { FormatName } from '../../core/formats/index.ts'
import type { TestGateway } from '../gateway.ts'

const PACKAGES = { '@openai/codex': '0.169.0', '@anthropic-ai/claude-code': '2.1.329' }
const HOME = fileURLToPath(new URL('../../.agents/', import.meta.url))
/** Milliseconds that one task may take. */
export const PATIENCE = 120_000

/** One run of an agent. */
export interface Run {
  readonly g: TestGateway
  readonly key: string
  readonly model: string
  readonly folder: string
  readonly task: string
  /** Whether the user shows the picture `dot.png` in the folder. */
  readonly pictured?: boolean
  /** Whether the run continues the last session in the folder. */
  readonly continues?: boolean
}

/** An agent. */
export interface Agent {
  readonly name: string
  readonly speaks: FormatName
  /** Arguments and environment of a run in a folder. */
  command(run: Run): { file: string; args: string[]; env: Record<string, string> }
}

/** The agents. */
export const AGENTS: readonly Agent[] = [
  {
    name: 'codex',
    speaks: 'responses',
    command({ g, key, model, folder, task, continues, pictured }) {
      const home = join(folder, '.codex')
      mkdirSync(home, { recursive: true })
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
          // Then the agent asks for a compaction.
          'model_auto_compact_token_limit = 200000',
          'model_provider = "tollgate"',
          '[model_providers.tollgate]',
          ...toml,
          'capabilities = { remote_compaction = "v2" }',
          '',
        ].join('\n'),
      )
      const how = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox']
      // Several pictures could follow the option, and the task would be one of them.
      if (pictured) how.unshift('-i', join(folder, 'dot.png'))
      const args = continues ? ['exec', 'resume', '--last', ...how, task] : ['exec', ...how, '-C', folder, task]
      return { file: join(HOME, 'node_modules/.bin/codex'), args, env: { CODEX_HOME: home, TOLLGATE_KEY: key } }
    },
  },
  {
    name: 'claude code',
    speaks: 'messages',
    command({ g, key, model, folder, task, continues }) {
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
        args: [
          '-p',
          task,
          ...(continues ? ['--continue'] : []),
          '--dangerously-skip-permissions',
          '--output-format',
          'text',
        ],
        env,
      }
    },
  },
]

/** Installs the missing agents. Each brings programs for its platform. */
export function install(): void {
  if (existsSync(join(HOME, 'node_modules/.bin/codex')) && existsSync(join(HOME, 'node_modules/.bin/claude'))) return
  mkdirSync(HOME, { recursive: true })
  writeFileSync(join(HOME, 'package.json'), JSON.stringify({ private: true, dependencies: PACKAGES }))
  execFileSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: HOME, stdio: 'inherit' })
  execFileSync('node', ['install.cjs'], { cwd: join(HOME, 'node_modules/@anthropic-ai/claude-code'), stdio: 'inherit' })
}

/** What a program printed, and how it ended. */
export function run(
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
