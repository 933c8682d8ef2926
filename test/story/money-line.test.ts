/**
 * Every way of paying, on every surface that shows money. Each list adds up to the ledger, to the nano-credit, and so does each
 * sum.
 */
import { readFileSync } from 'node:fs'
import t from 'tap'
import type { Hold } from '../../core/ledger/hold.ts'
import { renewOperation } from '../../core/ledger/operations.ts'
import { Balances } from '../../core/keys/balances.ts'
import type { Config } from '../../core/config/config.ts'
import type { Environment } from '../../core/lib/environment.ts'
import { audit } from '../../core/ledger/audit.ts'
import { formatCredits, parseDecimal } from '../../core/money/credits.ts'
import type { HistoryEntry } from '../../core/records/entry.ts'
import { moneyLine } from '../../core/records/money-line.ts'
import { requestStory } from '../../core/operator/story.ts'
import { explainRequest } from '../../core/commands/why.ts'
import { showStatement } from '../../core/commands/reports.ts'
import { showUsage } from '../../core/commands/usage.ts'
import { showHistory } from '../../core/commands/keys.ts'
import { type Office, operate } from '../admin.ts'
import { testEnvironment } from '../environment.ts'
import { expireHolds } from '../gateway.ts'
import { notes, Payer } from '../payer.ts'
import { keepsTable } from '../tables.ts'

/** What the ledger says of a key: the money of its entries. */
interface Truth {
  readonly credits: bigint
  readonly plan: bigint
  readonly margin: bigint
  readonly withoutCost: bigint
}

function truthOf(entries: readonly HistoryEntry[]): Truth {
  const lines = entries.map(moneyLine)
  const sum = (of: (line: ReturnType<typeof moneyLine>) => bigint): bigint =>
    lines.reduce((all, line) => all + of(line), 0n)
  return {
    credits: sum(line => line.credits),
    plan: sum(line => line.plan),
    margin: sum(line => line.margin ?? 0n),
    withoutCost: sum(line => (line.cost === undefined ? line.paid : 0n)),
  }
}

interface Looked {
  readonly office: Office
  readonly payer: Payer
  readonly entries: readonly HistoryEntry[]
}

/** Reads a list of CSV as rows. */
function rowsOf(text: string): Record<string, string>[] {
  const [head = [], ...lines] = text
    .trim()
    .split('\n')
    .map(line =>
      [...line.trim().matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].map(([, cell = '']) => cell.replaceAll('"', '')),
    )
  return lines.map(cells => Object.fromEntries(head.map((name, at) => [name, cells[at] ?? ''])))
}

const nano = (rows: readonly Record<string, any>[], member: string): bigint =>
  rows.reduce((sum, row) => sum + BigInt(row[member]), 0n)
const exact = (text: string): bigint =>
  text.startsWith('-') ? -(parseDecimal(text.slice(1)) ?? 0n) : (parseDecimal(text) ?? 0n)

/** Sums of a history: what was paid, and by which purse. */
const ofHistory = (rows: readonly Record<string, any>[]): Partial<Truth> => {
  const [credits, plan] = [nano(rows, 'credits_nano'), nano(rows, 'plan_nano')]
  if (nano(rows, 'cost_nano') !== credits + plan) throw new Error('the cost is not the sum of both purses')
  return { credits, plan }
}

/** Sums of a statement, without what was granted. */
const ofStatement = (rows: readonly Record<string, any>[]): Partial<Truth> => {
  const own = rows.filter(({ type }) => ['charge', 'correction', 'refund'].includes(type))
  return { credits: -nano(own, 'amount_nano'), plan: -nano(own, 'plan_amount_nano') }
}

const paid = (credits: string, more: Record<string, string> = {}): Partial<Truth> & { readonly paid: bigint } => ({
  paid: exact(credits),
  ...(more['margin'] !== undefined && {
    margin: exact(more['margin']),
    withoutCost: exact(more['without_cost'] ?? '0'),
  }),
})

type Sums = Partial<Truth> & { readonly paid?: bigint }

/** Runs a command beside the gateway. @returns the objects that it prints with `--json` */
async function printed(
  { gateway: { gateway } }: Office,
  run: (...of: readonly [Environment, Config]) => Promise<void>,
): Promise<any[]> {
  const lines: string[] = []
  await run(testEnvironment(process.env, { print: line => lines.push(line) }), gateway.config)
  return lines.map(line => JSON.parse(line))
}

const JSON_500 = { json: true, limit: '500' }

