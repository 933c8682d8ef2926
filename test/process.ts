/** Tollgate as an operator runs it: a gateway in a process of its own, and commands. */
import { spawn, type ChildProcess } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { runCommandLine } from '../core/commands/command-line.ts'
import { printable } from '../core/commands/printable.ts'
import { Scrubber } from '../core/lib/log.ts'
import { testEnvironment } from './environment.ts'
import { type Edit, rewrite } from './gateway-file.ts'
import { storeEnv, testYaml, upstreamEnv } from './gateway.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const BIN = fileURLToPath(new URL('../bin/tollgate.js', import.meta.url))

export interface Finished {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** A folder with a gateway.yaml, for several processes. */
export class Place {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-place-'))
  readonly file = join(this.folder, 'gateway.yaml')
  readonly #env: Record<string, string>

  /**
   * @param env environment of every process of this place
   * @param ownStore whether the gateway starts a redis-server of its own
   */
  constructor(t: Test, edit?: Edit, env: Record<string, string> = {}, ownStore = false) {
    const store = storeEnv(ownStore)
    this.#env = { ...store.env, ...env }
    writeFileSync(this.file, testYaml(store.prefix, edit))
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }))
  }

  /** Changes the configuration. */
  edit(edit: Edit): void {
    rewrite(this.file, edit)
  }

  copy(from: string, to: string): void {
    cpSync(from, join(this.folder, to))
  }

  spawn(args: readonly string[], env: Record<string, string> = {}): ChildProcess {
    // tap loads its instruments into each child process of a test. Without them, as with an operator, it starts in half
    // the time.
    const command = ['-u', 'NODE_OPTIONS', process.execPath, BIN, ...args]
    return spawn('/usr/bin/env', command, {
      cwd: this.folder,
      env: { ...this.#env, PORT: '0', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }

  /**
   * Runs a command to its end in this process, which takes a tenth of the time of a process of its own.
   * test/story/processes.test.ts shows that both do the same.
   */
  async run(...args: string[]): Promise<Finished> {
    let [out, err] = ['', '']
    const scrubber = new Scrubber()
    const code = await new Promise<number>(exit => {
      const environment = testEnvironment(this.#env, {
        scrubber,
        print: line => (out += `${printable(line)}\n`),
        complain: line => (err += `${printable(scrubber.scrub(line))}\n`),
        exit: status => {
          exit(status)
          return new Promise(() => {})
        },
      })
      // As for an operator, the configuration is in the current folder.
      process.chdir(this.folder)
      void runCommandLine(args, environment, environment).then(() => exit(0))
    })
    process.chdir(ROOT)
    return { code, out, err }
  }

  /** Runs a command to its end in a process of its own. */
  execute(args: readonly string[], env: Record<string, string> = {}): Promise<Finished> {
    const child = this.spawn(args, env)
    let out = ''
    let err = ''
    child.stdout?.on('data', (part: Buffer) => (out += part.toString()))
    child.stderr?.on('data', (part: Buffer) => (err += part.toString()))
    return new Promise(resolve => child.on('close', code => resolve({ code, out, err })))
  }

  /** Creates a key. */
  async key(type: string, credits: string): Promise<{ id: string; key: string }> {
    return JSON.parse((await this.run('keys', 'create', '--type', type, '--credits', credits, '--json')).out) as {
      id: string
      key: string
    }
  }

  /** Starts a gateway; resolves when it listens. */
  async start(t: Test, env: Record<string, string> = {}): Promise<Running> {
    const child = this.spawn(['start'], env)
    const running = new Running(child)
    t.teardown(() => running.stop('SIGTERM'))
    await running.saw(/Tollgate listens on (\S+)/)
    return running
  }
}

export class Running {
  readonly child: ChildProcess
  readonly closed: Promise<number | null>
  output = ''
  readonly #waiting = new Set<() => void>()

  constructor(child: ChildProcess) {
    this.child = child
    const hear = (part: Buffer): void => {
      this.output += part.toString()
      for (const look of this.#waiting) look()
    }
    child.stdout?.on('data', hear)
    child.stderr?.on('data', hear)
    this.closed = new Promise(resolve =>
      child.on('close', code => {
        resolve(code)
        for (const look of this.#waiting) look()
      }),
    )
  }

  get url(): string {
    return /Tollgate listens on (\S+)/.exec(this.output)?.[1] ?? ''
  }

  /** Requests a chat completion. */
  chat(key: string, body: object): Promise<Response> {
    return fetch(`${this.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify(body),
    })
  }

  /** Returns the look-up of a key. */
  async lookUp(
    what: 'keys/lookup/balance' | 'key-info' | 'key-info/history',
    key: string,
  ): Promise<{ status: number; json: any }> {
    const response = await fetch(`${this.url}/api/v1/${what}`, { headers: { authorization: `Bearer ${key}` } })
    return { status: response.status, json: await response.json() }
  }

  /** Returns what is held of a key's balance, in nano-credits. */
  async held(key: string): Promise<string> {
    return (await this.lookUp('keys/lookup/balance', key)).json.exact.held
  }

  /** Waits until the process has printed a match. */
  saw(pattern: RegExp): Promise<RegExpExecArray> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const match = pattern.exec(this.output)
        if (!match && this.child.exitCode === null) return
        this.#waiting.delete(look)
        if (match) resolve(match)
        else reject(new Error(`ended without printing ${pattern}:\n${this.output}`))
      }
      this.#waiting.add(look)
      look()
    })
  }

  /** Returns the ids of its worker processes. */
  workers(): number[] {
    const { pid } = this.child
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .filter(Boolean)
      .map(Number)
    return children.filter(child => readFileSync(`/proc/${child}/cmdline`, 'utf8').includes('tollgate.js'))
  }

  async stop(signal: NodeJS.Signals): Promise<number | null> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal)
    return this.closed
  }
}

/** Starts a gateway of two workers. */
export async function startWorkers(
  t: Test,
  upstream: string,
  lease?: string,
): Promise<{ place: Place; running: Running }> {
  const edit: Edit = file =>
    file.setAll('ledger', { ...(lease !== undefined && { lease }), reapEvery: '50ms' }).set('workers', 2)
  const place = new Place(t, edit, upstreamEnv(upstream))
  return { place, running: await place.start(t) }
}
