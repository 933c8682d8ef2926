/**
 * What holding and settling costs a Redis, beside the script of the first ledger, whose history was in the store. Both
 * run on servers of their own, in turns.
 */
import { readFileSync } from 'node:fs'
import { Redis } from 'ioredis'
import { Buckets } from '../../core/ledger/script/buckets.ts'
import { Hold, type HoldRequest } from '../../core/ledger/hold.ts'
import { holdOperation, settleOperation } from '../../core/ledger/operations.ts'
import { Scripts } from '../../core/ledger/script/scripts.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import { NOTES_AT_END, NOTES_AT_START } from '../sample-notes.ts'
import { inputTokens } from '../../core/money/usage.ts'

/** Keys that take turns, requests of one slice, slices, and requests at the same time. */
const ACCOUNTS = 200
const REQUESTS = 2000
const SLICES = Number(process.env['SLICES'] ?? 20)
const AT_ONCE = 50

const LIMITS = { leaseMs: 60_000, retriesMs: 900_000, waivers: 20, freeEntries: 10 }

/** What requests have cost a server. */
interface Cost {
  readonly cpuMs: number
  readonly commands: number
}

/** One script with its server. */
interface Side {
  readonly redis: Redis
  hold(account: string, id: string, bucket: string): Promise<unknown>
  settle(account: string, id: string, bucket: string): Promise<unknown>
}

async function costOf(redis: Redis): Promise<Cost> {
  const [cpu, stats] = [await redis.info('cpu'), await redis.info('stats')]
  const of = (text: string, name: string): number => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(text)?.[1] ?? 0)
  return {
    cpuMs: (of(cpu, 'used_cpu_user') + of(cpu, 'used_cpu_sys')) * 1000,
    commands: of(stats, 'total_commands_processed'),
  }
}

const names = Array.from({ length: ACCOUNTS }, (_, index) => `key_${String(index).padStart(18, '0')}`)

/** The script of the first ledger, with its batches. */
async function first(url: string): Promise<Side> {
  const redis = new Redis(url)
  redis.defineCommand('run', { lua: `#!lua\n${readFileSync(new URL('ledger-v1.lua', import.meta.url), 'utf8')}` })
  const run = (redis as unknown as { run(...args: unknown[]): Promise<unknown[]> }).run.bind(redis)
  for (const name of names)
    await redis.hset(`t:{${name}}:a`, {
      v: '1',
      type: 'famC',
      status: 'active',
      expires: '',
      ver: '1',
      rot: '',
      bal: '900000000000000',
      gra: '900000000000000',
    })
  let queue: { account: string; id: string; line: string; resolve: (answer: unknown) => void }[] = []
  const flush = (): void => {
    const batch = queue.splice(0, 64)
    if (queue.length > 0) setImmediate(flush)
    const places = new Map<string, number>()
    for (const { account } of batch) if (!places.has(account)) places.set(account, places.size)
    const keys = [...places.keys()].flatMap(account =>
      ['a', 'h', 'd', 'x', 'g', 't', 'u', 'b'].map(part => `t:{${account}}:${part}`),
    )
    for (const { account, id } of batch) keys.push(`t:{${account}}:i:${id}`, `t:{${account}}:r:`)
    const lines = batch.map(({ account, line }) => `${places.get(account)}\n${line}`)
    run(keys.length, keys, lines).then(answers => batch.forEach(({ resolve }, index) => resolve(answers[index])))
  }
  const ask = (account: string, id: string, name: string, args: string[]): Promise<unknown> =>
    new Promise(resolve => {
      queue.push({ account, id, line: [name, ...args].join('\n'), resolve })
      if (queue.length > 1) return
      // Settlements have no waiting caller and wait for others.
      if (name === 'settle') setTimeout(flush, 2)
      else setImmediate(flush)
    })
  const { usage } = NOTES_AT_END
  return {
    redis,
    hold: (account, id) =>
      ask(account, id, 'hold', [
        id,
        '5000000',
        '5000000',
        '60000',
        '1',
        '20',
        JSON.stringify({ requestId: id, ...NOTES_AT_START }),
        '',
        '0',
        '',
      ]),
    settle: (account, id) =>
      ask(account, id, 'settle', [
        id,
        '4321000',
        'settle',
        JSON.stringify({ requestId: id, ...NOTES_AT_END }),
        '172800000',
        NOTES_AT_END.model,
        String(usage ? inputTokens(usage) : 0),
        String(usage?.output ?? 0),
        '0',
        '',
        '',
        '',
        '10',
      ]),
  }
}

