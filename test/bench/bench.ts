/**
 * What a request costs in Tollgate, against a bare http-proxy-3 on the same Node in the same run. Slices alternate
 * between the two, so that whatever else the machine does falls on both; only ratios are worth comparing.
 *
 *   npm run bench            all marks
 *   npm run bench -- json    one of json, burst, paced, translated, streams
 */
import { fork, type ChildProcess } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { LOADS, MARKS, type Load, type Mark } from './marks.ts'
import type { Usage } from './target.ts'

const SLICES = Number(process.env['SLICES'] ?? 0)
const CLIENTS = Number(process.env['CLIENTS'] ?? 0)
const PROFILE = process.env['PROFILE']
const STREAMS = Number(process.env['STREAMS'] ?? 5000)
/**
 * What is asked before anything is measured: V8 compiles and recompiles for about as long, on threads whose CPU counts,
 * too. Few at a time, so that what runs once for all requests of a turn, as the calls of the store do, is compiled by then.
 */
const WARM_UP = { requests: 40_000, clients: 4 }

class Target {
  name: string
  /** Whether it is asked in a format that the provider does not speak. */
  translated = false
  readonly #child: ChildProcess
  port = 0
  secret = 'none'

  private constructor(name: string, child: ChildProcess) {
    this.name = name
    this.#child = child
  }

