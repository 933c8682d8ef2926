/**
 * What honest customers notice while somebody attacks: 200 of them ask for JSON and streams in all formats, while each
 * attack runs in turn against a gateway with a heap of 512 MB. Prints a table. Fails where an honest request failed or
 * took too long, where a charge is not exact, or where the gateway did not live. An attack under which requests took too
 * long runs once more, between two measurements of calm: other work on the machine slows all three, an attack only itself.
 *
 * npm run siege                  every attack npm run siege -- history       those whose title matches this
 * PROFILE=folder npm run siege   leaves a CPU profile of the gateway there
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { onLedger } from '../../core/commands/on-ledger.ts'
import { loadConfig } from '../../core/config/load.ts'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import { Running } from '../process.ts'
import { ATTACKS, type Answers, type Attack, type Loot } from './attacks.ts'
import type { End, Times } from './crowd.ts'
import { Helper } from './helper.ts'
import type { ProviderState } from './provider.ts'
import { WAYS } from './ways.ts'
import { checkChain } from '../../core/chain/check-chain.ts'
import { testEnvironment } from '../environment.ts'
import { edited } from '../gateway-file.ts'

const BIN = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url))
const HEAP_MB = 512
const PROFILE = process.env['PROFILE']
const CUSTOMERS = 200
const CALM_MS = 10_000
const ATTACK_MS = 5000
/** Requests that make the history of one key long. They also warm the gateway up. */
const HISTORY = 10_000
/** The gateway, its Redis, the customers, the attackers, and both providers. */
const PROCESSES = 6
/**
 * Under attack, the p99 of honest requests may be this many times as long, or this many milliseconds longer. Where the
 * processes share cores, customers wait for a core most of the time: on two cores they waited up to 600 ms.
 */
const SLOWER = { times: 2, ms: cpus().length < PROCESSES ? 1000 : 20 }

/** The 99th percentile in milliseconds: of complete JSON replies, and of the silence between two pieces of a stream. */
interface Slowest {
  readonly replies: number
  readonly silences: number
}

function slowest({ replies, silences }: Pick<Times, 'replies' | 'silences'>): Slowest {
  const p99 = (times: readonly number[]): number =>
    times.toSorted((a, b) => a - b)[Math.floor(times.length * 0.99)] ?? 0
  return { replies: p99(replies), silences: p99(silences) }
}

function slower(one: Slowest, other: Slowest): Slowest {
  return { replies: Math.max(one.replies, other.replies), silences: Math.max(one.silences, other.silences) }
}

/** Says what took too long under an attack. */
function tooSlow({ title }: Attack, during: Slowest, calm: Slowest): string[] {
  const whats = ['replies', 'silences'] as const
  return whats.flatMap(what => {
    const most = Math.max(calm[what] * SLOWER.times, calm[what] + SLOWER.ms)
    if (during[what] <= most) return []
    return [`${title}: the p99 of ${what} is ${ms(during[what]).trim()}, at most ${ms(most).trim()}`]
  })
}

/** The repository's gateway.yaml on the loopback interface, without a quota of the attackers' account. */
function yaml(): string {
  return edited(readFileSync(new URL('../../gateway.yaml', import.meta.url), 'utf8'), file =>
    file.set('listen.host', '127.0.0.1').set('upstreams.editor.accounts.0.quota', undefined),
  )
}

class Siege {
  readonly #folder = mkdtempSync(join(tmpdir(), 'tollgate-siege-'))
  readonly #file = join(this.#folder, 'gateway.yaml')
  readonly #honest = new Helper('provider.ts', 'honest')
  readonly #hostile = new Helper('provider.ts', 'hostile')
  readonly #crowd = new Helper('crowd.ts')
  readonly #attacker = new Helper('attacker.ts')
  readonly failures: string[] = []