/** The surfaces that show the money of one key, with what they say. */
const SURFACES: Readonly<Record<string, (of: Looked) => Promise<Sums>>> = {
  'GET /api/v1/key-info/history': async ({ office: { gateway }, payer }) =>
    ofHistory((await gateway.call('/api/v1/key-info/history?size=500', { key: payer.secret })).json.data),
  'GET /api/v1/key-info/history as CSV': async ({ office: { gateway }, payer }) =>
    ofHistory(rowsOf((await gateway.call('/api/v1/key-info/history?format=csv', { key: payer.secret })).text)),
  'GET /api/v1/key-info/history?kind=all': async ({ office: { gateway }, payer }) =>
    ofStatement((await gateway.call('/api/v1/key-info/history?kind=all&size=500', { key: payer.secret })).json.data),
  'the statement as CSV': async ({ office: { gateway }, payer }) =>
    ofStatement(
      rowsOf((await gateway.call('/api/v1/key-info/history?kind=all&format=csv', { key: payer.secret })).text),
    ),
  'GET /api/v1/key-info': async ({ office: { gateway }, payer }) => {
    const { usage } = (await gateway.call('/api/v1/key-info', { key: payer.secret })).json
    return paid(usage.total.cost.toFixed(9))
  },
  'GET /api/v1/key-info/usage': async ({ office: { gateway }, payer }) => {
    const { data } = (await gateway.call('/api/v1/key-info/usage', { key: payer.secret })).json
    return { paid: data.reduce((sum: bigint, { credits }: any) => sum + exact(credits), 0n) }
  },
  'GET /admin/api/keys/{id}/history': async ({ office: { api }, payer }) => {
    const { data } = (await api('GET', `/keys/${payer.id}/history?limit=500`)).json
    const known = data.filter((row: any) => row.margin_nano !== null)
    const unknown = data.filter((row: any) => row.margin_nano === null)
    return { ...ofHistory(data), margin: nano(known, 'margin_nano'), withoutCost: nano(unknown, 'cost_nano') }
  },
  'GET /admin/api/history': async ({ office: { api } }) =>
    ofHistory((await api('GET', '/history?limit=500')).json.data),
  'GET /admin/api/history as CSV': async ({ office: { api } }) =>
    ofHistory(rowsOf((await api('GET', '/history?format=csv')).text)),
  'GET /admin/api/balances/{id}/history': async ({ office: { api }, payer }) =>
    ofHistory((await api('GET', `/balances/${payer.account}/history?limit=500`)).json.data),
  'GET /admin/api/keys/{id}/statement': async ({ office: { api }, payer }) =>
    ofStatement((await api('GET', `/keys/${payer.id}/statement?limit=500`)).json.data),
  'GET /admin/api/balances/{id}/statement': async ({ office: { api }, payer }) =>
    ofStatement((await api('GET', `/balances/${payer.account}/statement?limit=500`)).json.data),
  'GET /admin/api/keys/{id}/usage': async ({ office: { api }, payer }) => {
    const { data } = (await api('GET', `/keys/${payer.id}/usage`)).json
    return { paid: data.reduce((sum: bigint, { credits }: any) => sum + exact(credits), 0n) }
  },
  'GET /admin/api/balances/{id}/usage': async ({ office: { api }, payer }) => {
    const { data } = (await api('GET', `/balances/${payer.account}/usage`)).json
    return { paid: data.reduce((sum: bigint, { credits }: any) => sum + exact(credits), 0n) }
  },
  'GET /admin/api/usage': async ({ office: { api } }) => {
    const all = await Promise.all(
      ['model', 'key', 'balance', 'type', 'account', 'day', 'status', 'code'].map(async by => {
        const { data } = (await api('GET', `/usage?by=${by}`)).json
        const sum = (member: string): bigint => data.reduce((all: bigint, row: any) => all + exact(row[member]), 0n)
        return [by, sum('credits'), sum('margin'), sum('without_cost')] as const
      }),
    )
    const [[, credits, margin, without] = ['', 0n, 0n, 0n]] = all
    for (const [by, ...sums] of all) t.same(sums, [credits, margin, without], `usage by ${by} is usage by model`)
    return { paid: credits, margin, withoutCost: without }
  },
  'GET /admin/api/overview': async ({ office: { api } }) => {
    const { today } = (await api('GET', '/overview')).json
    return paid(today.credits, today)
  },
  'GET /admin/api/overview/trend': async ({ office: { api } }) => {
    const { days } = (await api('GET', '/overview/trend')).json
    return paid(days.at(-1)?.credits ?? '0', days.at(-1))
  },
  'GET /admin/api/requests/{id}': async ({ office: { gateway }, entries }) => {
    const { records, config } = gateway.gateway
    const stories = await Promise.all(entries.map(({ id }) => requestStory(records, config, id)))
    const sum = (of: (story: NonNullable<(typeof stories)[number]>) => string | null): bigint =>
      stories.reduce((all, story) => all + exact((story && of(story)) ?? '0'), 0n)
    return { paid: sum(({ charge }) => charge), margin: sum(({ margin }) => margin) }
  },
  'tollgate keys statement': async ({ office, payer }) =>
    ofStatement(await printed(office, (...of) => showStatement(...of, { kind: 'key', id: payer.id }, JSON_500))),
  'tollgate keys history': async ({ office, payer }) =>
    ofHistory(await printed(office, (...of) => showHistory(...of, { kind: 'key', id: payer.id }, JSON_500))),
  'tollgate usage': async ({ office }) => {
    const rows = await printed(office, (...of) => showUsage(...of, { ...JSON_500, since: 'yesterday', by: 'model' }))
    const sum = (member: string): bigint => rows.reduce((all, row) => all + exact(row[member]), 0n)
    return { paid: sum('credits'), margin: sum('margin'), withoutCost: sum('without_cost') }
  },
  'tollgate why': async ({ office, entries }) => {
    const asked = entries.map(({ id }) => printed(office, (...of) => explainRequest(...of, id, { json: true })))
    const stories = (await Promise.all(asked)).flat()
    return { paid: stories.reduce((all, { charge }) => all + exact(charge), 0n) }
  },
  'the view history': async ({ office: { gateway } }) => {
    const [row] = await gateway.gateway.records.database.all(
      `SELECT SUM(charge) AS paid, SUM(credits) AS credits, SUM(plan) AS plan, SUM(margin) AS margin,
       SUM(CASE WHEN cost IS NULL THEN charge ELSE 0 END) AS without FROM history`,
    )
    const of = (name: string): bigint => BigInt(String(row?.[name] ?? 0))
    return {
      paid: of('paid'),
      credits: of('credits'),
      plan: of('plan'),
      margin: of('margin'),
      withoutCost: of('without'),
    }
  },
}

