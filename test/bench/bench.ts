/**
 * What a request costs in Tollgate, against a bare http-proxy-3 on the same Node in the same run. Slices alternate
 * between the two, so that whatever else the machine does falls on both; only ratios are worth comparing.
 *
 * npm run bench            everything npm run bench -- json    one of json, burst, paced, translated, crowds, streams,
 * waits, ledger, admin
 */
import { fork, spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request, type IncomingMessage } from 'node:http'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { CROWDS, LOADS, MARKS, type Load, type Mark } from './marks.ts'
import type { Usage } from './target.ts'
import { benchAdmin } from './admin.ts'
import { benchLedger } from './ledger.ts'
import { replying, type Spoken, waits } from './waits.ts'
import { findServer } from '../../core/store/managed.ts'
import { freePort } from '../ports.ts'
import { type Edit, edited } from '../gateway-file.ts'

const SLICES = Number(process.env['SLICES'] ?? 0)
const CLIENTS = Number(process.env['CLIENTS'] ?? 0)
const PROFILE = process.env['PROFILE']
const STREAMS = Number(process.env['STREAMS'] ?? 5000)
/**
 * Requests before the measurement. V8 compiles and recompiles for about as long, on threads whose CPU time counts too.
 * There are few clients, so that code that runs once for all requests of a turn, such as calls of the store, is
 * compiled by then.
 */
const WARM_UP = { requests: 40_000, clients: 4, slices: 1 }
/** Work of a process after its last reply, such as settlements in a batch, belongs to the cost of its requests. */
const AFTERWARDS_MS = 20

/** If the quartiles of one target's slices differ by more than this factor, the machine did other work. */
const STEADY = 2

const PARTS: readonly string[] = [
  'json',
  'burst',
  'paced',
  'translated',
  'crowds',
  'streams',
  'waits',
  'ledger',
  'admin',
]

class Target {
  name: string
  /** Whether its clients use a format that the provider does not speak. */
  translated = false
  readonly #child: ChildProcess
  port = 0
  /** The keys of its customers. Each client uses one of them. */
  secrets: readonly string[] = ['none']
  store = ''

  private constructor(name: string, child: ChildProcess) {
    this.name = name
    this.#child = child
  }

