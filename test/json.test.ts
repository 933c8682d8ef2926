import t from 'tap'
import { JsonError, SingleNames } from '../core/lib/json/limits.ts'
import { JsonScanner } from '../core/lib/json/scanner.ts'
import { JsonView } from '../core/lib/json/view.ts'

const LIMITS = { depth: 64, values: 1000 }

/** Returns the JSON as a view, or the kind of its fault. Its bytes arrive in two pieces, cut at an index. */
function read(text: string, cut = 0, limits = LIMITS, single?: SingleNames): JsonView | string {
  const bytes = Buffer.from(text)
  const scanner = new JsonScanner(limits, single)
  try {
    scanner.push(bytes.subarray(0, cut), false)
    scanner.push(bytes, true)
  } catch (thrown) {
    if (thrown instanceof JsonError) return thrown.fault.kind
    throw thrown
  }
  return new JsonView(bytes, scanner.tape, 0)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns a view as plain values, read member by member. */
function plain(view: JsonView): unknown {
  if (view.isList) return [...view.elements()].map(plain)
  if (view.isObject)
    return Object.fromEntries([...view.names()].map(name => [name, plain(view.member(name) as JsonView)]))
  return view.json
}

const VALID = [
  '{"a":[1,2,{"b":"c\\u0041\\n\\/"}],"d":true,"e":null,"f":-0.1e5}',
  ' [ [ ] , { } , "" , 0 , -1 , 1e9 , false , 12345678901234567890 ] ',
  '"é漢\\ud83d\\ude00 \u2028"',
  `{"long":"${'text '.repeat(100)}","escaped":"${'a\\"b\\\\'.repeat(80)}","x":{"b":{"c":[]}}}`,
  '-0',
]
const INVALID = [
  '',
  '{',
  '[1,]',
  '[,1]',
  '{"a"}',
  '{"a":}',
  '{a:1}',
  '{"a":1,}',
  '[1 2]',
  '01',
  '1.',
  '.5',
  '+1',
  '1e',
  'tru',
  'True',
  'nul',
  'NaN',
  '[1}',
  '{"a":1]',
  '"\t"',
  '"\\x"',
  '"\\u12g4"',
  '"\\',
  '"',
  '[]]',
  '{}{}',
  '1 1',
  '\ufeff{}',
  `["${'a'.repeat(500)}\n"]`,
]

t.test('valid JSON is accepted in any chunks, and read as JSON.parse reads it', t => {
  for (const text of VALID)
    for (let cut = 0; cut <= Buffer.byteLength(text); cut++) {
      const view = read(text, cut)
      if (typeof view === 'string') t.fail(`${text} cut at ${cut}: ${view}`)
      else if (JSON.stringify(plain(view)) !== JSON.stringify(JSON.parse(text)))
        t.fail(`${text} cut at ${cut} reads otherwise`)
    }
  t.pass()
  t.end()
})

t.test('invalid JSON is refused in any chunks', t => {
  for (const text of INVALID) {
    t.equal(parsed(text), undefined, 'a parser agrees')
    for (let cut = 0; cut <= Buffer.byteLength(text); cut++)
      if (read(text, cut) !== 'syntax') t.fail(`${JSON.stringify(text)} cut at ${cut}`)
  }
  t.end()
})

t.test('of 100,000 damaged texts, the same ones are accepted as by JSON.parse', t => {
  let seed = Number(process.env['SEED'] ?? 7)
  const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below
  const alphabet = '{}[],:"\\ \n0129-+.eEtrufalsn/bx\u0001é'
  for (let round = 0; round < 100_000; round++) {
    let text = VALID[random(VALID.length)] as string
    for (let damages = 1 + random(3); damages > 0; damages--) {
      const at = random(text.length + 1)
      text =
        text.slice(0, at) +
        (random(3) === 0 ? '' : alphabet.charAt(random(alphabet.length))) +
        text.slice(at + random(2))
    }
    const view = read(text, random(text.length + 1))
    // Repeated names and numbers out of range are refused on purpose.
    if (view === 'twice' || view === 'range') continue
    if ((typeof view !== 'string') !== (parsed(text) !== undefined)) t.fail(JSON.stringify(text))
    if (typeof view !== 'string' && JSON.stringify(view.json) !== JSON.stringify(parsed(text)))
      t.fail(`${JSON.stringify(text)} reads otherwise`)
  }
  t.pass()
  t.end()
})

t.test('depth, values and numbers are limited before anything is built', t => {
  const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth)
  t.not(read(nested(64)), 'depth')
  t.equal(read(nested(65)), 'depth')
  t.equal(read('['.repeat(1_000_000)), 'depth')
  const list = (count: number): string => `[${Array.from({ length: count }, () => '{}').join(',')}]`
  t.not(read(list(999)), 'values')
  t.equal(read(list(1000)), 'values')
  const strict = new SingleNames([])
  t.equal(read('[1e400]', 0, LIMITS, strict), 'range')
  t.equal(read(`[${'9'.repeat(2000)}]`, 0, LIMITS, strict), 'syntax')
  t.equal(read(`[${'9'.repeat(2000)}`, 1500, LIMITS, strict), 'syntax', 'also while it arrives')
  t.end()
})

t.test('a reply is read as JSON.parse reads it: any number, and the last of several members with one name', t => {
  for (const text of ['[1e400]', `[${'9'.repeat(2000)}]`, '{"a":1,"a":{"b":2}}'])
    t.strictSame((read(text) as JsonView).json, parsed(text), text.slice(0, 20))
  t.equal((read('{"a":1,"a":{"b":2}}') as JsonView).member('a')?.member('b')?.json, 2)
  t.end()
})

t.test('the outermost object must not repeat a name, and no object may repeat one of certain names', t => {
  const single = new SingleNames(['type', 'id'])
  for (const text of [
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '{"x":{"type":1,"b":2,"type":1}}',
    '{"x":[{"\\u0074ype":1,"type":1}]}',
    '{"x":{"id":1,"i\\u0064":1}}',
  ])
    t.equal(read(text, 0, LIMITS, single), 'twice', text)
  for (const text of ['{"x":{"a":1,"a":2}}', '{"x":{"type":{"type":1},"id":1},"type":1}', '[{"type":1},{"type":1}]'])
    t.not(read(text, 0, LIMITS, single), 'twice', text)
  t.end()
})

t.test('of repeated members the last one counts, as in JSON.parse', t => {
  const view = read('{"x":{"a":1,"\\u0061":{"b":2}}}') as JsonView
  t.equal(view.member('x')?.member('a')?.member('b')?.json, 2)
  t.end()
})
