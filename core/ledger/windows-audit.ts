/** Compares the windows of plans and of keys in the store with the entries of their accounts, and corrects them. */
import { setTimeout } from 'node:timers/promises'
import { timeOfId } from '../lib/ids.ts'
import { utcDay } from '../plans/limits.ts'
import { planFrom } from '../plans/plan.ts'
import { statesIn } from '../plans/state.ts'
import { moneyLine } from '../records/money-line.ts'
import { type RecordedKey, whoseOf } from '../records/key-records.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { PAUSE_MS, TRIES } from './audited-accounts.ts'
import type { Ledger } from './ledger.ts'
import { comparedWindows, type Entries, entriesBack } from './recovery/used-windows.ts'
import { FIELDS, operation, readFields } from './script/names.ts'

/**
 * Ids have the time of a gateway, holds that of the store. A request whose id is at most so many milliseconds after midnight may
 * have been held on the day before.
 */
const MIDNIGHT_MS = 60_000

/**
 * Compares the windows of an account's plan and of its keys with its entries, and corrects them if wanted.
 * @returns what differed, each with both numbers. Empty if nothing did, or if the account was in use all the time
 * @throws GatewayError unavailable
 */
export async function compareWindows(ledger: Ledger, account: string, isRepair: boolean): Promise<readonly string[]> {
  const findings = [...(await comparePlan(ledger, account, isRepair))]
  for (const key of await orUnavailable(ledger.records.keys.ofAccount(account)))
    findings.push(...(await compareDay(ledger, key, isRepair)))
  return findings
}

/** Compares the windows of a plan. */
async function comparePlan(
  { reads, scripts, continuity, historyMs }: Ledger,
  account: string,
  isRepair: boolean,
): Promise<readonly string[]> {
  const key = scripts.keys.of(account).account
  const read = () => orUnavailable(readFields(scripts.redis, key, ['ordinal', 'plan', 'windows']))
  for (let tries = 0; tries < TRIES; tries++) {
    if (tries > 0) await setTimeout(PAUSE_MS)
    const now = continuity.now()
    const { ordinal, plan, windows } = await read()
    if (!plan) return []
    const { findings, corrected } = await comparedWindows(
      range => reads.history({ account }, range),
      planFrom(plan),
      windows,
      { now, since: now - historyMs, last: Number(ordinal) },
    )
    if (findings.length === 0) return []
    const after = await read()
    if (after.ordinal !== ordinal || after.plan !== plan) continue
    if (!isRepair) return findings
    const args = { before: windows ?? '', windows: corrected }
    const [answer] = await scripts.run(operation('windows', account, { account: key }, args))
    if (answer === 'ok') return findings
  }
  return []
}

/**
 * Compares the day of a key. It never has less than the requests that began and ended in it. One that has less is removed, so
 * that the next hold fills it.
 */
async function compareDay(
  { reads, scripts, continuity }: Ledger,
  key: RecordedKey,
  isRepair: boolean,
): Promise<string[]> {
  const { keys, redis } = scripts
  const record = keys.record({ account: key.account, key: key.id })
  const ordinalNow = async () =>
    (await orUnavailable(readFields(redis, keys.of(key.account).account, ['ordinal']))).ordinal
  const { from } = utcDay(continuity.now())
  for (let tries = 0; tries < TRIES; tries++) {
    if (tries > 0) await setTimeout(PAUSE_MS)
    const ordinal = await ordinalNow()
    const { keyWindows } = await orUnavailable(readFields(redis, record, ['keyWindows']))
    const state = statesIn(keyWindows).byPlace.get(0)
    if (state?.from !== from) return []
    const least = await leastOfDay(reads, key, from)
    if (state.used >= least) return []
    if ((await ordinalNow()) !== ordinal) continue
    if (isRepair) await orUnavailable(redis.hdel(record, FIELDS.keyWindows))
    return [`day of the key ${key.id}: used is at least the sum of its entries: ${state.used} is less than ${least}`]
  }
  return []
}

/** Adds up what the requests of a key were worth that began and ended in a day, less what was refunded of them. */
async function leastOfDay(reads: Ledger['reads'], key: RecordedKey, from: number): Promise<bigint> {
  const entries: Entries = range => reads.history(whoseOf(key), range)
  let sum = 0n
  for await (const entry of entriesBack(entries, { from })) {
    const { id, kind, notes } = entry
    // One entry stands for all that the database has lost, of any day.
    const isKnown = kind === 'credit' || notes.model !== ''
    // A refund has the time of its request.
    if (isKnown && timeOfId(id) >= from + (kind === 'credit' ? 0 : MIDNIGHT_MS)) sum += moneyLine(entry).paid
  }
  return sum
}
