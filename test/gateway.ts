/** Starts a gateway in the test's own process, with the repository's gateway.yaml and a real Redis. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { loadConfig } from '../core/config/load.ts'
import { Gateway } from '../core/gateway.ts'
import { audit } from '../core/ledger/audit.ts'
import type { Environment } from '../core/lib/environment.ts'
import { NANO } from '../core/money/credits.ts'
import type { Ledger } from '../core/ledger/ledger.ts'
import type { OperationName } from '../core/ledger/script/names.ts'
import { findServer } from '../core/store/managed.ts'
import { checkChain } from '../core/chain/check-chain.ts'
import { type Edit, edited } from './gateway-file.ts'
import { testEnvironment } from './environment.ts'
import { PostgresServer } from './postgres.ts'

/** The repository's file without its comments, so that each gateway reads it in less time. */
const REPOSITORY_YAML = readFileSync(new URL('../gateway.yaml', import.meta.url), 'utf8').replaceAll(/^ *#.*\n/gm, '')

/** The prefix of a store that no other test uses, as gateway.yaml has it. */
export const OWN_STORE_PREFIX = 'tollgate'

/**
 * The repository's file for a test: with a prefix of its own, on the loopback interface, and patient with a store on a
 * busy machine.
 */
export function testYaml(prefix: string, edit: Edit = file => file): string {
  return edited(REPOSITORY_YAML, file => {
    if (prefix !== OWN_STORE_PREFIX) file.set('store.prefix', prefix)
    return edit(file.set('listen.host', '127.0.0.1').set('store.commandTimeout', '2s'))
  })
}

export interface Options {
  /** The address of all four upstreams. Without it they are simulated. */
  readonly upstream?: string
  readonly env?: Record<string, string>
  /** Replaces parts of the environment, such as the log. */
  readonly environment?: Partial<Environment>
  /** Changes gateway.yaml. */
  readonly edit?: Edit
  /** Whether the gateway starts a redis-server of its own, for a test of that server. */
  readonly ownStore?: boolean
}

export interface TestGateway {
  readonly gateway: Gateway
  readonly url: string
  readonly file: string
  /** Creates a key. Returns its secret. */
  key(type: string, credits?: bigint, expiresAt?: number): Promise<string>
  /** The same, with nano-credits. */
  keyOfNano(type: string, credits: bigint, expiresAt?: number): Promise<string>
  /** Returns the public id of a secret's key. */
  id(secret: string): Promise<string>
  /** Sends a request. The test reads the reply itself. */
  open(path: string, options?: CallOptions): Promise<Response>
  call(path: string, options?: CallOptions): Promise<Answer>
  balance(secret: string): Promise<Record<string, any>>
  /** Returns the history of a key, as its customer sees it. */
  history(secret: string): Promise<Record<string, any>[]>
  /** Waits until nothing is held of these keys and nothing runs, then audits them. */
  settledAll(secrets: readonly string[]): Promise<void>
  /** The same for one key. Returns its history. */
  settled(secret: string): Promise<Record<string, any>[]>
}

export interface CallOptions {
  readonly key?: string | undefined
  readonly body?: unknown
  readonly headers?: Record<string, string>
  readonly method?: string
  readonly signal?: AbortSignal
}

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly json: any
}

/** Returns an environment that points every upstream at one address. */
export function upstreamEnv(url: string, key = 'upstream-secret-0123456789'): Record<string, string> {
  return Object.fromEntries(
    ['FAMA', 'FAMB', 'FAMC', 'EDITOR'].flatMap(name => [
      [`${name}_URL`, url],
      [`${name}_KEY`, key],
    ]),
  )
}

/**
 * The store for one test: the shared one under a unique prefix, or a server that the gateway starts.
 * @param own whether the gateway starts one in any case
 */
export function storeEnv(own = false): { env: Record<string, string>; prefix: string } {
  const url = own && findServer(process.env) !== undefined ? undefined : sharedStore()
  return {
    env: {
      PATH: process.env['PATH'] ?? '',
      ...(url !== undefined && { REDIS_URL: url }),
      ...recordsEnv(),
    },
    prefix: url === undefined ? OWN_STORE_PREFIX : `t-${randomUUID().slice(0, 8)}`,
  }
}

/** The Redis that tests share. `npm test` starts one for each of its jobs; TEST_REDIS names another one. */
function sharedStore(): string | undefined {
  const urls = (process.env['TEST_REDIS'] ?? '').split(' ')
  return urls[Number(process.env['TAP_JOB_ID'] ?? 0) % urls.length] || undefined
}

/**
 * The records for one test, which several of its gateways may share: `TEST_RECORDS=postgres` makes a new database.
 * Otherwise they are SQLite in the data folder.
 */
export function recordsEnv(): Record<string, string> {
  const server = process.env['TEST_POSTGRES']
  if (process.env['TEST_RECORDS'] !== 'postgres') return {}
  if (server === undefined) throw new Error('TEST_RECORDS=postgres needs TEST_POSTGRES')
  return { DATABASE_URL: PostgresServer.databaseNow(server) }
}

/** Returns an edit for a gateway that uses the records of a running one. */
export function beside({ file }: Pick<TestGateway, 'file'>, edit: Edit): Edit {
  return each => edit(each).set('store.data', join(dirname(file), 'data'))
}

