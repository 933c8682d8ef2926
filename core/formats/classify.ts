/**
 * What a failure of an upstream is about. A table of statuses, codes and wordings decides. What follows for the request
 * and its account is in upstream/decisions.ts. docs/pools.md shows both tables.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { unquoted, wrappedMessage } from './failures.ts'
import { isLimitOfAccount, waitAsked } from './rate-limits.ts'
import type { Failure } from './terms.ts'

/**
 * What a failure is about: the request, which any account would refuse; the account; one model at the account; the
 * provider; or nothing that the gateway acts on.
 */
export const FAILURE_ABOUTS = ['request', 'account', 'model', 'provider', 'none'] as const
/** What a failure is about. */
export type FailureAbout = (typeof FAILURE_ABOUTS)[number]

/** What is known of a failure. */
export interface Verdict {
  readonly about: FailureAbout
  /**
   * How certain that is. `suspected`: only the status or the wording says so, and a customer may cause either by the
   * content of a request. `echoed`: the wording stands in the request.
   */
  readonly certainty: 'certain' | 'suspected' | 'echoed'
  /** Whether it is a limit, which ends by itself, and no refusal. */
  readonly isLimit: boolean
  /** Whether a row of gateway.yaml says so. */
  readonly isRule: boolean
  /** How long the provider asks to wait, in milliseconds, if it does. */
  readonly waitMs: number | undefined
}

/** A row that an operator adds for an upstream. Members that are set must all match. */
export interface FailureRule {
  readonly status: number | undefined
  /** The `type` or the `code` of the failure. */
  readonly code: string | undefined
  /** A part of the message, in any case. */
  readonly message: string | undefined
  readonly about: FailureAbout
}

/** An upstream's answer that is a failure. */
export interface FailedAnswer {
  readonly status: number
  readonly headers?: Readonly<IncomingHttpHeaders>
  readonly failure: Failure
}

/** What decides beside the answer itself. */
export interface Circumstances {
  readonly rules: readonly FailureRule[]
  /** Whether words stand in the request. A provider may repeat them. */
  readonly standsInRequest: (words: string) => boolean
  /** Milliseconds since the epoch. */
  readonly now: number
}

/** A wording of a message: an example, and the pattern. */
type Wording = readonly [example: string, pattern: string]

const words = (text: string): Wording => [text, text]

/** Wordings about a provider's account, for messages whose status and code do not say so. */
export const ACCOUNT_WORDS: readonly Wording[] = [
  words('credit balance'),
  ['insufficient balance', '(?:insufficient|not enough|no) (?:account |available )?(?:balance|credits?|funds|quota)'],
  ['balance is too low', 'balance (?:is )?(?:insufficient|not enough|too low|exhausted)'],
  ['out of credits', 'out of (?:credits?|funds)'],
  words('exceeded your current quota'),
  words('plan and billing'),
  ['spending limit', '(?:spend|spending|billing|monthly|usage) (?:hard )?limits?'],
  [
    'organization … disabled',
    '(?:account|organi[sz]ation|project|workspace|api key)\\b[^.]{0,40}\\b(?:disabled|suspended|deactivated|restricted|blocked|banned|expired|revoked|not authorized)',
  ],
  words('account is in good standing'),
  words('arrearage'),
  words('overdue payment'),
  ['API key not valid', '(?:incorrect|invalid) api key|api key (?:is )?(?:not valid|invalid)'],
  [
    'subscription has expired',
    '(?:subscription|free trial|plan) (?:has |is )?(?:expired|ended|inactive)|inactive subscription',
  ],
  ['add a payment method', 'add(?:ing)? a payment method'],
  words('billing account'),
  words('enable billing'),
  ['unpaid invoices', 'unpaid invoices?|payment required'],
  words('location is not supported'),
  ['organization must be verified', 'organi[sz]ation must be verified'],
  ['额度已用尽', '额度.{0,4}用尽'],
  words('余额不足'),
  words('欠费'),
]

/** Wordings of a refusal that depends on the size of the request. */
export const UNAFFORDABLE_WORDS: readonly Wording[] = [['fewer max_tokens', 'fewer max_tokens|can only afford']]

/** Wordings about the content of a request, for messages that come with the status of a refusal. */
export const CONTENT_WORDS: readonly Wording[] = [
  [
    'content violates',
    '(?:content|prompt|input|message|request)\\b[^.]{0,40}\\b(?:violates?|violated|violation|flagged|moderat\\w*|unsafe)',
  ],
]

