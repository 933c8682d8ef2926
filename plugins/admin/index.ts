import { GatewayError, listenOption, Reply, WebPage } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import {
  csvReply,
  defineBuiltIn,
  type BuiltInExchange,
  invalidBody,
  PRIVATE,
  sentence,
  smallJson,
  number,
  setting,
  whole,
} from 'tollgate/plugin/operator'
import { Access } from './access.ts'
import { CODE_OPERATIONS } from './codes.ts'
import { BALANCE_OPERATIONS } from './balances.ts'
import { creditOperations } from './credits.ts'
import { IMPORT_OPERATIONS } from './import.ts'
import { KEY_LISTS } from './key-list.ts'
import { KEY_OPERATIONS } from './keys.ts'
import { OFFICE_OPERATIONS } from './office.ts'
import { Once } from './once.ts'
import { openapiOf } from './openapi.ts'
import type { Call, Office, Operation } from './operation.ts'
import { REPORT_OPERATIONS, reportsOn } from './reports.ts'
import { REQUEST_OPERATIONS } from './requests.ts'

const OPERATIONS: readonly Operation[] = [
  ...KEY_LISTS,
  ...IMPORT_OPERATIONS,
  ...KEY_OPERATIONS,
  ...creditOperations('key'),
  ...BALANCE_OPERATIONS,
  ...CODE_OPERATIONS,
  ...reportsOn('key'),
  ...REPORT_OPERATIONS,
  ...REQUEST_OPERATIONS,
  ...OFFICE_OPERATIONS,
]
const BASE = '/admin/api'
/** How often requests with idempotency keys are forgotten, in milliseconds. */
const FORGET_EVERY_MS = 3_600_000
/** Rows of one read of a list that is sent as CSV. */
const CSV_ROWS = 500

/** The operations with their paths as patterns. */
const ROUTES = OPERATIONS.map(operation => {
  const names = [...operation.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? '')
  const pattern = operation.path.replaceAll('.', String.raw`\.`).replaceAll(/\{\w+\}/g, '([^/]+)')
  return { operation, names, pattern: new RegExp(`^${BASE}${pattern}$`) }
})

/**
 * The operators' area: an API for their programs and shops, and a page that uses it. Every request but those for the page
 * itself needs a token, or a session that began with
 * one.
 */
export default defineBuiltIn({
  name: 'admin',
  summary:
    'Serves the admin page and its API at an address of its own: keys, redeem codes, usage, accounts, audit log.',
  on: ['GET /admin', 'GET /admin/*', 'POST /admin/*', 'PATCH /admin/*', 'DELETE /admin/*'],
  listens: true,
  page: { path: '/admin', words: 'Operators sign in at' },
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      listen: listenOption(8081),
      sessionHours: {
        type: 'number',
        exclusiveMinimum: 0,
        maximum: 720,
        default: 12,
        description: 'Hours after which an operator must sign in again.',
      },
      failedSignInsPerMinute: setting(
        whole(1),
        10,
        'Maximum failed sign-ins, and wrong tokens, per client address and minute, in each worker. Ten times as many requests may have a session that is over.',
      ),
      idempotencyHours: setting(number(1), 24, 'Hours for which a repeated idempotency key gets the first answer.'),
      bodyBytes: setting(whole(1024), 262_144, 'Maximum size of a request body.'),
    },
  },
  setup(options, host) {
    const { config, keys, ledger, now, pool, sharing } = host
    const access = new Access(host, options)
    const page = new WebPage(new URL('./page/', import.meta.url), '/admin/page')
    const document = openapiOf(OPERATIONS)
    const office: Office = {
      ...host,
      status: host.status,
      access,
      codes: new operator.CodeBook(ledger, keys, now),
      overview: new operator.OverviewFeed({ config, ledger, pool, sharing, now }),
      trend: new operator.Trend(ledger, host.meter, now),
      openapi: () => document,
    }
    const forgetOld = (): void => {
      ledger.records.requests.forgetBefore(now() - options.idempotencyHours * 3_600_000).catch(() => {})
    }
    forgetOld()
    const forget = setInterval(forgetOld, FORGET_EVERY_MS).unref()

    const desk = new Desk(office, options.bodyBytes)

    return {
      async request(x) {
        x.addHeaders({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
        if (x.path === '/admin' || x.path === '/admin/') return page.page
        const file = page.file(x.path, x.headers['accept-encoding'])
        if (file) return file
        try {
          if (x.path === `${BASE}/session` && x.method === 'POST') return await desk.signIn(x)
          const found = ROUTES.filter(({ pattern }) => pattern.test(x.path))
          const method = x.method === 'HEAD' ? 'GET' : x.method
          const route = found.find(({ operation }) => operation.method === method)
          if (route) return await desk.answer(x, route.operation, paramsOf(route, x.path))
          // A stranger does not learn which paths there are.
          await access.actor(x, 'read')
          if (found.length === 0) throw new GatewayError('not_found', { message: 'There is nothing at this path.' })
          const allow = found.map(({ operation }) => operation.method).join(', ')
          throw new GatewayError('method_not_allowed', { headers: { allow } })
        } catch (thrown) {
          throw refused(thrown)
        }
      },
      close: () => clearInterval(forget),
    }
  },
})

/** Where operations are asked for. */
class Desk {
  readonly #office: Office
  readonly #bodyBytes: number

  /** @param bodyBytes most bytes of a request body */
  constructor(office: Office, bodyBytes: number) {
    this.#office = office
    this.#bodyBytes = bodyBytes
  }

