import t from 'tap'
import upstreamErrors from '../../plugins/upstream-errors.ts'
import { drive } from 'tollgate/testing'
import { CHAT, format, headOf, hostWith, MESSAGES, routeOf } from './facts.ts'

const fail = async (status: number, failure: object, path = CHAT, headers = {}): Promise<any> => {
  const { stage } = await drive(upstreamErrors, { host: hostWith() })
  const x = { route: routeOf('famC', CHAT), format: format(path) }
  try {
    await stage.response?.(x as never, headOf({ status, headers, failure: { message: 'Words.', ...failure } }))
  } catch (thrown) {
    return thrown
  }
}

t.test('a rejection passes with its own words and codes, without the credential of the account', async t => {
  const rejected = await fail(400, { message: 'Bad simulated key.', type: 'invalid_request_error', param: 'n' })
  t.match(rejected, { code: 'upstream_rejected', status: 400, details: { param: 'n' } })
  t.notMatch(rejected.message, 'simulated')
})

t.test("errors about the operator's account get general words", async t => {
  for (const [status, code] of [
    [401, 'upstream_failed'],
    [402, 'upstream_failed'],
    [403, 'upstream_failed'],
    [404, 'upstream_failed'],
    [429, 'overloaded'],
    [500, 'upstream_failed'],
    [504, 'upstream_timeout'],
    [529, 'overloaded'],
  ] as const) {
    const error = await fail(status, {})
    t.equal(error.code, code, String(status))
    t.notMatch(error.message, 'Words')
  }
})

t.test('the wait of the upstream is passed on, and makes the error final if it is longer than a minute', async t => {
  t.equal((await fail(429, {}, CHAT, { 'retry-after': '7' })).details.retryAfterMs, 7000)
  t.match(await fail(429, {}, CHAT, { 'retry-after': '7' }), { retry: true })
  t.match(await fail(429, {}, CHAT, { 'retry-after': '7200' }), { retry: false, details: { retryAfterMs: 7_200_000 } })
})

t.test('a prompt that is too long gets the words of the client’s format', async t => {
  const message = "This model's maximum context length is 1000 tokens. However, your messages resulted in 2000 tokens."
  t.match(await fail(400, { message, code: 'context_length_exceeded' }, MESSAGES), {
    code: 'context_too_long',
    message: 'prompt is too long: 2000 tokens > 1000 maximum',
  })
})
