/** Drives the hooks of one plugin without a socket: what it learns, answers, throws, and does when the exchange ends. */
import { PassThrough } from 'node:stream'
import { Ajv } from 'ajv'
import type { BuiltInHost, BuiltInStage } from '../chain/built-in-stage.ts'
import { HOST_MEMBERS, type Plugin } from '../chain/stage.ts'
import type { BuiltInExchange, BuiltInFacts, BuiltInWith } from '../exchange/built-in.ts'
import { EXCHANGE_MEMBERS, type Fact, FACTS, type Outcome, type ReplyEvent } from '../exchange/exchange.ts'
import { formatOf, PLAIN } from '../formats/index.ts'
import { promptTexts } from '../formats/prompt.ts'
import { createLog, Scrubber } from '../lib/log.ts'
import { reportingMisspelt } from '../lib/misspelt.ts'

/** How a plugin is driven. What is left out has a plain value: a POST to chat completions, no facts, no events. */
export interface Drive {
  /** The options of the stage, as gateway.yaml would have them. Defaults are filled in. */
  readonly options?: Record<string, unknown>
  /** Members of the exchange, such as `path` and `headers`. */
  readonly exchange?: Partial<BuiltInExchange>
  /** Facts that stages above would give. `bodyOf` makes a body. */
  readonly facts?: Partial<BuiltInFacts>
  /** Events of the reply, as `replyEvents` makes them. */
  readonly events?: readonly ReplyEvent[]
  /** How the exchange ends. Without it, `settle` does not run. */
  readonly outcome?: Outcome
  /** Members of the host, such as a clock of the test. */
  readonly host?: Partial<BuiltInHost>
}

/** What the hooks did. */
export interface Driven {
  /** What `request` returned. Undefined if it returned nothing. */
  readonly given: unknown
  /** What `request` threw. */
  readonly thrown: unknown
  /** The stage, for hooks that a test calls itself. */
  readonly stage: BuiltInStage<Fact, Fact>
  /** The exchange with its facts. */
  readonly x: BuiltInWith<Fact>
}

const NO_COUNT = { requests: 0, input: 0, output: 0, charge: 0n }

/** Sets a plugin up and takes one exchange through its hooks. */
export async function drive(
  plugin: Plugin,
  { options = {}, exchange = {}, facts = {}, events = [], outcome, host = {} }: Drive,
): Promise<Driven> {
  const filled = structuredClone(options)
  const valid = new Ajv({ useDefaults: true, strict: false }).compile(plugin.options as object)
  if (!valid(filled)) throw new Error(JSON.stringify(valid.errors))
  const stage = (await plugin.setup(filled as never, hostOf(plugin, host) as never)) as BuiltInStage<Fact, Fact>
  const x = exchangeOf(plugin, exchange, facts)
  let given: unknown
  let thrown: unknown
  try {
    given = await stage.request?.(x)
  } catch (error) {
    thrown = error
  }
  Object.assign(x, given)
  for (const event of events) stage.event?.(x, event)
  if (outcome) await stage.settle?.(x, outcome)
  return { given, thrown, stage, x }
}

/** Returns a host with what a test has given. As in the gateway, misspelt members throw for plugins of authors. */
function hostOf(plugin: Plugin, given: Partial<BuiltInHost>): object {
  const host = plugin.builtIn ? {} : Object.create(reportingMisspelt('host', HOST_MEMBERS))
  return Object.assign(host, {
    now: Date.now,
    newId: () => 'id',
    config: {},
    log: createLog(new Scrubber(), 'silent', new PassThrough()),
    retired: new AbortController().signal,
    balance: () => Promise.resolve({ granted: 0n, balance: 0n, held: 0n, settled: 0n }),
    usage: () => Promise.resolve({ total: NO_COUNT, days: new Map(), models: new Map() }),
    ...given,
  })
}

/** Returns an exchange with what a test has given. */
function exchangeOf(plugin: Plugin, given: Partial<BuiltInExchange>, facts: Partial<BuiltInFacts>): BuiltInWith<Fact> {
  const path = given.path ?? '/v1/chat/completions'
  const x = {
    id: 'exchange-1',
    method: 'POST',
    path,
    query: new URLSearchParams(),
    headers: {},
    format: formatOf(path) ?? PLAIN,
    inference: formatOf(path) !== undefined,
    address: '127.0.0.1',
    addressGroup: '127.0.0.1',
    addHeaders: () => {},
    caller: facts.key,
    identify: () => {},
    signal: new AbortController().signal,
    startedAt: 0,
    firstByteAfter: undefined,
    delivered: 0,
    elapsedMs: 0,
    complete: false,
    gone: false,
    prompt: (): Promise<readonly string[]> => promptTexts(facts.body),
    read: () => Promise.reject(new Error('no body')),
    stop: () => {},
    reserve: () => {},
    whenClosed: () => () => {},
    ...given,
    ...facts,
  }
  const guard = reportingMisspelt('x', [...EXCHANGE_MEMBERS, ...FACTS], isFact)
  return (plugin.builtIn ? x : Object.setPrototypeOf(x, guard)) as BuiltInWith<Fact>
}

function isFact(name: string): boolean {
  return (FACTS as readonly string[]).includes(name)
}