  async #bodyOf(x: BuiltInExchange): Promise<unknown> {
    const bytes = await x.read(this.#bodyBytes)
    if (bytes.length === 0) return {}
    if (!/^application\/json\b/i.test(x.headers['content-type'] ?? ''))
      throw new GatewayError('bad_request', { message: 'Send the body as JSON, with content-type application/json.' })
    return smallJson(bytes)
  }

  /** Begins a session of the page. */
  async signIn(x: BuiltInExchange): Promise<Reply> {
    const { token } = ((await this.#bodyOf(x)) ?? {}) as { token?: unknown }
    if (typeof token !== 'string') throw invalidBody('"token" is missing.', 'token')
    const { actor, cookie } = await this.#office.access.signIn(x, token)
    const own = OFFICE_OPERATIONS[0] as Operation
    const reply = await own.run?.({
      office: this.#office,
      x,
      actor,
      params: {},
      query: {},
      body: {},
      once: Once.single(actor),
    })
    return Reply.json(reply, { ...PRIVATE, 'set-cookie': cookie })
  }

  /** Answers a request to an operation. */
  async answer(x: BuiltInExchange, operation: Operation, params: Record<string, string>): Promise<Reply> {
    const actor = await this.#office.access.actor(x, operation.scope)
    const query = queryOf(x, operation, operator.secretsIn(this.#office.config.keys.prefixes))
    const body = x.method === 'GET' ? {} : await this.#bodyOf(x)
    const fault = operation.checkBody(body)
    if (fault) throw invalidBody(fault.message, fault.member || undefined)
    const once = operation.creates ? Once.of(x, actor, body, this.#office.now()) : Once.single(actor)
    const call: Call<any, any> = { office: this.#office, x, actor, params, query, body, once }
    if (operation.answer) return operation.answer(call)
    if (operation.page) return listed(call, operation)
    const [done, seen] = await this.#doneOnce(call, operation)
    const replayed = seen !== call.once && { 'idempotent-replayed': 'true' }
    const reply = operation.show ? await operation.show(done, { ...call, once: seen }) : done
    return Reply.json(reply, { ...PRIVATE, ...replayed }, operation.status ?? 200)
  }

  /** Does what is asked for, unless the same request did it. @returns what was done, and the request that did it */
  async #doneOnce(call: Call<any, any>, operation: Operation): Promise<[done: unknown, once: Once]> {
    const { once } = call
    const again = (known: operator.DoneRequest): [unknown, Once] => [
      JSON.parse(known.reply),
      once.earlier(known, operation.creates === 'secrets'),
    ]
    if (operation.creates && once.request) {
      const known = await operator.orUnavailable(this.#office.ledger.records.requests.find(once.request.id))
      if (known) return again(known)
    }
    try {
      return [await operation.run?.(call), once]
    } catch (thrown) {
      if (thrown instanceof operator.RequestDone) return again(thrown.request)
      throw thrown
    }
  }
}

/** The ledger throws a RangeError for what cannot be done. */
function refused(thrown: unknown): unknown {
  if (!(thrown instanceof RangeError)) return thrown
  return new GatewayError('request_conflict', { message: sentence(thrown.message) })
}

function paramsOf({ names, pattern }: (typeof ROUTES)[number], path: string): Record<string, string> {
  const values = pattern.exec(path)?.slice(1) ?? []
  return Object.fromEntries(names.map((name, at) => [name, values[at] ?? '']))
}

/** Returns the query with its numbers. @throws GatewayError bad_request */
function queryOf(
  x: BuiltInExchange,
  { query, checkQuery }: Operation,
  foreign: RegExp | undefined,
): Record<string, unknown> {
  const { properties = {} } = (query ?? {}) as { properties?: Record<string, { type?: unknown }> }
  const given: Record<string, unknown> = Object.create(null) as Record<string, unknown>
  for (const [name, text] of x.query) {
    if (Object.hasOwn(given, name))
      throw new GatewayError('bad_request', { message: `"${name}" appears twice.`, param: name })
    if (SECRET.test(text) || (foreign && text.search(foreign) >= 0))
      throw new GatewayError('bad_request', { message: 'A secret must not stand in a URL.', param: name })
    if (text.includes('\0'))
      throw new GatewayError('bad_request', { message: `"${name}" has a character 0.`, param: name })
    // An empty field of a form asks for nothing.
    if (text !== '') given[name] = properties[name]?.type === 'integer' && /^\d{1,9}$/.test(text) ? Number(text) : text
  }
  const fault = checkQuery(given)
  if (fault)
    throw new GatewayError('bad_request', { message: fault.message, ...(fault.member && { param: fault.member }) })
  return given
}

/** Keys, tokens and codes. */
const SECRET = /sk-\w{20,}|tg[as]-\w{20,}|TG(?:-\w{5}){3}/i

interface Paging {
  readonly limit: number
  readonly cursor?: string
  readonly format: 'json' | 'csv'
}

async function listed(call: Call<Paging>, operation: Operation): Promise<Reply> {
  const { columns = [] } = operation
  const { limit, cursor, format } = call.query
  if (format === 'json') {
    const { data, next } = (await operation.page?.(call, cursor, limit)) ?? { data: [], next: undefined }
    return Reply.json({ object: 'list', data, has_more: next !== undefined, next_cursor: next ?? null }, PRIVATE)
  }
  const name = call.x.path.split('/').at(-1) ?? 'list'
  const none = { data: [], next: undefined }
  return csvReply(name, columns, async at => (await operation.page?.(call, at ?? cursor, CSV_ROWS)) ?? none)
}
