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
  bufferBytes: number
  promises: number
  parsed: number
  messages: number
  redisCalls: number
  redisCommands: number
}

/** What is counted for each request. */
type Cost = Omit<Counts, 'bufferBytes'>

/** A gateway in a process that counts. */
interface Counting {
  readonly running: Running
  readonly key: string
  readonly counts: () => Promise<Counts>
}

/** Makes the key of a customer. */
type Customer = (place: Place) => Promise<{ readonly key: string }>

const withCredits: Customer = place => place.key('famB', '100')

async function startCounting(t: Test, upstream: ScriptedUpstream, customer = withCredits): Promise<Counting> {
  const redis = await RealRedis.start(t)
  // On a busy machine, too, several requests are recorded together.
  const place = new Place(t, file => file.set('ledger.archiveEvery', '1s'), {
    ...upstreamEnv(upstream.url),
    REDIS_URL: redis.url,
  })
  const file = join(place.folder, 'counts')
  const env = { ...process.env, ...place.env, PORT: '0', COUNTS: file, NODE_OPTIONS: '' }
  const running = new Running(
    spawn(process.execPath, ['--expose-gc', '--import', COUNTING, BIN, 'start'], {
      cwd: place.folder,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  )
  t.teardown(() => running.stop('SIGKILL'))
  await running.saw(/Tollgate listens on (\S+)/)
  const { key } = await customer(place)
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
  return { running, key, counts }
}

/** Returns what a request of a lone client costs in the mean, when the gateway has served as many before. */
async function costOf(t: Test, stream: boolean, customer = withCredits): Promise<Cost> {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => (stream ? sse(res, streamOf(200)) : json(res, JSON_REPLY))
  const { running, key, counts } = await startCounting(t, upstream, customer)
  const body = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'Hi' }], stream, stream_options: stream ? { include_usage: true } : undefined } // prettier-ignore
  const ask = async (): Promise<void> => {
    for (let request = 0; request < REQUESTS; request++) await (await running.chat(key, body)).text()
  }
  await ask()
  const before = await counts()
  await ask()
  const after = await counts()
  const cost = { ...after, redisCommands: after.redisCommands - before.redisCommands }
  return Object.fromEntries(Object.entries(cost).map(([name, count]) => [name, count / REQUESTS])) as unknown as Cost
}

/**
 * What a lone request may cost. Calls of scripts, and the commands in them, are commands. What happens once a second is a
 * fraction of a request.
 */
const MOST: Cost = {
  promises: 160,
  parsed: 5,
  messages: 1,
  redisCalls: 3,
  redisCommands: 14,
}

/** What a lone JSON request costs, once it is known. */
let lone: Cost | undefined

for (const stream of [false, true])
  t.test(`a lone ${stream ? 'stream of 200 events' : 'JSON request'} costs what is stated`, async t => {
    const cost = await costOf(t, stream)
    if (!stream) lone = cost
    t.comment(JSON.stringify(cost))
    for (const [name, most] of Object.entries(MOST)) {
      const count = Math.floor(cost[name as keyof typeof MOST])
      t.ok(count <= most, `${name}: ${count}, at most ${most}`)
    }
  })

/** A key, one of three, of a balance with a plan of three windows. */
const withPlan: Customer = async place => {
  const terms = '{ windows: [{ credits: 100, per: month }, { credits: 50, per: 5h }, { requests: 10000, per: day }] }'
  const run = async (...args: string[]): Promise<any> => JSON.parse((await place.run(...args, '--json')).out)
  const { id } = await run('balances', 'create')
  await run('balances', 'plan', 'set', id, '--terms', terms)
  const keys = await Promise.all([1, 2, 3].map(() => run('keys', 'create', '--type', 'famB', '--balance', id)))
  return keys[2]
}

t.test('a request that a plan pays for costs at most two commands more', async t => {
  const plain = lone ?? (await costOf(t, false))
  const planned = await costOf(t, false, withPlan)
  t.comment(JSON.stringify([plain, planned]))
  const more = planned.redisCommands - plain.redisCommands
  // What happens once a second is a fraction of a request.
  t.ok(more < 2.5, `${more} more`)
  t.ok(planned.redisCalls <= plain.redisCalls + 0.5, `${planned.redisCalls} calls, ${plain.redisCalls} without a plan`)
})

const STREAMS = 20
const CONVERSATION_BYTES = 1_000_000
/** What a stream may keep of its request, with all other buffers of the process. */
const KEPT_BYTES_MAX = 50_000

for (const [path, member] of [
  ['/v1/chat/completions', 'messages'],
  ['/v1/responses', 'input'],
] as const)
  t.test(`a stream at ${path} keeps nothing of its conversation once its content comes`, async t => {
    const upstream = await ScriptedUpstream.start(t)
    const ends: (() => void)[] = []
    const [first = '', ...rest] = streamOf(1).split(/(?<=\n\n)/)
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write(first)
      ends.push(() => res.end(rest.join('')))
    }
    const { running, key, counts } = await startCounting(t, upstream)
    const content = 'word '.repeat(CONVERSATION_BYTES / 5)
    const body = { model: 'acme/famB-4.5', [member]: [{ role: 'user', content }], stream: true }
    const ask = (): Promise<Response> => running.post(path, key, body)
    const finish = async (replies: readonly Response[]): Promise<void> => {
      for (const end of ends.splice(0)) end()
      for (const reply of replies) t.match(await reply.text(), /"stop"|response.completed/)
    }
    // What the process needs for the first request stays.
    await finish([await ask()])
    const before = await counts()
    const replies = await Promise.all(Array.from({ length: STREAMS }, ask))
    const open = await counts()
    const kept = (open.bufferBytes - before.bufferBytes) / STREAMS
    t.ok(kept < KEPT_BYTES_MAX, `${Math.round(kept)} bytes a stream`)
    await finish(replies)
  })
