/**
 * The audit: compares every account in the store with what the records know of it, while the gateway runs. An entry has
 * a number in its account, so it is known exactly which entries each side has counted.
 */
import { sideBySide } from '../lib/side-by-side.ts'
import { type Balance, chargesAdded, type HistoryEntry } from '../records/entry.ts'
import { moneyLine } from '../records/money-line.ts'
import type { RecordedAccount } from '../records/account-rows.ts'
import type { RecordedKey } from '../records/key-records.ts'
import { PAUSE_MS, pagesOf, TRIES } from './audited-accounts.ts'
import { chargeParts, recomputed } from './entries.ts'
import { type Opinion, Opinions } from './opinions.ts'
import type { Ledger } from './ledger.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { balanceFrom } from './reads.ts'
import { type FieldName, FIELDS, readFields } from './script/names.ts'
import { type Part, partsIn } from './script/parts.ts'
import { type StreamEntry, unrecorded } from './script/stream.ts'
import { type Entries, entriesBack } from './recovery/used-windows.ts'
import { compareWindows } from './windows-audit.ts'

/** What is wrong with one account. */
export interface Drift {
  readonly account: string
  /** The broken rules, each with both of its sides. */
  readonly findings: readonly string[]
}

/** The result of an audit. */
export interface AuditReport {
  readonly accounts: number
  readonly entries: number
  readonly drifts: readonly Drift[]
  /** For depth `charges`: recomputed charges, and entries without price versions, which cannot be recomputed. */
  readonly repriced: number
  readonly unversioned: number
  /** For depth `charges`: what the upstreams report beside the usage that was charged. */
  readonly opinions: readonly Opinion[]
}

/** Accounts that are compared at the same time. */
export const SIDE_BY_SIDE = 16
/**
 * How thorough an audit is: `sums` and holds; `whole` adds up the recorded entries as well, and what they used of
 * plans; `charges` also recomputes each charge from its prices.
 */
export type Depth = 'sums' | 'whole' | 'charges'

/** Audits the given accounts, or every one, after ending expired holds. @throws GatewayError unavailable */
export async function audit(
  ledger: Ledger,
  accounts?: readonly string[],
  depth: Depth = 'whole',
): Promise<AuditReport> {
  // Holds may have expired since the last reaping, for example while the gateway was down.
  await ledger.background.reap()
  const report = { accounts: 0, entries: 0, drifts: [] as Drift[], repriced: 0, unversioned: 0 }
  const opinions = new Opinions()
  for await (const page of pagesOf(ledger.records, accounts)) {
    await sideBySide(page, SIDE_BY_SIDE, async ({ id }) => {
      const { entries, repriced, unversioned, findings } = await new AccountAudit(ledger, id, opinions).run(depth)
      report.accounts++
      report.entries += entries
      report.repriced += repriced
      report.unversioned += unversioned
      if (findings.length > 0) report.drifts.push({ account: id, findings })
    })
  }
  return { ...report, opinions: opinions.all }
}

/**
 * Audits one account.
 * @returns the broken rules
 * @throws GatewayError unavailable
 */
export async function auditAccount(ledger: Ledger, account: string, depth: Depth): Promise<readonly string[]> {
  return (await new AccountAudit(ledger, account, new Opinions()).run(depth)).findings
}

/** What the store says of an account at one moment. */
interface AccountInStore extends Balance {
  readonly ordinal: number
  readonly grants: number
  /** The number of its holds. */
  readonly count: number
  /** What each key has of it, if several share it. */
  readonly parts: ReadonlyMap<string, Part>
}

/** What the holds of an account hold, and their number; of all keys, and of each. */
interface Held {
  readonly amount: bigint
  readonly count: number
  readonly byKey: ReadonlyMap<string, { amount: bigint; count: number }>
}

/** The audit of one account. */
class AccountAudit {
  readonly findings: string[] = []
  entries = 0
  repriced = 0
  unversioned = 0
  readonly #ledger: Ledger
  readonly #account: string
  readonly #opinions: Opinions

  constructor(ledger: Ledger, account: string, opinions: Opinions) {
    this.#ledger = ledger
    this.#account = account
    this.#opinions = opinions
  }

