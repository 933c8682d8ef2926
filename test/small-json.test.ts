import t from 'tap'
import { smallJson } from '../core/client/small-json.ts'

const read = (text: string): unknown => smallJson(Buffer.from(text))

t.test('a small body is JSON in which no object has a name twice', async t => {
  for (const text of [
    '{"a":1,"b":{"a":[{"a":2},{"a":3}]}}',
    '["a","a"]',
    '{"a":"{\\"a\\":1,\\"a\\":2}","b":"a"}',
    '{"a":["x","a","a"],"":{}}',
    ' null ',
  ])
    t.same(read(text), JSON.parse(text), text)
  for (const [text, param] of [
    ['{"a":1,"a":1}', 'a'],
    ['{"b":[{"x":1},{"code":1,"y":{},"code":2}]}', 'code'],
    [String.raw`{"code":1,"co\u0064e":2}`, 'code'],
    ['{"a":{"a":1},"a":2}', 'a'],
  ] as const)
    t.throws(() => read(text), { code: 'invalid_body', details: { param } }, text)
  for (const text of ['', '{', '{"a":1,}']) t.throws(() => read(text), { code: 'invalid_body' }, text)
})

t.test('a text of a million characters is read at once', async t => {
  const text = JSON.stringify({ note: '\\"{,'.repeat(250_000), list: Array.from({ length: 50_000 }, () => 'a') })
  t.equal((read(text) as { list: unknown[] }).list.length, 50_000)
})