/** Wordings of a rate limit that applies to all models of an account. */
export const ACCOUNT_LIMIT_WORDS: readonly Wording[] = [
  ["your account's", "\\b(?:your|this|the) account['’]s\\b|\\b(?:of|for) (?:your|this|the) account\\b"],
  words('all models'),
  words('usage limit'),
]

const ANY_STATUS = 'any'
/** Statuses of a row: one by one, or a range. */
type Statuses = readonly (number | '5xx' | 'below 400')[] | typeof ANY_STATUS

/** A row of the table. Every member that is set must match. */
export interface FailureRow {
  readonly statuses: Statuses
  /** Parts of the type or the code. */
  readonly codes?: readonly string[]
  /** Whole types or codes. */
  readonly wholeCodes?: readonly string[]
  /** Wordings of the message, of which one must occur. */
  readonly words?: readonly Wording[]
  /** The headers say that a limit of the whole account is used up. */
  readonly limitHeaders?: true
  readonly about: FailureAbout
  readonly isSuspected?: true
  readonly isLimit?: true
}

/** Codes of failures that the content of a request caused. */
const CONTENT_CODES = ['content_filter', 'content_policy', 'cyber_policy', 'bio_policy', 'moderation']
/** Codes of failures that the request itself caused, under status 200. */
const REQUEST_CODES = [
  'invalid_request',
  'invalid_prompt',
  'context_length',
  'too_long',
  'request_too_large',
  'invalid_encrypted_content',
  'content_filter',
  'cyber_policy',
  'bio_policy',
  'image',
]
/** Whole codes of accounts that are refused. */
const ACCOUNT_CODES = [
  'authentication_error',
  'invalid_authentication',
  'invalid_api_key',
  'api_key_invalid',
  'account_deactivated',
  'account_suspended',
  'organization_deactivated',
  'organization_disabled',
  'billing_error',
  'billing_not_active',
  'billing_hard_limit_reached',
  'insufficient_quota',
  'insufficient_user_quota',
  'exceeded_current_quota_error',
  'insufficient_balance',
  'insufficient_credits',
  'insufficient_funds',
  'credit_balance_exhausted',
  'credit_balance_too_low',
  'balance_not_enough',
  'arrearage',
  'account_overdue',
]
/** Parts of codes that may mean the account. */
const SUSPECTED_CODES = ['authentication', 'api_key', 'billing', 'quota', 'credit', 'deactivated', 'suspended', 'overdue'] // prettier-ignore

/** The table. The first row that matches decides. */
export const FAILURE_ROWS: readonly FailureRow[] = [
  { statuses: [402], words: UNAFFORDABLE_WORDS, about: 'account', isSuspected: true },
  { statuses: [401, 402], about: 'account' },
  { statuses: [200, 400, 403, 404, 413, 422, 429], wholeCodes: ACCOUNT_CODES, about: 'account' },
  { statuses: [200, 429], codes: ['usage_limit'], about: 'account', isLimit: true },
  { statuses: [429], limitHeaders: true, about: 'account', isLimit: true },
  { statuses: [429], words: ACCOUNT_LIMIT_WORDS, about: 'account', isLimit: true },
  { statuses: [429], about: 'model', isLimit: true },
  { statuses: [200], codes: ['rate_limit', 'slow_down', 'throttl'], about: 'model', isLimit: true },
  { statuses: [200, 400, 403, 404, 412, 413, 422], words: ACCOUNT_WORDS, about: 'account', isSuspected: true },
  { statuses: [400, 404, 413, 422], codes: SUSPECTED_CODES, about: 'account', isSuspected: true },
  { statuses: [200], codes: REQUEST_CODES, about: 'request' },
  { statuses: [403], codes: CONTENT_CODES, about: 'request' },
  { statuses: [403], words: CONTENT_WORDS, about: 'request' },
  { statuses: [403], about: 'account', isSuspected: true },
  { statuses: [400, 413, 422], about: 'request' },
  { statuses: [200, 408, '5xx', 'below 400'], about: 'provider' },
  { statuses: ANY_STATUS, about: 'none' },
]

/** The pattern of a row's codes, for the type and the code with a space between them. */
function codesPattern({ codes, wholeCodes }: FailureRow): RegExp | undefined {
  if (wholeCodes) return new RegExp(`(?:^| )(?:${wholeCodes.join('|')})(?:$| )`, 'i')
  return codes && new RegExp(codes.join('|'), 'i')
}

interface Pattern {
  readonly codes: RegExp | undefined
  readonly words: RegExp | undefined
}

const PATTERNS = new Map<FailureRow, Pattern>(
  FAILURE_ROWS.map(row => [
    row,
    {
      codes: codesPattern(row),
      words: row.words && new RegExp(row.words.map(([, pattern]) => pattern).join('|'), 'gi'),
    },
  ]),
)

