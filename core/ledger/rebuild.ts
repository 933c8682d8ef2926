/** Exports a ledger, and rebuilds one in an empty store from exports and the trail. */
import type { Ledger } from './ledger.ts'
import { priceFromText } from '../money/price-text.ts'
import { REBUILD_INTERRUPTED, REBUILDING } from './reads.ts'
import { fieldMap } from './records.ts'
import { stored } from './scripts.ts'
import type { Line } from './trail.ts'

/** Sums of an account, which a rebuild recomputes. */
const SUMS = new Set(['bal', 'gra', 'rsv', 'set', 'arch', 'whole'])

/** Exports every key with its grants and history, line by line. @throws GatewayError unavailable */
export async function* exported(ledger: Ledger): AsyncGenerator<Line> {
  const { scripts } = ledger
  const { redis } = scripts
  const at = ledger.now()
  let lines = 0
  for (const [version, numbers] of Object.entries(await ledger.prices.all())) {
    yield { kind: 'price', version, numbers }
    lines++
  }
  for (const account of await stored(redis.smembers(scripts.shared('accounts')))) {
    for await (const line of exportedAccount(ledger, account, at)) {
      yield line
      lines++
    }
  }
  yield { kind: 'end', lines }
}

/** Exports one account at one moment. Its history is not trimmed meanwhile. */
async function* exportedAccount(ledger: Ledger, account: string, at: number): AsyncGenerator<Line> {
  const { scripts } = ledger
  try {
    const [flat, , , lastEntry, lastGrant] = await ledger.snapshot(account, 'whole')
    const fields = Object.fromEntries(fieldMap(flat))
    yield {
      kind: 'key',
      account,
      at,
      record: Object.fromEntries(Object.entries(fields).filter(([name]) => !SUMS.has(name))),
    }
    for await (const [, entry] of ledger.entries(account, 'g', lastGrant)) {
      const of = fieldMap(entry)
      const notes = JSON.parse(of.get('m') ?? '{}') as Record<string, string>
      yield { kind: 'grant', account, at, id: of.get('id') ?? '', amount: of.get('c') ?? '0', notes }
    }
    yield {
      kind: 'history',
      account,
      archived: fields['arch'] ?? '0',
      counters: await stored(scripts.redis.hgetall(scripts.key(account, 'u'))),
    }
    for await (const [id, entry] of ledger.entries(account, 'x', lastEntry))
      yield { kind: 'entry', account, id, fields: entry }
  } finally {
    await ledger.release(account)
  }
}

/** What the lines say about one account. */
interface Gathered {
  record: Readonly<Record<string, string>>
  recordedAt: number
  readonly grants: Map<string, Extract<Line, { kind: 'grant' }>>
  readonly entries: Map<string, readonly string[]>
  history: Extract<Line, { kind: 'history' }> | undefined
}

/** The result of a rebuild. */
export interface Rebuilt {
  readonly accounts: number
  readonly grants: number
  readonly entries: number
}

/**
 * Puts accounts into an empty store. A grant that appears in several files counts once; for a key, the latest line
 * applies.
 * @param remember how long a repeated settlement is recognised, in milliseconds
 * @throws Error for the operator if the store has accounts or an interrupted rebuild, or if two exports contain the
 * same history
 */
export async function rebuild(ledger: Ledger, lines: readonly Line[], remember: number): Promise<Rebuilt> {
  const { scripts } = ledger
  if ((await stored(scripts.redis.exists(scripts.shared('accounts')))) > 0)
    throw new Error('the store has accounts; a rebuild needs an empty store')
  if (await ledger.halfRebuilt()) throw new Error(REBUILD_INTERRUPTED)
  const accounts = gather(lines)
  const mark = scripts.shared(REBUILDING)
  await stored(scripts.redis.set(mark, '1'))
  for (const line of lines) {
    if (line.kind !== 'price') continue
    if (priceFromText(line.numbers).version !== line.version)
      throw new Error(`the numbers of price ${line.version} do not match the version: the export was changed`)
    await ledger.prices.restore(line.version, line.numbers)
  }
  let grants = 0
  let count = 0
  for (const [account, gathered] of accounts) {
    await restore(ledger, account, gathered, remember)
    grants += gathered.grants.size
    count += gathered.entries.size
  }
  await stored(scripts.redis.del(mark))
  return { accounts: accounts.size, grants, entries: count }
}

