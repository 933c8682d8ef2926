import t from 'tap'
import usageMeter from '../../plugins/usage-meter.ts'
import { MeterState } from '../../core/metering/meter-state.ts'
import { NO_EXTRAS } from '../../core/metering/extras.ts'
import { NANO } from '../../core/money/credits.ts'
import { Tally } from '../../core/exchange/tally.ts'
import { drive, type Driven } from 'tollgate/testing'
import { at, bodyFrom, CHAT, format, hostWith, keyOf, modelOf, routeOf } from './facts.ts'

interface Asked {
  readonly amount: bigint
  readonly least: bigint
}

/** Drives the meter with a ledger that gives this answer to holds. It notes what is held and settled. */
function meter(
  answer: (request: Asked) => unknown,
  body: object,
  held: Asked[] = [],
  settled: unknown[] = [],
): Promise<Driven> {
  const ledger = {
    hold: (request: Asked) => {
      held.push(request)
      return Promise.resolve(answer(request))
    },
    settle: (_hold: unknown, end: unknown) => settled.push(end),
    dispatch: async (_hold: unknown, end: unknown) => void settled.push(end),
  }
  const facts = {
    key: keyOf('famC'),
    secret: 'sk-a',
    body: bodyFrom({ model: 'acme/famC-5.5', messages: [], ...body }),
    model: modelOf('famC', 'acme/famC-5.5'),
    route: routeOf('famC', CHAT),
    extras: NO_EXTRAS,
    tally: new Tally(format(CHAT)),
  }
  const host = hostWith({ ledger, meter: new MeterState(), clientRequests: { of: () => undefined } })
  return drive(usageMeter, { exchange: at(CHAT), facts, host })
}

t.test('a stream holds its input and the first output; a JSON request holds its whole limit', async t => {
  const held: Asked[] = []
  const no = (): unknown => ({ kind: 'insufficient', balance: 0n, resetsAt: 0 })
  await meter(no, { stream: true, max_tokens: 64_000 }, held)
  await meter(no, { max_tokens: 64_000 }, held)
  t.ok((held[0]?.amount ?? 0n) < NANO / 10n, 'a stream needs little at its start')
  t.ok((held[1]?.amount ?? 0n) > (NANO * 9n) / 10n)
})

t.test('a balance that is too small is refused with both amounts, and a disabled key as disabled', async t => {
  const poor = await meter(() => ({ kind: 'insufficient', balance: 5n * (NANO / 1000n), resetsAt: 0 }), {})
  t.match(poor.thrown, {
    code: 'allocation_exhausted',
    message: /has 0\.005 credits left, but this request may need 0\.\d+/,
  })
  t.match((await meter(() => ({ kind: 'disabled' }), {})).thrown, { code: 'key_disabled' })
  t.match((await meter(() => ({ kind: 'expired' }), {})).thrown, { code: 'key_expired' })
})

t.test('without an answer of the store, no request is admitted', async t => {
  const { thrown } = await meter(() => Promise.reject(new Error('away')), {})
  t.match(thrown, { message: 'away' })
})
