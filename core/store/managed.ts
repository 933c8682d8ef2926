/**
 * The managed store: a redis-server that the gateway starts when needed, finds again after a crash, and stops with its
 * last user.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { accessSync, chmodSync, closeSync, constants, mkdirSync, openSync, readFileSync, symlinkSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import { lockFile } from '../lib/file-lock.ts'

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

/** Bytes of the longest path of a Unix socket that all supported systems accept. */
const SOCKET_PATH_MAX = 100
/** How long a server may take to load its data and answer, in milliseconds. */
const READY_MS = 60_000
/** How long to wait for the server of a running gateway, in milliseconds. */
const STARTED_MS = 5000

/** Prefix of the names of connections that use a server. */
export const USER = 'tollgate-'

/** A redis-server in the data folder, which listens on a socket there. */
export class ManagedServer {
  readonly name: string
  readonly socket: string
  readonly #binary: string
  readonly #data: string
  readonly #mayStart: () => boolean
  #starting: Promise<void> | undefined
  #released = false

  /**
   * @param data folder for the server's files; created if missing, readable only by its owner
   * @param mayStart whether this process may start a server; if not, the running gateway does
   */
  constructor(binary: string, data: string, mayStart: () => boolean) {
    this.#binary = binary
    this.#data = data
    this.#mayStart = mayStart
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
      const clients = String(await redis.client('LIST'))
      if (!clients.includes(` name=${USER}`)) await redis.shutdown('NOSAVE').catch(() => {})
    } catch {
      // A server that does not answer cannot be stopped. The next gateway finds it.
    }
    // A connection that its server has closed would keep the process running for seconds.
    if (redis.status !== 'close' && redis.status !== 'end') redis.disconnect()
  }

  /** Starts a server unless one listens. A slow server counts as listening. */
  async #start(): Promise<void> {
    const beganMs = performance.now()
    for (; performance.now() - beganMs < READY_MS; await sleep(10)) {
      const found = await look(this.socket)
      if (found === 'ready') return
      if (found === 'busy') continue
      // A running gateway has a server, or starts one. Its socket may have been deleted.
      if (!this.#mayStart()) {
        if (performance.now() - beganMs < STARTED_MS) continue
        throw new Error(`the gateway runs, but its store does not listen on ${this.socket}; restart the gateway`)
      }
      // Two servers on the same files would lose each other's writes. Only the owner of this lock starts one.
      const starting = lockFile(join(this.#data, 'redis-start.lock'))
      if (!starting) continue
      try {
        if ((await look(this.socket)) === 'absent') await this.#spawn()
      } finally {
        starting.release()
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
      // Relative to the data folder: however long its path is, the socket is in it, so that everybody finds it.
      unixsocket: SOCKET,
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

const SOCKET = 'redis.sock'

/** Returns the path of the socket in the data folder, by a link in a private temporary folder if it would be too long. */
function socketPath(data: string): string {
  const path = join(data, SOCKET)
  if (Buffer.byteLength(path) <= SOCKET_PATH_MAX) return path
  const folder = join(tmpdir(), `tollgate-${createHash('sha256').update(data).digest('hex').slice(0, 16)}`)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  chmodSync(folder, 0o700)
  const link = join(folder, 'data')
  try {
    symlinkSync(data, link)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause
  }
  const short = join(link, SOCKET)
  if (Buffer.byteLength(short) > SOCKET_PATH_MAX)
    throw new Error(`${path} and ${short} are too long for a socket; set a shorter store.data or TMPDIR`)
  return short
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