/** The script in use. */
async function current(url: string): Promise<Side> {
  const redis = new Redis(url)
  const scripts = new Scripts({ redis, kind: 'redis', scattered: false }, 't')
  for (const name of names)
    await redis.hset(scripts.keys.of(name).account, {
      ve: '1',
      ty: 'famC',
      st: 'active',
      ex: '',
      ro: '0',
      bal: '900000000000000',
      gra: '900000000000000',
      rsv: '0',
      n: '0',
      ab: '0',
      sq: '0',
      gn: '1',
    })
  const requestOf = (account: string, id: string): HoldRequest => ({
    account,
    id,
    amount: 5_000_000n,
    least: 5_000_000n,
    version: '1',
    concurrency: 20,
    notes: NOTES_AT_START,
    floor: () => ({ charge: 0n, notes: {} }),
  })
  return {
    redis,
    hold: (account, id, bucket) =>
      scripts.run(holdOperation(requestOf(account, id), bucket, { leaseMs: 60_000, now: Date.now() }, scripts.keys)),
    settle: (account, id, bucket) => {
      const hold = new Hold(requestOf(account, id), bucket, 0n, 0n)
      const settlement = settlementOf(hold, { charge: 4_321_000n, kind: 'settle', notes: NOTES_AT_END }, 0)
      return scripts.run(settleOperation(settlement, '', scripts.keys, LIMITS))
    },
  }
}

/** Runs requests, so many at the same time. */
async function slice(side: Side, buckets: Buckets, atOnce: number): Promise<void> {
  let left = REQUESTS
  await Promise.all(
    Array.from({ length: atOnce }, async (_, client) => {
      for (; left > 0; left--) {
        const account = names[(left + client) % ACCOUNTS] as string
        const id = timedId(Date.now())
        const bucket = buckets.choose(account, Date.now())
        await side.hold(account, id, bucket)
        await side.settle(account, id, bucket)
      }
    }),
  )
}

/** Archiving empties the streams. Its cost for the store is a part of a request's. */
async function trim({ redis }: Side): Promise<void> {
  for (const key of await redis.keys('t:{*}:x')) {
    if (/^t:\{\d+\}:x$/.test(key)) {
      await redis.xrange(key, '-', '+', 'COUNT', 1000)
      await redis.xtrim(key, 'MAXLEN', 0)
    }
  }
}

/** Highest share of the first ledger's CPU time, with many requests at once. */
const CPU_MAX = 0.65

/** Measures both and prints what they cost. @returns whether the script in use is within its limit */
export async function benchLedger(urls: readonly [string, string]): Promise<boolean> {
  let share = 0
  const sides = [await first(urls[0]), await current(urls[1])] as const
  const buckets = new Buckets()
  for (const side of sides) await slice(side, buckets, AT_ONCE)
  for (const atOnce of [1, AT_ONCE]) {
    const ratios: number[] = []
    const totals = sides.map(() => ({ cpuMs: 0, commands: 0 }))
    for (let turn = 0; turn < SLICES; turn++) {
      const costs: Cost[] = []
      for (const [index, side] of sides.entries()) {
        const before = await costOf(side.redis)
        await slice(side, buckets, atOnce)
        if (index === 1) await trim(side)
        const after = await costOf(side.redis)
        const cost = { cpuMs: after.cpuMs - before.cpuMs, commands: after.commands - before.commands }
        costs.push(cost)
        const total = totals[index] as { cpuMs: number; commands: number }
        total.cpuMs += cost.cpuMs
        total.commands += cost.commands
      }
      ratios.push((costs[1]?.cpuMs ?? 0) / (costs[0]?.cpuMs ?? 1))
    }
    const middle = ratios.sort((a, b) => a - b)[Math.floor(ratios.length / 2)] ?? 0
    share = middle
    const shown = totals.map(
      ({ cpuMs, commands }) =>
        `${((cpuMs * 1000) / REQUESTS / SLICES).toFixed(1)} µs and ${(commands / REQUESTS / SLICES).toFixed(1)} commands`,
    )
    console.log(
      `${String(atOnce).padStart(3)} at once: ${shown[0]} before, ${shown[1]} now; CPU ${middle.toFixed(2)} of before`,
    )
  }
  for (const side of sides) side.redis.disconnect()
  return share <= CPU_MAX
}