  /** @param log file for its output: the access log is part of the cost of a request */
  static async start(role: string, argument: string, log: number, env: Record<string, string> = {}): Promise<Target> {
    const child = fork(new URL('target.ts', import.meta.url), [role, argument], {
      stdio: ['ignore', log, 'inherit', 'ipc'],
      env: { ...process.env, ...env },
      // PROFILE=folder leaves a CPU profile of Tollgate there.
      execArgv: role !== 'provider' && PROFILE !== undefined ? ['--cpu-prof', `--cpu-prof-dir=${PROFILE}`] : [],
    })
    const target = new Target(role, child)
    return Object.assign(target, await target.#next<{ port: number; secrets?: readonly string[]; store?: string }>())
  }

  /** The same process, with clients of another format. */
  asTranslated(): Target {
    return Object.assign(new Target('translated', this.#child), {
      port: this.port,
      secrets: this.secrets,
      translated: true,
    })
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

type Asked = Pick<Mark, 'unasked'> & { readonly kind: Mark['kind'] | 'hold' }

/** Sends a request of one client. Resolves with the reply, of which nothing has been read yet. */
function send(target: Target, { kind, unasked }: Asked, client: number): Promise<IncomingMessage> {
  const stream = kind !== 'json'
  const said = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: filler }], stream }
  const native = { ...said, user: kind, ...(stream && !unasked && { stream_options: { include_usage: true } }) }
  const body = JSON.stringify(target.translated ? { ...said, max_tokens: 1000, metadata: { user_id: kind } } : native)
  const path = target.translated ? '/v1/messages' : '/v1/chat/completions'
  const authorization = `Bearer ${target.secrets[client % target.secrets.length]}`
  return new Promise((resolve, reject) => {
    const headers = { authorization, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    const req = request({ agent, port: target.port, host: '127.0.0.1', path, method: 'POST', headers }, res => {
      if (res.statusCode === 200) resolve(res)
      else reject(new Error(`${target.name} answered ${res.statusCode}`))
    })
    req.on('error', reject)
    req.end(body)
  })
}

/**
 * Runs one request to the end of its reply, which must be complete. Resolves with its number of events; a JSON reply
 * counts as 1.
 */
async function ask(target: Target, asked: Asked, client: number): Promise<number> {
  const reply = await send(target, asked, client)
  const end = asked.kind === 'json' ? '}' : target.translated ? '{"type":"message_stop"}\n\n' : 'data: [DONE]\n\n'
  let events = 0
  let last = ''
  reply.setEncoding('latin1')
  for await (const part of reply) {
    last = (last + part).slice(-end.length)
    for (let at = part.indexOf('data: '); at !== -1; at = part.indexOf('data: ', at + 1)) events++
  }
  if (last !== end) throw new Error(`${target.name} broke off: ${last}`)
  return asked.kind === 'json' ? 1 : events
}

interface Slice {
  /** Microseconds for one unit of the mark. */
  readonly cpu: number
  readonly perSecond: number
  readonly p50: number
  /** The share of the time in which the process was busy. */
  readonly busy: number
}

/** Requests of several clients. Each sends the next one when it has its reply. */
async function slice(target: Target, asked: Asked, { requests, clients }: Load, measured: boolean): Promise<Slice> {
  const before = measured ? (await target.usage()).cpu : 0
  const started = performance.now()
  const times: number[] = []
  let left = requests
  let events = 0
  const client = async (_: unknown, index: number): Promise<void> => {
    while (left-- > 0) {
      const sent = performance.now()
      const counted = await ask(target, asked, index)
      events += counted
      times.push(performance.now() - sent)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  const seconds = (performance.now() - started) / 1000
  if (measured) await sleep(AFTERWARDS_MS)
  const cpu = measured ? (await target.usage()).cpu - before : 0
  return {
    cpu: cpu / (asked.kind === 'paced' ? events : requests),
    perSecond: requests / seconds,
    p50: median(times),
    busy: cpu / 1e6 / seconds,
  }
}

function median(numbers: readonly number[]): number {
  return quartiles(numbers)[1]
}

function quartiles(numbers: readonly number[]): [lower: number, middle: number, upper: number] {
  const sorted = [...numbers].sort((a, b) => a - b)
  const at = (part: number): number => sorted[Math.floor(sorted.length * part)] ?? 0
  return [at(0.25), at(0.5), at(0.75)]
}

async function warmUp(targets: readonly Target[], { kind, unasked }: Mark): Promise<void> {
  // There is no time for enough paced streams to compile the code that runs once a stream.
  for (const target of targets)
    await slice(target, { kind: kind === 'paced' ? 'burst' : kind, ...(unasked && { unasked }) }, WARM_UP, false)
}

/** The comparison of the CPU time of two targets. */
interface Comparison {
  /** The tested target's CPU time divided by the baseline's. */
  readonly ratio: number
  /** The spread of the baseline's own slices: the factor between their quartiles. */
  readonly spread: number
}

/** Runs slices of the targets in turn, and prints their cost. */
async function compare(
  mark: Mark,
  load: Load,
  [direct, baseline, tested]: readonly [Target, Target, Target],
): Promise<Comparison> {
  const seen = new Map<Target, Slice[]>([direct, baseline, tested].map(target => [target, []]))
  for (let round = -Math.ceil(load.slices / 8); round < load.slices; round++) {
    // Each target runs first equally often: after a larger process, the next one finds less of its own data in the
    // caches.
    for (const target of round % 2 === 0 ? [baseline, tested, direct] : [tested, baseline, direct]) {
      const result = await slice(target, mark, load, target !== direct)
      if (round >= 0) seen.get(target)?.push(result)
    }
  }
  const of = (target: Target): Slice[] => seen.get(target) ?? []
  const costs = (target: Target): number[] => of(target).map(({ cpu }) => cpu)
  const middle = (target: Target, part: keyof Slice): number => median(of(target).map(result => result[part]))
  const cost = (target: Target): string => {
    const [lower, middling, upper] = quartiles(costs(target))
    return `${middling.toFixed(1).padStart(8)} µs CPU (half of the slices: ${lower.toFixed(0)} to ${upper.toFixed(0)}), busy ${(middle(target, 'busy') * 100).toFixed(0)} %`
  }
  for (const target of [direct, baseline, tested]) {
    console.log(
      `  ${target.name.padEnd(10)} ${middle(target, 'perSecond').toFixed(0).padStart(6)} requests/s  p50 ${middle(target, 'p50').toFixed(2).padStart(8)} ms ${target === direct ? '' : cost(target)}`,
    )
  }
  // Neighbouring slices run under the same load of the machine, so the median of their ratios is steadier than the
  // ratio of medians.
  const ratio = median(of(tested).map((result, at) => result.cpu / (of(baseline)[at]?.cpu ?? 1)))
  const sum = (target: Target): number => costs(target).reduce((before, cpu) => before + cpu, 0)
  console.log(
    `  CPU       ${ratio.toFixed(3)} times ${baseline.name}, median of the slices; ${(sum(tested) / sum(baseline)).toFixed(3)} of all together`,
  )
  const [lower, , upper] = quartiles(costs(baseline))
  return { ratio, spread: upper / lower }
}

async function measure(mark: Mark, targets: readonly [Target, Target, Target]): Promise<boolean> {
  await warmUp(targets.slice(1), mark)
  console.log(`\n${mark.title}`)
  const load = { ...LOADS[mark.kind], ...(SLICES > 0 && { slices: SLICES }), ...(CLIENTS > 0 && { clients: CLIENTS }) }
  const { ratio, spread } = await compare(mark, load, targets)
  const steady = spread <= STEADY
  const held = steady && ratio <= mark.most
  const verdict = steady
    ? held
      ? 'held'
      : 'MISSED'
    : `says nothing, as quartiles of ${targets[1].name}'s slices are a factor ${spread.toFixed(1)} apart`
  console.log(`            ${ratio.toFixed(3)}, at most ${mark.most}: ${verdict}`)
  return held
}

/** The same exchange with fewer and with more clients than its mark has. */
async function crowds(mark: Mark, targets: readonly [Target, Target, Target]): Promise<boolean> {
  await warmUp(targets.slice(1), mark)
  for (const clients of CROWDS) {
    console.log(`\n${mark.title}: ${clients} ${clients === 1 ? 'client' : 'clients'}`)
    await compare(mark, { ...LOADS[mark.kind], slices: SLICES || 15, clients }, targets)
  }
  return true
}

/** Measures the memory of many open streams, and what is left of them when their clients leave. */
async function openStreams([upstream, ...targets]: readonly [Target, Target, Target]): Promise<boolean> {
  let clean = true
  console.log(`\n${STREAMS} open streams`)
  for (const target of targets) {
    const idle = (await target.usage()).rss
    const replies: IncomingMessage[] = []
    while (replies.length < STREAMS) {
      const batch = Array.from({ length: Math.min(250, STREAMS - replies.length) }, async (_, index) => {
        const reply = await send(target, { kind: 'hold' }, index)
        await new Promise(resolve => reply.once('data', resolve))
        return reply.on('error', () => {})
      })
      replies.push(...(await Promise.all(batch)))
    }
    const { rss } = await target.usage()
    for (const reply of replies) reply.destroy()
    let left = Infinity
    for (let tries = 0; tries < 100 && left > 0; tries++) {
      await sleep(100)
      left = (await upstream.usage()).connections
    }
    console.log(
      `  ${target.name.padEnd(9)} ${(rss / 2 ** 20).toFixed(0)} MB, ${((rss - idle) / STREAMS / 1024).toFixed(1)} KB a stream; upstream connections left: ${left}`,
    )
    if (left > 0) clean = false
  }
  return clean
}

/**
 * Measures with fresh processes. Otherwise the heap and the idle connections of an earlier measurement would count. V8
 * also discards much compiled code when it returns the memory of a busier measurement.
 */
async function onFreshProcesses(
  folder: string,
  run: (targets: readonly [Target, Target, Target]) => Promise<boolean>,
): Promise<boolean> {
  const started: Target[] = []
  const log = openSync(join(folder, 'log'), 'a')
  const start = async (...args: [role: string, argument: string, env?: Record<string, string>]): Promise<Target> => {
    const [role, argument, env] = args
    const target = await Target.start(role, argument, log, env)
    started.push(target)
    return target
  }
  try {
    const provider = await start('provider', '')
    const address = `http://127.0.0.1:${provider.port}`
    const bare = await start('bare', address)
    const gateway = await start('tollgate', gatewayFile(folder), { ...upstreams(address), PORT: '0', REDIS_URL: '' })
    if (gateway.store !== 'managed') throw new Error(`a redis-server is needed on PATH; the store is ${gateway.store}`)
    return await run([provider, bare, gateway])
  } finally {
    for (const target of started) await target.stop()
  }
}

/** The repository's gateway.yaml, changed for the bench. */
function gatewayFile(folder: string, spoken: Spoken = 'chat-completions'): string {
  const edit: Edit = gatewayFile =>
    gatewayFile
      // Redis stands still while a slow disk syncs its files. The bench measures what a request costs, not who is
      // refused then.
      .set('store.commandTimeout', '10s')
      // The probe of the longest waits has no key.
      .setAll('limits', { connections: 20_000, anonymous: 1_000_000 })
      // What the provider speaks, whatever the client's format is.
      .set('upstreams.famC.speaks', [spoken])
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, edited(readFileSync(new URL('../../gateway.yaml', import.meta.url), 'utf8'), edit))
  return file
}

/** Measures how long others wait while large requests and replies pass, in every format and direction. */
async function longestWaits(folder: string): Promise<boolean> {
  console.log(`\nthe longest wait of /health while large bodies pass, at most ${WAIT_MAX_MS} ms`)
  const provider = await replying()
  let longest = 0
  for (const spoken of ['chat-completions', 'responses', 'messages'] as const) {
    const log = openSync(join(folder, 'log'), 'a')
    const gateway = await Target.start('tollgate', gatewayFile(folder, spoken), log, {
      ...upstreams(provider.url),
      PORT: '0',
      REDIS_URL: '',
    })
    longest = Math.max(longest, await waits(gateway.port, gateway.secrets[0] ?? '', spoken, provider.kind))
    await gateway.stop()
  }
  provider.close()
  return longest <= WAIT_MAX_MS
}

/** Maximum milliseconds for which one request may delay all others. */
const WAIT_MAX_MS = 50

/** Compares the scripts on two servers. */
async function ledgerCosts(folder: string): Promise<boolean> {
  const ports = [await freePort(), await freePort()] as const
  const servers = ports.map(port =>
    spawn(findServer(process.env) as string, ['--port', String(port), '--save', '', '--dir', folder], {
      stdio: 'ignore',
    }),
  )
  try {
    return await benchLedger([`redis://127.0.0.1:${ports[0]}`, `redis://127.0.0.1:${ports[1]}`])
  } finally {
    for (const server of servers) server.kill()
  }
}

function upstreams(address: string): Record<string, string> {
  const types = ['FAMA', 'FAMB', 'FAMC', 'EDITOR']
  return Object.fromEntries(types.flatMap(type => [[`${type}_URL`, address], [`${type}_KEY`, 'provider-secret']])) // prettier-ignore
}

async function main(): Promise<void> {
  const only = process.argv[2]
  if (only !== undefined && !PARTS.includes(only))
    throw new Error(`there is no part ${only}; known: ${PARTS.join(', ')}`)
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model.trim()}, the gateway's own redis-server`)
  let held = true
  for (const mark of MARKS) {
    if (only !== undefined && only !== (mark.translated ? 'translated' : mark.kind)) continue
    const measured = await onFreshProcesses(folder, ([provider, bare, gateway]) =>
      measure(mark, mark.translated ? [provider, gateway, gateway.asTranslated()] : [provider, bare, gateway]),
    )
    held = measured && held
  }
  for (const mark of MARKS.slice(0, 2)) {
    if (only === undefined || only === 'crowds') await onFreshProcesses(folder, targets => crowds(mark, targets))
  }
  if (only === undefined || only === 'streams') held = (await onFreshProcesses(folder, openStreams)) && held
  if (only === undefined || only === 'waits') held = (await longestWaits(folder)) && held
  if (only === undefined || only === 'ledger') held = (await ledgerCosts(folder)) && held
  if (only === undefined || only === 'admin') held = (await benchAdmin()) && held
  agent.destroy()
  rmSync(folder, { recursive: true, force: true })
  process.exitCode = held ? 0 : 1
}

await main()
