import t from 'tap'
import {
  ACCOUNT_LIMIT_WORDS,
  ACCOUNT_WORDS,
  classify,
  FAILURE_ROWS,
  type FailureRow,
  type FailureRule,
  type FailedAnswer,
  standingIn,
  type Verdict,
} from '../../core/formats/classify.ts'
import { keepsTable } from '../tables.ts'

/** What a failure of an upstream is about: the table, its order, and the rows that an operator adds. */

const NOW = 1_800_000_000_000
const asked = (text: string, rules: readonly FailureRule[] = []) => ({
  rules,
  now: NOW,
  standsInRequest: (words: string) => text.toLowerCase().includes(words.toLowerCase()),
})
const answer = (status: number, failure: Partial<FailedAnswer['failure']> = {}, headers = {}): FailedAnswer => ({
  status,
  headers,
  failure: { message: '', ...failure },
})

t.test('each failure is about what its status, its code or its wording says', t => {
  const cases: readonly (readonly [FailedAnswer, Partial<Verdict>])[] = [
    [answer(401), { about: 'account', certainty: 'certain' }],
    [answer(402), { about: 'account', certainty: 'certain' }],
    [answer(403), { about: 'account', certainty: 'suspected' }],
    [answer(403, { code: 'permission-denied', message: 'Content violates usage guidelines.' }), { about: 'request' }],
    [answer(403, { message: 'Your prompt was flagged.' }), { about: 'request' }],
    [answer(403, { code: 'file_quota_exceeded' }), { about: 'account', certainty: 'suspected' }],
    [answer(400, { code: 'mcp_authentication_failed' }), { about: 'account', certainty: 'suspected' }],
    [answer(400, { code: 'load_balancer_error' }), { about: 'request' }],
    [
      answer(402, { message: 'You requested up to 64000 tokens, but can only afford 5000' }),
      { certainty: 'suspected' },
    ],
    [answer(200, { type: 'invalid_request_error', message: 'Your credit balance is too low' }), { about: 'account' }],
    [answer(400, { message: 'API key not valid. Please pass a valid API key.' }), { about: 'account' }],
    [answer(400, { code: 'API_KEY_INVALID' }), { about: 'account', certainty: 'certain' }],
    [answer(400, { message: 'litellm.BadRequestError: XException - {"error":{"message":"Your credit balance is too low"}}' }), { about: 'account', certainty: 'suspected' }], // prettier-ignore
    [answer(400, { message: "Error code: 400 - {'error': {'message': 'Your credit balance is too low', 'code': None}}" }), { about: 'account' }], // prettier-ignore
    [answer(400, { message: `${'x '.repeat(500)} insufficient balance` }), { about: 'account' }],
    [answer(403, { type: 'invalid_request_error', code: 'model_not_found', message: 'Project p does not have access to model m' }), { about: 'account' }], // prettier-ignore
    [answer(403, { message: 'Your account was suspended. Your input was flagged for abuse.' }), { about: 'account' }],
    [answer(412, { message: 'Account acme-7 is suspended' }), { about: 'account', certainty: 'suspected' }],
    [answer(422, { message: 'Payment required: the workspace has unpaid invoices' }), { about: 'account' }],
    [answer(403, { type: 'permission_error' }), { about: 'account', certainty: 'suspected' }],
    [answer(403, { type: 'authentication_error' }), { about: 'account', certainty: 'certain' }],
    [answer(400, { type: 'invalid_request_error' }), { about: 'request' }],
    [answer(400, { type: 'billing_error' }), { about: 'account', certainty: 'certain' }],
    [answer(400, { code: 'Arrearage' }), { about: 'account', certainty: 'certain' }],
    [answer(400, { message: 'Insufficient Balance' }), { about: 'account', certainty: 'suspected' }],
    [answer(413), { about: 'request' }],
    [answer(422, { message: 'out of credits' }), { about: 'account', certainty: 'suspected' }],
    [answer(422), { about: 'request' }],
    [answer(404), { about: 'none' }],
    [answer(404, { message: 'This organization has been disabled.' }), { about: 'account', certainty: 'suspected' }],
    [answer(409), { about: 'none' }],
    [answer(418), { about: 'none' }],
    [answer(429), { about: 'model', isLimit: true, waitMs: undefined }],
    [answer(429, {}, { 'retry-after': '3' }), { about: 'model', waitMs: 3000 }],
    [answer(429, { type: 'rate_limit_error', message: 'the rate limit of your organization for this model' }), { about: 'model' }], // prettier-ignore
    [answer(429, { message: 'Rate limit reached for m in organization o. See https://x.example/account/limits' }), { about: 'model' }], // prettier-ignore
    [answer(429, { message: "This would exceed your account's rate limit." }), { about: 'account', isLimit: true }],
    [answer(429, { code: 'insufficient_quota' }), { about: 'account', isLimit: false }],
    [answer(429, { type: 'exceeded_current_quota_error' }), { about: 'account', isLimit: false }],
    [answer(429, { code: 'rate_limit_quota' }), { about: 'model' }],
    [answer(429, { type: 'usage_limit_reached', waitMs: 9000 }), { about: 'account', isLimit: true, waitMs: 9000 }],
    [answer(429, {}, { 'x-codex-primary-used-percent': '100', 'x-codex-primary-reset-after-seconds': '60' }), { about: 'account', isLimit: true, waitMs: 60_000 }], // prettier-ignore
    [answer(429, { message: 'Rate limit reached for m. You can increase your limits by adding a payment method to your account at https://x.example' }), { about: 'model' }], // prettier-ignore
    [answer(429, { code: 'insufficient_capacity' }), { about: 'model' }],
    [answer(400, { code: 'unbalanced_tool_calls' }), { about: 'request' }],
    [answer(404, { code: 'model_deactivated' }), { about: 'account', certainty: 'suspected' }],
    [answer(408), { about: 'provider' }],
    [answer(500, { message: 'Insufficient Balance' }), { about: 'provider' }],
    [answer(503, {}, { 'retry-after': '5' }), { about: 'provider', waitMs: 5000 }],
    [answer(529), { about: 'provider' }],
    [answer(302), { about: 'provider' }],
    [answer(200), { about: 'provider' }],
    [answer(200, { type: 'overloaded_error' }), { about: 'provider' }],
    [answer(200, { code: 'insufficient_quota' }), { about: 'account' }],
    [answer(200, { code: 'rate_limit_exceeded' }), { about: 'model' }],
    [answer(200, { code: 'context_length_exceeded' }), { about: 'request' }],
    [answer(200, { code: 'invalid_image_url' }), { about: 'request' }],
    [answer(200, { code: 'image_content_policy_violation' }), { about: 'request' }],
  ]
  for (const [failed, verdict] of cases) t.match(classify(failed, asked('')), verdict, JSON.stringify(failed))
  t.end()
})

