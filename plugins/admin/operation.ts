/** The operations of the admin API: what each takes, answers and needs. */
import { type FromSchema, GatewayError, type JSONSchema, type Reply } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { type BuiltInExchange, type BuiltInHost, invalidBody, type ListPage, turn } from 'tollgate/plugin/operator'
import type { Access, Actor } from './access.ts'
import type { Once } from './once.ts'

/** What the operations of one generation share. */
export interface Office extends BuiltInHost {
  readonly access: Access
  readonly codes: operator.CodeBook
  readonly overview: operator.OverviewFeed
  readonly trend: operator.Trend
  /** The OpenAPI of the operations. */
  openapi(): unknown
}

/** One call of an operation. */
export interface Call<Q = unknown, B = unknown> {
  readonly office: Office
  readonly x: BuiltInExchange
  readonly actor: Actor
  /** The variable parts of the path. */
  readonly params: Readonly<Record<string, string>>
  readonly query: Q
  readonly body: B
  readonly once: Once
}

interface Definition<Q, B> {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** The path below `/admin/api`, with variable parts in braces. */
  readonly path: string
  readonly summary: string
  /** The scope that a token needs. */
  readonly scope: operator.TokenScope
  readonly query?: object | undefined
  readonly body?: object | undefined
  /** The schema of the reply; of one row for a list. Undefined for a reply without a body, or of another kind. */
  readonly reply?: object | undefined
  readonly status?: 201 | undefined
  /** Whether it creates something with a secret, or grants something, so that an idempotency key is worth sending. */
  readonly creates?: 'secrets' | 'grant'
  /**
   * Does it. If it creates something, it notes what it has done in its transaction, by `noting`, and returns that; `show`
   * then makes the reply.
   */
  run?(call: Call<Q, B>): Promise<unknown>
  /** Makes the reply from what was done, also when the request is repeated. */
  show?(done: any, call: Call<Q, B>): Promise<unknown>
  /** Returns a page. The list can also be had as CSV, with these columns. */
  page?(call: Call<Q, B>, cursor: string | undefined, limit: number): Promise<ListPage>
  readonly columns?: readonly string[]
  /** Answers in another way than with JSON. */
  answer?(call: Call<Q, B>): Promise<Reply>
}

/** An operation. */
export interface Operation extends Definition<any, any> {
  readonly checkQuery: (value: unknown) => ReturnType<ReturnType<typeof operator.checkerOf>>
  readonly checkBody: (value: unknown) => ReturnType<ReturnType<typeof operator.checkerOf>>
}

/** Items of a long list that are mapped before other work gets its turn. */
const MAPPED_AT_ONCE = 50

const NOTHING = { type: 'object', additionalProperties: false } as const

/** The query of a list, besides its own members. */
const PAGING = {
  limit: { type: 'integer', minimum: 1, maximum: 500, default: 50 },
  cursor: { type: 'string', maxLength: 100, description: 'The `next_cursor` of the page before.' },
  format: { enum: ['json', 'csv'], default: 'json', description: '`csv` streams the whole list.' },
} as const

/** A definition whose schemas determine the types of its call. */
interface TypedDefinition<Q, B, QT, BT> extends Omit<Definition<NoInfer<QT>, NoInfer<BT>>, 'query' | 'body'> {
  readonly query?: Q
  readonly body?: B
}

/** Defines an operation. The schemas of query and body determine the types of its call. */
export function operation<
  const Q extends JSONSchema = typeof NOTHING,
  const B extends JSONSchema = typeof NOTHING,
  QT = FromSchema<Q>,
  BT = FromSchema<B>,
>(definition: TypedDefinition<Q, B, QT, BT>): Operation {
  const query = definition.page ? withPaging(definition.query) : definition.query
  return {
    ...definition,
    query: query as object | undefined,
    body: definition.body as object | undefined,
    checkQuery: operator.checkerOf((query ?? NOTHING) as object),
    checkBody: operator.checkerOf((definition.body ?? NOTHING) as object),
  }
}

/** The error of a cursor that no page has named. */
export function wrongCursor(): GatewayError {
  return new GatewayError('bad_request', { message: '"cursor" must be the next_cursor of a page.', param: 'cursor' })
}

/** The reply with a list that has no pages. */
export function wholeList(data: readonly unknown[]): object {
  return { object: 'list', data, has_more: false, next_cursor: null }
}

function withPaging(query: JSONSchema | undefined): JSONSchema {
  const { properties = {} } = (query ?? {}) as { properties?: object }
  return { type: 'object', additionalProperties: false, properties: { ...properties, ...PAGING } }
}

