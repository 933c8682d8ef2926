/**
 * What a failure of an upstream is about. A table of statuses, codes and wordings decides. What follows for the request
 * and its account is in upstream/decisions.ts. docs/pools.md shows both tables.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { unquoted } from './failures.ts'
import { isLimitOfAccount, waitAsked } from './rate-limits.ts'
import type { Failure } from './terms.ts'

/**
 * What a failure is about: the request, which any account would refuse; the account; one model at the account; the
 * provider; or nothing that the gateway acts on.
 */
export const FAILURE_ABOUTS = ['request', 'account', 'model', 'provider', 'none'] as const
/** One of them. */
export type FailureAbout = (typeof FAILURE_ABOUTS)[number]

/** What is known of a failure. */
export interface Verdict {
  readonly about: FailureAbout
  /** Whether only the status or the wording says so. A customer may cause either by the content of a request. */
  readonly unsure: boolean
  /** Whether it is a limit, which ends by itself, and no refusal. */
  readonly limit: boolean
  /** How long the provider asks to wait, in milliseconds, if it does. */
  readonly outMs: number | undefined
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
  readonly stands: (words: string) => boolean
  /** Milliseconds since the epoch. */
  readonly now: number
}

/** A wording of a message: an example, and the pattern. */
type Wording = readonly [example: string, pattern: string]

const words = (text: string): Wording => [text, text]

/** Wordings about a provider's account, for messages that come with the status of a bad request. */
export const ACCOUNT_WORDS: readonly Wording[] = [
  words('credit balance'),
  ['insufficient balance', '(?:insufficient|not enough|no) (?:account |available )?(?:balance|credits?|funds|quota)'],
  ['balance is too low', 'balance (?:is )?(?:insufficient|not enough|too low|exhausted)'],
  ['out of credits', 'out of (?:credits?|funds)'],
  words('exceeded your current quota'),
  words('plan and billing'),
  ['spending limit', '(?:spend|spending|billing|monthly|api usage|specified usage) (?:hard )?limits?'],
  [
    'organization … disabled',
    '(?:account|organi[sz]ation|project|workspace|api key)\\b[^.]{0,40}\\b(?:disabled|suspended|deactivated|blocked|banned|expired|revoked)',
  ],
  words('account is in good standing'),
  words('arrearage'),
  words('overdue payment'),
  words('余额不足'),
  words('欠费'),
]

/** Wordings of a rate limit that applies to all models of an account. */
export const ACCOUNT_LIMIT_WORDS: readonly Wording[] = [
  ['your account', "\\b(?:your|this|the) account\\b|\\baccount['’]s\\b"],
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
  /** Only the wording decides, so that the row is unsure unless it is a limit. */
  readonly words?: readonly Wording[]
  /** The headers say that a limit of the whole account is used up. */
  readonly limitHeaders?: true
  readonly about: FailureAbout
  readonly unsure?: true
  readonly limit?: true
}

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
const ACCOUNT_CODES = ['authentication', 'api_key', 'deactivated', 'suspended', 'billing', 'quota', 'credit', 'balance', 'arrearage', 'overdue'] // prettier-ignore
/** A 429 is about a rate unless its code is one of these. */
const EMPTY_ACCOUNT_CODES = ['insufficient', 'billing', 'credit', 'balance', 'current_quota', 'arrearage', 'overdue', 'deactivated', 'suspended'] // prettier-ignore

/** The table. The first row that matches decides. Codes come before wordings. */
export const FAILURE_ROWS: readonly FailureRow[] = [
  { statuses: [401, 402], about: 'account' },
  { statuses: [200, 400, 403, 404, 413, 422], codes: ACCOUNT_CODES, about: 'account' },
  { statuses: [429], codes: EMPTY_ACCOUNT_CODES, about: 'account' },
  { statuses: [429], codes: ['usage_limit'], about: 'account', limit: true },
  { statuses: [429], limitHeaders: true, about: 'account', limit: true },
  { statuses: [429], words: ACCOUNT_LIMIT_WORDS, about: 'account', limit: true },
  { statuses: [429], about: 'model', limit: true },
  { statuses: [200], codes: REQUEST_CODES, about: 'request' },
  { statuses: [200], codes: ['rate_limit', 'slow_down', 'throttl'], about: 'model', limit: true },
  { statuses: [400, 404, 413, 422], words: ACCOUNT_WORDS, about: 'account', unsure: true },
  { statuses: [403], about: 'account', unsure: true },
  { statuses: [400, 413, 422], about: 'request' },
  { statuses: [200, 408, '5xx', 'below 400'], about: 'provider' },
  { statuses: ANY_STATUS, about: 'none' },
]

interface Pattern {
  readonly codes: RegExp | undefined
  readonly words: RegExp | undefined
}

const PATTERNS = new Map<FailureRow, Pattern>(
  FAILURE_ROWS.map(row => [
    row,
    {
      codes: row.codes && new RegExp(row.codes.join('|'), 'i'),
      words: row.words && new RegExp(row.words.map(([, pattern]) => pattern).join('|'), 'i'),
    },
  ]),
)

/** Without circumstances only codes and statuses decide. */
const NO_CIRCUMSTANCES: Circumstances = { rules: [], stands: () => true, now: 0 }

/** Returns what a failure is about. */
export function classify(answer: FailedAnswer, circumstances: Circumstances = NO_CIRCUMSTANCES): Verdict {
  const { rules, now } = circumstances
  const waitMs = (answer.headers && waitAsked(answer.headers, now)) ?? answer.failure.waitMs
  const rule = rules.find(each => isRuleFor(each, answer, circumstances))
  const row = rule ? undefined : FAILURE_ROWS.find(each => matches(each, answer, circumstances))
  return {
    about: (rule ?? row)?.about ?? 'none',
    unsure: rule ? rule.message !== undefined && rule.code === undefined : row?.unsure === true,
    limit: row?.limit === true,
    outMs: waitMs,
  }
}

/** Whether the request itself caused a failure, so that any account would refuse it. */
export function isOfTheRequest(status: number, failure: Failure): boolean {
  return classify({ status, failure }).about === 'request'
}

function isRuleFor({ status, code, message }: FailureRule, answer: FailedAnswer, { stands }: Circumstances): boolean {
  const { failure } = answer
  if (status !== undefined && status !== answer.status) return false
  if (code !== undefined && failure.type !== code && failure.code !== code) return false
  if (message === undefined) return true
  return unquoted(failure.message).toLowerCase().includes(message.toLowerCase()) && !stands(message)
}

function matches(row: FailureRow, { status, headers, failure }: FailedAnswer, { stands }: Circumstances): boolean {
  if (!hasStatus(row.statuses, status)) return false
  const { codes, words } = PATTERNS.get(row) as Pattern
  if (codes && !codes.test(`${failure.type ?? ''} ${failure.code ?? ''}`)) return false
  if (row.limitHeaders && !(headers && isLimitOfAccount(headers))) return false
  if (!words) return true
  // Quotations do not count: they may be a customer's text.
  const [said] = words.exec(unquoted(failure.message)) ?? []
  return said !== undefined && !stands(said)
}

function hasStatus(statuses: Statuses, status: number): boolean {
  if (statuses === ANY_STATUS) return true
  return statuses.some(each => {
    if (each === 'below 400') return status !== 200 && status < 400
    return each === '5xx' ? status >= 500 : each === status
  })
}
