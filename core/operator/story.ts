/** The story of one request in plain sentences: who sent it, what was decided and why, and what it cost. */
import { basename } from 'node:path'
import { pricedEntry } from '../account/entry-view.ts'
import type { Config } from '../config/config.ts'
import { lineOf } from '../config/lines.ts'
import { dotted, type Path } from '../config/locate.ts'
import type { AccountState, ErrorCode, Party } from '../errors.ts'
import { refundOf } from '../ledger/accounts.ts'
import { PriceBook } from '../ledger/price-book.ts'
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import { inputTokens } from '../money/usage.ts'
import type { HistoryEntry } from '../records/entry.ts'
import { moneyLine, type PaidFrom, paidWords, type Paying } from '../records/money-line.ts'
import type { FailedTry, RecordedFailure } from '../records/failures.ts'
import type { Records } from '../records/records.ts'

/** What is known of one request. Times are ISO 8601, amounts exact decimals. */
export interface RequestStory {
  readonly id: string
  readonly key: string
  readonly ended_at: string | null
  /** The party that failed, and the code of the error. Null for a request that was served. */
  readonly who: string | null
  readonly code: string | null
  /** What the provider said. */
  readonly words: string | null
  readonly attempts: readonly FailedTry[]
  /** The accounts that could not serve it, if none could. */
  readonly accounts: readonly AccountState[]
  /** What its customer paid, from credits or from a plan, and from which. */
  readonly charge: string
  readonly paid_from: PaidFrom
  /** What it cost the operator, and what was paid less that; null if it is unknown. */
  readonly cost: string | null
  readonly margin: string | null
  /** What was given back. */
  readonly refunded: string | null
  readonly sentences: readonly string[]
}

/** What a setting's place depends on. */
interface Place {
  readonly type: string
  /** The name of the upstream that was asked last. If none was, each upstream of the model has a place. */
  readonly upstream: string
  /** Returns the place of a stage in the chain. */
  readonly stage: (name: string) => Path
}

/** The settings that decide about failures. What is not listed is decided by the request, its key or the provider. */
const SETTINGS: Partial<Record<ErrorCode, (place: Place) => Path>> = {
  address_refused: ({ type }) => ['keyTypes', type, 'limits', 'addresses'],
  member_refused: ({ stage }) => stage('request-policy'),
  model_not_found: ({ type }) => ['keyTypes', type, 'models'],
  format_not_allowed: ({ type }) => ['keyTypes', type, 'formats'],
  quota_exhausted: ({ upstream }) => ['upstreams', upstream, 'accounts'],
  body_too_large: () => ['limits', 'body'],
  request_timeout: () => ['limits', 'bodyTime'],
  upstream_timeout: ({ upstream }) => ['upstreams', upstream, 'timeouts'],
  overloaded: ({ upstream }) => ['upstreams', upstream, 'accounts'],
}

const FAILED: Readonly<Record<Party, string>> = {
  client: 'The request cannot be served as it was sent',
  key: 'The balance, a limit or the state of its key refused it',
  gateway: 'The gateway failed',
  account: 'Your accounts at the provider could not serve it',
  provider: 'The provider failed',
}

/** What the failure of an account is about, in words. */
const ABOUT: Readonly<Record<string, string>> = {
  refused: 'the provider refuses the account',
  'suspected refusal': 'the provider may refuse the account',
  'echoed refusal': 'a refusal in words of the request',
  'limited model': 'a limit of the model',
  'must wait': 'the provider asks the account to wait',
  overloaded: 'the provider is overloaded',
  'other status': 'a failure of the provider',
  conflict: 'a conflict',
  none: 'a failure that says nothing of the account',
  connect: 'no connection',
  timeout: 'no answer in time',
  empty: 'no reply in it',
  'too large': 'more than the limits of the gateway',
  'unknown end': 'a reply that ended with an unknown word',
  request: 'the request is at fault',
  cut: 'the reply broke off',
  'ended with an error': 'the reply ended with an error',
  'ended about the request': 'the reply ended because of the request',
}

/** How a request ended that has no recorded failure, by the status of its entry. */
const ENDED: Readonly<Record<string, string>> = {
  ok: 'It was served.',
  client_gone: 'Its client left before the end.',
  budget: 'Its reply was ended because the balance was used up.',
  broken: 'Its reply broke off.',
  disabled: 'Its reply was ended because the key was disabled.',
}

/** The money of a request without an entry. */
const NO_ENTRY: Paying = { charge: 0n, waived: 0n, notes: {} }