  async run(attacks: readonly Attack[]): Promise<void> {
    writeFileSync(this.#file, yaml())
    const [honest, hostile] = await Promise.all(
      [this.#honest, this.#hostile].map(provider => provider.ask<ProviderState>()),
    )
    const env = {
      ...process.env,
      ...upstream('EDITOR', hostile?.url),
      ...upstream('FAMA', honest?.url),
      ...upstream('FAMC', honest?.url),
      PORT: '0',
    }
    const profiled = PROFILE === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${PROFILE}`]
    const gateway = new Running(
      spawn(process.execPath, [`--max-old-space-size=${HEAP_MB}`, ...profiled, BIN, 'start'], {
        cwd: this.#folder,
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    )
    try {
      await gateway.saw(/Tollgate listens on (\S+)/)
      await this.#besiege(gateway, attacks, env)
    } finally {
      for (const helper of [this.#crowd, this.#attacker]) helper.stop()
      const code = await gateway.stop('SIGTERM')
      if (code !== 0) this.failures.push(`the gateway ended with ${code}`)
      for (const helper of [this.#honest, this.#hostile]) helper.stop()
      rmSync(this.#folder, { recursive: true, force: true })
    }
  }

  async #besiege(gateway: Running, attacks: readonly Attack[], env: NodeJS.ProcessEnv): Promise<void> {
    const port = Number(new URL(gateway.url).port)
    const { customers, loot } = await this.#makeKeys(env, port)
    if (attacks.some(({ needsHistory }) => needsHistory)) await makeHistory(loot)
    await this.#crowd.ask({ port, keys: customers })
    const calm = await this.#calm()
    console.log(
      `calm: a reply within ${ms(calm.replies)}, the longest silence of a stream ${ms(calm.silences)} (p99 of ${CUSTOMERS} customers)\n`,
    )
    console.log(`${'attack'.padEnd(54)} errors   reply  silence   memory   what the attackers were answered`)
    for (const attack of attacks) {
      if (tooSlow(attack, await this.#attack(gateway, attack, loot), calm).length === 0) continue
      const before = await this.#calm()
      const again = await this.#attack(gateway, attack, loot)
      this.failures.push(...tooSlow(attack, again, slower(before, await this.#calm())))
    }
    const after = await this.#calm()
    console.log(
      `\ncalm again: a reply within ${ms(after.replies)}, the longest silence of a stream ${ms(after.silences)}`,
    )
    await this.#settle(env)
  }

  async #calm(): Promise<Slowest> {
    await this.#times('calm')
    await sleep(CALM_MS)
    return slowest(await this.#times('calm'))
  }

  async #times(during: string): Promise<Times> {
    const times = await this.#crowd.ask<Times>('times')
    if (times.errors.length > 0)
      this.failures.push(
        `${during}: ${times.errors.length} honest requests failed: ${[...new Set(times.errors)].slice(0, 3).join('; ')}`,
      )
    return times
  }

  async #attack({ child }: Running, attack: Attack, loot: Loot): Promise<Slowest> {
    const memory = new Memory(child.pid ?? 0)
    const reached = await this.#reached(attack)
    await this.#attacker.ask({ attack: ATTACKS.indexOf(attack), loot })
    await this.#times(attack.title)
    await sleep(ATTACK_MS)
    const times = await this.#times(attack.title)
    const answers = await this.#attacker.ask<Answers>('end')
    const during = slowest(times)
    const told = Object.entries(answers).map(([answer, times]) => `${answer}: ${times}`)
    console.log(
      `${attack.title.padEnd(54)} ${String(times.errors.length).padStart(6)} ${ms(during.replies)} ${ms(during.silences)} ${memory.most().toFixed(0).padStart(5)} MB   ${told.join(', ')}`,
    )
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`${attack.title}: the gateway died`)
    const more = (await this.#reached(attack)) - reached
    if (more > (answers['asked'] ?? 0))
      this.failures.push(`${attack.title}: ${answers['asked']} requests reached the upstream ${more} times`)
    return during
  }

  async #reached({ deed }: Attack): Promise<number> {
    if (deed === undefined) return 0
    return (await this.#hostile.ask<ProviderState>()).reached[deed] ?? 0
  }

  /** Returns what all customers were charged. */
  async #settle(env: NodeJS.ProcessEnv): Promise<void> {
    const { served, wrong } = await this.#crowd.ask<End>('end')
    this.failures.push(...wrong)
    const { accounts, entries, drifts } = await this.#onLedger(env, ledger => audit(ledger))
    console.log(
      `${served} honest requests, ${wrong.length} customers charged wrongly; audit of ${accounts} accounts, ${entries} entries: ${drifts.length} with drift`,
    )
    this.failures.push(...drifts.map(drift => JSON.stringify(drift)))
  }

  #makeKeys(env: NodeJS.ProcessEnv, port: number): Promise<{ customers: string[]; loot: Loot }> {
    return this.#onLedger(env, async (_ledger, keys) => {
      const make = async (type: string, nano: bigint): Promise<string> =>
        (await keys.changes.create({ type, name: 'siege', credits: nano, expiresAt: undefined })).secret
      const customers: string[] = []
      for (let customer = 0; customer < CUSTOMERS; customer++)
        customers.push(await make(WAYS[customer % WAYS.length]?.type ?? '', 1000n * NANO))
      const rich = (): Promise<string> => make('editor', 100_000n * NANO)
      const stolen = {
        poor: await make('editor', 1n),
        old: await make('editor', 100n * NANO),
        rich: await rich(),
        hostile: await rich(),
        ahead: await rich(),
      }
      return { customers, loot: { port, keys: stolen } }
    })
  }

  async #onLedger<T>(env: NodeJS.ProcessEnv, use: Parameters<typeof onLedger<T>>[2]): Promise<T> {
    const { config } = await loadConfig(this.#file, env, checkChain)
    if (!config) throw new Error('gateway.yaml is not sound')
    const environment = testEnvironment(env)
    return onLedger(environment, config, use)
  }
}

/** Watches the memory of a process. */
class Memory {
  #mostKb = 0
  readonly #timer: NodeJS.Timeout

  constructor(pid: number) {
    this.#timer = setInterval(() => {
      const status = readFileSync(`/proc/${pid}/status`, 'utf8')
      this.#mostKb = Math.max(this.#mostKb, Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0))
    }, 50)
  }

  /** Ends the watch. Returns the maximum in megabytes. */
  most(): number {
    clearInterval(this.#timer)
    return this.#mostKb / 1024
  }
}

/** Lets one key send many requests, so that its history has many pages. */
async function makeHistory({ port, keys }: Loot): Promise<void> {
  const agent = new Agent({ keepAlive: true })
  const body = JSON.stringify({ model: 'acme/famB-4.6', messages: [{ role: 'user', content: 'hi' }], max_tokens: 20 })
  const headers = {
    authorization: `Bearer ${keys.old}`,
    'content-type': 'application/json',
    'content-length': body.length,
  }
  let left = HISTORY
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      await new Promise<void>((resolve, reject) => {
        const req = request(
          { agent, port, host: '127.0.0.1', method: 'POST', path: '/v1/chat/completions', headers },
          res => {
            if (res.statusCode !== 200) reject(new Error(`the history's requests got ${res.statusCode}`))
            res.resume().on('end', resolve)
          },
        )
        req.on('error', reject).end(body)
      })
    }
  }
  await Promise.all(Array.from({ length: 16 }, client))
  agent.destroy()
}

function upstream(name: string, url: string | undefined): Record<string, string> {
  return { [`${name}_URL`]: url ?? '', [`${name}_KEY`]: 'provider-secret' }
}

function ms(time: number): string {
  return `${time.toFixed(1)} ms`.padStart(8)
}

const only = process.argv[2] ?? ''
const attacks = ATTACKS.filter(({ title }) => new RegExp(only).test(title))
if (attacks.length === 0) {
  console.error(
    `No attack has a title that matches "${only}". There is:\n${ATTACKS.map(({ title }) => `  ${title}`).join('\n')}`,
  )
  process.exit(2)
}
const siege = new Siege()
console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model.trim()}, a heap of ${HEAP_MB} MB`)
await siege.run(attacks)
for (const failure of siege.failures) console.log(`failed: ${failure}`)
console.log(siege.failures.length === 0 ? 'held' : `${siege.failures.length} failures`)
process.exitCode = siege.failures.length === 0 ? 0 : 1
