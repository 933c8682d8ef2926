/** Each pattern hides its kind of credential, and leaves what an operator must see. */
import t from 'tap'
import { CREDENTIALS, redact, redactMessage } from '../../core/config/redact.ts'

type Case = readonly [text: string, shown: string]

const CASES: Readonly<Record<keyof typeof CREDENTIALS, readonly Case[]>> = {
  afterName: [
    ['key: abc', 'key: ***'],
    ['accounts: [{ key: !env FAMA_KEY fallback }]', 'accounts: [{ key: !env FAMA_KEY ***********'],
    ['password = a b', 'password = ***'],
    ['token: !env TOKEN', 'token: !env TOKEN'],
    ['key: simulated', 'key: simulated'],
    ['keyTypes: { a: 1 }', 'keyTypes: { a: 1 }'],
  ],
  headerValue: [
    ['header: my-secret', 'header: *********'],
    ['header: x-api-key', 'header: x-api-key'],
    ['header: authorization', 'header: authorization'],
  ],
  userInUrl: [
    ['redis://user:word@host:6379', 'redis://*********@host:6379'],
    ['redis://host:6379', 'redis://host:6379'],
  ],
  passwordOrQuery: [
    ['redis://:word', 'redis://:****'],
    ['https://host/path?key=word', 'https://host/path?key=****'],
    ['https://host/path', 'https://host/path'],
  ],
  randomWord: [
    ['abcdef123456', '************'],
    ['aB3dE5gH', '********'],
    ['cacheWrite5m: 3', 'cacheWrite5m: 3'],
    ['maxOutput: 128000', 'maxOutput: 128000'],
    ['famA', 'famA'],
  ],
}

for (const [name, cases] of Object.entries(CASES) as [keyof typeof CREDENTIALS, readonly Case[]][]) {
  t.test(`the pattern ${name} hides credentials and nothing else`, t => {
    for (const [text, shown] of cases) {
      const hidden = text.replace(
        CREDENTIALS[name],
        (_all, before: string, secret: string) => before + '*'.repeat(secret.length),
      )
      t.equal(hidden, shown)
    }
    t.end()
  })
}

t.test('a text with several credentials shows none of them', t => {
  t.equal(redact('url: https://a:bcd@host, x: aB3dE5gH7'), 'url: https://*****@host, x: *********')
  t.end()
})

t.test('a message about a credential shows the name of the setting and none of the values', t => {
  t.equal(redactMessage('expected "a" or "bc"', 'upstreams.a.key'), 'expected "*********"')
  t.equal(redactMessage('"key" is missing', 'upstreams.a.key'), '"key" is missing')
  t.equal(redactMessage('there is no price "low"', 'keyTypes.a.price'), 'there is no price "low"')
  t.end()
})