function gather(lines: Iterable<Line>): Map<string, Gathered> {
  const accounts = new Map<string, Gathered>()
  for (const line of lines) {
    if (line.kind === 'end' || line.kind === 'price') continue
    const known: Gathered = accounts.get(line.account) ?? {
      record: {},
      recordedAt: -1,
      grants: new Map(),
      entries: new Map(),
      history: undefined,
    }
    accounts.set(line.account, known)
    if (line.kind === 'key' && line.at >= known.recordedAt) [known.record, known.recordedAt] = [line.record, line.at]
    else if (line.kind === 'grant' && !known.grants.has(line.id)) known.grants.set(line.id, line)
    else if (line.kind === 'entry') known.entries.set(line.id, line.fields)
    else if (line.kind === 'history') {
      if (known.history) throw new Error(`two exports contain the history of ${line.account}; use only the latest one`)
      known.history = line
    }
  }
  return accounts
}

async function restore(
  { now, scripts }: Ledger,
  account: string,
  { record, grants, entries: history, history: totals }: Gathered,
  remember: number,
): Promise<void> {
  const { redis } = scripts
  const key = (part: string): string => scripts.key(account, part)
  let granted = 0n
  for (const { id, amount, at, notes } of grants.values()) {
    granted += BigInt(amount)
    await stored(
      redis.xadd(
        key('g'),
        '*',
        'k',
        'grant',
        'id',
        id,
        'c',
        amount,
        'p',
        '0',
        'b',
        '0',
        'm',
        JSON.stringify({ ...notes, at: String(at) }),
      ),
    )
    await stored(redis.set(key(`i:${id}`), `grant:${amount}`))
  }
  let settled = BigInt(totals?.archived ?? 0)
  for (const [id, fields] of [...history].sort(([a], [b]) => compareIds(a, b))) {
    const of = fieldMap(fields)
    settled += BigInt(of.get('c') ?? 0) - BigInt(of.get('p') ?? 0)
    await stored(redis.xadd(key('x'), id, ...fields))
    if (of.get('k') === 'credit') {
      const { entry = '' } = JSON.parse(of.get('m') ?? '{}') as { entry?: string }
      await stored(redis.set(key(`i:credit:${entry}`), `credit:${of.get('p')}`))
      continue
    }
    // A settlement in an outbox may repeat it.
    const at = Number(id.split('-')[0])
    const left = at + remember - now()
    const request = of.get('id') ?? ''
    // A reaped hold may still be settled for the difference.
    if (of.get('k') === 'reaped') await stored(redis.hset(key('t'), request, `${of.get('c')}:${at}`))
    else {
      await stored(redis.hdel(key('t'), request))
      if (left > 0) await stored(redis.set(key(`i:${request}`), `settle:${of.get('c')}`, 'PX', Math.ceil(left)))
    }
  }
  if (totals && Object.keys(totals.counters).length > 0) await stored(redis.hset(key('u'), totals.counters))
  const sums = { gra: granted, set: settled, bal: granted - settled, arch: BigInt(totals?.archived ?? 0) }
  await stored(
    redis.hset(key('a'), {
      ...record,
      ...Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, String(sum)])),
    }),
  )
  await stored(redis.set(scripts.shared(`key:${record['sec'] ?? ''}`), account))
  await stored(redis.sadd(scripts.shared('accounts'), account))
}

function compareIds(a: string, b: string): number {
  const [aMs = 0, aSeq = 0] = a.split('-').map(Number)
  const [bMs = 0, bSeq = 0] = b.split('-').map(Number)
  return aMs - bMs || aSeq - bSeq
}
