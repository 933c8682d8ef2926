/** What the admin API takes with 100,000 keys, and how long it blocks the event loop meanwhile. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { Gateway } from '../../core/gateway.ts'
import { newToken } from '../../core/operator/token-view.ts'
import { NANO } from '../../core/money/credits.ts'
import { startStandalone } from '../standalone.ts'

const KEYS = Number(process.env['KEYS'] ?? 100_000)
const ROUNDS = Number(process.env['ROUNDS'] ?? 40)

/** The limits: the 95th percentile of one call, and the longest block of the event loop. */
const MOST_MS = 200
const MOST_BLOCKED_MS = 50

/** Makes the keys, and prints a line for each operation. @returns whether all are within the limits */
export async function benchAdmin(): Promise<boolean> {
  const { gateway, stop } = await startStandalone()
  try {
    const token = await prepare(gateway)
    return await measure(gateway, token)
  } finally {
    await stop()
  }
}

async function prepare({ keys, records }: Gateway): Promise<string> {
  const types = ['famA', 'famB', 'famC', 'editor']
  for (let made = 0; made < KEYS; made += 1000) {
    const at = made / 1000
    const wish = {
      type: types[at % types.length] ?? 'famC',
      batch: `batch ${at}`,
      credits: 5n * NANO,
      expiresAt: undefined,
    }
    await keys.changes.createMany({ ...wish, name: `customer of order ${at}` }, Math.min(1000, KEYS - made))
  }
  const { token, secret, digest } = newToken('bench', 'all', Date.now())
  await records.tokens.add(token, digest)
  return secret
}

async function measure(gateway: Gateway, token: string): Promise<boolean> {
  const base = `http://127.0.0.1:${gateway.sidePorts.get('admin')}/admin/api`
  const call = async (method: string, path: string, body?: object): Promise<any> => {
    const response = await fetch(base + path, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(text)
    return JSON.parse(text)
  }
  const operations: readonly [name: string, run: (round: number) => Promise<unknown>][] = [
    ['list, newest 100', () => call('GET', '/keys?limit=100')],
    ['list of a type, 100', n => call('GET', `/keys?limit=100&type=${n % 2 ? 'editor' : 'famB'}`)],
    ['list by balance, 100', () => call('GET', '/keys?limit=100&sort=-balance')],
    ['search by name, 100', n => call('GET', `/keys?limit=100&search=order%20${n}`)],
    ['search that finds nothing', n => call('GET', `/keys?limit=100&search=nobody${n}`)],
    ['a batch of another type', n => call('GET', `/keys?limit=100&batch=batch%20${n}`)],
    ['batch of 100 new keys', n => call('POST', '/keys', { type: 'famC', credits: 1, count: 100, batch: `new ${n}` })],
    ['key types with their counts', () => call('GET', '/key-types')],
  ]
  let good = true
  for (const [name, run] of operations) {
    for (let round = 0; round < 3; round++) await run(1000 + round)
    const blocked = monitorEventLoopDelay({ resolution: 1 })
    const took: number[] = []
    blocked.enable()
    for (let round = 0; round < ROUNDS; round++) {
      const began = performance.now()
      await run(round)
      took.push(performance.now() - began)
    }
    blocked.disable()
    took.sort((a, b) => a - b)
    const p95 = took[Math.ceil(took.length * 0.95) - 1] ?? 0
    const blockedMs = blocked.max / 1e6
    const ok = p95 <= MOST_MS && blockedMs <= MOST_BLOCKED_MS
    good &&= ok
    const median = took[took.length >> 1] ?? 0
    console.log(
      `${name.padEnd(30)} median ${median.toFixed(1).padStart(6)} ms, 95 % ${p95.toFixed(1).padStart(6)} ms, event loop blocked for ${blockedMs.toFixed(1).padStart(5)} ms at most${ok ? '' : '  (missed)'}`,
    )
  }
  return good
}
