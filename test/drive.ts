/** Drives one plugin's hooks without a socket: what it learns, answers, throws, and does when the exchange ends. */
import type {
  Body,
  Config,
  Exchange,
  Fact,
  Facts,
  Host,
  Outcome,
  Plugin,
  ReplyEvent,
  Stage,
  With,
} from '../core/plugin.ts'
import { formatOf, PLAIN } from '../core/formats/index.ts'
import { createLog, Scrubber } from '../core/lib/log.ts'
import { Ajv } from 'ajv'

export interface Drive {
  readonly options?: Record<string, unknown>
  readonly exchange?: Partial<Exchange>
  readonly facts?: Partial<Facts>
  readonly events?: readonly ReplyEvent[]
  readonly outcome?: Outcome
  readonly host?: Partial<Host>
}

export interface Driven {
  /** What `request` returned. Undefined if it returned nothing. */
  readonly given: unknown
  /** What `request` threw. */
  readonly thrown: unknown
  readonly stage: Stage<Fact, Fact>
  /** The exchange with its facts, for hooks that a test calls itself. */
  readonly x: With<Fact>
}

/** Sets a plugin up and takes one exchange through its hooks. */
export async function drive(
  plugin: Plugin,
  { options = {}, exchange = {}, facts = {}, events = [], outcome, host = {} }: Drive,
): Promise<Driven> {
  const filled = structuredClone(options)
  const valid = new Ajv({ useDefaults: true, strict: false }).compile(plugin.options as object)
  if (!valid(filled)) throw new Error(JSON.stringify(valid.errors))
  const stage = await plugin.setup(
    filled as never,
    {
      now: Date.now,
      newId: () => 'id',
      config: {} as Config,
      log: createLog(new Scrubber(), 'silent', process.stdout),
      ...host,
    } as Host,
  )
  const path = exchange.path ?? '/v1/chat/completions'
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
    complete: false,
    read: () => Promise.reject(new Error('no body')),
    stop: () => {},
    reserve: () => {},
    whenClosed: () => () => {},
    ...exchange,
    ...facts,
  }
  let given: unknown
  let thrown: unknown
  try {
    given = await stage.request?.(x as never)
  } catch (error) {
    thrown = error
  }
  const known = Object.assign(x, given)
  for (const event of events) stage.event?.(known as never, event)
  if (outcome) await stage.settle?.(known as never, outcome)
  return { given, thrown, stage, x: known as never }
}

export type { Body }
