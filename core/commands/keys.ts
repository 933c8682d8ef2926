/** `tollgate keys …`: creates and manages customers' keys in the store that the running gateway uses. */
import type { Config } from '../config/config.ts'
import { duration } from '../config/units.ts'
import { suggestion } from '../lib/suggest.ts'
import { addAudit } from '../records/audit-log.ts'
import { KEY_STATES } from '../records/key-search.ts'
import { moneyLine, paidWords } from '../records/money-line.ts'
import { formatCredits } from '../money/credits.ts'
import { shownEntry } from '../account/entry-view.ts'
import { isoTime } from '../lib/iso-time.ts'
import { isFunded } from '../operator/given.ts'
import { keyView, type KeyView } from '../operator/key-view.ts'
import { csvLine } from '../lib/csv.ts'
import { auditEntry } from './audited.ts'
import { inOneLine } from '../lib/printable.ts'
import { limitsOption } from './key-edits.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import { checkName, wholeOption } from './shared.ts'
import { amount, expiry, find, found, type Output, report, type Subject, textOf } from './subjects.ts'
import type { Environment } from '../lib/environment.ts'

/** Options of `tollgate keys create`. */
export interface CreateOptions extends Output {
  readonly type: string
  readonly credits?: string
  readonly balance?: string
  readonly cap?: string
  /** YAML. */
  readonly limits?: string
  readonly name?: string
  readonly expires?: string
  readonly fromFirstUse?: boolean
  readonly count?: string
  readonly batch?: string
  readonly manage?: boolean
  readonly csv?: boolean
}

/** Most keys that are created at once. */
const CREATED_MAX = 10_000
/** Keys that are read at once. */
const PAGE = 200

/** Creates keys and prints their secrets, which are shown only once. */
export async function createKeys(environment: Environment, config: Config, options: CreateOptions): Promise<void> {
  const { type, name = '', batch = '', manage = false } = options
  checkName('--name', name)
  checkName('--batch', batch)
  if (!config.keyTypes.has(type))
    throw new UsageError(`there is no key type "${type}"${suggestion(type, config.keyTypes.keys())}`)
  const count = options.count === undefined ? 1 : wholeOption(options.count, '--count', CREATED_MAX)
  const { account, credits } = fundsOf(options, config)
  const validity = validityOf(options, environment.now())
  const given = options.cap === undefined ? undefined : amount(options.cap)
  const own = limitsOption(options.limits, given, config)
  const [limits, cap] = [own.limits ?? undefined, own.cap ?? undefined]
  const wish = { type, name, batch, credits, cap, limits, account, manage, ...validity }
  const details = {
    count,
    type,
    ...(account === undefined ? { credits: formatCredits(credits) } : { balance_id: account }),
    ...(cap !== undefined && { cap: formatCredits(cap) }),
    ...(limits !== undefined && { limits: options.limits }),
    ...(manage && { manage }),
    ...(batch !== '' && { batch }),
    ...(name && { name }),
  }
  const created = await onLedger(environment, config, async (_ledger, keys) =>
    keys.changes.createMany(wish, count, {
      also: (sql, [first]) =>
        addAudit(sql, auditEntry(environment, 'key.create', count === 1 ? (first?.id ?? '') : '', details)),
    }),
  )
  report(environment, created[0]?.reached)
  if (manage) warnOfNothing(environment, config, type)
  const shown = created.map(({ key, secret }) => ({
    id: key.id,
    key: secret,
    type,
    ...(account === undefined && { credits: Number(formatCredits(credits)) }),
    balance_id: key.account,
    name: key.name,
    ...(batch !== '' && { batch }),
    expires_at: isoTime(key.expiresAt),
  }))
  const spends =
    account === undefined ? `with ${formatCredits(credits)} credits` : `that spends from the balance ${account}`
  if (options.csv) {
    environment.print(csvLine(['id', 'key', 'type', 'credits', 'name', 'batch', 'expires_at']))
    for (const row of shown)
      environment.print(csvLine([row.id, row.key, type, row.credits ?? '', name, batch, row.expires_at]))
  } else if (options.json) for (const row of shown) environment.print(JSON.stringify(row))
  else if (count > 1) {
    for (const { id, key } of shown) environment.print(`${id}  ${key}`)
    environment.print(`\nThe keys are shown only this once. Each is a ${type} key ${spends}.`)
  } else {
    const [only] = shown
    environment.print(
      `${only?.key}\n\nThe key is shown only this once. Its id is ${only?.id}. It is a ${type} key ${spends}.`,
    )
  }
}

/** Returns what new keys may spend. @throws UsageError */
function fundsOf(
  options: CreateOptions,
  { keyTypes }: Config,
): { readonly account: string | undefined; readonly credits: bigint } {
  const { balance: account, type } = options
  const hasPlan = keyTypes.get(type)?.plan !== undefined
  if (!isFunded(options, hasPlan))
    throw new UsageError('give either --credits for a balance of its own, or --balance for one that exists')
  return {
    account,
    credits: options.credits === undefined ? 0n : amount(options.credits),
  }
}

/** Says that managing keys of a type can create no keys, if the file lists no types for them. */
function warnOfNothing(environment: Environment, { keyTypes }: Config, type: string): void {
  if (keyTypes.get(type)?.manages.length === 0)
    environment.complain(
      `Keys of the type ${type} can create none yet: set keyTypes.${type}.manages, such as [${type}].`,
    )
}

