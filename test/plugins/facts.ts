/** Facts and a host for driving plugins: the repository's configuration, keys, bodies, models and replies. */
import { fileURLToPath } from 'node:url'
import { checkChain } from '../../core/chain/check-chain.ts'
import type { Config } from '../../core/config/config.ts'
import { loadConfig } from '../../core/config/load.ts'
import { bodyOf } from 'tollgate/testing'
import { ReplyEvent } from '../../core/formats/events.ts'
import { formatOf, PLAIN } from '../../core/formats/index.ts'
import type { Head } from 'tollgate/plugin'
import { type BuiltInExchange, type BuiltInFacts, type BuiltInHost, type Format, Route } from 'tollgate/plugin/metering'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { NANO } from '../../core/money/credits.ts'
import { Pool } from '../../core/pool/pool.ts'

const FILE = fileURLToPath(new URL('../../gateway.yaml', import.meta.url))

/** The configuration of the repository. */
export const config: Config = await loadConfig(FILE, {}, checkChain).then(({ config }) => config as Config)

/** A host with the configuration, and with what a test adds. */
export function hostWith(more: Record<string, unknown> = {}): Partial<BuiltInHost> {
  return { config, now: () => NOW, pool: poolOf(), ...more }
}

/** The accounts of the repository's configuration, which are all well. */
export function poolOf(): Pool {
  const pool = new Pool({ log: createLog(new Scrubber(), 'silent', process.stdout), now: () => NOW })
  pool.use(config.upstreams.values())
  return pool
}

export const NOW = Date.UTC(2030, 0, 1, 12)
export const CHAT = '/v1/chat/completions'
export const RESPONSES = '/v1/responses'
export const MESSAGES = '/v1/messages'

export function format(path: string): Format {
  return formatOf(path) ?? PLAIN
}

/** The counters of a key without requests. */
export const NO_SUMMARY = {
  total: { requests: 0, input: 0, output: 0, charge: 0n },
  days: new Map(),
  models: new Map(),
  quarantined: 0,
  unlisted: 0,
}

/** An active key with ten credits. */
export function keyOf(type: string, more: Partial<BuiltInFacts['key']> = {}): BuiltInFacts['key'] {
  return {
    id: 'key_1',
    account: 'key_1',
    spender: { account: 'key_1' },
    whose: { account: 'key_1' },
    cap: undefined,
    type,
    status: 'active',
    expiresAt: undefined,
    version: '1',
    rotation: '0',
    label: 'sk-...abcd',
    balance: 10n * NANO,
    granted: 10n * NANO,
    settled: 0n,
    limits: undefined,
    plan: undefined,
    createdAt: NOW,
    ...more,
  }
}

export function bodyFrom(value: unknown): BuiltInFacts['body'] {
  return bodyOf(Buffer.from(JSON.stringify(value)))
}

export function modelOf(type: string, id: string): BuiltInFacts['model'] {
  const entry = config.keyTypes.get(type)?.models.get(id)
  if (!entry) throw new Error(`there is no model ${id}`)
  return { asked: id, entry, headers: {} }
}

/** The route of a key type's requests in a format that its upstream supports. */
export function routeOf(type: string, path: string): BuiltInFacts['route'] {
  const upstream = config.keyTypes.get(type)?.upstreams[0]
  if (!upstream) throw new Error(`there is no key type ${type}`)
  const [account] = upstream.accounts
  if (!account) throw new Error(`${upstream.name} has no account`)
  const retry = config.keyTypes.get(type)?.retry as BuiltInFacts['route']['retry']
  return new Route({
    candidates: [{ upstream, account, format: format(path), model: 'm', lastResort: false }],
    retry,
    translate: () => undefined,
  })
}

/** The head of a reply with status 200, or another one. */
export function headOf(more: Partial<Head> = {}): Head {
  return { status: 200, headers: {}, reply: {}, stream: false, ...more } as Head
}

/** An event of a stream, or a JSON reply, as a format reads it. */
export function event(path: string, json: unknown): ReplyEvent {
  return new ReplyEvent(format(path), '', JSON.stringify(json))
}

/** An exchange at a path. */
export function at(path: string, more: Partial<BuiltInExchange> = {}): Partial<BuiltInExchange> {
  return { path, method: path.startsWith('/v1/') ? 'POST' : 'GET', ...more }
}