/** Why there may be no story of a request. */
export const NO_STORY =
  'Nothing is recorded of this request. It still runs or has just ended; or it had no known key, is older than the records, cost nothing like many others of its key in that minute, or its client left before it was sent on.'

/** Returns the story of a request. Undefined if nothing of it is recorded. */
export async function requestStory(records: Records, config: Config, id: string): Promise<RequestStory | undefined> {
  const [failure, entry, refund] = await Promise.all([
    records.failures.get(id),
    records.history.entry(id),
    records.history.entry(refundOf(id)),
  ])
  const owner = failure?.key ?? entry?.key ?? entry?.account
  if (owner === undefined) return undefined
  const key = await records.keys.get(owner)
  const type = key?.type ?? entry?.notes.type ?? ''
  const { paid, from, cost, margin } = moneyLine(entry ?? NO_ENTRY)
  const given = refund ? -moneyLine(refund).paid : 0n
  const attempts = failure?.story.attempts ?? entry?.notes.attempts ?? []
  const accounts = failure?.story.accounts ?? []
  return {
    id,
    key: owner,
    ended_at: isoTime(failure?.at ?? entry?.at),
    who: failure?.who ?? null,
    code: failure?.code ?? entry?.notes.errorCode ?? null,
    words: failure?.words ?? null,
    attempts,
    accounts,
    charge: formatCredits(paid),
    paid_from: from,
    refunded: refund ? formatCredits(given) : null,
    cost: cost === undefined ? null : formatCredits(cost),
    margin: margin === undefined ? null : formatCredits(margin),
    sentences:
      entry?.kind === 'credit'
        ? refunded(entry)
        : [
            ...sent(id, failure, entry, { id: owner, type, name: key?.name ?? '' }),
            ...held(failure),
            ...attempts.map(tried),
            ...accounts.map(({ account, state }) => `The state of ${account} was: ${state}.`),
            ...(failure ? failed(failure, type, config) : [ENDED[entry?.notes.status ?? 'broken'] ?? 'It failed.']),
            ...charged(entry, config),
            ...(entry ? await cameAbout(entry, records) : []),
            ...(refund ? refunded(refund) : []),
            ...(cost === undefined || margin === undefined
              ? []
              : [`It costs you ${formatCredits(cost)}, which leaves ${formatCredits(margin - given)}.`]),
            ...read(failure),
          ],
  }
}

function sent(
  id: string,
  failure: RecordedFailure | undefined,
  entry: HistoryEntry | undefined,
  key: { readonly id: string; readonly type: string; readonly name: string },
): string[] {
  const { notes } = entry ?? {}
  const endMs = failure?.at ?? entry?.at ?? 0
  const ms = failure?.story.ms ?? notes?.durationMs
  const named = key.name === '' ? '' : `"${key.name}", `
  const from = notes?.address === undefined ? '' : ` from ${notes.address}`
  const endpoint = failure?.story.endpoint ?? notes?.endpoint ?? ''
  const model = failure?.model || notes?.model
  const asked = notes?.requestedModel === undefined ? '' : ` by the name ${notes.requestedModel}`
  return [
    `The request ${id} ended at ${clock(endMs)}${ms === undefined ? '' : `, ${ms} ms after it came`}.`,
    `The key ${key.id} (${named}type ${key.type}) sent it${from} to ${endpoint}${notes?.stream ? ', as a stream' : ''}.`,
    model ? `It asked for the model ${model}${asked}.` : withoutModel(failure?.code),
    ...(notes?.served === undefined
      ? []
      : [`The model ${notes.served} answered, and the cheaper of both prices counts.`]),
  ]
}

/** Says why a request has no model. @param code of its failure */
function withoutModel(code: string | undefined): string {
  return code === 'model_not_found' ? 'It asked for a model that its key may not use.' : 'Its model was not read.'
}

/** The story of a refund, which is an entry of its own. */
function refunded(entry: HistoryEntry & { readonly account: string }): string[] {
  const { notes, at, account } = entry
  const why = notes.reason === undefined ? '' : `: ${notes.reason}`
  return [
    `At ${clock(at)}, ${paidWords(moneyLine(entry))} for the request ${notes.entry} went back to ${account}${why}.`,
  ]
}

