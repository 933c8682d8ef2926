/** What happened, in the admin API: usage, histories, and what happens at the moment. */
import { setTimeout as sleep } from 'node:timers/promises'
import { StreamedReply } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import {
  daysAsked,
  type HistoryEntry,
  historyPage,
  historyWish,
  keyDays,
  MONEY_COLUMNS,
  moneyLine,
  type ListPage,
  pricedEntries,
  STATEMENT_COLUMNS,
  statementPage,
} from 'tollgate/plugin/operator'
import {
  type Call,
  namesOf,
  type Operation,
  operation,
  type SubjectKind,
  subjectOf,
  SUBJECTS,
  wrongCursor,
} from './operation.ts'
import { ENTRY, KEY_DAY, LINE, OVERVIEW, TREND, USAGE } from './report-schemas.ts'
import { DAY, listOf } from './schemas.ts'

/** Most groups of a report, the highest charges first. */
const GROUPS_MAX = 10_000
/** Most days of a report. */
const DAYS_MAX = 400
/** Interval of the live overview, in milliseconds. */
const LIVE_EVERY_MS = 2000

const usage = operation({
  method: 'GET',
  path: '/usage',
  summary:
    'Add up the usage by key, balance, model, model that answered, type, upstream account, day, status or error code; the highest charges first.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      by: { enum: operator.USAGE_GROUPS, default: 'model' },
      from: DAY,
      to: DAY,
    },
  },
  reply: USAGE,
  columns: ['group', 'name', ...USAGE.required.slice(1)],
  async page(call, cursor = '0', limit): Promise<ListPage> {
    const { ledger, now } = call.office
    if (!/^\d{1,5}$/.test(cursor)) throw wrongCursor()
    // All days are one page: there are not many.
    const all = call.query.by === 'day'
    const from = all ? 0 : Number(cursor)
    const count = all ? DAYS_MAX : Math.min(from + limit + 1, GROUPS_MAX)
    const range = { ...daysAsked(call.x.query, now()), count }
    const rows = await operator.orUnavailable(operator.usageBy(ledger.records.database, call.query.by, range))
    const shown = all ? rows : rows.slice(from, from + limit)
    return {
      data: shown.map(operator.usageView),
      next: all || rows.length <= from + limit ? undefined : String(from + limit),
    }
  },
})

function usageOf(kind: SubjectKind): Operation {
  return operation({
    method: 'GET',
    path: `${SUBJECTS[kind].path}/usage`,
    summary: `Show the usage of ${SUBJECTS[kind].words} by day and model. Days without requests are absent.`,
    scope: 'read',
    query: { type: 'object', additionalProperties: false, properties: { from: DAY, to: DAY } },
    reply: listOf(KEY_DAY),
    async run(call) {
      const { ledger, now } = call.office
      const { whose } = await subjectOf(call, kind)
      return keyDays(ledger, whose, call.x.query, now())
    },
  })
}

const HISTORY_QUERY = {
  type: 'object',
  properties: {
    from: { type: 'string', maxLength: 40 },
    to: { type: 'string', maxLength: 40 },
    model: { type: 'string', maxLength: 200 },
    status: { type: 'string', maxLength: 20 },
    endpoint: { type: 'string', maxLength: 100 },
    stream: { enum: ['true', 'false'] },
    request_id: { type: 'string', maxLength: 100 },
  },
} as const

const COLUMNS = [
  'id',
  'key',
  'key_name',
  'created_at',
  'type',
  'endpoint',
  'model',
  'status',
  'http_status',
  'input_tokens',
  'output_tokens',
  'cache_read_tokens',
  'cache_creation_tokens',
  'reasoning_tokens',
  ...MONEY_COLUMNS,
  'operator_cost_nano',
  'margin_nano',
  'upstream',
  'address',
  'duration_ms',
  'ttft_ms',
]

/** Returns entries with what only operators see. */
async function shownEntries(call: Call, entries: readonly HistoryEntry[], keyId: (entry: HistoryEntry) => string) {
  const { ledger } = call.office
  const priced = await pricedEntries(ledger, `admin ${call.actor.token.id}`, entries)
  const names = await namesOf(ledger, entries.map(keyId))
  return priced.map((row, index) => {
    const entry = entries[index] as HistoryEntry
    const { upstream, address, attempts = [], unread = [] } = entry.notes
    const { cost, margin } = moneyLine(entry)
    return {
      ...row,
      key: keyId(entry),
      key_name: names.get(keyId(entry)) ?? '',
      upstream: upstream ?? null,
      address: address ?? null,
      operator_cost_nano: cost === undefined ? null : String(cost),
      margin_nano: margin === undefined ? null : String(margin),
      attempts,
      unread,
    }
  })
}

function wishOf(query: unknown, cursor: string | undefined, limit: number) {
  const given = Object.entries(query as Record<string, unknown>).filter(([, value]) => value !== undefined)
  const named = given.filter(([name]) => !['limit', 'cursor', 'format', 'key', 'account'].includes(name))
  const wanted = { ...Object.fromEntries(named.map(([name, value]) => [name, String(value)])), limit: String(limit) }
  return historyWish(new URLSearchParams({ ...wanted, ...(cursor !== undefined && { cursor }) }))
}

