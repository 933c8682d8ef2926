/** Reads the streams of ended exchanges that are not recorded yet. */
import type { Redis } from 'ioredis'
import { sideBySide } from '../../lib/side-by-side.ts'
import { KINDS, planPartFrom } from '../../records/entry.ts'
import { notesFromText } from '../../records/notes.ts'
import type { EndedEntry } from '../../records/entry.ts'
import { assertMoney } from '../../money/assertions.ts'
import type { Position } from '../../records/recorder.ts'
import type { Scripts } from './scripts.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** An entry of a stream. */
export interface StreamEntry extends EndedEntry {
  readonly position: Position
  readonly before: bigint
  readonly paidBefore: bigint
  /** The key of the bucket that has its outcome. */
  readonly outcomes: string
}

/** Entries per read. */
const PAGE = 250

/** Reads entries of a shard's stream, oldest first. */
export async function readStream(
  scripts: Scripts,
  shard: number,
  { count, from = '-', redis = scripts.redis }: { count: number; from?: string; redis?: Redis },
): Promise<StreamEntry[]> {
  const rows = await orUnavailable(redis.xrange(scripts.keys.stream(shard), from, '+', 'COUNT', count))
  return rows.map(([id, fields]) => entryOf(id, fields))
}

/** Shards of a cluster that are read at the same time: their streams are on different servers. */
const SIDE_BY_SIDE = 8

/** Reads the first entries of several shards' streams, so many of each. Empty streams are left out. */
export async function readStreams(
  scripts: Scripts,
  shards: readonly number[],
  count: number,
): Promise<ReadonlyMap<number, StreamEntry[]>> {
  const found = new Map<number, StreamEntry[]>()
  if (shards.length === 0) return found
  if (scripts.scattered) {
    await sideBySide(shards, SIDE_BY_SIDE, async shard => {
      const entries = await readStream(scripts, shard, { count })
      if (entries.length > 0) found.set(shard, entries)
    })
    return found
  }
  const byKey = new Map(shards.map(shard => [scripts.keys.stream(shard), shard]))
  const starts = shards.map(() => '0')
  const streams = await orUnavailable(scripts.redis.xread('COUNT', count, 'STREAMS', ...byKey.keys(), ...starts))
  for (const [key, rows] of streams ?? []) {
    const shard = byKey.get(key)
    if (shard !== undefined)
      found.set(
        shard,
        rows.map(([id, fields]) => entryOf(id, fields)),
      )
  }
  return found
}

/**
 * Reads all unrecorded entries of an account, oldest first.
 * @param redis the connection to use at this moment
 */
export async function unrecorded(
  scripts: Scripts,
  account: string,
  redis: () => Redis = () => scripts.redis,
): Promise<StreamEntry[]> {
  const { shard } = scripts.keys.of(account)
  const found: StreamEntry[] = []
  for (let from = '-'; ;) {
    const page = await readStream(scripts, shard, { count: PAGE, from, redis: redis() })
    found.push(...page.filter(entry => entry.account === account))
    if (page.length < PAGE) return found
    from = `(${positionText((page.at(-1) as StreamEntry).position)}`
  }
}

/** Parses the id of a stream entry. */
export function positionOf(id: string): Position {
  const [ms = 0, seq = 0] = id.split('-').map(Number)
  return { ms, seq }
}

/** Writes the id of a stream entry. */
export function positionText({ ms, seq }: Position): string {
  return `${ms}-${seq}`
}

/** Whether one position comes before another. */
export function isBefore(one: Position, other: Position): boolean {
  return one.ms < other.ms || (one.ms === other.ms && one.seq < other.seq)
}

/** The words of an entry before its notes, which may contain spaces. */
const WORDS = 10

function entryOf(streamId: string, [, text = '']: readonly string[]): StreamEntry {
  const words = text.split(' ', WORDS)
  const [name, spender = '', ordinal, id = '', charge = '', earlier = '', balance = '', waived = ''] = words
  const [outcomes = '', planned] = words.slice(8)
  const plan = planPartFrom(planned)
  const isRefund = name === 'credit'
  const [account = '', key] = spender.split('/')
  const position = positionOf(streamId)
  const kind = KINDS.find(each => each === name) ?? 'settle'
  const [before = 0n, coveredBefore = 0n] = earlier.split(',').map(BigInt)
  assertMoney(BigInt(charge) >= 0n && BigInt(waived) >= 0n, 'an entry charges and waives amounts', () => ({
    account,
    id,
  }))
  return {
    id,
    account,
    ...(key !== undefined && { key }),
    ordinal: Number(ordinal),
    at: position.ms,
    kind,
    charge: isRefund ? -before : BigInt(charge),
    balance: BigInt(balance),
    waived: BigInt(waived),
    ...(plan && { plan: isRefund ? { ...plan, covered: -plan.covered, tokens: -plan.tokens } : plan }),
    notes: notesFromText(text.slice(words.join(' ').length + 1)),
    bucket: outcomes.slice(outcomes.lastIndexOf(':') + 1),
    position,
    before: isRefund ? 0n : before,
    paidBefore: isRefund ? 0n : before + coveredBefore,
    outcomes,
  }
}
