/** A gateway in a process that counts what its requests cost. */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import type { Test } from 'tap'
import { until, upstreamEnv } from './gateway.ts'
import type { Edit } from './gateway-file.ts'
import { Place, Running } from './process.ts'
import { ownPrefix, RealRedis } from './redis.ts'
import type { ScriptedUpstream } from './upstream.ts'

const BIN = fileURLToPath(new URL('../bin/tollgate.js', import.meta.url))
const COUNTING = fileURLToPath(new URL('counting.js', import.meta.url))
const MEMBERS = { id: 'c', object: 'chat.completion', model: 'vendor/x-1' }
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }

/** A reply of one word. */
export const JSON_REPLY = {
  ...MEMBERS,
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  usage: USAGE,
}

/** Returns a stream with so many events of text. */
export function streamOf(events: number): string {
  const event = (members: object): string => `data: ${JSON.stringify({ ...MEMBERS, ...members })}\n\n`
  const text = event({ choices: [{ index: 0, delta: { content: 'word' }, finish_reason: null }], usage: null })
  const end = event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: null })
  return `${text.repeat(events)}${end}${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`
}

/** What the process has counted since its start. */
export interface Counts {
  readonly promises: number
  /** Calls of JSON.parse. */
  readonly parsed: number
  /** Messages to the threads of the records and of long jobs. */
  readonly messages: number
  /** Round trips to Redis before requests were sent, of all requests. */
  readonly roundTrips: number
  /** Turns of the event loop. */
  readonly turns: number
  /** Calls of the system. */
  readonly reads: number
  readonly writes: number
  readonly bufferBytes: number
  /** Commands that Redis has run for the gateway, those of its script included. */
  readonly commands: number
  /** Commands that the gateway has sent: one that runs the script is one. */
  readonly calls: number
  /** Times that the gateway has said that it lives, as it does once a second. */
  readonly beats: number
}

/** A gateway that counts. */
export interface Counting {
  readonly place: Place
  readonly running: Running
  /** Waits until nothing is held, and if it records, until everything is recorded. */
  readonly rest: () => Promise<void>
  readonly counts: () => Promise<Counts>
  /** Waits until the gateway has said so many times that it lives. */
  readonly beat: (times: number) => Promise<void>
}

/**
 * Starts a gateway that counts, with a Redis of its own.
 * @param records whether it records what ends while it is counted
 */
export async function startCounting(
  t: Test,
  upstream: ScriptedUpstream,
  edit: Edit = file => file,
  records = false,
): Promise<Counting> {
  const redis = await RealRedis.start(t)
  const every = records ? '1s' : '1h'
  const place = new Place(t, file => edit(ownPrefix(file).set('ledger.archiveEvery', every)), {
    ...upstreamEnv(upstream.url),
    REDIS_URL: redis.url,
  })
  const file = join(place.folder, 'counts')
  const lines = (): string[] => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [])
  const running = new Running(
    spawn(process.execPath, ['--expose-gc', '--import', COUNTING, BIN, 'start'], {
      cwd: place.folder,
      // V8 would count the coverage, too.
      env: { ...process.env, ...place.env, PORT: '0', COUNTS: file, NODE_OPTIONS: '', NODE_V8_COVERAGE: '' },
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  )
  t.teardown(() => running.stop('SIGKILL'))
  await running.saw(/Tollgate listens on (\S+)/)
  const own = new Redis(redis.url)
  t.teardown(() => own.disconnect())
  const address = /\baddr=(\S+)/.exec(await own.client('INFO'))?.[1]
  const seen = await redis.monitor(t)
  const ofGateway = (): ReturnType<typeof seen> => seen().filter(each => each.address !== address)
  const isBeat = ({ command, values }: ReturnType<typeof seen>[number]): boolean =>
    command === 'HSET' && values.includes('"beat"')
  const beats = (): number => ofGateway().filter(isBeat).length
  const left = async (): Promise<number> => {
    const keys = await own.keys('t:*')
    const streams = records ? keys.filter(key => key.endsWith(':x')) : []
    const waiting = await Promise.all(streams.map(key => own.xlen(key)))
    const leases = await Promise.all(keys.filter(key => key.endsWith(':l')).map(key => own.zcard(key)))
    return [...waiting, ...leases].reduce((sum, count) => sum + count, 0)
  }
  return {
    place,
    running,
    rest: () => until(async () => (await left()) === 0),
    async counts() {
      const before = lines().length
      running.child.kill('SIGUSR2')
      await until(() => lines().length > before)
      const commands = ofGateway()
      const calls = commands.filter(each => each.address !== 'lua').length
      return { ...JSON.parse(lines().at(-1) ?? ''), commands: commands.length, calls, beats: beats() } as Counts
    },
    beat(times) {
      const end = beats() + times
      return until(() => beats() >= end)
    },
  }
}