/** Writes a time to the second. */
function clock(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

function held(failure: RecordedFailure | undefined): string[] {
  if (!failure) return []
  const amount = failure.story.held
  return [
    amount === undefined ? 'Nothing was held for it.' : `${formatCredits(BigInt(amount))} credits were held for it.`,
  ]
}

function tried({ account, status, failure, about, afterMs, ms }: FailedTry): string {
  const when = afterMs === undefined ? '' : ` ${afterMs} ms after the request came`
  const how = status === undefined ? 'did not answer' : `answered with status ${status}`
  const took = ms === undefined ? '' : `, after ${ms} ms`
  const why = about === undefined ? failure : (ABOUT[about] ?? about)
  return `${account} was asked${when} and ${how}${took}${why === undefined ? '' : ` (${why})`}.`
}

function failed(
  { who, code, words, alike, account, model, story }: RecordedFailure,
  type: string,
  config: Config,
): string[] {
  const stage = (name: string): Path => {
    const at = config.chain.findIndex(({ plugin }) => plugin === name)
    return at === -1 ? ['chain'] : ['chain', at]
  }
  const setting = SETTINGS[code as ErrorCode]
  const { upstreams = [] } = config.keyTypes.get(type)?.models.get(model) ?? {}
  const asked = account === '' && upstreams.length > 0 ? upstreams.map(({ name }) => name) : account.split('/', 1)
  // A type that no longer has the model names no upstream.
  const paths = setting
    ? asked.map(upstream => setting({ type, upstream, stage })).filter(path => !path.includes(''))
    : []
  const others = alike - 1
  return [
    `${FAILED[who as Party] ?? 'It failed'} (${code}).`,
    ...new Set(paths.map(path => decidedBy(path, story.config, config))),
    ...(words === undefined ? [] : [`What was said of it: ${words}`]),
    ...(others > 0 ? [`${others} more failed like it in the same minute.`] : []),
  ]
}

function decidedBy(path: Path, digest: string, config: Config): string {
  const name = dotted(path)
  const file = basename(config.file)
  if (digest !== config.digest) return `See ${name}, as it was then: ${file} has changed since.`
  const line = lineOf(config.text, path)
  return `See ${name}, ${line === undefined ? `whose default holds in ${file}` : `line ${line} of ${file}`}.`
}

function charged(entry: HistoryEntry | undefined, config: Config): string[] {
  const { usage, price, priceVersion, usageSource, quarantined } = entry?.notes ?? {}
  const line = moneyLine(entry ?? NO_ENTRY)
  if (!entry || (line.price === 0n && !usage)) return ['It was not charged.']
  const models = [...config.keyTypes.values()].flatMap(type => [...type.models.values()])
  // The file may have other numbers by now.
  const isInForce = models.some(model => model.priceName === price && model.price.version === priceVersion)
  const at = price === undefined || !isInForce ? undefined : lineOf(config.text, ['prices', price])
  const where = at === undefined ? '' : `, line ${at} of ${basename(config.file)}`
  const rates = price === undefined ? '' : ` at the price ${price} (version ${priceVersion ?? 'unknown'}${where})`
  const used = usage
    ? [
        `It used ${inputTokens(usage)} input tokens (${usage.cacheRead} from a cache) and ${usage.output} output tokens${usage.reasoning > 0 ? ` (${usage.reasoning} of reasoning)` : ''}.`,
      ]
    : []
  return [
    ...used,
    ...(usageSource === 'estimated'
      ? ['That is an estimate, as its provider reported no usage, or not all of it.']
      : []),
    ...(quarantined ? ['The report was implausible, and is charged as docs/charging.md says.'] : []),
    `It was charged ${paidWords(line)}${rates}.`,
  ]
}

/** Says how the charge of an entry came about: each product, and what multiplies them. */
async function cameAbout(entry: HistoryEntry, records: Records): Promise<string[]> {
  const { unit_prices: parts } = await pricedEntry(entry, new PriceBook(records))
  return (parts ?? []).flatMap(({ model, products, factors = {} }) => {
    const each = products.map(
      ({ name, count, price, per, credits }) =>
        `${count} ${name.replaceAll('_', ' ')} at ${price} ${per === 'call' ? 'each' : 'a million'} are ${credits}`,
    )
    const times = Object.values(factors).map(({ name, factor }) => `, times ${factor} (${name})`)
    return each.length === 0
      ? []
      : [`${model === undefined ? '' : `Of ${model}: `}${each.join('; ')}${times.join('')}.`]
  })
}

function read(failure: RecordedFailure | undefined): string[] {
  const message = failure?.story.message
  return message === undefined ? [] : [`Its client read, with status ${failure?.status}: ${message}`]
}
