/** The offers of docs/plans.md: their files, and a scene of two gateways that sell one. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { FIELDS } from '../core/ledger/script/names.ts'
import { StoreKeys } from '../core/ledger/script/store-keys.ts'
import { Place, type Running } from './process.ts'
import { RealRedis } from './redis.ts'
import { recordsEnv, until } from './gateway.ts'
import { json, ScriptedUpstream } from './upstream.ts'

const TEXT = readFileSync(new URL('../docs/plans.md', import.meta.url), 'utf8')

/** Returns the file of an offer. */
export function fileOf(offer: string): string {
  const section = TEXT.slice(TEXT.indexOf(`\n### ${offer}\n`))
  return /```yaml\n([^]*?)```/.exec(section)?.[1] ?? ''
}

/** Returns the names of the offers. */
export function offersIn(): string[] {
  const section = TEXT.slice(TEXT.indexOf('\n## Five offers\n'))
  return [...section.matchAll(/^### (.+)$/gm)].map(([, name]) => name ?? '')
}

/** Returns the cells of the rows of the first table after some words. */
export function tableAfter(words: string): readonly (readonly string[])[] {
  const table = /\n\|[^]*?\n\n/.exec(TEXT.slice(TEXT.indexOf(words)))?.[0] ?? ''
  const rows = table
    .trim()
    .split('\n')
    .map(row => row.split('|').map(cell => cell.trim()))
  return rows.slice(2).map(row => row.slice(1, -1))
}

/** Output tokens of a reply, which cost 0.03 credits of the large price. */
const TOKENS = 2000
/** What a reply costs, in nano-credits: 10 tokens of input and those of the output. */
export const COST = 10n * 3000n + BigInt(TOKENS) * 15_000n

/** What became of requests. */
export interface Served {
  /** Replies that clients have got. */
  replies: number
  /** The last refusal of each key. */
  readonly refused: Map<string, { readonly status: number; readonly error: any }>
}

/** Two gateways that sell one offer. */
export class Shop {
  readonly place: Place
  readonly redis: RealRedis
  readonly upstream: ScriptedUpstream
  readonly gateways: [Running, Running]
  readonly #t: Test

  private constructor(t: Test, parts: Pick<Shop, 'place' | 'redis' | 'upstream' | 'gateways'>) {
    this.#t = t
    this.place = parts.place
    this.redis = parts.redis
    this.upstream = parts.upstream
    this.gateways = parts.gateways
  }

  /** Opens a shop for an offer. Its provider answers after a few milliseconds. */
  static async open(t: Test, offer: string): Promise<Shop> {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    upstream.script = async (_received, res) => {
      await new Promise(resolve => setTimeout(resolve, 3))
      json(res, {
        choices: [{ message: { content: 'word '.repeat(TOKENS) }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 10, completion_tokens: TOKENS },
      })
    }
    const env = { PROVIDER_URL: upstream.url, PROVIDER_KEY: 'provider-secret', REDIS_URL: redis.url, ...recordsEnv() }
    const place = new Place(t, file => file, env)
    const own = `listen: { host: 127.0.0.1, port: !env PORT 8080 }\nstore: { redis: !env REDIS_URL auto, records: !env DATABASE_URL auto, data: ${join(place.folder, 'data')}, prefix: t }\n`
    writeFileSync(place.file, own + fileOf(offer))
    const gateways: [Running, Running] = [await place.startProcess(t), await place.start(t)]
    return new Shop(t, { place, redis, upstream, gateways })
  }

  /** Runs a command, and returns what it prints as JSON. */
  async run(...args: string[]): Promise<any> {
    const { out, err, code } = await this.place.run(...args, '--json')
    if (code !== 0) throw new Error(`${args.join(' ')}: ${err}`)
    return JSON.parse(out)
  }

  /**
   * Sends requests by both gateways at once until each key is refused for good.
   * @param pick the model of each request
   */
  async useUp(keys: readonly string[], pick: () => string = () => 'large', atOnce = 8): Promise<Served> {
    const served: Served = { replies: 0, refused: new Map() }
    const client = async (key: string, nth: number): Promise<void> => {
      for (let turn = nth; !served.refused.has(key); turn++) {
        const gateway = this.gateways[turn % 2] as Running
        const body = { model: pick(), max_tokens: TOKENS, messages: [{ role: 'user', content: 'hi' }] }
        const answer = await gateway.chat(key, body).catch(() => undefined)
        const text = await answer?.text().catch(() => undefined)
        if (text === undefined) continue
        if (answer?.status === 200) served.replies++
        // What is short is tried again: running requests are in the way, or the store is.
        else if (answer?.headers.get('x-should-retry') === 'false')
          served.refused.set(key, { status: answer.status, error: JSON.parse(text).error })
      }
    }
    await Promise.all(keys.flatMap(key => Array.from({ length: atOnce }, (_, nth) => client(key, nth))))
    return served
  }

  /** Waits until nothing is held of a balance any more, and returns it with its plan. */
  async settled(balance: string): Promise<any> {
    const { account } = new StoreKeys('t').of(balance)
    await until(async () => (await this.redis.command('HGET', account, FIELDS.holds)) === '0')
    return this.run('balances', 'show', balance)
  }

  /** Makes the store forget what was used of a balance's plan. @returns whether there was something */
  async emptyWindows(balance: string): Promise<boolean> {
    const { account } = new StoreKeys('t').of(balance)
    const text = (await this.redis.command('HGET', account, FIELDS.windows)) as string | null
    if (text === null) return false
    await this.redis.command('HSET', account, FIELDS.windows, text.replaceAll(/:[\d=,]*(?= |$)/g, ':0'))
    return true
  }

  /** Kills a gateway while requests run, and starts another one in its place. */
  async replaceKilled(): Promise<void> {
    await this.gateways[0].stop('SIGKILL')
    this.gateways[0] = await this.place.start(this.#t)
  }

  /** Takes the store away for a moment. */
  async interruptStore(): Promise<void> {
    await this.redis.kill()
    await this.redis.run()
  }

  /** Loses all of the store, and fills it from the records. */
  async loseStore(): Promise<void> {
    await until(async () => {
      const streams = (await this.redis.command('KEYS', 't:*:x')) as string[]
      return (await Promise.all(streams.map(each => this.redis.command('XLEN', each)))).every(length => length === 0)
    })
    for (const gateway of this.gateways) await gateway.stop('SIGTERM')
    await this.redis.command('FLUSHALL')
    const { code, err } = await this.place.run('rebuild')
    if (code !== 0) throw new Error(err)
    this.gateways[0] = await this.place.start(this.#t)
    this.gateways[1] = await this.place.start(this.#t)
  }
}
