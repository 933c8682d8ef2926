/** A PostgreSQL server for tests, on files of its own. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { freePort } from './ports.ts'

/** Where Debian keeps the programs of each version. */
const DEBIAN = '/usr/lib/postgresql'

/** Returns the folder of PostgreSQL's programs. Undefined if it is not installed. */
export function postgresPrograms(): string | undefined {
  const folders = existsSync(DEBIAN)
    ? readdirSync(DEBIAN)
        .sort((a, b) => Number(b) - Number(a))
        .map(version => join(DEBIAN, version, 'bin'))
    : []
  const { stdout } = spawnSync('pg_config', ['--bindir'], { encoding: 'utf8' })
  return [...folders, (stdout ?? '').trim()].find(folder => folder !== '' && existsSync(join(folder, 'initdb')))
}

/** A running server. */
export class PostgresServer {
  readonly port: number
  readonly #child: ChildProcess
  readonly #folder: string

  /** Starts a server on a free port. It refuses to run as root, so it runs as its own user then. */
  static async start(): Promise<PostgresServer> {
    const programs = postgresPrograms()
    if (programs === undefined) throw new Error('PostgreSQL is not installed')
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-postgres-'))
    const user = process.getuid?.() === 0 ? idsOf('postgres') : undefined
    if (user) chownSync(folder, user.uid, user.gid)
    const data = join(folder, 'data')
    const made = spawnSync(
      join(programs, 'initdb'),
      ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync'],
      {
        ...user,
        cwd: folder,
        encoding: 'utf8',
      },
    )
    if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr}`)
    const port = await freePort()
    const settings = {
      port: String(port),
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      max_connections: '300',
      fsync: 'off',
      shared_buffers: '64MB',
    }
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const child = spawn(join(programs, 'postgres'), ['-D', data, ...args], { ...user, cwd: folder, stdio: 'ignore' })
    const server = new PostgresServer(port, child, folder)
    await server.#ready()
    return server
  }

  private constructor(port: number, child: ChildProcess, folder: string) {
    this.port = port
    this.#child = child
    this.#folder = folder
  }

  /** Creates an empty database and returns its URL. */
  static async database(server: string): Promise<string> {
    const name = `t_${randomUUID().replaceAll('-', '')}`
    const client = new pg.Client(`${server}/postgres`)
    await client.connect()
    await client.query(`CREATE DATABASE ${name}`)
    await client.end()
    return `${server}/${name}`
  }

  /** Like `database`, for code that cannot wait. */
  static databaseNow(server: string): string {
    const name = `t_${randomUUID().replaceAll('-', '')}`
    const { hostname, port, username } = new URL(server)
    const program = join(postgresPrograms() ?? '', 'createdb')
    const { status, stderr } = spawnSync(program, ['-h', hostname, '-p', port, '-U', username, name], {
      encoding: 'utf8',
    })
    if (status !== 0) throw new Error(`createdb failed: ${stderr}`)
    return `${server}/${name}`
  }

  /** The URL of the server, without a database. */
  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}`
  }

  /** Stops it as an operator would, breaking off its connections. */
  async stop(): Promise<void> {
    const gone = new Promise(resolve => this.#child.once('exit', resolve))
    this.#child.kill('SIGINT')
    await gone
    rmSync(this.#folder, { recursive: true, force: true })
  }

  /** Pauses it, or lets it continue. */
  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal)
  }

  async #ready(): Promise<void> {
    for (;;) {
      const client = new pg.Client(`${this.url}/postgres`)
      try {
        await client.connect()
        await client.end()
        return
      } catch {
        await client.end().catch(() => {})
        if (this.#child.exitCode !== null) throw new Error('PostgreSQL ended at its start')
        await new Promise(resolve => setTimeout(resolve, 50))
      }
    }
  }
}

function idsOf(user: string): { uid: number; gid: number } {
  const id = (flag: string): number => Number(spawnSync('id', [flag, user], { encoding: 'utf8' }).stdout)
  return { uid: id('-u'), gid: id('-g') }
}
