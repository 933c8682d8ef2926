import t from 'tap'
import jsonBody from '../../plugins/json-body.ts'
import { drive, type Driven } from 'tollgate/testing'
import { at, CHAT, hostWith, MESSAGES } from './facts.ts'

function read(path: string, text: string): Promise<Driven> {
  const bytes = Buffer.from(text)
  const read = (_limit: number, watch?: (bytes: Buffer) => unknown): Promise<Buffer> => {
    watch?.(bytes)
    return Promise.resolve(bytes)
  }
  return drive(jsonBody, { exchange: at(path, { read }), host: hostWith() })
}

t.test('the body is a fact of the exchange', async t => {
  const { given } = await read(CHAT, '{"model":"m","messages":[],"n":2}')
  t.equal((given as any).body.get('n'), 2)
})

t.test('an invalid body is refused, and the error names the member', async t => {
  for (const [path, text, message] of [
    [CHAT, '{', /not valid JSON/],
    [CHAT, '[]', /must be a JSON object/],
    [CHAT, '{"model":"m"}', /"messages" is missing/],
    [CHAT, '{"messages":{}}', /"messages" must be an array/],
    [CHAT, '{"messages":[],"stream":1}', /"stream" must be true or false/],
    [CHAT, '{"messages":[],"n":129}', /"n" must be a whole number from 1 to 128/],
    [CHAT, '{"messages":[],"max_tokens":0}', /"max_tokens" must be a whole number above zero/],
    [MESSAGES, '{"messages":[],"max_tokens":-1}', /"max_tokens" must be a whole number/],
    [CHAT, '{"messages":[],"messages":[]}', /names "messages" twice/],
  ] as const)
    t.match((await read(path, text)).thrown, { code: 'invalid_body', message }, text)
})
