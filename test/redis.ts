/** A redis-server that a test can stop, kill and start again. */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { Test } from 'tap'
import { findServer } from '../core/store/managed.ts'
import { until } from './gateway.ts'
import { freePort } from './ports.ts'
import type { GatewayFile } from './gateway-file.ts'

export class RealRedis {
  readonly port: number
  readonly url: string
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-redis-'))
  #child: ChildProcess | undefined

  /** A server on a port; `start` starts one. */
  constructor(port: number) {
    this.port = port
    this.url = `redis://127.0.0.1:${port}`
  }

  /** Starts a server that keeps what it acknowledged. */
  static async start(t: Test, ...settings: string[]): Promise<RealRedis> {
    const redis = new RealRedis(await freePort())
    t.teardown(() => redis.remove())
    await redis.run(...settings)
    return redis
  }

  /** Starts it again on its old files. Resolves when it answers. */
  async run(...settings: string[]): Promise<void> {
    this.launch(...settings)
    await this.command('PING')
  }

  /** Like `run`, but does not wait for it. */
  launch(...settings: string[]): void {
    const own = [
      '--port',
      String(this.port),
      '--bind',
      '127.0.0.1',
      '--dir',
      this.folder,
      '--appendonly',
      'yes',
      '--appendfsync',
      'always',
    ]
    this.#child = spawn(findServer(process.env) as string, [...own, ...settings], { stdio: 'ignore' })
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal)
  }

  async kill(): Promise<void> {
    const child = this.#child
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = new Promise(resolve => child.once('exit', resolve))
    child.kill('SIGKILL')
    await gone
  }

  /** Kills it, and deletes its files. */
  async remove(): Promise<void> {
    this.signal('SIGCONT')
    await this.kill()
    rmSync(this.folder, { recursive: true, force: true })
  }

  /** Runs one command, as an operator would. */
  command(name: string, ...args: string[]): Promise<unknown> {
    return this.#with(client => client.call(name, ...args))
  }

  /**
   * Begins to watch the commands of all clients. ioredis' own `monitor` fails if a command follows its start at once.
   * @returns a function that returns those seen so far
   */
  async monitor(
    t: Test,
  ): Promise<() => { readonly address: string; readonly command: string; readonly values: string }[]> {
    const socket = connect(this.port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    let text = ''
    socket.setEncoding('utf8').on('data', (part: string) => (text += part))
    socket.write('MONITOR\r\n')
    await until(() => text.startsWith('+OK\r\n'))
    return () =>
      [...text.matchAll(/\[\d+ (\S+)\] "(\w+)"(.*)/g)].map(([, address = '', command = '', values = '']) => ({
        address,
        command,
        values,
      }))
  }

  /** Returns how many ended exchanges wait to be recorded, under the prefix of `ownPrefix`. */
  waiting(): Promise<number> {
    return this.#with(async client => {
      const streams = await client.keys('t:*:x')
      const lengths = await Promise.all(streams.map(stream => client.xlen(stream)))
      return lengths.reduce((sum, length) => sum + length, 0)
    })
  }

  /** Writes, and returns how many replicas have the write. A replica that is online may not acknowledge yet. */
  acknowledged(): Promise<number> {
    return this.#with(async client => {
      await client.set('acknowledged', '1')
      return client.wait(1, 1000)
    })
  }

  async #with<T>(use: (client: Redis) => Promise<T>): Promise<T> {
    const client = new Redis(this.port, '127.0.0.1', { retryStrategy: () => 20, maxRetriesPerRequest: 200 })
    client.on('error', () => {})
    try {
      return await use(client)
    } finally {
      client.disconnect()
    }
  }
}

/** Sets a fixed prefix, since only this test uses the server. */
export function ownPrefix(file: GatewayFile): GatewayFile {
  return file.set('store.prefix', 't')
}

/** Starts a server and a replica of it. */
export async function replicated(t: Test): Promise<{ master: RealRedis; replica: RealRedis }> {
  const master = await RealRedis.start(t, '--repl-diskless-sync-delay', '0')
  const replica = await RealRedis.start(t, '--replicaof', `127.0.0.1 ${master.port}`)
  await until(async () => (await master.acknowledged()) === 1)
  return { master, replica }
}