t.test('words about an account are known', t => {
  for (const message of [
    'Your credit balance is too low to access the API.',
    'Insufficient Balance',
    'You exceeded your current quota, please check your plan and billing details.',
    'You have reached your specified API usage limits.',
    'This organization has been disabled.',
    'Your API key has expired',
    'Access denied, please make sure your account is in good standing.',
    '账户余额不足',
  ])
    t.match(classify(answer(400, { message }), asked('')), { about: 'account', certainty: 'suspected' }, message)
  for (const [example, pattern] of [...ACCOUNT_WORDS, ...ACCOUNT_LIMIT_WORDS])
    t.match(example, new RegExp(pattern, 'i'), 'an example of the documentation')
  t.end()
})

t.test('words that are quoted do not count, and words that stand in the request are no suspicion', t => {
  for (const message of [
    'max_tokens is too large',
    'bad value: "Insufficient Balance"',
    'the key "expired" is unknown',
  ])
    t.match(classify(answer(400, { message }), asked('')), { about: 'request' }, message)
  const said = answer(400, { message: 'bad value: insufficient balance' })
  t.match(classify(said, asked('say INSUFFICIENT BALANCE')), { about: 'account', certainty: 'echoed' })
  t.match(classify(said, asked('say something else')), { about: 'account', certainty: 'suspected' })
  const two = answer(400, { message: 'insufficient balance: you have reached your spending limit' })
  t.match(
    classify(two, asked('insufficient balance')),
    { certainty: 'suspected' },
    'other words that stand in no request',
  )
  const limited = answer(429, { message: 'the usage limit' })
  t.match(classify(limited, asked('')), { about: 'account' })
  t.match(classify(limited, asked('usage limit')), { about: 'model' }, 'no limit of the account by a customer’s words')
  t.end()
})

