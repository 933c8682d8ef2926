import { formatCredits, GatewayError, PerMinute, Reply } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import {
  defineBuiltIn,
  type BuiltInExchange,
  invalidBody,
  isoTime,
  presented,
  PRIVATE,
  sentence,
  smallJson,
  setting,
  whole,
} from 'tollgate/plugin/operator'

/** Most bytes of a request. */
const BODY_BYTES = 4096

/** Redeems codes: for credits of the key that is presented, or for a new key. */
export default defineBuiltIn({
  name: 'redeem',
  summary: 'Answers POST /api/v1/redeem: a code adds credits to a key, or gives it a plan, or becomes a new key, once.',
  on: 'POST /api/v1/redeem',
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      wrongPerMinute: setting(
        whole(1),
        10,
        'Maximum codes that cannot be redeemed, per client address and minute, in each worker.',
      ),
    },
  },
  setup({ wrongPerMinute }, { config, keys, ledger, log, now }) {
    const codes = new operator.CodeBook(ledger, keys, now)
    const wrong = new PerMinute(now)

    /** Returns the key that the credits are for. Expired and exhausted keys may get some. */
    async function keyOf(x: BuiltInExchange) {
      const secret = presented(x.headers)
      if (secret === undefined) return undefined
      const key = await keys.refind(secret)
      if (key?.status !== 'active' || !config.keyTypes.has(key.type)) throw new GatewayError('invalid_key')
      return key
    }

    async function redeem(x: BuiltInExchange): Promise<Reply> {
      const key = await keyOf(x)
      const { code } = await bodyOf(x)
      const request = idempotencyKey(x)
      const redeemed = await codes.redeem(code, { key, types: config.keyTypes, request })
      const amount = formatCredits(redeemed.amount)
      if (!redeemed.repeated) log.info({ exchange: x.id, kind: redeemed.kind, credits: amount }, 'a code was redeemed')
      if (redeemed.kind !== 'key') {
        const { balance } = await ledger.reads.balance(redeemed.account)
        const told = { kind: redeemed.kind, credits: amount, balance: formatCredits(balance) }
        return Reply.json({ object: 'redeemed', ...told, repeated: redeemed.repeated }, PRIVATE)
      }
      const { id, type, expiresAt } = redeemed.key
      const told = { kind: 'key', key: redeemed.secret, id, type, credits: amount, expires_at: isoTime(expiresAt) }
      return Reply.json({ object: 'redeemed', ...told, repeated: redeemed.repeated }, PRIVATE)
    }

    return {
      async request(x) {
        // Counted before the code is looked up: codes that are sent at the same time count, too.
        wrong.limit(x.addressGroup, wrongPerMinute, 'Too many wrong codes from this address.')
        let isWrong = false
        try {
          return await redeem(x)
        } catch (thrown) {
          isWrong = thrown instanceof operator.CodeRefused
          if (thrown instanceof RangeError)
            throw new GatewayError('code_refused', { message: sentence(thrown.message) })
          if (!(thrown instanceof operator.CodeRefused)) throw thrown
          throw new GatewayError('code_refused', { message: wordsOf(thrown, presented(x.headers) !== undefined) })
        } finally {
          if (!isWrong) wrong.giveBack(x.addressGroup)
        }
      },
    }
  },
})

async function bodyOf(x: BuiltInExchange): Promise<{ code: string }> {
  const body = smallJson(await x.read(BODY_BYTES))
  const { code } = (body ?? {}) as { code?: unknown }
  if (typeof code !== 'string' || code.trim() === '') throw invalidBody('"code" is missing.', 'code')
  return { code }
}

function idempotencyKey(x: BuiltInExchange): string | undefined {
  const key = x.headers['idempotency-key']
  if (key === undefined) return undefined
  if (typeof key === 'string' && /^[\x21-\x7e]{16,255}$/.test(key)) return key
  const message = 'The header idempotency-key must have 16 to 255 characters without spaces.'
  throw new GatewayError('bad_request', { message, param: 'idempotency-key' })
}

/** Says what is wrong with a code. Only who holds the code learns more than that it is unknown. */
function wordsOf({ reason, code }: operator.CodeRefused, hasKey: boolean): string {
  switch (reason) {
    case 'used':
      return `This code was used on ${isoTime(code?.usedAt) ?? ''}.`
    case 'expired':
      return `This code expired on ${isoTime(code?.expiresAt) ?? ''}.`
    case 'cancelled':
      return 'This code was cancelled. Ask your reseller.'
    case 'other type':
      if (code?.kind !== 'key' && !hasKey) return 'This code is for a key that you have. Use it together with your key.'
      return code && code.kind !== 'key' && code.type !== ''
        ? `This code is for keys of the type "${code.type}".`
        : 'This code cannot be redeemed at the moment. Ask your reseller.'
    case 'no plan':
      return 'This code cannot be redeemed at the moment. Ask your reseller.'
    default:
      return 'There is no such code. Check its letters.'
  }
}
