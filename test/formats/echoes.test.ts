import t from 'tap'
import { textsOf, withoutEchoes } from '../../core/formats/echoes.ts'
import { codesOf } from '../../core/formats/failures.ts'

const PROMPT = 'The patient was born on 1 April 1980 in "Bremen".\nHe has a fever.'
const body = Buffer.from(JSON.stringify({ messages: [{ role: 'user', content: PROMPT }] }))
const clean = (message: string, request = body): string => withoutEchoes(message, textsOf(request, {}))

t.test('what a provider repeats of a request is left out, and the rest stays', t => {
  const cases: readonly (readonly [message: string, kept: string])[] = [
    ['the cluster is on fire', 'the cluster is on fire'],
    [`bad prompt: ${PROMPT}!`, 'bad prompt: …!'],
    ['bad prompt: THE PATIENT WAS BORN ON 1 april 1980', 'bad prompt: …'],
    [`bad prompt: The patient   was\tborn on 1 April`, 'bad prompt: …'],
    ['bad prompt: He has a fever.', 'bad prompt: He has a fever.'],
    ['', ''],
  ]
  for (const [message, kept] of cases) t.equal(clean(message), kept, message)
  const escaped = Buffer.from(String.raw`{"content":"\u0054he p\u0061tient was born on 1 April 1980"}`)
  t.equal(clean('bad: The patient was born on 1 April 1980', escaped), 'bad: …', 'whatever escapes the request has')
  for (let from = 0; from + 20 <= PROMPT.length; from++)
    t.notMatch(clean(`x ${PROMPT.slice(from, from + 20)} y`), PROMPT.slice(from, from + 20))
  t.end()
})

t.test('escapes that a provider prints as text hide nothing', t => {
  const chinese = '请不要把这段很长的私人文字写进任何日志文件里面谢谢'
  const request = Buffer.from(JSON.stringify({ content: `${chinese}\n${PROMPT}` }))
  const printed = JSON.stringify(chinese).replaceAll(
    /[\u4e00-\u9fff]/g,
    each => `\\u${each.charCodeAt(0).toString(16)}`,
  )
  t.equal(clean(`bad value ${printed}`, request), 'bad value "…"')
  t.equal(clean(String.raw`bad value 'in \"Bremen\".\nHe has a fever'`, request), "bad value '…'")
  t.end()
})

t.test('prompts that have escapes themselves are left out as well', t => {
  for (const prompt of [
    String.raw`{"name":"Anna Meier","city":"Bremen","pin":"hunter2"}`,
    String.raw`{"text": "\u8bf7\u4e0d\u8981\u628a\u8fd9\u6bb5"}`,
    String.raw`C:\reports\new\axes\tent\notes\readme.txt`,
    'ΟΔΟΣ ΤΩΝ ΠΑΛΑΙΩΝ ΗΡΩΩΝ ΤΗΣ ΠΟΛΗΣ',
  ]) {
    const request = Buffer.from(JSON.stringify({ messages: [{ role: 'user', content: prompt }] }))
    t.equal(clean(`bad: ${prompt}`, request), 'bad: …', prompt)
    t.notMatch(clean(`bad: ${JSON.stringify(prompt)}`, request), prompt.slice(4, 24))
  }
  t.end()
})

t.test('hostile texts take no longer than others', t => {
  const long = Buffer.from(JSON.stringify({ content: 'a'.repeat(250_000) }))
  t.equal(clean(`b${'a'.repeat(19)}`.repeat(30), long), `b${'a'.repeat(19)}`.repeat(30))
  t.equal(clean('a'.repeat(600), long), '…')
  t.end()
})

t.test('only names count as codes', t => {
  t.same(codesOf({ type: 'server_error', code: 'x'.repeat(65), message: '' }), ['server_error'])
  t.same(codesOf({ type: 'the words of a prompt', code: 'a.b', message: '' }), ['a.b'])
  t.end()
})
