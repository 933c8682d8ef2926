/**
 * The managed store: a redis-server that the gateway starts when needed, finds again after a crash, and stops with its
 * last user.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  accessSync,
  constants,
  mkdirSync,
  openSync,
  closeSync,
  readFileSync,
  chmodSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Environment } from '../lib/environment.ts'

/** Returns the path of a redis-server or valkey-server on PATH. Undefined if there is none. */
export function findServer(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const folders = (env['PATH'] ?? '').split(delimiter).filter(folder => folder !== '')
  for (const name of ['redis-server', 'valkey-server']) {
    const found = folders.map(folder => join(folder, name)).find(isExecutable)
    if (found !== undefined) return found
  }
  return undefined
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Longest path of a Unix socket that all supported systems accept. */
const SOCKET_PATH_MAX = 100
/** Age in milliseconds after which a lock without an owner counts as left behind. */
const LOCK_MS = 1000
/** How long a server may take to load its data and answer, in milliseconds. */
const READY_MS = 60_000

/** Prefix of the names of gateways' connections. The process number follows. */
export const GATEWAY = 'tollgate-gateway-'

/** Lists the connections of a server. */
export async function clientsOf(redis: Redis): Promise<{ id: number; name: string }[]> {
  const list = String(await redis.client('LIST'))
  return list.split('\n').map(line => ({
    id: Number(/\bid=(\d+)/.exec(line)?.[1] ?? 0),
    name: /\bname=(\S*)/.exec(line)?.[1] ?? '',
  }))
}

/** What a managed server needs to know about this process. */
export type OwnProcess = Pick<Environment, 'isAlive' | 'now' | 'pid'>

/** A redis-server in the data folder. */
export class ManagedServer {
  readonly name: string
  readonly socket: string
  readonly #binary: string
  readonly #data: string
  readonly #process: OwnProcess
  #starting: Promise<void> | undefined
  #released = false

  /** @param data folder for the server's files; created if missing, readable only by its owner */
  constructor(binary: string, data: string, own: OwnProcess) {
    this.#binary = binary
    this.#process = own
    this.#data = data
    this.name = basename(binary)
    mkdirSync(data, { recursive: true, mode: 0o700 })
    this.socket = socketPath(data)
  }

  /** Makes sure that a server listens on the socket. @throws Error with the end of the server's log */
  ensure(): Promise<void> {
    if (this.#released) return Promise.resolve()
    return (this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined
    }))
  }

  /**
   * Refuses a second gateway on the same store, since each would stop the other's server. The server's list of
   * connections serves as the lock, so a dead gateway holds none. If two gateways start together, the first to connect
   * stays.
   * @throws Error with the process number of the other gateway
   */
  async claim(redis: Redis): Promise<void> {
    const mine = await redis.client('ID')
    const others = (await clientsOf(redis)).filter(({ id, name }) => name.startsWith(GATEWAY) && id < mine)
    const other = others[0]
    if (!other) return
    redis.disconnect()
    throw new Error(
      `another gateway (process ${other.name.slice(GATEWAY.length)}) uses ${this.#data}; set another store.data, or the same REDIS_URL for both`,
    )
  }

  /** Whether the gateway has left. Nothing is connected or started after that. */
  get released(): boolean {
    return this.#released
  }

  /** Leaves the server, and stops it if it has no other users. */
  async release(redis: Redis): Promise<void> {
    this.#released = true
    try {
      // If several users leave together, the last one must not count the others.
      await redis.client('SETNAME', 'leaving')
      const others = (await clientsOf(redis)).filter(({ name }) => name.startsWith('tollgate-'))
      if (others.length === 0) await redis.shutdown('NOSAVE').catch(() => {})
    } catch {
      // A server that does not answer cannot be stopped. The next gateway finds it.
    }
    redis.disconnect()
  }

  /** Starts a server unless one listens. A slow server counts as listening. */
  async #start(): Promise<void> {
    for (const deadline = performance.now() + READY_MS; performance.now() < deadline; await sleep(10)) {
      const found = await look(this.socket)
      if (found === 'ready') return
      if (found === 'busy') continue
      // Two servers on the same files would lose each other's writes. Only the owner of the lock starts one.
      const unlock = lock(join(this.#data, 'redis.lock'), this.#process)
      if (!unlock) continue
      try {
        if ((await look(this.socket)) === 'absent') await this.#spawn()
      } finally {
        unlock()
      }
    }
    throw new Error(`${this.name} on ${this.socket} does not answer`)
  }

  async #spawn(): Promise<void> {
    const logFile = join(this.#data, 'redis.log')
    const log = openSync(logFile, 'a', 0o600)
    const child = spawn(this.#binary, this.#settings(), {
      cwd: this.#data,
      stdio: ['ignore', log, log],
      detached: true,
    })
    closeSync(log)
    let ended = false
    child.once('exit', () => (ended = true))
    child.once('error', () => (ended = true))
    // Detached and unreferenced: Ctrl-C in the terminal must not stop the store before the gateway has settled.
    child.unref()
    const deadline = performance.now() + READY_MS
    while ((await look(this.socket)) !== 'ready') {
      if (ended || performance.now() > deadline) {
        throw new Error(
          `${this.name} did not start; the end of ${logFile}:\n${readFileSync(logFile, 'utf8').split('\n').slice(-8).join('\n')}`,
        )
      }
      await sleep(10)
    }
  }

  #settings(): string[] {
    const settings: Record<string, string> = {
      port: '0',
      unixsocket: this.socket,
      unixsocketperm: '700',
      dir: this.#data,
      appendonly: 'yes',
      appendfsync: 'everysec',
      'no-appendfsync-on-rewrite': 'no',
      'aof-use-rdb-preamble': 'yes',
      'maxmemory-policy': 'noeviction',
      save: '',
      daemonize: 'no',
    }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }
}