/** Returns what a failure is about. */
export function classify(answer: FailedAnswer, circumstances: Circumstances): Verdict {
  const { rules, now, standsInRequest } = circumstances
  const waitMs = (answer.headers && waitAsked(answer.headers, now)) ?? answer.failure.waitMs
  const verdict = (about: FailureAbout, more: Partial<Verdict> = {}): Verdict => ({
    about,
    certainty: 'certain',
    isLimit: false,
    isRule: false,
    waitMs,
    ...more,
  })
  for (const { about, ...rule } of rules) {
    const said = wordsOfRule(rule, answer)
    if (!said) continue
    // A customer can cause any other status, and any wording.
    const isCertain = rule.code !== undefined || answer.status === 401 || answer.status === 402
    return verdict(about, {
      isRule: true,
      certainty: isCertain ? 'certain' : certaintyOf(said, standsInRequest),
    })
  }
  for (const row of FAILURE_ROWS) {
    const said = wordsOfRow(row, answer)
    if (!said) continue
    // What the customer wrote is no limit of the account.
    if (row.isLimit && said.length > 0 && said.every(each => standsInRequest(each))) continue
    const certainty = row.isSuspected ? certaintyOf(said, standsInRequest) : 'certain'
    return verdict(row.about, { certainty, isLimit: row.isLimit === true })
  }
  return verdict('none')
}

/**
 * How certain a suspected failure is.
 * @param said the words of the message that match; none if no wording decides
 */
function certaintyOf(said: readonly string[], standsInRequest: Circumstances['standsInRequest']): Verdict['certainty'] {
  return said.length > 0 && said.every(each => standsInRequest(each)) ? 'echoed' : 'suspected'
}

/** The words by which a rule matches an answer, none if it has no wording; undefined if it does not match. */
function wordsOfRule(
  { status, code, message }: Omit<FailureRule, 'about'>,
  answer: FailedAnswer,
): string[] | undefined {
  const { failure } = answer
  if (status !== undefined && status !== answer.status) return undefined
  if (code !== undefined && failure.type !== code && failure.code !== code) return undefined
  if (message === undefined) return []
  return wordsOf(failure).toLowerCase().includes(message.toLowerCase()) ? [message] : undefined
}

/** The words by which a row matches an answer, none if it has no wording; undefined if it does not match. */
function wordsOfRow(row: FailureRow, { status, headers, failure }: FailedAnswer): string[] | undefined {
  if (!hasStatus(row.statuses, status)) return undefined
  const { codes, words } = PATTERNS.get(row) as Pattern
  if (codes && !codes.test(`${failure.type ?? ''} ${failure.code ?? ''}`)) return undefined
  if (row.limitHeaders && !(headers && isLimitOfAccount(headers))) return undefined
  if (!words) return []
  const said = [...new Set([...wordsOf(failure).matchAll(words)].map(([each]) => each.toLowerCase()))]
  return said.length === 0 ? undefined : said
}

/** The words of a failure. Quotations do not count: they may be a customer's text. */
function wordsOf({ message }: Failure): string {
  return `${unquoted(message, CLASSIFIED_CHARS)} ${unquoted(wrappedMessage(message), CLASSIFIED_CHARS)}`
}

function hasStatus(statuses: Statuses, status: number): boolean {
  if (statuses === ANY_STATUS) return true
  return statuses.some(each => {
    if (each === 'below 400') return status !== 200 && status < 400
    return each === '5xx' ? status >= 500 : each === status
  })
}

/** Characters of a message that are classified. */
const CLASSIFIED_CHARS = 2000

/** A longer request is not parsed to find words in it: that would take long. All words count as standing in it. */
const PARSED_BYTES_MAX = 1024 * 1024

/**
 * Returns a function that says whether words stand in a request: in its body, with any escapes, or in a header. The request
 * is read at the first call.
 * @param body returns the request's body
 */
export function standingIn(body: () => Buffer, headers: Readonly<IncomingHttpHeaders>): (words: string) => boolean {
  let request: string | undefined
  return words => {
    const json = body()
    if (json.length > PARSED_BYTES_MAX) return true
    request ??= plain([JSON.stringify(JSON.parse(json.toString())), ...Object.values(headers).map(String)].join('\n'))
    return request.includes(plain(JSON.stringify(words).slice(1, -1)))
  }
}

/** A text in one case, with one space where there are several, or a line break. */
function plain(text: string): string {
  return text.toLowerCase().replaceAll(/(?:\\[nrt]|\s)+/g, ' ')
}