  static async start(role: string, argument: string, env: Record<string, string> = {}): Promise<Target> {
    const child = fork(new URL('target.ts', import.meta.url), [role, argument], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: { ...process.env, ...env },
      // PROFILE=folder leaves a CPU profile of Tollgate there.
      execArgv: role !== 'provider' && PROFILE !== undefined ? ['--cpu-prof', `--cpu-prof-dir=${PROFILE}`] : [],
    })
    const target = new Target(role, child)
    const told = await target.#next<{ port: number; secret?: string }>()
    target.port = told.port
    target.secret = told.secret ?? target.secret
    return target
  }

  /** The same process, asked in another format. */
  asTranslated(): Target {
    return Object.assign(new Target('translated', this.#child), { port: this.port, secret: this.secret, translated: true })
  }

  async usage(): Promise<Usage> {
    this.#child.send('usage')
    return this.#next()
  }

  async stop(): Promise<void> {
    const gone = new Promise(resolve => this.#child.once('exit', resolve))
    this.#child.kill('SIGTERM')
    await gone
  }

  #next<T>(): Promise<T> {
    return new Promise(resolve => this.#child.once('message', message => resolve(message as T)))
  }
}

const agent = new Agent({ keepAlive: true, maxFreeSockets: 20_000, maxSockets: Infinity })
const filler = 'lorem ipsum dolor sit amet '.repeat(33)

/** One request to its end; resolves with its milliseconds. */
function ask(target: Target, kind: string, opened?: (leave: () => void) => void): Promise<number> {
  const stream = kind !== 'json'
  const said = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: filler }], stream }
  const native = { ...said, user: kind, ...(stream && { stream_options: { include_usage: true } }) }
  const body = JSON.stringify(target.translated ? { ...said, max_tokens: 1000, metadata: { user_id: kind } } : native)
  const path = target.translated ? '/v1/messages' : '/v1/chat/completions'
  const started = performance.now()
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${target.secret}`, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    const req = request({ agent, port: target.port, host: '127.0.0.1', path, method: 'POST', headers }, res => {
      if (res.statusCode !== 200) reject(new Error(`${target.name} answered ${res.statusCode}`))
      res.once('data', () => opened?.(() => req.destroy()))
      res.resume()
      res.on('end', () => resolve(performance.now() - started))
      res.on('error', () => resolve(0))
    })
    req.on('error', error => (opened ? resolve(0) : reject(error)))
    req.end(body)
  })
}

interface Slice {
  readonly cpu: number
  readonly perSecond: number
  readonly p50: number
}

/** Requests of so many clients, each of which asks again when it has its reply. */
async function slice(target: Target, kind: string, { requests, clients }: Pick<Load, 'requests' | 'clients'>, measured: boolean): Promise<Slice> {
  const before = measured ? (await target.usage()).cpu : 0
  const started = performance.now()
  const times: number[] = []
  let left = requests
  const client = async (): Promise<void> => {
    while (left-- > 0) times.push(await ask(target, kind))
  }
  await Promise.all(Array.from({ length: clients }, client))
  const seconds = (performance.now() - started) / 1000
  const after = measured ? (await target.usage()).cpu : 0
  return { cpu: (after - before) / requests, perSecond: requests / seconds, p50: median(times) }
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? 0
}

async function measure(mark: Mark, direct: Target, baseline: Target, tested: Target): Promise<boolean> {
  const seen = new Map<Target, Slice[]>([direct, baseline, tested].map(target => [target, []]))
  // What runs once a stream is not compiled by the few paced ones that there is time for.
  for (const target of [baseline, tested]) await slice(target, mark.kind === 'paced' ? 'burst' : mark.kind, WARM_UP, false)
  const load = { ...LOADS[mark.kind], ...(SLICES > 0 && { slices: SLICES }), ...(CLIENTS > 0 && { clients: CLIENTS }) }
  for (let round = -Math.ceil(load.slices / 8); round < load.slices; round++) {
    // Each comes first as often as the other: a process finds less of its own in the caches where a larger one has just run.
    for (const target of round % 2 === 0 ? [baseline, tested, direct] : [tested, baseline, direct]) {
      const result = await slice(target, mark.kind, load, target !== direct)
      if (round >= 0) seen.get(target)?.push(result)
    }
  }
  const of = (target: Target, part: keyof Slice): number => median((seen.get(target) ?? []).map(result => result[part]))
  console.log(`\n${mark.title}`)
  for (const target of [direct, baseline, tested]) {
    const cpu = target === direct ? '' : `${(of(target, 'cpu') / load.events).toFixed(1).padStart(8)} µs CPU`
    console.log(
      `  ${target.name.padEnd(10)} ${of(target, 'perSecond').toFixed(0).padStart(6)} requests/s  p50 ${of(target, 'p50').toFixed(2).padStart(8)} ms ${cpu}`,
    )
  }
  // Neighbouring slices share the machine's mood: the median of their ratios is steadier than the ratio of medians.
  const ratios = (seen.get(tested) ?? []).map((result, at) => result.cpu / (seen.get(baseline)?.[at]?.cpu ?? 1))
  const ratio = median(ratios)
  const held = ratio <= mark.most
  console.log(`  ratio     ${ratio.toFixed(3)} (at most ${mark.most}): ${held ? 'held' : 'MISSED'}`)
  return held
}

/** Memory of many open streams, and what is left of them when their clients go. */
async function openStreams(upstream: Target, ...targets: readonly Target[]): Promise<boolean> {
  let clean = true
  console.log(`\n${STREAMS} open streams`)
  for (const target of targets) {
    const leave: (() => void)[] = []
    const idle = (await target.usage()).rss
    const ends: Promise<number>[] = []
    for (let opened = 0; opened < STREAMS; opened += 250) {
      const batch = Array.from(
        { length: Math.min(250, STREAMS - opened) },
        () => new Promise<void>(resolve => ends.push(ask(target, 'hold', go => resolve(void leave.push(go))))),
      )
      await Promise.all(batch)
    }
    const { rss } = await target.usage()
    for (const go of leave) go()
    await Promise.all(ends)
    let left = Infinity
    for (let tries = 0; tries < 100 && left > 0; tries++) {
      await sleep(100)
      left = (await upstream.usage()).connections
    }
    // Idle kept-alive connections of the other measurements close by themselves; aborted streams must not be among them.
    console.log(
      `  ${target.name.padEnd(9)} ${(rss / 2 ** 20).toFixed(0)} MB, ${((rss - idle) / STREAMS / 1024).toFixed(1)} KB a stream; upstream connections left: ${left}`,
    )
    if (left > 0) clean = false
  }
  return clean
}

/**
 * A measurement on processes of its own: what one before has left behind, in their heaps or of idle connections, would
 * count. V8 throws away much of what it has compiled when it gives back the memory that a busier measurement had needed.
 */
async function onFreshProcesses(folder: string, run: (provider: Target, bare: Target, gateway: Target) => Promise<boolean>): Promise<boolean> {
  const provider = await Target.start('provider', '')
  const address = `http://127.0.0.1:${provider.port}`
  const file = join(folder, 'gateway.yaml')
  writeFileSync(
    file,
    readFileSync(new URL('../../gateway.yaml', import.meta.url), 'utf8')
      .replace('connections: 10000', 'connections: 20000')
      // Redis stands still while a slow disk syncs its files; what a request costs is asked here, not who is refused then.
      .replace('commandTimeout: 400ms', 'commandTimeout: 10s')
      // What the provider speaks, whoever asks.
      .replace('speaks: [responses, chat-completions]', 'speaks: [chat-completions]'),
  )
  const environment = Object.fromEntries(
    ['FAMA', 'FAMB', 'FAMC', 'EDITOR'].flatMap(name => [
      [`${name}_URL`, address],
      [`${name}_KEY`, 'provider-secret'],
    ]),
  )
  const targets = [provider, await Target.start('bare', address), await Target.start('tollgate', file, { ...environment, PORT: '0' })] as const
  const held = await run(...targets)
  for (const target of targets) await target.stop()
  return held
}

async function main(): Promise<void> {
  const only = process.argv[2]
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  let held = true
  for (const mark of MARKS) {
    if (only !== undefined && only !== (mark.translated ? 'translated' : mark.kind)) continue
    const measured = await onFreshProcesses(folder, (provider, bare, gateway) =>
      mark.translated ? measure(mark, provider, gateway, gateway.asTranslated()) : measure(mark, provider, bare, gateway),
    )
    held = measured && held
  }
  if (only === undefined || only === 'streams') held = (await onFreshProcesses(folder, openStreams)) && held
  agent.destroy()
  rmSync(folder, { recursive: true, force: true })
  process.exitCode = held ? 0 : 1
}

await main()