/** Returns what a transaction writes besides the change: that the request is done, and a line of the audit log. */
export function noting(
  call: Call,
  done: unknown,
  audit: { readonly action: string; readonly target?: string; readonly details?: object },
): operator.Also {
  return async sql => {
    await call.once.note(sql, done)
    await operator.addAudit(sql, auditEntry(call, audit))
  }
}

/** Returns a line of the audit log. */
export function auditEntry(
  { office, x, actor }: Call,
  {
    action,
    target = '',
    details = {},
  }: { readonly action: string; readonly target?: string; readonly details?: object },
): operator.AuditEntry {
  const { name, id } = actor.token
  return { at: office.now(), actor: `${name} (${id})`, address: x.address, action, target, details: { ...details } }
}

/** Returns the nano-credits of a given amount. @throws GatewayError invalid_body if it is too large */
export function amountOf(given: string | number, member = 'credits'): bigint {
  const nano = operator.parseDecimal(String(given))
  if (nano === undefined || nano === 0n)
    throw invalidBody(`"${member}" must be an amount of credits above zero, such as "25" or "0.5".`, member)
  if (nano > operator.MAX_AMOUNT) throw invalidBody(`"${member}" is too large.`, member)
  return nano
}

/** Returns a given time in milliseconds since the epoch. @throws GatewayError invalid_body unless it is in the future */
export function futureOf(given: string, now: number, member = 'expires_at'): number {
  const [, day, clock = ''] =
    /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:\d{2}))?$/.exec(given) ?? []
  const at = isDay(day) ? Date.parse(`${day}${clock}`) : Number.NaN
  if (Number.isNaN(at) || at <= now || at > 8.64e15)
    throw invalidBody(`"${member}" must be a time in the future, such as 2030-01-31 or 2030-01-31T12:00:00Z.`, member)
  return at
}

/** Whether a text is a day of the calendar. */
function isDay(text = ''): boolean {
  const ms = Date.parse(`${text}T00:00:00Z`)
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text) && text !== ''
}

/** Maps a long list. Other work gets its turn meanwhile. */
export async function mapInTurns<T, R>(items: readonly T[], map: (item: T) => R): Promise<R[]> {
  const mapped: R[] = []
  for (const item of items) {
    mapped.push(map(item))
    if (mapped.length % MAPPED_AT_ONCE === 0) await turn()
  }
  return mapped
}

/** Finds a key by its id. @throws GatewayError not_found */
export async function keyOf(call: Call, id = call.params['id'] ?? ''): Promise<operator.RecordedKey> {
  const key = await operator.orUnavailable(call.office.ledger.records.keys.get(id))
  if (!key) throw new GatewayError('not_found', { message: `There is no key ${shownId(id)}.` })
  return key
}

/** What an operation is about: a key, or a balance. */
export interface Subject {
  readonly id: string
  /** The id of the balance. */
  readonly account: string
  readonly whose: operator.Whose
}

/** The words of the path and of the summary of an operation that keys and balances have alike. */
export const SUBJECTS = {
  key: { path: '/keys/{id}', words: 'a key' },
  balance: { path: '/balances/{id}', words: 'a balance' },
} as const
/** One of them. */
export type SubjectKind = keyof typeof SUBJECTS

/** Finds the key or the balance of a path. @throws GatewayError not_found */
export async function subjectOf(call: Call, kind: SubjectKind): Promise<Subject> {
  if (kind === 'key') {
    const key = await keyOf(call)
    return { id: key.id, account: key.account, whose: operator.whoseOf(key) }
  }
  const { id } = await balanceOf(call)
  return { id, account: id, whose: { account: id } }
}

/** Finds a balance by its id. @throws GatewayError not_found */
export async function balanceOf(call: Call, id = call.params['id'] ?? ''): Promise<operator.RecordedAccount> {
  const found = await operator.orUnavailable(call.office.ledger.records.accounts.get(id))
  if (!found) throw new GatewayError('not_found', { message: `There is no balance ${shownId(id)}.` })
  return found
}

/** Returns what operators call keys, by their ids: the name, or else the end of the secret. */
export async function namesOf(
  { records }: BuiltInHost['ledger'],
  ids: readonly string[],
): Promise<Map<string, string>> {
  const keys = await operator.orUnavailable(records.keys.withIds([...new Set(ids)]))
  return new Map(keys.map(({ id, name, hint }) => [id, name || hint]))
}

/** An id may be anything that a caller has put into the path, even a secret. */
export function shownId(id: string): string {
  return /^(?:key|bal|code|tok)_[\w-]{1,60}$/.test(id) ? id : 'with this id'
}
