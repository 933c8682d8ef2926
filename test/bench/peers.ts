/**
 * The measured processes. Each has the last core for itself; its clients, the provider and Redis have the others. Its
 * CPU time is that of all threads of its processes, as the kernel counts it.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { edited } from '../gateway-file.ts'
import { freePort } from '../ports.ts'
import { JSON_REPLY, streamOf } from './replies.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url))
const CORES = cpus().length
/** The cores of everything that is not measured, and the core of the measured process, as `taskset` reads them. */
export const ASIDE = CORES > 2 ? `0-${CORES - 2}` : '0'
const MEASURED = String(CORES - 1)
const START_MS = 30_000

/** The key type of the repository's gateway.yaml whose customers the bench plays, and their model. */
const KEY_TYPE = 'famC'
export const MODEL = 'acme/famC-5.5'

/** A process that listens on the loopback interface. */
export class Peer {
  readonly name: string
  readonly port: number
  /** The file with the keys of its customers, one a line. */
  readonly keysFile: string
  /** What its clients send beside a key. */
  headers: readonly string[] = []
  readonly #children: readonly ChildProcess[]

  /** @param children the first of them is the measured one */
  constructor(name: string, port: number, keysFile: string, children: readonly ChildProcess[]) {
    this.name = name
    this.port = port
    this.keysFile = keysFile
    this.#children = children
  }

  /** CPU time so far, in microseconds. */
  get cpuUs(): number {
    const nanoseconds = this.#pids().flatMap(pid =>
      readdirSync(`/proc/${pid}/task`).map(task => readNumber(`/proc/${pid}/task/${task}/schedstat`, /^(\d+)/)),
    )
    return sum(nanoseconds) / 1000
  }

  /** Memory in MB. */
  get memoryMb(): number {
    return sum(this.#pids().map(pid => readNumber(`/proc/${pid}/status`, /VmRSS:\s+(\d+)/))) / 1024
  }

  /** A key of one of its customers. */
  get secret(): string {
    return readFileSync(this.keysFile, 'utf8').split('\n', 1)[0] ?? ''
  }

  async stop(): Promise<void> {
    for (const child of this.#children) {
      const ended = once(child, 'exit')
      child.kill('SIGTERM')
      if (child.exitCode === null && child.signalCode === null) await ended
    }
  }

  /** The measured process and those it has started. */
  #pids(): number[] {
    const pids = [this.#children[0]?.pid ?? 0]
    for (const pid of pids) pids.push(...readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)) // prettier-ignore
    return pids
  }
}

/** What starting a peer needs. */
export interface Place {
  /** A folder for the files of this peer. */
  readonly folder: string
  /** The address of the provider, with the folder of the reply. */
  readonly upstream: string
  readonly keys: number
  /** The format of the provider that Tollgate buys from; chat completions by default. */
  readonly speaks?: string
}

type Start = (place: Place) => Promise<Peer>

/** The known peers. A folder is a checkout of another version of Tollgate. */
const STARTS: Readonly<Record<string, Start>> = {
  bare: place => startProgram('bare', MEASURED, place),
  'http-proxy-3': place => startProgram('http-proxy-3', MEASURED, place),
  nginx: place => startNginx('nginx', MEASURED, place, `location / { proxy_pass ${place.upstream}/; }`),
  portkey: startPortkey,
  tollgate: place => startGateway('tollgate', ROOT, place),
}

export const PEERS: readonly string[] = Object.keys(STARTS)

/** Starts a peer. @throws Error for an unknown name, or if the peer does not listen within `START_MS` */
export async function startPeer(name: string, place: Place): Promise<Peer> {
  mkdirSync(place.folder, { recursive: true })
  const start = STARTS[name] ?? (name.includes('/') ? () => startGateway(name, name, place) : undefined)
  if (!start) throw new Error(`there is no peer ${name}; known: ${PEERS.join(', ')}, or the folder of a checkout`)
  return start(place)
}

/** Starts the provider of whole replies: nginx with files. */
export async function startFiles(folder: string): Promise<Peer> {
  for (const [reply, text] of [
    ['json', JSON_REPLY],
    ['sse20', streamOf(20)],
    ['sse200', streamOf(200)],
  ] as const) {
    const path = join(folder, 'files', reply, 'v1/chat')
    mkdirSync(path, { recursive: true })
    writeFileSync(join(path, 'completions'), text)
  }
  const type = (reply: string, type: string): string => `location /${reply} { default_type ${type}; error_page 405 =200 $uri; }` // prettier-ignore
  return startNginx('files', ASIDE, { folder, upstream: '', keys: 0 }, `root ${folder}/files; ${type('json', 'application/json')} ${type('sse', 'text/event-stream')}`) // prettier-ignore
}

/** Starts the provider of replies that need time. */
export function startProvider(folder: string): Promise<Peer> {
  return startProgram('provider', ASIDE, { folder, upstream: '', keys: 0 })
}

