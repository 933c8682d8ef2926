/** How a request ended: whether it was served, who failed if it was not, and what it is called in counts and histories. */
import { ERRORS, type ErrorCode, type GatewayError, type Party } from '../errors.ts'
import type { Usage } from '../money/usage.ts'
import type { Attempt, Outcome, StopReason } from './exchange.ts'

/** How requests end. A refusal is a failure that the client or its key has caused. */
export const END_KINDS = ['served', 'failed', 'refused', 'left'] as const

/** How a request ended. */
export interface RequestEnd {
  readonly kind: (typeof END_KINDS)[number]
  /** The party that failed. Undefined if the request was served. */
  readonly who: Party | undefined
  /** The code of the error, even if the client was gone before it could be sent. */
  readonly code: ErrorCode | 'client_left' | 'stage_reply' | undefined
  /** The status of its entry in the history. */
  readonly status: 'ok' | 'failed' | 'client_gone' | 'broken' | 'budget' | 'disabled'
}

const SERVED: RequestEnd = { kind: 'served', who: undefined, code: undefined, status: 'ok' }

/** Replies that were not completed, by who ended them. */
const ENDED: Readonly<Record<Extract<Outcome, { kind: 'broken' }>['by'], RequestEnd>> = {
  client: { kind: 'left', who: 'client', code: 'client_left', status: 'client_gone' },
  upstream: { kind: 'failed', who: 'provider', code: 'upstream_failed', status: 'broken' },
  gateway: { kind: 'failed', who: 'gateway', code: 'internal', status: 'broken' },
  drain: { kind: 'failed', who: 'gateway', code: 'unavailable', status: 'broken' },
  // The balance was used up, as if the output limit was reached.
  budget: { kind: 'served', who: undefined, code: undefined, status: 'budget' },
  disabled: { kind: 'refused', who: 'key', code: 'key_disabled', status: 'disabled' },
}

/** Codes of what an account has answered. The attempt says who failed. */
const ASKED: ReadonlySet<ErrorCode> = new Set([
  'upstream_rejected',
  'upstream_failed',
  'upstream_timeout',
  'overloaded',
  'context_too_long',
])

/** Returns how a request ended. */
export function requestEnd(outcome: Outcome): RequestEnd {
  if (outcome.kind === 'answered') return answered(outcome.status)
  const last = outcome.attempts.at(-1)
  if (outcome.kind === 'failed') {
    const { error, by } = outcome
    if (by === 'client') return ENDED.client
    return failed(whoFailed(error.code, last), error.code, by === undefined ? 'failed' : ENDED[by].status)
  }
  if (outcome.kind === 'broken') return ENDED[outcome.by]
  // The provider reported a failure within its stream.
  if (last?.who !== undefined)
    return failed(last.who, last.who === 'client' ? 'upstream_rejected' : 'upstream_failed', 'failed')
  return SERVED
}

/** How a reply ended that a stage gave. */
function answered(status: number): RequestEnd {
  return status < 400 ? SERVED : failed(status < 500 ? 'client' : 'gateway', 'stage_reply', 'failed')
}

function failed(who: Party, code: RequestEnd['code'], status: RequestEnd['status']): RequestEnd {
  return { kind: who === 'client' || who === 'key' ? 'refused' : 'failed', who, code, status }
}

function whoFailed(code: ErrorCode, last: Attempt | undefined): Party {
  return (ASKED.has(code) ? last?.who : undefined) ?? ERRORS[code].who
}

/** Why an exchange ends before its reply. */
export type EndCause = 'client' | 'drain' | { readonly budget: Usage } | { readonly disabled: GatewayError }

/** The reason, as the outcome of the exchange names it. */
export function causeName(why: EndCause): 'client' | StopReason {
  if (typeof why === 'string') return why
  return 'budget' in why ? 'budget' : 'disabled'
}