  async run(depth: Depth): Promise<this> {
    for (let tries = 1; ; tries++) {
      const finding = await this.#compare()
      if (finding === undefined) break
      if (finding.certain || tries === TRIES) {
        this.findings.push(...finding.words)
        break
      }
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    }
    if (depth === 'sums') return this
    this.findings.push(...(await compareWindows(this.#ledger, this.#account, false)))
    await this.#addUp(depth === 'charges')
    return this
  }

  /**
   * Compares the sums. Returns undefined if they agree. What differs is certain only if nothing moved while it was read.
   */
  async #compare(): Promise<{ words: string[]; certain: boolean } | undefined> {
    const { accounts, keys } = this.#ledger.records
    const recorded = await orUnavailable(accounts.get(this.#account))
    if (!recorded) return undefined
    const charges = recorded.shared ? (await orUnavailable(accounts.withParts(this.#account))).parts : undefined
    const records = await orUnavailable(keys.ofAccount(this.#account))
    const before = await this.#inStore()
    const fresh = await unrecorded(this.#ledger.scripts, this.#account)
    const held = await this.#held()
    const grants = await orUnavailable(accounts.grants(this.#account, 1))
    const behind = await this.#keysBehind(records)
    const after = await this.#inStore()
    // A new account is written to the store after it was recorded, and one without a key need not be there.
    if ((!before || !after) && (recorded.pending || records.every(({ pending }) => pending))) return undefined
    if (!before || !after) return { words: ['the store does not have the account'], certain: true }
    const words: string[] = []
    const expect = (rule: string, left: bigint, right: bigint): void => {
      if (left !== right) words.push(`${rule}: ${left} is not ${right}`)
    }
    // Exactly the entries that the store had counted when its sums were read, and the records had not.
    const counted = fresh.filter(({ ordinal }) => ordinal <= before.ordinal)
    const later = counted.filter(({ ordinal }) => ordinal > recorded.ordinal)
    const charged = recorded.settled + (await this.#waiting(counted, recorded))
    expect('settled = the sum of the recorded and the waiting entries', before.settled, charged)
    expect('the number of entries', BigInt(before.ordinal), BigInt(recorded.ordinal + later.length))
    const granted = grants.filter(({ n }) => n <= before.grants).reduce((sum, { amount }) => sum + amount, 0n)
    expect('granted = the sum of the grants', before.granted, granted)
    // What is not pending is in the store.
    if (!recorded.pending && before.grants < recorded.grants)
      words.push(`the store knows the grants: it has ${before.grants} of ${recorded.grants}`)
    words.push(...behind)
    // Until the store knows that an account is shared, it has no parts.
    const hasParts = charges !== undefined && (before.parts.size > 0 || !recorded.pending)
    for (const key of hasParts ? new Set([...before.parts.keys(), ...charges.keys()]) : []) {
      const own = counted.filter(entry => (entry.key ?? this.#account) === key)
      const recordedOfKey = (charges?.get(key) ?? 0n) + (await this.#waiting(own, recorded))
      const { charged: has } = before.parts.get(key) ?? { charged: 0n }
      expect(`${key}: charged = the sum of its recorded and its waiting entries`, has, recordedOfKey)
    }
    const isStill = JSON.stringify(sumsAsText(before)) === JSON.stringify(sumsAsText(after))
    // Holds change during the audit. Compare them only if two reads agree.
    if (isStill) {
      expect('held = the sum of all holds', before.held, held.amount)
      expect('every hold has a lease', BigInt(before.count), BigInt(held.count))
      for (const [key, part] of before.parts) {
        const own = held.byKey.get(key) ?? { amount: 0n, count: 0 }
        expect(`${key}: held = the sum of its holds`, part.held, own.amount)
        expect(`${key}: the number of its holds`, BigInt(part.holds), BigInt(own.count))
      }
    }
    return words.length === 0 ? undefined : { words, certain: isStill && !(await this.#moved(recorded)) }
  }

  /** Returns which records of keys the store lacks, although they are not pending. */
  async #keysBehind(records: readonly RecordedKey[]): Promise<string[]> {
    const { redis, keys } = this.#ledger.scripts
    const words = await Promise.all(
      records.map(async ({ id, account, version, pending }) => {
        if (pending) return []
        const { version: has } = await orUnavailable(readFields(redis, keys.record({ account, key: id }), ['version']))
        return Number(has ?? 0) < version
          ? [`${id}: the store has version ${has ?? 0} of the record, of ${version}`]
          : []
      }),
    )
    return words.flat()
  }

  /**
   * Returns what entries that wait add to the charges that were recorded when the account was read. They may be recorded
   * already, and a server that took over may have counted them in the place of those that it lost.
   */
  async #waiting(entries: readonly StreamEntry[], { ordinal }: RecordedAccount): Promise<bigint> {
    const recorded = await orUnavailable(this.#ledger.records.history.withIds(entries.map(({ id }) => id)))
    for (const [id, entry] of recorded) if (entry.ordinal > ordinal) recorded.delete(id)
    return chargesAdded(entries, recorded)
  }

  /** Whether entries were recorded since an account was read. */
  async #moved(account: RecordedAccount): Promise<boolean> {
    const { ordinal, settled } = await orUnavailable(this.#ledger.records.history.totals(this.#account))
    return ordinal !== account.ordinal || settled !== account.settled
  }

  async #inStore(): Promise<AccountInStore | undefined> {
    const { redis, keys } = this.#ledger.scripts
    const found = await orUnavailable(redis.hgetall(keys.of(this.#account).account))
    const of = (name: FieldName): string | undefined => found[FIELDS[name]]
    if (of('granted') === undefined) return undefined
    return {
      ...balanceFrom({ granted: of('granted'), balance: of('balance'), held: of('held') }),
      ordinal: Number(of('ordinal')),
      grants: Number(of('grants')),
      count: Number(of('holds')),
      parts: partsIn(this.#account, found),
    }
  }

  /** Adds up the holds of the account. */
  async #held(): Promise<Held> {
    const { redis, keys } = this.#ledger.scripts
    const { leases } = keys.of(this.#account)
    const ids: string[] = []
    let cursor = '0'
    do {
      const [next, found] = await orUnavailable(
        redis.zscan(leases, cursor, 'MATCH', `${this.#account} *`, 'COUNT', 1000),
      )
      cursor = next
      for (let at = 0; at < found.length; at += 2) ids.push((found[at] ?? '').split(' ')[1] ?? '')
    } while (cursor !== '0')
    const texts = await Promise.all([...new Set(ids)].map(id => orUnavailable(redis.get(keys.hold(this.#account, id)))))
    const byKey = new Map<string, { amount: bigint; count: number }>()
    const held = { amount: 0n, count: 0, byKey }
    for (const text of texts.filter(text => text !== null)) {
      const [amount = '0', , , , slot = ''] = text.split(' ', 5)
      const key = slot.split(':')[1] ?? this.#account
      const own = byKey.get(key) ?? { amount: 0n, count: 0 }
      byKey.set(key, own)
      for (const sum of [held, own]) {
        sum.amount += BigInt(amount)
        sum.count++
      }
    }
    return held
  }

  /** Adds up the recorded entries, and recomputes their charges if wanted. */
  async #addUp(reprice: boolean): Promise<void> {
    const { history } = this.#ledger.records
    for (let tries = 1; ; tries++) {
      const totals = await orUnavailable(history.totals(this.#account))
      const sum = (await orUnavailable(history.charges(this.#account))) + totals.folded
      const after = await orUnavailable(history.totals(this.#account))
      if (sum === totals.settled) break
      // Entries were recorded or deleted between the readings.
      if ((after.ordinal !== totals.ordinal || after.entries !== totals.entries) && tries < TRIES) continue
      this.findings.push(`recorded total = the sum of the recorded entries: ${totals.settled} is not ${sum}`)
      break
    }
    const entries: Entries = range => this.#ledger.reads.history({ account: this.#account }, range)
    for await (const entry of entriesBack(entries, {})) {
      this.entries++
      if (reprice) await this.#reprice(entry)
    }
  }

  /** Recomputes the charge of an entry. */
  async #reprice(entry: HistoryEntry): Promise<void> {
    const { id, kind, notes } = entry
    const cost = moneyLine(entry).price
    if (kind === 'credit' || (cost === 0n && !notes.usage)) return
    const parts = chargeParts(notes)
    if (parts.length === 0) {
      this.unversioned++
      return
    }
    this.repriced++
    this.#opinions.add(entry)
    const exact = await recomputed(parts, this.#ledger.prices)
    if (exact === undefined) {
      const versions = parts.map(({ price }) => price).join(', ')
      this.findings.push(`entry ${id}: the numbers of its price version (${versions}) are missing`)
    } else if (exact !== cost) {
      this.findings.push(`entry ${id}: its usage costs ${exact} nano-credits, but ${cost} were charged`)
    }
  }
}

function sumsAsText(account: AccountInStore): Record<string, string> {
  const { parts, ...sums } = account
  const texts = [...Object.entries(sums), ...[...parts].map(([key, part]) => [key, Object.values(part)] as const)]
  return Object.fromEntries(texts.map(([name, value]) => [name, String(value)]))
}