/** Returns until when new keys are valid, or for how long from their first use. */
function validityOf(
  { expires, fromFirstUse = false }: CreateOptions,
  now: number,
): { readonly expiresAt: number | undefined; readonly lifetimeMs: number | undefined } {
  if (!fromFirstUse) return { expiresAt: expiry(expires, now), lifetimeMs: undefined }
  const lifetimeMs = expires === undefined ? Number.NaN : duration(expires)
  if (Number.isNaN(lifetimeMs) || lifetimeMs === 0)
    throw new UsageError('--from-first-use needs a duration, such as --expires 30d')
  return { expiresAt: undefined, lifetimeMs }
}

/** Options of `tollgate keys list`. */
export interface ListOptions extends Output {
  readonly search?: string
  readonly type?: string
  readonly batch?: string
  readonly status?: string
  readonly cursor?: string
  readonly limit?: string
}

/** Most keys of one page. */
const LISTED_MAX = 100_000

/** Prints keys: all, or those of one page. */
export async function listKeys(environment: Environment, config: Config, options: ListOptions): Promise<void> {
  const { search, type, batch, status, cursor } = options
  const state = KEY_STATES.find(each => each === status)
  if (status !== undefined && state === undefined) throw new UsageError(`--status is one of ${KEY_STATES.join(', ')}`)
  const limit = options.limit === undefined ? Infinity : wholeOption(options.limit, '--limit', LISTED_MAX)
  await onLedger(environment, config, async (ledger, keys) => {
    let after = cursor === undefined ? undefined : { id: (await find(keys, cursor)).id, value: undefined }
    for (let left = limit; left > 0;) {
      const count = Math.min(PAGE, left)
      const now = environment.now()
      const page = await ledger.records.keys.list({ text: search, type, batch, state, now, after, count })
      const shown = await Promise.all(page.map(key => keyView(ledger, key, config, now)))
      for (const key of shown) environment.print(options.json ? JSON.stringify(key) : lineOf(key))
      if (page.length < count) return
      left -= count
      const last = page.at(-1)
      if (last) after = { id: last.id, value: undefined }
    }
    if (!options.json) environment.print(`More keys may follow: --cursor ${after?.id}`)
  })
}

function lineOf(key: KeyView): string {
  const { id, label, type, status, balance, plan, name } = key
  const ofPlan = plan?.windows.map(({ left, unit, per }) => `${left} ${unit} per ${per}, `) ?? []
  return [id, label, type.padEnd(8), status.padEnd(9), `${ofPlan.join('')}${balance} credits`, inOneLine(name)].join(
    '  ',
  )
}

/** Options of `tollgate keys history`. */
export interface HistoryOptions extends Output {
  readonly limit: string
  readonly cursor?: string
}

/** Most entries of one page of a history. */
const ENTRIES_MAX = 10_000

/** Prints entries of the history of a key or of a balance, newest first. */
export async function showHistory(
  environment: Environment,
  config: Config,
  subject: Subject,
  options: HistoryOptions,
): Promise<void> {
  const count = wholeOption(options.limit, '--limit', ENTRIES_MAX)
  const before =
    options.cursor === undefined ? undefined : wholeOption(options.cursor, '--cursor', Number.MAX_SAFE_INTEGER)
  const entries = await onLedger(environment, config, async (ledger, keys) =>
    ledger.reads.history((await found(ledger, keys, subject)).whose, { before, count }),
  )
  for (const entry of entries) {
    const shown = shownEntry(entry)
    const { address, cost, attempts, unread } = entry.notes
    const line = {
      ...shown,
      ...(entry.key !== undefined && { key: entry.key }),
      upstream: entry.notes.upstream ?? null,
      address: address ?? null,
      cost_to_operator_nano: cost ?? null,
      attempts,
      unread,
      cursor: entry.ordinal,
    }
    if (options.json) environment.print(JSON.stringify(line))
    else
      environment.print(
        [
          shown['created_at'],
          entry.id,
          entry.kind.padEnd(6),
          (entry.notes.status ?? '-').padEnd(11),
          `${entry.kind === 'credit' ? 'gave back ' : ''}${paidWords(moneyLine(entry))}`,
          `${String(shown['input_tokens'])}+${String(shown['output_tokens'])} tokens`,
          inOneLine([entry.notes.model ?? '-', entry.notes.served].filter(Boolean).join(', answered by ')),
        ].join('  '),
      )
  }
  if (!options.json && entries.length === count)
    environment.print(`More entries may follow: --cursor ${entries.at(-1)?.ordinal}`)
}

/** Prints one key with its balance. */
export async function showKey(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  const shown = await onLedger(environment, config, async (ledger, keys) =>
    keyView(ledger, await find(keys, id), config, environment.now()),
  )
  if (options.json) environment.print(JSON.stringify(shown))
  else
    for (const [name, value] of Object.entries(shown))
      if (name !== 'plan') environment.print(`${name.padEnd(12)} ${inOneLine(textOf(value))}`)
  if (options.json || !shown.plan) return
  const { planLines } = await import('./plans.ts')
  for (const line of planLines(shown.balance_id, shown.plan)) environment.print(line)
}

/** Gives a key a new secret and prints it. */
export async function rotateKey(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  const { key, secret, reached } = await onLedger(environment, config, async (_ledger, keys) =>
    keys.changes.rotate((await find(keys, id)).id, {
      also: (sql, [changed]) => addAudit(sql, auditEntry(environment, 'key.rotate', changed?.id ?? '')),
    }),
  )
  report(environment, reached)
  if (options.json) environment.print(JSON.stringify({ id: key.id, key: secret, type: key.type }))
  else
    environment.print(
      `${secret}\n\nThe key is shown only this once.${reached === 'store' ? ` The old secret of ${key.id} no longer works; balance and history stay.` : ''}`,
    )
}
