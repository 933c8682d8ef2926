import t from 'tap'
import { FORMATS } from '../../core/formats/index.ts'
import { failureFrom, foreignFailure } from '../../core/formats/failures.ts'
import { overflowOf } from '../../core/formats/overflow.ts'

/** How providers report failures: in which envelopes, and in which words. */

t.test('the message of a failure is found in the envelope of any vendor', t => {
  const raw = JSON.stringify({ error: { message: 'the real one', type: 'invalid_request_error' } })
  const cases: readonly (readonly [body: unknown, failure: object])[] = [
    [{ error: { message: 'm', type: 't', code: 'c' } }, { message: 'm', type: 't', code: 'c' }],
    [{ type: 'error', error: { type: 'invalid_request_error', message: 'm' } }, { message: 'm', type: 'invalid_request_error' }], // prettier-ignore
    [
      { object: 'error', message: 'm', type: 'BadRequestError', code: 400 },
      { message: 'm', type: 'BadRequestError' },
    ],
    [{ error: 'm' }, { message: 'm' }],
    [{ detail: 'm' }, { message: 'm' }],
    [{ detail: [{ loc: ['body', 'max_tokens'], msg: 'm', type: 'missing' }] }, { message: 'm', param: 'max_tokens', type: 'missing' }], // prettier-ignore
    [{ detail: { error: { message: 'm', code: 'c' } } }, { message: 'm', code: 'c' }],
    [[{ error: { code: 400, message: 'm', status: 'INVALID_ARGUMENT' } }], { message: 'm', code: 'INVALID_ARGUMENT' }],
    [{ errors: [{ message: 'm' }] }, { message: 'm' }],
    [
      { code: 1113, msg: 'm', success: false },
      { message: 'm', code: '1113' },
    ],
    [{ statusCode: 400, message: 'm', error: 'Bad Request' }, { message: 'm' }],
    [{ error: { message: 'Provider returned error', metadata: { raw } } }, { message: 'the real one', type: 'invalid_request_error' }], // prettier-ignore
    ['m', { message: 'm' }],
    ['<html>no</html>', { message: '' }],
    ['', { message: '' }],
    [{}, { message: '' }],
    ['{"error":', { message: '' }],
    ['data: {"error":{"message":"m","code":"c"}}\n\n', { message: 'm', code: 'c' }],
    ['{"error":{"message":"m"}}\n{"x":1}', { message: 'm' }],
  ]
  for (const [body, failure] of cases)
    t.strictSame(failureFrom(typeof body === 'string' ? body : JSON.stringify(body)), failure, JSON.stringify(body))
  t.strictSame(failureFrom('{"error":'.repeat(50) + '1' + '}'.repeat(50)), { message: '' }, 'very deep')
  t.end()
})

t.test('a prompt that is too long is recognised in the words of many servers', t => {
  const cases: readonly (readonly [message: string, numbers?: object])[] = [
    ['The decoder prompt (length 40000) is longer than the maximum model length of 32768.', { tokens: 40_000, most: 32_768 }], // prettier-ignore
    ['Range of input length should be [1, 98304]'],
    ['Prompt exceeds max length'],
    ["You passed 8193 input tokens. However, the model's context length is only 8192 tokens.", { tokens: 8193, most: 8192 }], // prettier-ignore
    ['prompt token count of 140000 exceeds the limit of 128000', { tokens: 140_000, most: 128_000 }],
    ['The input token count (1,048,577) exceeds the maximum number of tokens allowed (1,048,576).', { tokens: 1_048_577, most: 1_048_576 }], // prettier-ignore
    ['The prompt of acme-20261001 exceeds the token limit of 128000.', { tokens: undefined }],
    ['the input length exceeds the context length'],
    ['Input is too long for requested model.'],
    ['Total tokens of image and text exceed max message tokens'],
    ['too many tokens: total number of tokens in the prompt cannot exceed 4081'],
    ['The request exceeds the token limit'],
    ['Trying to keep the first 6000 tokens when context the overflows.'],
    ["This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", { tokens: 9000, most: 8192 }], // prettier-ignore
  ]
  for (const [message, numbers = {}] of cases) t.match(overflowOf({ message }), numbers, message)
  for (const message of ['max_tokens is too large', "Invalid 'tools': array too long."])
    t.equal(overflowOf({ message }), undefined, message)
  t.end()
})

t.test('an event in a foreign shape is a failure only if it reports one', t => {
  for (const event of [
    { status: 'RUNNING' },
    { id: 'x', message: 'queued' },
    { type: 'status', message: 'searching the web' },
    { object: 'heartbeat', detail: 'alive' },
    { code: 0, message: 'Success' },
    { code: 'Success', message: 'done' },
    { code: 200, msg: 'ok' },
    { base_resp: { status_code: 0, status_msg: 'success' } },
    { error: null },
  ])
    t.equal(foreignFailure(event), undefined, JSON.stringify(event))
  for (const event of [
    { object: 'error', message: 'm' },
    { error: { message: 'm' } },
    { error: 'm' },
    { errors: [{ message: 'm' }] },
    { detail: 'm' },
    { code: 'Arrearage', message: 'm', request_id: 'r' },
    { status: 402, message: 'm' },
    { success: false, message: 'm' },
  ])
    t.match(foreignFailure(event), { message: 'm' }, JSON.stringify(event))
  t.match(foreignFailure({ base_resp: { status_code: 1008, status_msg: 'm' } }), {})
  t.end()
})

t.test('a message that repeats a long input is searched in no time', t => {
  for (const digits of ['1'.repeat(200_000), 'total tokens of '.repeat(20_000), 'prompt (length 1) '.repeat(20_000)]) {
    const beganMs = performance.now()
    overflowOf({ message: `prompt is too long ${digits}` })
    t.ok(performance.now() - beganMs < 1000, 'it took minutes')
  }
  t.end()
})

t.test('each agent recognises a prompt that is too long in the words of its own provider', t => {
  const unknown = { message: 'The request exceeds the token limit', type: 'invalid_request_error', code: 'e1' }
  for (const name of ['chat-completions', 'responses'] as const)
    t.strictSame(FORMATS[name].recognisable(unknown), { ...unknown, code: 'context_length_exceeded' }, name)
  const said = 'prompt is too long: The request exceeds the token limit'
  t.strictSame(FORMATS.messages.recognisable(unknown), { ...unknown, message: said })
  const known = { message: 'prompt is too long: 20 tokens > 10 maximum', type: 'invalid_request_error' }
  t.equal(FORMATS.messages.recognisable(known), known)
  const other = { message: 'max_tokens is too large', code: 'e2' }
  for (const name of ['chat-completions', 'responses', 'messages'] as const)
    t.equal(FORMATS[name].recognisable(other), other, name)
  t.end()
})
