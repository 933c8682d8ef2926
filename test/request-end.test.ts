import t from 'tap'
import { ERRORS, type ErrorCode, GatewayError, type Party } from '../core/errors.ts'
import type { Attempt, Outcome } from '../core/exchange/exchange.ts'
import { requestEnd } from '../core/exchange/request-end.ts'

const asked = (who?: Party): readonly Attempt[] => [
  { upstream: 'famA', account: 'famA/1', ...(who !== undefined && { who, about: 'x' }) },
]
const failed = (code: ErrorCode, attempts: readonly Attempt[] = [], by?: 'client' | 'budget' | 'drain'): Outcome => ({
  kind: 'failed',
  error: new GatewayError(code),
  attempts,
  ...(by && { by }),
})

/** Outcomes, and how the request ended: its kind, who failed, the code, and the status in the history. */
const ENDS: readonly (readonly [string, Outcome, string, Party | undefined, string | undefined, string])[] = [
  ['a reply', { kind: 'relayed', status: 200, attempts: asked() }, 'served', undefined, undefined, 'ok'],
  [
    'a reply after another account failed',
    { kind: 'relayed', status: 200, attempts: [...asked('provider'), ...asked()] },
    'served',
    undefined,
    undefined,
    'ok',
  ],
  [
    'a stream that ended with an error',
    { kind: 'relayed', status: 200, attempts: asked('provider') },
    'failed',
    'provider',
    'upstream_failed',
    'failed',
  ],
  [
    'a stream that ended with an error about the request',
    { kind: 'relayed', status: 200, attempts: asked('client') },
    'refused',
    'client',
    'upstream_rejected',
    'failed',
  ],
  ['a reply of a stage', { kind: 'answered', status: 200 }, 'served', undefined, undefined, 'ok'],
  ['a refusal by a stage', { kind: 'answered', status: 403 }, 'refused', 'client', 'stage_reply', 'failed'],
  ['a failure of a stage', { kind: 'answered', status: 503 }, 'failed', 'gateway', 'stage_reply', 'failed'],
  [
    'a provider that failed',
    failed('upstream_failed', asked('provider')),
    'failed',
    'provider',
    'upstream_failed',
    'failed',
  ],
  ['an account that was refused', failed('overloaded', asked('account')), 'failed', 'account', 'overloaded', 'failed'],
  ['accounts that all wait', failed('overloaded'), 'failed', 'account', 'overloaded', 'failed'],
  ['a rejection', failed('upstream_rejected', asked('client')), 'refused', 'client', 'upstream_rejected', 'failed'],
  [
    'a reply over the limits',
    failed('upstream_failed', asked('gateway')),
    'failed',
    'gateway',
    'upstream_failed',
    'failed',
  ],
  ['a key without credits', failed('allocation_exhausted'), 'refused', 'key', 'allocation_exhausted', 'failed'],
  ['a store that is away', failed('unavailable', asked('provider')), 'failed', 'gateway', 'unavailable', 'failed'],
  ['a drain before the reply', failed('unavailable', [], 'drain'), 'failed', 'gateway', 'unavailable', 'broken'],
  [
    'a client that left before the reply',
    failed('internal', [], 'client'),
    'left',
    'client',
    'client_left',
    'client_gone',
  ],
  [
    'a client that left',
    { kind: 'broken', by: 'client', status: 200, attempts: asked() },
    'left',
    'client',
    'client_left',
    'client_gone',
  ],
  [
    'a stream that broke off',
    { kind: 'broken', by: 'upstream', status: 200, attempts: asked('provider') },
    'failed',
    'provider',
    'upstream_failed',
    'broken',
  ],
  [
    'a stream over the limits',
    { kind: 'broken', by: 'gateway', status: 200, attempts: asked() },
    'failed',
    'gateway',
    'internal',
    'broken',
  ],
  [
    'a drain',
    { kind: 'broken', by: 'drain', status: 200, attempts: asked() },
    'failed',
    'gateway',
    'unavailable',
    'broken',
  ],
  [
    'a balance that was used up',
    { kind: 'broken', by: 'budget', status: 200, attempts: asked() },
    'served',
    undefined,
    undefined,
    'budget',
  ],
  [
    'a key that was disabled',
    { kind: 'broken', by: 'disabled', status: 200, attempts: asked() },
    'refused',
    'key',
    'key_disabled',
    'disabled',
  ],
]

t.test('how a request ended follows from its outcome', t => {
  for (const [name, outcome, kind, who, code, status] of ENDS)
    t.strictSame(requestEnd(outcome), { kind, who, code, status }, name)
  t.end()
})

t.test('every error says who fails', t => {
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    const { who, kind } = requestEnd(failed(code))
    t.equal(who, ERRORS[code].who, code)
    t.equal(kind, who === 'client' || who === 'key' ? 'refused' : 'failed', code)
  }
  t.end()
})