/** The surfaces that also show what is not recorded yet. */
const UNRECORDED: ReadonlySet<string> = new Set([
  'GET /api/v1/key-info/history',
  'GET /api/v1/key-info/history as CSV',
  'GET /api/v1/key-info',
])

/** The ways of paying. Each returns the key that has paid. */
const WAYS: Readonly<Record<string, (office: Office) => Promise<Payer>>> = {
  credits: async office => {
    const payer = await alone(office)
    await payer.pay(500n, 300n, { cost: '200' })
    await payer.pay(500n, 400n)
    return payer
  },
  plan: async office => {
    const payer = await alone(office, '0.00001')
    await payer.pay(500n, 300n, { cost: '200' })
    await payer.pay(500n, 400n)
    return payer
  },
  both: async office => {
    const payer = await alone(office, '0.000001')
    await payer.pay(800n, 1500n, { cost: '1600' })
    return payer
  },
  free: async office => {
    const payer = await alone(office)
    await payer.pay(0n, 0n, { cost: '70' })
    return payer
  },
  waived: async office => {
    const payer = await alone(office)
    await payer.pay(500n, 300n, { cost: '100' }, 'lost')
    await payer.pay(500n, 400n, { cost: '150' }, 'retry')
    return payer
  },
  'a refund of credits': refunded(undefined, 300n, false),
  'a refund of a plan': refunded('0.00001', 300n, false),
  'a refund of both': refunded('0.000001', 1500n, false),
  'a refund of both, as credits': refunded('0.000001', 1500n, true),
  reaped: async office => {
    const { payer } = await reaped(office)
    return payer
  },
  late: async office => {
    const { payer, hold } = await reaped(office)
    office.gateway.gateway.ledger.settle(hold, {
      charge: 1300n,
      tokens: 1,
      kind: 'settle',
      notes: notes({ cost: '9' }),
    })
    await office.gateway.gateway.ledger.scripts.answered()
    return payer
  },
  'a moved key': async office => {
    const payer = await alone(office, '0.00001')
    await payer.pay(500n, 300n)
    const { ledger, keys } = office.gateway.gateway
    const { changes } = keys
    const to = await new Balances(ledger, Date.now).create({ name: '', externalId: '', metadata: {}, credits: 0n })
    await changes.move(payer.id, to)
    return payer
  },
  'a balance of two keys': async office => {
    const { gateway } = office
    const payer = await alone(office, '0.000001')
    const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: payer.account }
    const { key, secret } = await gateway.gateway.keys.changes.create(wish)
    await payer.pay(600n, 600n, { cost: '10' })
    await new Payer(gateway, key, secret).pay(300n, 900n)
    await gateway.gateway.keys.changes.edit(payer.id, { manage: true })
    return payer
  },
}

async function alone({ gateway }: Office, plan?: string): Promise<Payer> {
  const { changes, plans } = gateway.gateway.keys
  const { key, secret } = await changes.create({ type: 'famC', name: '', credits: 10_000n, expiresAt: undefined })
  const windows = [
    { credits: plan ?? '1', per: 'day' },
    { requests: 100, per: 'week' },
  ] as const
  if (plan !== undefined) await plans.set({ account: key.account, id: 'plan' }, { windows, then: 'credits' })
  return new Payer(gateway, key, secret)
}