t.test('a request is read once, however often it has the words', t => {
  const text = 'credit balance '.repeat(70_000)
  let reads = 0
  const body = (): Buffer => (reads++, Buffer.from(JSON.stringify({ messages: [text.slice(0, 1_000_000)] })))
  const stands = standingIn(body, { 'x-note': 'out  of\n credits' })
  const said = classify(answer(400, { message: text.slice(0, 2000) }), { rules: [], now: NOW, standsInRequest: stands })
  t.match(said, { about: 'account', certainty: 'echoed' })
  t.equal(reads, 1, 'the same words are looked for once')
  t.ok(stands('out of credits'), 'in a header, with other spaces')
  t.notOk(stands('spending limit'))
  t.end()
})

t.test('the rows of an upstream come first, and all that one sets must match', t => {
  const rule = (more: Partial<FailureRule>): FailureRule => ({
    status: undefined,
    code: undefined,
    message: undefined,
    about: 'account',
    ...more,
  })
  const about = (failed: FailedAnswer, ...rules: FailureRule[]): Partial<Verdict> =>
    classify(failed, asked('xyz', rules))
  const empty = answer(400, { code: 'e1', message: 'No Guthaben left' })
  t.match(about(empty, rule({ status: 400, message: 'guthaben' })), { about: 'account', certainty: 'suspected' })
  t.match(about(empty, rule({ code: 'e1' })), { about: 'account', certainty: 'certain' })
  t.match(about(empty, rule({ code: 'e1', message: 'guthaben' })), { about: 'account', certainty: 'certain' })
  t.match(about(empty, rule({ code: 'e' })), { about: 'request' }, 'a part of a code')
  t.match(about(empty, rule({ status: 404, message: 'guthaben' })), { about: 'request' })
  t.match(
    about(answer(400, { message: 'no xyz' }), rule({ message: 'xyz' })),
    { certainty: 'echoed' },
    'in the request',
  )
  t.match(about(answer(302), rule({ status: 302, about: 'provider' })), { about: 'provider', isRule: true })
  t.match(about(answer(401), rule({ status: 401, about: 'none' })), { about: 'none' })
  t.match(about(answer(404), rule({ status: 404, about: 'request' }), rule({ status: 404 })), { about: 'request' })
  t.end()
})

/** How docs/pools.md shows a row. */
function shown({
  statuses,
  codes,
  wholeCodes,
  words,
  limitHeaders,
  about,
  isSuspected,
  isLimit,
}: FailureRow): string[] {
  const spelled = (names: readonly string[] = []): string => names.map(name => `\`${name}\``).join(', ')
  const said = wholeCodes ? `whole: ${spelled(wholeCodes)}` : spelled(codes)
  const examples =
    words?.map(([example]) => example).join('; ') ?? (limitHeaders ? 'headers: a limit of the account is used up' : '')
  const what = `${about}${isSuspected ? ', suspected' : ''}${isLimit ? ', a limit' : ''}`
  return [statuses === 'any' ? 'any other' : statuses.join(', '), said, examples, what]
}

t.test('docs/pools.md has the table of failures', t => {
  keepsTable(t, new URL('../../docs/pools.md', import.meta.url), 'status', FAILURE_ROWS.map(shown))
  t.end()
})
