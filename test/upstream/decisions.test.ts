import t from 'tap'
import { type About, aboutOf, DECISIONS, decide, mayGoOn, type Standing } from '../../core/upstream/decisions.ts'
import { keepsTable } from '../tables.ts'

/** What follows from the end of an attempt, and when a request goes on to another account. */

const failure = (type: string) => ({ message: 'no', type })

t.test('each failure is about one row of the table', t => {
  const cases: [Parameters<typeof aboutOf>, About][] = [
    [['not asked'], 'not asked'],
    [['connect'], 'connect'],
    [['timeout'], 'timeout'],
    [['empty'], 'empty'],
    [['too large'], 'too large'],
    [['empty', { status: 200, failure: failure('overloaded_error') }], 'empty'],
    [['empty', { status: 200, failure: failure('invalid_request_error') }], 'request'],
    [[400, { status: 400, failure: undefined }], 'request'],
    [[400, { status: 400, failure: failure('billing_error') }], 'refused'],
    [[400, { status: 400, failure: { message: 'no balance', aboutAccount: true } }], 'unclear refusal'],
    [[422, { status: 422, failure: { message: 'no balance', aboutAccount: true } }], 'unclear refusal'],
    [[413, { status: 413, failure: undefined }], 'request'],
    [[422, { status: 422, failure: undefined }], 'request'],
    [[401, { status: 401, failure: undefined }], 'refused'],
    [[402, { status: 402, failure: undefined }], 'refused'],
    [[403, { status: 403, failure: failure('authentication_error') }], 'refused'],
    [[403, { status: 403, failure: failure('permission_error') }], 'unclear refusal'],
    [[403, { status: 403, failure: undefined }], 'unclear refusal'],
    [[404, { status: 404, failure: undefined }], 'other 4xx'],
    [[408, { status: 408, failure: undefined }], 'other status'],
    [[409, { status: 409, failure: undefined }], 'conflict'],
    [[429, { status: 429, failure: undefined }], 'overloaded'],
    [[500, { status: 500, failure: undefined }], 'other status'],
    [[503, { status: 503, failure: undefined }], 'overloaded'],
    [[529, { status: 529, failure: undefined }], 'overloaded'],
    [[302, { status: 302, failure: undefined }], 'below 400'],
  ]
  for (const [args, about] of cases) t.equal(aboutOf(...args), about, JSON.stringify(args))
  t.end()
})

t.test('a failure that may go to another account does so only if retry.on lists it', t => {
  const asks = (kind: Parameters<typeof aboutOf>[0], ...on: string[]): boolean =>
    decide(aboutOf(kind), kind, new Set(on)).asksNext
  t.ok(asks('connect', 'connect'))
  t.notOk(asks('connect', 'timeout', 'empty', '5xx'))
  t.ok(asks(429, '429'))
  t.notOk(asks(429, '5xx'))
  t.ok(asks(502, '5xx'), '5xx stands for every status from 500 on')
  t.ok(asks(529, '529'))
  t.ok(asks(409, '409'))
  t.notOk(asks(409, '5xx'))
  t.ok(asks(401), 'an account that is refused is left without being listed')
  t.notOk(decide('request', 400, new Set(['400'])).asksNext, 'the fault of a request follows it everywhere')
  t.end()
})

t.test('an exchange goes on only while nothing has begun, somebody waits, time is left and accounts are left', t => {
  const standing: Standing = {
    begun: false,
    gone: false,
    over: false,
    route: { more: true, retry: { attempts: 3, totalMs: 1000 } },
  }
  t.ok(mayGoOn(standing, 2, 999))
  t.notOk(mayGoOn({ ...standing, begun: true }, 0, 0), 'something has gone to the client')
  t.notOk(mayGoOn({ ...standing, gone: true }, 0, 0), 'the client has left')
  t.notOk(mayGoOn({ ...standing, over: true }, 0, 0), 'the gateway has ended the exchange')
  t.notOk(mayGoOn(standing, 1, 1000), 'it is late')
  t.notOk(mayGoOn({ ...standing, route: { ...standing.route, more: false } }, 1, 0), 'no account is left')
  t.notOk(mayGoOn(standing, 3, 0), 'no try is left')
  t.end()
})

/** The rows of the table in the words of docs/pools.md. */
const ABOUT: Readonly<Record<About, string>> = {
  'not asked': 'the account was not asked: another request tries it, or it must wait',
  refused: '401 or 402; 400 or 403 with a type or code that names the account',
  'unclear refusal': 'any other 403; 400, 404, 413 or 422 with a text about the account',
  overloaded: '429, 503 or 529',
  'other status': '408 or 5xx',
  'below 400': 'a redirection, or another status below 400 that is not 200',
  conflict: '409',
  'other 4xx': 'any other 4xx, such as 404',
  connect: 'no connection, or one that broke before the whole request was sent',
  timeout:
    'sent, and no answer, or not all of a reply in one piece; a silent stream; a reply that cannot be translated',
  empty: 'status 200 without a reply',
  'too large': 'a reply, or an event of it, over the limits of the gateway',
  request: "any other 400, 413 or 422, or a failure of the request's own",
  cut: 'a stream that had begun broke off',
  'ended with an error': 'a stream that had begun ended with an error',
  left: 'the client left, or the gateway ended the exchange',
  served: "the reply is complete, or a stream that had begun ended with a failure of the request's own",
}
const HEALTH = {
  nothing: 'unchanged',
  success: 'well',
  failure: 'one failure',
  'failure and wait': 'one failure, and not asked before the time that the provider names',
  refusal: 'not asked until its key changes',
}
const ASKS = { always: 'yes', listed: 'if `retry.on` lists it', never: 'no' }

t.test('docs/pools.md has the table of decisions', t => {
  const yes = (value: boolean): string => (value ? 'yes' : 'no')
  const rows = Object.entries(DECISIONS).map(([about, { health, countsAsTry, asksNext, mayBeAskedAgain }]) => [
    ABOUT[about as About],
    HEALTH[health],
    yes(countsAsTry),
    ASKS[asksNext],
    yes(mayBeAskedAgain),
  ])
  keepsTable(t, new URL('../../docs/pools.md', import.meta.url), 'how an attempt ended', rows)
  t.end()
})
