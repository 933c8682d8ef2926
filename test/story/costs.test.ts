import { spawn } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { until, upstreamEnv } from '../gateway.ts'
import { Place, Running } from '../process.ts'
import { RealRedis } from '../redis.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'

/** What a request costs in calls and objects, which does not depend on the machine. Recording is included. */

const BIN = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url))
const COUNTING = fileURLToPath(new URL('../counting.js', import.meta.url))
const REQUESTS = 100
const MEMBERS = { id: 'c', object: 'chat.completion', model: 'vendor/x-1' }
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
const message = { role: 'assistant', content: 'Hello' }
const JSON_REPLY = { ...MEMBERS, choices: [{ index: 0, message, finish_reason: 'stop' }], usage: USAGE }

function streamOf(events: number): string {
  const event = (members: object): string => `data: ${JSON.stringify({ ...MEMBERS, ...members })}\n\n`
  const text = event({ choices: [{ index: 0, delta: { content: 'word' }, finish_reason: null }], usage: null })
  const end = event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: null })
  return `${text.repeat(events)}${end}${event({ choices: [], usage: USAGE })}data: [DONE]\n\n`
}

interface Counts {
  promises: number
  parsed: number
  messages: number
  redisCalls: number
  redisCommands: number
}

/** Returns what a request of a lone client costs in the mean, when the gateway has served as many before. */
async function costOf(t: Test, stream: boolean): Promise<Counts> {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => (stream ? sse(res, streamOf(200)) : json(res, JSON_REPLY))
  const redis = await RealRedis.start(t)
  // On a busy machine, too, several requests are recorded together.
  const place = new Place(t, file => file.set('ledger.archiveEvery', '1s'), {
    ...upstreamEnv(upstream.url),
    REDIS_URL: redis.url,
  })
  const file = join(place.folder, 'counts')
  const env = { ...process.env, ...place.env, PORT: '0', COUNTS: file, NODE_OPTIONS: '' }
  const running = new Running(
    spawn(process.execPath, ['--import', COUNTING, BIN, 'start'], {
      cwd: place.folder,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  )
  t.teardown(() => running.stop('SIGKILL'))
  await running.saw(/Tollgate listens on (\S+)/)
  const { key } = await place.key('famB', '100')
  const own = new Redis(redis.url)
  t.teardown(() => own.disconnect())
  const redisCommands = async (): Promise<number> =>
    Number(/total_commands_processed:(\d+)/.exec(await own.info('stats'))?.[1])
  const counts = async (): Promise<Counts> => {
    rmSync(file, { force: true })
    running.child.kill('SIGUSR2')
    await until(() => existsSync(file))
    return { ...JSON.parse(readFileSync(file, 'utf8')), redisCommands: await redisCommands() } as Counts
  }
  const body = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Hi' }], stream, stream_options: stream ? { include_usage: true } : undefined } // prettier-ignore
  const ask = async (): Promise<void> => {
    for (let request = 0; request < REQUESTS; request++) await (await running.chat(key, body)).text()
  }
  await ask()
  const before = await counts()
  await ask()
  const after = await counts()
  const cost = { ...after, redisCommands: after.redisCommands - before.redisCommands }
  return Object.fromEntries(Object.entries(cost).map(([name, count]) => [name, count / REQUESTS])) as unknown as Counts
}

/**
 * What a lone request may cost. Calls of scripts, and the commands in them, are commands. What happens once a second is a
 * fraction of a request.
 */
const MOST: Counts = { promises: 160, parsed: 5, messages: 1, redisCalls: 3, redisCommands: 14 }

for (const stream of [false, true])
  t.test(`a lone ${stream ? 'stream of 200 events' : 'JSON request'} costs what is stated`, async t => {
    const cost = await costOf(t, stream)
    t.comment(JSON.stringify(cost))
    for (const [name, most] of Object.entries(MOST)) {
      const count = Math.floor(cost[name as keyof Counts])
      t.ok(count <= most, `${name}: ${count}, at most ${most}`)
    }
  })