/** Starts a program on some cores. Its output goes to a file. */
function run(cores: string, folder: string, argv: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
  const log = openSync(join(folder, 'log'), 'a')
  return spawn('taskset', ['-c', cores, ...argv], { env: { ...process.env, ...env }, stdio: ['ignore', log, log] })
}

async function startProgram(role: string, cores: string, { folder, upstream }: Place): Promise<Peer> {
  const port = await freePort()
  const child = run(cores, folder, [process.execPath, ...profiling(folder), PROGRAM, role, String(port), upstream])
  return listening(role, port, noKeys(folder), [child])
}

async function startNginx(name: string, cores: string, { folder }: Place, locations: string): Promise<Peer> {
  const port = await freePort()
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    what => `${what}_temp_path ${folder}/temp;`,
  )
  const file = join(folder, 'nginx.conf')
  writeFileSync(
    file,
    `${process.getuid?.() === 0 ? 'user root;' : ''} daemon off; pid ${folder}/pid; error_log ${folder}/log; worker_processes 1;
     events { worker_connections 20000; }
     http { access_log off; ${temporary.join(' ')} client_max_body_size 0; client_body_buffer_size 2m;
       keepalive_requests 1000000000; proxy_buffering off; proxy_http_version 1.1; proxy_set_header Connection "";
       server { listen 127.0.0.1:${port} backlog=4096; ${locations} } }`,
  )
  return listening(name, port, noKeys(folder), [run(cores, folder, ['nginx', '-p', folder, '-c', file])])
}

/** Portkey's gateway, from the npm registry, without keys, money or usage. */
async function startPortkey({ folder, upstream }: Place): Promise<Peer> {
  const port = await freePort()
  const options = { stdio: 'ignore', cwd: folder } as const
  execFileSync('npm', ['install', '--no-save', '--prefix', folder, '@portkey-ai/gateway'], options)
  const program = join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js')
  const child = run(MEASURED, folder, [process.execPath, program, `--port=${port}`, '--headless'])
  const peer = await listening('portkey', port, noKeys(folder), [child])
  peer.headers = ['x-portkey-provider: openai', `x-portkey-custom-host: ${upstream}/v1`]
  return peer
}

/** Tollgate with the repository's gateway.yaml, its access log, and a Redis of its own. */
async function startGateway(name: string, root: string, place: Place): Promise<Peer> {
  const { folder, upstream, keys, speaks = 'chat-completions' } = place
  const port = await freePort()
  const redisPort = await freePort()
  const redis = run(ASIDE, folder, ['redis-server', '--port', String(redisPort), '--save', '', '--dir', folder])
  const file = join(folder, 'gateway.yaml')
  const yaml = edited(readFileSync(join(root, 'gateway.yaml'), 'utf8'), file =>
    file
      .set('store.data', join(folder, 'data'))
      .setAll(`upstreams.${KEY_TYPE}`, { url: upstream, speaks: [speaks] })
      .model(KEY_TYPE, MODEL, { sends: 'vendor/x-1' })
      .setAll(`keyTypes.${KEY_TYPE}`, { limits: { concurrency: 10_000 } })
      // The probe of the longest waits has no key.
      .setAll('limits', { connections: 20_000, idlePerAddress: 20_000, anonymous: 1_000_000 }),
  )
  writeFileSync(file, yaml)
  const env = { PORT: String(port), REDIS_URL: `redis://127.0.0.1:${redisPort}`, FAMC_KEY: 'provider-secret' }
  const bin = join(root, 'bin/tollgate.js')
  const child = run(MEASURED, folder, [process.execPath, ...profiling(folder), bin, 'start', '-c', file], env)
  const keysFile = join(folder, 'keys')
  const peer = await listening(name, port, keysFile, [child, redis])
  const create = ['keys', 'create', '--type', KEY_TYPE, '--credits', '100000', '--count', String(keys), '--json']
  const created = execFileSync(process.execPath, [bin, ...create, '-c', file], { env: { ...process.env, ...env } })
  writeFileSync(keysFile, `${(created.toString().match(/sk-[\w-]+/g) ?? []).join('\n')}\n`)
  return peer
}

function noKeys(folder: string): string {
  const file = join(folder, 'keys')
  writeFileSync(file, 'none\n')
  return file
}

/** `PROFILE=1` leaves a CPU profile in the folder of each Node process. */
function profiling(folder: string): string[] {
  return process.env['PROFILE'] === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${folder}`]
}

async function listening(name: string, port: number, keys: string, children: readonly ChildProcess[]): Promise<Peer> {
  const until = Date.now() + START_MS
  while (!(await accepts(port))) {
    if (Date.now() > until || children[0]?.exitCode !== null) throw new Error(`${name} does not listen`)
    await sleep(50)
  }
  return new Peer(name, port, keys, children)
}

function accepts(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false))
    socket.on('connect', () => socket.end())
  })
}

function readNumber(file: string, pattern: RegExp): number {
  try {
    return Number(pattern.exec(readFileSync(file, 'utf8'))?.[1] ?? 0)
  } catch {
    // A thread may have ended meanwhile.
    return 0
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