function refunded(plan: string | undefined, charge: bigint, asCredits: boolean): (office: Office) => Promise<Payer> {
  return async office => {
    const payer = await alone(office, plan)
    await payer.pay(500n, 200n, { cost: '150' })
    const id = await payer.pay(500n, charge, { cost: '50' })
    const wish = { reason: 'sorry', ...(asCredits && { as: 'credits' }) }
    const { status, json } = await office.api('POST', `/entries/${id}/refund`, wish)
    t.match([status, json.refunded], [200, formatCredits(charge)])
    return payer
  }
}

async function reaped(office: Office): Promise<{ readonly payer: Payer; readonly hold: Hold }> {
  const { ledger } = office.gateway.gateway
  const payer = await alone(office, '0.000001')
  const hold = await payer.hold(700n)
  await ledger.extend(hold, 1200n)
  Object.assign(hold.request, { floor: () => ({ charge: 1100n, tokens: 1, notes: notes({ cost: '7' }) }) })
  await ledger.scripts.run(renewOperation(hold, 60_000, ledger.scripts.keys))
  await expireHolds(ledger, payer.account)
  await ledger.background.reap()
  return { payer, hold }
}

/** What each surface has told, by its name, for docs/reliability.md. */
const told = new Map<string, readonly string[]>()
const WORDS: Readonly<Record<string, string>> = { withoutCost: 'what has no cost' }

for (const [way, pays] of Object.entries(WAYS))
  t.test(`${way}: every surface adds up to the ledger`, async t => {
    // Nothing is recorded by itself.
    const office = await operate(t, {}, { edit: file => file.set('ledger.archiveEvery', '1h') })
    const { ledger } = office.gateway.gateway
    const payer = await pays(office)
    // Before everything is recorded, and after.
    for (const isRecorded of [false, true]) {
      if (isRecorded) await ledger.background.archiveAll()
      const entries = await ledger.reads.history({ account: payer.account }, { count: 100 })
      const all = truthOf(entries)
      const { granted, balance, held } = await ledger.reads.balance(payer.account)
      t.equal(granted - balance - held, all.credits, 'the balance')
      const { account = '', manage } = (await ledger.records.keys.get(payer.id)) ?? {}
      const here = account === payer.account ? entries : []
      const isOwn = ({ key }: HistoryEntry): boolean => (key ?? payer.account) === payer.id
      const own = here.filter(isOwn)
      for (const [name, look] of Object.entries(SURFACES)) {
        if (!isRecorded && !UNRECORDED.has(name)) continue
        // The history of a key stays with the balance from which it was moved. Its usage goes with it.
        const isUsage = isRecorded && /usage$|key-info$/.test(name)
        const seen =
          manage === true && !/keys\/\{id\}|tollgate keys/.test(name) ? here : isUsage ? entries.filter(isOwn) : own
        const truth = /\/keys\/\{id\}\/|\/api\/v1\/|^the statement|tollgate keys/.test(name) ? truthOf(seen) : all
        const looked = await look({ office, payer, entries })
        told.set(
          name,
          Object.keys(looked).map(each => WORDS[each] ?? each),
        )
        const { paid, ...sums } = looked
        for (const [purse, sum] of Object.entries(sums)) t.equal(sum, truth[purse as keyof Truth], `${name}: ${purse}`)
        if (paid !== undefined) t.equal(paid, truth.credits + truth.plan, `${name}: paid`)
      }
    }
    t.same((await audit(ledger)).drifts, [])
  })

t.test('every operation of the admin API that shows what was paid has a row here', async t => {
  const { api } = await operate(t)
  const { paths } = (await api('GET', '/openapi.json')).json
  const shows = Object.entries<any>(paths).filter(([, { get }]) =>
    /"(?:cost_nano|amount_nano|margin|charge)"|"credits":/.test(JSON.stringify(get?.responses ?? '')),
  )
  const named = new Set(Object.keys(SURFACES).map(name => name.replace('GET ', '')))
  // What they show was granted, and not paid.
  const others = new Set(['/admin/api/codes', '/admin/api/overview/stream'])
  t.same(
    shows.map(([path]) => path).filter(path => !named.has(path) && !others.has(path)),
    [],
  )
})

t.test('docs/reliability.md lists the surfaces, and the ways of paying', t => {
  const page = new URL('../../docs/reliability.md', import.meta.url)
  const rows = Object.keys(SURFACES).map(name => [name, told.get(name)?.join(', ') ?? ''])
  keepsTable(t, page, 'surface', rows)
  t.match(readFileSync(page, 'utf8').replaceAll(/\s+/g, ' '), `${Object.keys(WAYS).join('; ')}.`)
  t.end()
})
