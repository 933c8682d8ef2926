import t from 'tap'
import { classify, type Verdict } from '../../core/formats/classify.ts'
import {
  type About,
  aboutOf,
  DECISIONS,
  decide,
  mayGoOn,
  type Standing,
} from '../../core/upstream/attempts/decisions.ts'
import { keepsTable } from '../tables.ts'

/** What follows from the end of an attempt, and when a request goes on to another account. */

const verdict = (about: Verdict['about'], more: Partial<Verdict> = {}): Verdict => ({
  about,
  certainty: 'certain',
  isLimit: false,
  isRule: false,
  waitMs: undefined,
  ...more,
})

t.test('each failure is about one row of the table', t => {
  const cases: [Parameters<typeof aboutOf>, About][] = [
    [['not asked'], 'not asked'],
    [['connect'], 'connect'],
    [['timeout'], 'timeout'],
    [['empty'], 'empty'],
    [['too large'], 'too large'],
    [['unknown end'], 'unknown end'],
    [['empty', verdict('provider')], 'empty'],
    [['empty', verdict('none')], 'none'],
    [['empty', verdict('request')], 'request'],
    [['empty', verdict('account')], 'refused'],
    [['empty', verdict('model', { isLimit: true })], 'limited model'],
    [[400, verdict('request')], 'request'],
    [[400, verdict('account')], 'refused'],
    [[400, verdict('account', { certainty: 'suspected' })], 'suspected refusal'],
    [[429, verdict('account', { isLimit: true })], 'must wait'],
    [[429, verdict('model', { isLimit: true })], 'limited model'],
    [[400, verdict('account', { certainty: 'echoed' })], 'echoed refusal'],
    [[400, verdict('model', { isRule: true, certainty: 'echoed' })], 'echoed refusal'],
    [[400, verdict('provider', { isRule: true, certainty: 'echoed' })], 'echoed refusal'],
    [[404, verdict('none')], 'none'],
    [[500, verdict('none', { isRule: true })], 'none'],
    [[409, verdict('none', { isRule: true })], 'none'],
    [[409, verdict('none')], 'conflict'],
    [[408, verdict('provider')], 'other status'],
    [[500, verdict('provider')], 'other status'],
    [[503, verdict('provider')], 'overloaded'],
    [[529, verdict('provider')], 'overloaded'],
    [[302, verdict('provider')], 'other status'],
  ]
  for (const [args, about] of cases) t.equal(aboutOf(...args), about, JSON.stringify(args))
  t.end()
})

t.test('a failure that may go to another account does so only if retry.on lists it', t => {
  const asks = (kind: Parameters<typeof aboutOf>[0], ...on: string[]): boolean =>
    decide(
      aboutOf(
        kind,
        typeof kind === 'number'
          ? classify({ status: kind, failure: { message: '' } }, { rules: [], standsInRequest: () => true, now: 0 })
          : undefined,
      ),
      kind,
      new Set(on),
    ).asksNext
  t.ok(asks('connect', 'connect'))
  t.notOk(asks('connect', 'timeout', 'empty', '5xx'))
  t.ok(asks(429, '429'))
  t.notOk(asks(429, '5xx'))
  t.ok(asks(502, '5xx'), '5xx stands for every status from 500 on')
  t.ok(asks(529, '529'))
  t.ok(asks(409, '409'))
  t.notOk(asks(409, '5xx'))
  t.ok(asks(401), 'an account that is refused is left without being listed')
  t.ok(decide('limited model', 404, new Set(), true).asksNext, 'a row of the file says that it is about the model')
  t.ok(decide('other status', 302, new Set(), true).asksNext, 'or about the provider')
  t.notOk(asks(302, '5xx'), 'a redirection')
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
  refused: 'a failure about the account',
  'suspected refusal': 'any other suspected failure about the account',
  'echoed refusal': 'a suspected failure about the account whose wording stands in the request',
  'limited model': 'a failure about the model',
  'must wait': 'a limit of the account',
  overloaded: '429, 503 or 529 about the provider',
  'other status': 'any other failure about the provider, such as 500',
  conflict: '409',
  none: 'a failure about nothing that the gateway acts on, such as 404',
  connect: 'no connection, or one that broke before the whole request was sent',
  timeout:
    'sent, and no answer, or not all of a reply in one piece; a silent stream; a reply that cannot be translated',
  empty: 'status 200 without a reply',
  'too large': 'a reply, or an event of it, over the limits of the gateway',
  'unknown end': 'a reply that ends with an unknown word',
  request: 'a failure about the request',
  cut: 'a stream that had begun broke off',
  'ended with an error': 'a stream that had begun ended with an error',
  left: 'the client closed the connection, or the gateway ended the request',
  'ended about the request': 'a stream that had begun ended with a failure about the request',
  served: 'the reply is complete',
}
const HEALTH = {
  nothing: 'unchanged',
  success: 'well',
  failure: 'one failure',
  'failure and wait': 'one failure, and not asked before the time that the provider names',
  limit: 'unchanged; the model is not asked for before the time that the provider names',
  refusal: 'not asked for a minute, then tried; twice as long each time',
  suspicion: 'unchanged, until requests of two keys meet it',
}
const ASKS = { always: 'yes', listed: 'if `retry.on` lists it', never: 'no' }

t.test('docs/pools.md has the table of decisions', t => {
  const yes = (value: boolean): string => (value ? 'yes' : 'no')
  const rows = Object.entries(DECISIONS).map(([about, { who, health, countsAsTry, asksNext, mayBeAskedAgain }]) => [
    ABOUT[about as About],
    who === undefined ? 'none' : `the ${who}`,
    HEALTH[health],
    yes(countsAsTry),
    ASKS[asksNext],
    yes(mayBeAskedAgain),
  ])
  keepsTable(t, new URL('../../docs/pools.md', import.meta.url), 'how an attempt ended', rows)
  t.end()
})
