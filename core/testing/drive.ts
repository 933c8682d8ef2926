/** Drives the hooks of one plugin without a socket: what it learns, answers, throws, and does when the exchange ends. */
import { PassThrough } from 'node:stream'
import { stringify } from 'yaml'
import type { BuiltInHost, BuiltInStage } from '../chain/built-in-stage.ts'
import { checkedStage } from '../chain/checked-stage.ts'
import { HOST_MEMBERS, type Plugin } from '../chain/stage.ts'
import { compileForeign, shapeProblems } from '../config/shape.ts'
import { readYaml } from '../config/yaml.ts'
import type { BuiltInExchange, BuiltInFacts, BuiltInWith } from '../exchange/built-in.ts'
import type { Fact, Outcome, ReplyEvent } from '../exchange/exchange.ts'
import { learn, noteFacts, REPORTING_EXCHANGE } from '../exchange/members.ts'
import { Reply } from '../errors.ts'
import { formatOf, PLAIN } from '../formats/index.ts'
import { promptTexts } from '../formats/prompt.ts'
import { createLog } from '../lib/log.ts'
import { Scrubber } from '../lib/scrubber.ts'
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

/**
 * Sets a plugin up and takes one exchange through its hooks.
 * @throws Error if the gateway would not load the plugin with these options, or if a fact in its `needs` is missing
 */
export async function drive(
  plugin: Plugin,
  { options = {}, exchange = {}, facts = {}, events = [], outcome, host = {} }: Drive,
): Promise<Driven> {
  noteFacts(plugin)
  const missing = plugin.builtIn ? undefined : plugin.needs.find(fact => facts[fact] === undefined)
  if (missing !== undefined) throw new Error(`"${plugin.name}" needs "${missing}"; give it in \`facts\``)
  const setUp: unknown = await plugin.setup(validOptions(plugin, options) as never, hostOf(plugin, host) as never)
  const stage = checkedStage(setUp, plugin)
  const x = exchangeOf(plugin, exchange, facts)
  let given: unknown
  let thrown: unknown
  try {
    given = await stage.request?.(x)
    if (!(given instanceof Reply)) learn(x, given, plugin)
  } catch (error) {
    thrown = error
  }
  for (const event of events) stage.event?.(x, event)
  if (outcome) await stage.settle?.(x, outcome)
  return { given, thrown, stage, x }
}

/** Returns the options with their defaults. @throws Error if they are wrong, in the words of `tollgate check` */
function validOptions({ name, options: schema }: Plugin, options: Record<string, unknown>): unknown {
  const filled = structuredClone(options)
  const valid = compileForeign(schema)
  if (valid(filled)) return filled
  const { source } = readYaml('options', '', stringify({ [name]: options }), {})
  const problems = shapeProblems(source, valid.errors ?? [], [name])
  throw new Error(
    problems.map(({ path, message, hint }) => `${path}: ${message}${hint === undefined ? '' : `; ${hint}`}`).join('\n'),
  )
}

/** Returns a host with what a test has given. As in the gateway, misspelt members throw for plugins of authors. */
function hostOf(plugin: Plugin, given: Partial<BuiltInHost>): object {
  const host = {
    now: Date.now,
    newId: () => 'id',
    config: {},
    log: createLog(new Scrubber(), 'silent', new PassThrough()),
    retired: new AbortController().signal,
    balance: () => Promise.resolve({ granted: 0n, balance: 0n, held: 0n, settled: 0n }),
    usage: () => Promise.resolve({ total: NO_COUNT, days: new Map(), models: new Map() }),
    ...given,
  }
  return plugin.builtIn ? host : Object.setPrototypeOf(host, reportingMisspelt('host', HOST_MEMBERS))
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
    inference: formatOf(path) !== undefined && (given.method ?? 'POST') === 'POST',
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
  return (plugin.builtIn ? x : Object.setPrototypeOf(x, REPORTING_EXCHANGE)) as BuiltInWith<Fact>
}
