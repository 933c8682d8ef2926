/** Tollgate as an operator runs it: gateways and commands, in the process of the tests or in one of their own. */
import { spawn, type ChildProcess } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { runCommandLine } from '../core/commands/command-line.ts'
import type { Environment } from '../core/lib/environment.ts'
import { printable } from '../core/lib/printable.ts'
import { createLog } from '../core/lib/log.ts'
import { Scrubber } from '../core/lib/scrubber.ts'
import { testEnvironment } from './environment.ts'
import { type Edit, rewrite } from './gateway-file.ts'
import { storeEnv, testYaml, UNTIL_MS, upstreamEnv } from './gateway.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** The program. */
export const BIN = join(ROOT, 'bin', 'tollgate.js')

export interface Finished {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** A folder with a gateway.yaml, for several processes. */
export class Place {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-place-'))
  readonly file = join(this.folder, 'gateway.yaml')
  /** The environment of every process of this place. */
  readonly env: Record<string, string>

  /**
   * @param env environment of every process of this place
   * @param ownStore whether the gateway starts a redis-server of its own
   */
  constructor(t: Test, edit?: Edit, env: Record<string, string> = {}, ownStore = false) {
    const store = storeEnv(ownStore)
    this.env = { ...store.env, ...env }
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
      env: { ...this.env, PORT: '0', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
  }

  /** Runs a command to its end. */
  run(...args: string[]): Promise<Finished> {
    return finished(new Inside(this.folder, args, this.env))
  }

  /** Runs a command to its end in a process of its own. */
  execute(args: readonly string[], env: Record<string, string> = {}): Promise<Finished> {
    return finished(this.spawn(args, env))
  }

  /** Creates a key. */
  async key(type: string, credits: string): Promise<{ id: string; key: string }> {
    return JSON.parse((await this.run('keys', 'create', '--type', type, '--credits', credits, '--json')).out) as {
      id: string
      key: string
    }
  }

  /** Starts a gateway; resolves when it listens. */
  start(t: Test, env: Record<string, string> = {}): Promise<Running> {
    const args = ['-c', this.file, 'start']
    return begun(t, new Inside(this.folder, args, { ...this.env, PORT: '0', ...env }))
  }

  /** Starts a gateway in a process of its own, which a test can kill. */
  startProcess(t: Test, env: Record<string, string> = {}): Promise<Running> {
    return begun(t, this.spawn(['start'], env))
  }
}

/** What tests use of a child process. */
type Child = Pick<ChildProcess, 'exitCode' | 'kill' | 'pid' | 'signalCode' | 'stderr' | 'stdout'> & {
  on(event: 'close', listener: (code: number | null) => void): unknown
}

/** The folder in which commands run, and those that have not found their files yet. */
const place = { folder: '', commands: 0, free: Promise.withResolvers<void>() }

/**
 * Runs a command in a folder. The process has one working directory, so that commands in other folders wait.
 * @param run gets a function to call when the command needs the folder no longer
 */
async function within(folder: string, run: (done: () => void) => Promise<void>): Promise<void> {
  while (place.commands > 0 && place.folder !== folder) await place.free.promise
  if (place.commands++ === 0) {
    Object.assign(place, { folder, free: Promise.withResolvers<void>() })
    process.chdir(folder)
  }
  let isDone = false
  const done = (): void => {
    if (isDone) return
    isDone = true
    if (--place.commands > 0) return
    process.chdir(ROOT)
    place.free.resolve()
  }
  return run(done)
}

/**
 * A command in the process of the tests, which takes a tenth of the time of a process of its own.
 * test/story/processes.all.ts shows that both do the same.
 */
class Inside extends EventEmitter implements Child {
  readonly pid = process.pid
  readonly stdout = new PassThrough()
  readonly stderr = new PassThrough()
  exitCode: number | null = null
  readonly signalCode = null
  readonly #handlers = new Map<NodeJS.Signals, () => void>()

  /** @param folder in which it runs */
  constructor(folder: string, args: readonly string[], env: Record<string, string>) {
    super()
    const scrubber = new Scrubber()
    const isStart = args.includes('start')
    const log = createLog(scrubber, isStart ? 'info' : 'silent', this.stdout)
    const environment = testEnvironment(env, {
      scrubber,
      log,
      print: line => void this.stdout.write(`${printable(line)}\n`),
      complain: line => void this.stderr.write(`${printable(scrubber.scrub(line))}\n`),
      onSignal: (signal, handler) => void this.#handlers.set(signal, handler),
      exit: code => {
        log.flush(() => this.#end(code))
        return new Promise(() => {})
      },
    })
    const own = (): Promise<Environment> => Promise.resolve(environment)
    void within(folder, done => {
      // A gateway has read its files when it prints that it listens.
      if (isStart) this.stdout.once('data', done)
      this.stdout.once('end', done)
      return runCommandLine(args, { ...environment, logging: own, quiet: own })
    }).then(() => isStart || this.#end(0))
  }

  /** Does what a signal does. It cannot kill. */
  kill(signal: NodeJS.Signals = 'SIGTERM'): boolean {
    const handler = this.#handlers.get(signal)
    if (!handler) throw new Error(`the process of the tests cannot take ${signal}; use startProcess`)
    handler()
    return true
  }

  #end(code: number): void {
    if (this.exitCode !== null) return
    this.exitCode = code
    for (const stream of [this.stdout, this.stderr]) stream.end()
    void Promise.all([this.stdout, this.stderr].map(stream => once(stream, 'end'))).then(() => this.emit('close', code))
  }
}

async function begun(t: Test, child: Child): Promise<Running> {
  const running = new Running(child)
  t.teardown(() => running.stop('SIGTERM'))
  await running.saw(/Tollgate listens on (\S+)/)
  return running
}

function finished(child: Child): Promise<Finished> {
  let [out, err] = ['', '']
  child.stdout?.on('data', (part: Buffer) => (out += part.toString()))
  child.stderr?.on('data', (part: Buffer) => (err += part.toString()))
  return new Promise(resolve => child.on('close', code => resolve({ code, out, err })))
}

export class Running {
  readonly child: Child
  readonly closed: Promise<number | null>
  output = ''
  readonly #waiting = new Set<() => void>()

  constructor(child: Child) {
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
    return this.post('/v1/chat/completions', key, body)
  }

  post(path: string, key: string, body: object): Promise<Response> {
    return fetch(`${this.url}${path}`, {
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
        if (!match && this.child.exitCode === null && this.child.signalCode === null) return
        this.#waiting.delete(look)
        clearTimeout(late)
        if (match) resolve(match)
        else reject(new Error(`ended without printing ${pattern}:\n${this.output}`))
      }
      const late = setTimeout(() => reject(new Error(`did not print ${pattern}:\n${this.output}`)), UNTIL_MS)
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
  return { place, running: await place.startProcess(t) }
}
