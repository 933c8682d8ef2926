import { formatCredits, inputTokens } from 'tollgate/plugin'
import { defineBuiltIn, prefixesOf, requestEnd, secretsIn, BOOLEAN, setting } from 'tollgate/plugin/metering'

/** Logs one line per finished exchange: who, what, the result, its charge and the durations. Never a key or a body. */
export default defineBuiltIn({
  name: 'access-log',
  summary: 'Logs one line for each finished exchange.',
  on: 'all',
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      address: setting(BOOLEAN, true, "Whether the line has the client's address."),
    },
  },
  setup({ address }, host) {
    const secrets = secretsIn(prefixesOf(host.config.keys.prefixes)) as RegExp
    return {
      settle(x, outcome) {
        const attempts = outcome.kind === 'answered' || outcome.attempts.length === 0 ? undefined : outcome.attempts
        const { who, code } = requestEnd(outcome)
        const { bill, heldFrom } = x.runningHold ?? {}
        // Undefined members are omitted.
        host.log.info({
          exchange: x.id,
          method: x.method,
          path: (x.inference ? x.path : legible(x.path, secrets)).slice(0, 200),
          address: address ? x.address : undefined,
          key: x.caller?.id,
          keyType: x.caller?.type,
          model: x.model?.entry.id,
          served: bill?.served,
          inputTokens: bill && inputTokens(bill.usage),
          outputTokens: bill?.usage.output,
          charge: bill && formatCredits(bill.charge),
          heldFrom: bill && heldFrom,
          outcome: outcome.kind,
          status: outcome.kind === 'failed' ? x.format.status(outcome.error) : outcome.status,
          who,
          code,
          class: who && attempts?.at(-1)?.about,
          by: outcome.kind === 'broken' ? outcome.by : undefined,
          attempts,
          firstByteMs: x.firstByteAfter,
          ms: host.now() - x.startedAt,
        })
      },
    }
  },
})

/** How often a path is decoded. */
const DECODED_TIMES = 3

/** Returns a path without needless escapes, and without anything that may be a key. */
function legible(path: string, secrets: RegExp): string {
  let plain = path
  // It may be encoded more than once.
  for (let time = 0; time < DECODED_TIMES; time++)
    plain = plain.replace(/%[2-7][0-9a-f]/gi, code => String.fromCharCode(Number.parseInt(code.slice(1), 16)))
  return plain.replace(secrets, '$1***').replace(/[A-Za-z0-9]{32,}/g, '***')
}
