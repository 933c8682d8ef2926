import t from 'tap'
import { standingIn } from '../../core/formats/classify.ts'
import { codesOf, withoutEchoes } from '../../core/formats/failures.ts'

const PROMPT = 'The patient was born on 1 April 1980 in "Bremen".\nHe has a fever.'
const body = Buffer.from(JSON.stringify({ messages: [{ role: 'user', content: PROMPT }] }))
const clean = (message: string, request = body): string =>
  withoutEchoes(
    message,
    standingIn(() => request, {}),
  )

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

t.test('of a request that is too long to search, nothing is repeated', t => {
  const long = Buffer.from(JSON.stringify({ content: 'x'.repeat(2 ** 20) }))
  t.equal(clean('anything that is longer than twenty characters', long), '…')
  t.end()
})

t.test('only names count as codes', t => {
  t.same(codesOf({ type: 'server_error', code: 'x'.repeat(65), message: '' }), ['server_error'])
  t.same(codesOf({ type: 'the words of a prompt', code: 'a.b', message: '' }), ['a.b'])
  t.end()
})