function historyOf(kind: SubjectKind): Operation {
  return operation({
    method: 'GET',
    path: `${SUBJECTS[kind].path}/history`,
    summary: `List the requests of ${SUBJECTS[kind].words}, newest first.`,
    scope: 'read',
    query: HISTORY_QUERY,
    reply: ENTRY,
    columns: COLUMNS,
    async page(call, cursor, limit) {
      const { ledger } = call.office
      const { id, whose } = await subjectOf(call, kind)
      const wish = wishOf(call.query, cursor, limit)
      const { entries, next } = await historyPage(range => ledger.reads.history(whose, range), id, wish)
      return { data: await shownEntries(call, entries, ({ key }) => key ?? whose.account), next }
    },
  })
}

function statementOf(kind: SubjectKind): Operation {
  return operation({
    method: 'GET',
    path: `${SUBJECTS[kind].path}/statement`,
    summary:
      kind === 'key'
        ? 'List what was added to the balance of a key and taken from it, in the order of booking, newest first; of a key that shares its balance, its own charges.'
        : 'List what was added to a balance and taken from it, in the order of booking, newest first.',
    scope: 'read',
    query: { type: 'object', properties: {} },
    reply: LINE,
    columns: STATEMENT_COLUMNS,
    async page(call, cursor, limit) {
      const { whose } = await subjectOf(call, kind)
      return statementPage(call.office.ledger, whose, cursor, limit)
    },
  })
}

/** The reports on one key or on one balance. */
export function reportsOn(kind: SubjectKind): readonly Operation[] {
  return [usageOf(kind), historyOf(kind), statementOf(kind)]
}

/** Entries that are read to find those of a page. */
const SCANNED_MAX = 5000
const READ_AT_ONCE = 500

const history = operation({
  method: 'GET',
  path: '/history',
  summary: 'List the requests of all keys that are recorded, newest first. A page may be short although more follow.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      ...HISTORY_QUERY.properties,
      account: { type: 'string', maxLength: 200, description: 'The upstream account.' },
    },
  },
  reply: ENTRY,
  columns: COLUMNS,
  async page(call, cursor, limit) {
    const { ledger } = call.office
    const { account } = call.query
    const wish = wishOf(call.query, undefined, limit)
    if (cursor !== undefined && !/^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/.test(cursor)) throw wrongCursor()
    let before = cursor
    const found: (HistoryEntry & { readonly account: string })[] = []
    let more = true
    for (let scanned = 0; more && found.length < limit && scanned < SCANNED_MAX; scanned += READ_AT_ONCE) {
      const range = { before, from: wish.from, to: wish.to }
      const entries = await operator.orUnavailable(ledger.records.history.latest(range, READ_AT_ONCE))
      more = entries.length === READ_AT_ONCE
      for (const [index, entry] of entries.entries()) {
        before = entry.id
        if (!wish.matches(entry) || (account !== undefined && entry.notes.upstream !== account)) continue
        found.push(entry)
        if (found.length < limit) continue
        more ||= index + 1 < entries.length
        break
      }
    }
    const keys = new Map(found.map(entry => [entry as HistoryEntry, entry.key ?? entry.account]))
    return { data: await shownEntries(call, found, entry => keys.get(entry) ?? ''), next: more ? before : undefined }
  },
})

const overview = operation({
  method: 'GET',
  path: '/overview',
  summary: 'Show what happens at the moment.',
  scope: 'read',
  reply: OVERVIEW,
  run: call => call.office.overview.read(),
})

const trend = operation({
  method: 'GET',
  path: '/overview/trend',
  summary: 'Show the last thirty days, the last hour, and the keys that are used up within a week.',
  scope: 'read',
  reply: TREND,
  run: call => call.office.trend.latest(),
})

const live = operation({
  method: 'GET',
  path: '/overview/stream',
  summary: 'Show what happens at the moment, every two seconds, as server-sent events named `overview`.',
  scope: 'read',
  async answer(call) {
    await call.office.overview.read()
    return new StreamedReply(liveEvents(call), { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
  },
})

async function* liveEvents({ office, x, actor }: Call): AsyncGenerator<string> {
  const { access, overview: feed, retired } = office
  const signal = AbortSignal.any([x.signal, retired])
  yield 'retry: 3000\n\n'
  while (!signal.aborted) {
    // A session may end, and a token be revoked, while the page is open.
    const data = await access
      .isValid(actor)
      .then(async valid => (valid ? `event: overview\ndata: ${JSON.stringify(await feed.read())}\n\n` : undefined))
      .catch(() => 'event: unavailable\ndata: {}\n\n')
    if (data === undefined) {
      yield 'event: over\ndata: {}\n\n'
      return
    }
    yield data
    await sleep(LIVE_EVERY_MS, undefined, { signal }).catch(() => {})
  }
}

/** All of them. */
export const REPORT_OPERATIONS: readonly Operation[] = [usage, history, overview, trend, live]