/** Returns a socket path in the data folder, or in a private temporary folder if that path would be too long. */
function socketPath(data: string): string {
  const path = join(data, 'redis.sock')
  if (path.length <= SOCKET_PATH_MAX) return path
  const folder = join(tmpdir(), `tollgate-${createHash('sha256').update(data).digest('hex').slice(0, 16)}`)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  chmodSync(folder, 0o700)
  return join(folder, 'redis.sock')
}

function isDenied(cause: unknown): boolean {
  return ['EACCES', 'EPERM', 'EROFS'].includes((cause as NodeJS.ErrnoException).code ?? '')
}

function denied(path: string): Error {
  return new Error(`no permission to use ${path}: run the command as the user of the gateway`)
}

/**
 * Returns whether a server listens on the socket, and whether it has loaded its data. Rejects if this user may not ask.
 */
function look(path: string): Promise<'absent' | 'busy' | 'ready'> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    const done = (result: 'absent' | 'busy' | 'ready'): void => {
      socket.destroy()
      resolve(result)
    }
    socket.setTimeout(1000, () => done('busy'))
    socket.once('error', (cause: NodeJS.ErrnoException) => {
      if (isDenied(cause)) reject(denied(path))
      else done(cause.code === 'ENOENT' || cause.code === 'ECONNREFUSED' ? 'absent' : 'busy')
    })
    socket.once('connect', () => socket.write('PING\r\n'))
    socket.once('data', data => done(data.toString().startsWith('+PONG') ? 'ready' : 'busy'))
  })
}

/**
 * Takes a lock that ends with its process at the latest.
 * @returns a function that releases it; undefined if it is taken
 */
function lock(file: string, own: OwnProcess): (() => void) | undefined {
  try {
    writeFileSync(file, String(own.pid), { flag: 'wx', mode: 0o600 })
    return () => rmSync(file, { force: true })
  } catch (cause) {
    if (isDenied(cause)) throw denied(file)
    if (isLeft(file, own)) breakOpen(file, own)
    return undefined
  }
}

/** Returns whether the lock's owner has died. A new lock may still be empty; then its age decides. */
function isLeft(file: string, { isAlive, now, pid }: OwnProcess): boolean {
  const owner = Number(readText(file))
  return owner === 0 ? now() - madeAt(file, now) > LOCK_MS : !isAlive(owner) || owner === pid
}

/** Removes a lock that was left behind. Only one process at a time may do so, otherwise it could remove a new lock. */
function breakOpen(file: string, own: OwnProcess): void {
  const breaking = `${file}.breaking`
  try {
    writeFileSync(breaking, String(own.pid), { flag: 'wx', mode: 0o600 })
  } catch {
    if (own.now() - madeAt(breaking, own.now) > 10 * LOCK_MS) rmSync(breaking, { force: true })
    return
  }
  if (isLeft(file, own)) rmSync(file, { force: true })
  rmSync(breaking, { force: true })
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

function madeAt(file: string, now: () => number): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? now()
}
