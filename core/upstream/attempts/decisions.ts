/**
 * What the end of an attempt means: for the health of the account, and for the request, which may go to another account.
 * docs/pools.md has the same table.
 */
import type { Party } from '../../errors.ts'
import type { Verdict } from '../../formats/classify.ts'
import type { FailedAttempt, FailureKind } from '../relay/endings.ts'

/** What an attempt's end is about: a row of the table. */
export type About =
  | Exclude<FailureKind, number>
  | 'refused'
  | 'suspected refusal'
  | 'echoed refusal'
  | 'limited model'
  | 'must wait'
  | 'overloaded'
  | 'other status'
  | 'conflict'
  | 'none'
  | 'request'
  | 'cut'
  | 'ended with an error'
  | 'ended about the request'
  | 'left'
  | 'served'

/** What follows from the end of an attempt. */
export interface Decision {
  /**
   * What the account's health notes: nothing, a success, a failure, a failure with the wait that the provider asks for, a
   * wait of the model that was asked, that the provider refuses the account, or that it may refuse it.
   */
  readonly health: 'nothing' | 'success' | 'failure' | 'failure and wait' | 'limit' | 'refusal' | 'suspicion'
  /** Whether the attempt counts towards `retry.attempts`. */
  readonly countsAsTry: boolean
  /** Whether another account is asked; `listed`: if `retry.on` lists the failure. */
  readonly asksNext: 'always' | 'listed' | 'never'
  /** Whether the account may be asked once more, after all others. */
  readonly mayBeAskedAgain: boolean
  /** The party that failed. Undefined if the attempt was served, or was ended before an answer. */
  readonly who: Party | undefined
}

function row(
  who: Decision['who'],
  health: Decision['health'],
  countsAsTry: boolean,
  asksNext: Decision['asksNext'],
): Decision {
  return { who, health, countsAsTry, asksNext, mayBeAskedAgain: false }
}

/** The table of decisions. */
export const DECISIONS: Readonly<Record<About, Decision>> = {
  'not asked': { ...row('account', 'nothing', false, 'always'), mayBeAskedAgain: true },
  refused: row('account', 'refusal', false, 'always'),
  // It may be about the request: one key could take every account out.
  'suspected refusal': row('account', 'suspicion', false, 'always'),
  'echoed refusal': row('account', 'nothing', false, 'always'),
  'limited model': row('account', 'limit', true, 'listed'),
  'must wait': row('account', 'failure and wait', true, 'listed'),
  overloaded: row('provider', 'failure and wait', true, 'listed'),
  'other status': row('provider', 'failure', true, 'listed'),
  conflict: row('provider', 'nothing', true, 'listed'),
  none: row('provider', 'nothing', true, 'never'),
  connect: row('provider', 'failure', true, 'listed'),
  timeout: row('provider', 'failure', true, 'listed'),
  empty: row('provider', 'failure', true, 'listed'),
  // A customer can cause it. Asking another account would cost the operator the same again.
  'too large': row('gateway', 'nothing', true, 'never'),
  request: row('client', 'nothing', true, 'never'),
  // After these ends no other account is asked: content was delivered, or the client has left.
  cut: row('provider', 'failure', true, 'never'),
  'ended with an error': row('provider', 'failure', true, 'never'),
  left: row(undefined, 'nothing', true, 'never'),
  'ended about the request': row('client', 'success', true, 'never'),
  // Nobody knows whether the reply is whole.
  'unknown end': row('provider', 'nothing', true, 'never'),
  served: row(undefined, 'success', true, 'never'),
}

/** Statuses with which a provider may say how long to wait. */
const WAITING: ReadonlySet<number> = new Set([429, 503, 529])

/** Returns what a failed attempt is about. */
export function aboutFailed({ kind, head }: Pick<FailedAttempt, 'kind' | 'head'>): About {
  return aboutOf(kind, head?.verdict)
}

/** Returns what a failure is about. @param verdict on the upstream's answer, if it reported a failure */
export function aboutOf(kind: FailureKind, verdict?: Verdict): About {
  if (!verdict) return typeof kind === 'number' ? 'other status' : kind
  // What may be the customer's own words tells nothing about the account, its models or the provider.
  if (verdict.certainty === 'echoed' && verdict.about !== 'none' && verdict.about !== 'request') return 'echoed refusal'
  switch (verdict.about) {
    case 'request':
      return 'request'
    case 'model':
      return 'limited model'
    case 'account':
      return verdict.isLimit ? 'must wait' : REFUSALS[verdict.certainty]
    case 'provider':
      if (typeof kind !== 'number') return kind
      return WAITING.has(kind) ? 'overloaded' : 'other status'
    case 'none':
      return kind === 409 && !verdict.isRule ? 'conflict' : 'none'
  }
}

/** What a failure about the account is, by its certainty. */
const REFUSALS = { certain: 'refused', suspected: 'suspected refusal', echoed: 'echoed refusal' } as const

/**
 * Returns what follows from the end of an attempt.
 * @param on the failures of `retry.on`
 * @param isRule whether a row of gateway.yaml says what it is about
 */
export function decide(
  about: About,
  kind: FailureKind | undefined,
  on: ReadonlySet<string>,
  isRule = false,
): Omit<Decision, 'asksNext'> & { readonly asksNext: boolean } {
  const decision = DECISIONS[about]
  const isListed = isRule || on.has(String(kind)) || (typeof kind === 'number' && kind >= 500 && on.has('5xx'))
  return { ...decision, asksNext: decision.asksNext === 'always' || (decision.asksNext === 'listed' && isListed) }
}

/** What an exchange allows, whatever the failure was. */
export interface Standing {
  /** A reply has begun, even if none of it has been sent. */
  readonly begun: boolean
  /** All clients have left. */
  readonly gone: boolean
  /** No client waits, and the reply is not read on; or the gateway has ended the exchange. */
  readonly over: boolean
  readonly route: {
    /** Whether another account can be asked. */
    readonly more: boolean
    readonly retry: { readonly attempts: number; readonly totalMs: number }
  }
}

/**
 * Whether an exchange may go on to another account.
 * @param tries attempts that count so far
 * @param elapsedMs since the first account was asked
 */
export function mayGoOn({ begun, gone, over, route }: Standing, tries: number, elapsedMs: number): boolean {
  if (begun) return false
  if (gone || over) return false
  if (elapsedMs >= route.retry.totalMs) return false
  return route.more && tries < route.retry.attempts
}