/** How long `until` waits, in milliseconds. It bounds a test that hangs, also on a busy machine. */
export const UNTIL_MS = Number(process.env['UNTIL_S'] ?? 180) * 1000

/** Polls for a condition that has no event. @throws Error if it does not hold for minutes */
export async function until(held: () => boolean | Promise<boolean>): Promise<void> {
  const late = new Error(`this did not become true: ${String(held)}`)
  const began = performance.now()
  while (!(await held())) {
    if (performance.now() - began > UNTIL_MS) throw late
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}

/** Returns a growing list with the account of each run of an operation from now on. */
export function operations({ gateway }: TestGateway, operation: OperationName): readonly string[] {
  const { scripts } = gateway.ledger
  const run = scripts.run.bind(scripts)
  const accounts: string[] = []
  scripts.run = requested => {
    if (requested.name === operation) accounts.push(requested.account)
    return run(requested)
  }
  return accounts
}

/** Returns the holds of an account as the store has them, by the names of their leases. */
export async function holdsOf({ scripts }: Ledger, account: string): Promise<Map<string, string>> {
  const { redis, keys } = scripts
  const leases = await redis.zrange(keys.of(account).leases, '0', '-1')
  const own = leases.filter(lease => lease.startsWith(`${account} `))
  const texts = await Promise.all(own.map(lease => redis.get(keys.hold(account, lease.split(' ')[1] ?? ''))))
  return new Map(own.map((lease, index) => [lease, texts[index] ?? '']))
}

/** Lets the leases of an account's holds be over, as after a pause that was longer than they are. */
export async function expireHolds(ledger: Ledger, account: string): Promise<void> {
  const { redis, keys } = ledger.scripts
  for (const lease of (await holdsOf(ledger, account)).keys()) await redis.zadd(keys.of(account).leases, 'XX', 1, lease)
}

export async function startGateway(t: Test, options: Options = {}): Promise<TestGateway> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'))
  const file = join(folder, 'gateway.yaml')
  const store = storeEnv(options.ownStore)
  writeFileSync(file, testYaml(store.prefix, options.edit))
  const env = {
    ...store.env,
    PORT: '0',
    LOG_LEVEL: process.env['LOG_LEVEL'] ?? 'silent',
    ...(options.upstream !== undefined && upstreamEnv(options.upstream)),
    ...options.env,
  }
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const loaded = await loadConfig(file, env, checkChain)
  if (!loaded.config) throw new Error(JSON.stringify(loaded.problems, null, 2))
  const gateway = await Gateway.start(testEnvironment(env, options.environment), loaded)
  t.teardown(() => gateway.stop())
  return new Handle(gateway, file)
}

class Handle implements TestGateway {
  readonly gateway: Gateway
  readonly file: string
  readonly url: string

  constructor(gateway: Gateway, file: string) {
    this.gateway = gateway
    this.file = file
    this.url = `http://127.0.0.1:${gateway.port}`
  }

  key(type: string, credits = 10n, expiresAt?: number): Promise<string> {
    return this.keyOfNano(type, credits * NANO, expiresAt)
  }

  async keyOfNano(type: string, credits: bigint, expiresAt?: number): Promise<string> {
    const wish = { type, name: 'test', credits, expiresAt }
    const { secret, reached } = await this.gateway.keys.changes.create(wish)
    if (reached !== 'store') throw new Error('the store has failed')
    return secret
  }

  async id(secret: string): Promise<string> {
    const key = await this.gateway.keys.refind(secret)
    if (!key) throw new Error('the gateway does not know this key')
    return key.id
  }

  open(path: string, { key, body, headers = {}, method, signal }: CallOptions = {}): Promise<Response> {
    return fetch(this.url + path, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && {
        body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
      }),
      ...(signal && { signal }),
    })
  }

  async call(path: string, options: CallOptions = {}): Promise<Answer> {
    const response = await this.open(path, options)
    const text = await response.text()
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch {
      json = undefined
    }
    return { status: response.status, headers: response.headers, text, json }
  }

  async balance(secret: string): Promise<Record<string, any>> {
    return (await this.call('/api/v1/keys/lookup/balance', { key: secret })).json
  }

  async history(secret: string): Promise<Record<string, any>[]> {
    const { status, json, text } = await this.call('/api/v1/key-info/history', { key: secret })
    if (status !== 200) throw new Error(`the history is answered with ${status}: ${text}`)
    return json.data
  }

  async settledAll(secrets: readonly string[]): Promise<void> {
    const { ledger } = this.gateway
    const ids = await Promise.all(secrets.map(secret => this.id(secret)))
    const isHeld = async (): Promise<boolean> =>
      (await Promise.all(ids.map(id => ledger.reads.balance(id)))).some(({ held }) => held > 0n)
    await until(async () => ledger.live === 0 && !(await isHeld()))
    const { drifts } = await audit(ledger, ids)
    if (drifts.length > 0) throw new Error(`the ledger drifted: ${JSON.stringify(drifts)}`)
  }

  async settled(secret: string): Promise<Record<string, any>[]> {
    await this.settledAll([secret])
    return this.history(secret)
  }
}
