import fc from 'fast-check'
import t from 'tap'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { become, type Fate } from './become.ts'
import { refusalOf } from './provider-rules.ts'

/** Schemas of tools and of answers are such as each provider accepts, whatever the client sends. */

const CHAT = 'chat-completions'
const NAMES = Object.keys(FORMATS) as FormatName[]
const RUNS = { numRuns: 400 }

const scalar = fc.oneof(fc.string({ maxLength: 3 }), fc.integer({ min: -9, max: 9 }), fc.boolean(), fc.constant(null))
const key = fc.oneof(fc.constantFrom('a', 'b', '$ref', 'type', '$odd key', 'properties'), fc.string({ minLength: 1, maxLength: 4 }).filter(name => name !== '__proto__')) // prettier-ignore
const types = fc.constantFrom('string', 'integer', 'number', 'boolean', 'null', 'object', 'array')
type Generated = Record<string, unknown>

/** The keywords with their values. @param inner the schemas within */
const keywords = (inner: fc.Arbitrary<unknown>): Readonly<Record<string, fc.Arbitrary<unknown>>> => ({
  properties: fc.dictionary(key, inner, { maxKeys: 3 }),
  required: fc.oneof(fc.array(key, { maxLength: 3 }), fc.boolean()),
  additionalProperties: fc.oneof(fc.boolean(), inner),
  items: fc.oneof(inner, fc.array(inner, { maxLength: 2 }), fc.boolean()),
  additionalItems: fc.boolean(),
  anyOf: fc.array(inner, { maxLength: 2 }),
  oneOf: fc.array(inner, { maxLength: 2 }),
  allOf: fc.array(inner, { maxLength: 2 }),
  not: inner,
  if: inner,
  enum: fc.oneof(fc.array(scalar, { maxLength: 3 }), fc.constant([{ a: 1 }])),
  const: fc.oneof(scalar, fc.constant({ a: 1 })),
  $ref: fc.constantFrom('#/$defs/d', '#/$defs/missing', '#', 'https://elsewhere/schema'),
  $defs: fc.dictionary(fc.constantFrom('d', 'e'), inner, { maxKeys: 2 }),
  minimum: fc.oneof(fc.integer({ min: 0, max: 9 }), fc.constant('0')),
  exclusiveMinimum: fc.oneof(fc.boolean(), fc.integer({ min: 0, max: 9 })),
  maxLength: fc.oneof(fc.nat(9), fc.constant(-1)),
  minItems: fc.nat(3),
  maxItems: fc.nat(3),
  uniqueItems: fc.boolean(),
  pattern: fc.constantFrom('^a+$', '(?=a)b', '(?<!a)b', '(a)\\1', '\\bword'),
  format: fc.constantFrom('date-time', 'uri', 'password', 'email'),
  propertyNames: inner,
  patternProperties: fc.dictionary(fc.constant('^x'), inner, { maxKeys: 1 }),
  description: fc.oneof(fc.string({ maxLength: 5 }), scalar),
  default: scalar,
})

const type = fc.oneof(
  { weight: 8, arbitrary: types },
  { weight: 2, arbitrary: fc.uniqueArray(types, { minLength: 1, maxLength: 3 }) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>('any', 3, []) },
)

/** Most schemas have a type and few keywords. @param depth levels of schemas within */
function schemasOf(depth: number): fc.Arbitrary<Generated> {
  const leaf: fc.Arbitrary<Generated> = fc.record({ type })
  if (depth === 0) return leaf
  const all = keywords(fc.oneof(leaf, schemasOf(depth - 1)))
  return fc
    .subarray(Object.keys(all), { maxLength: 4 })
    .chain(names =>
      fc.record(
        { type, ...Object.fromEntries(names.map(name => [name, all[name] as fc.Arbitrary<unknown>])) },
        { requiredKeys: names as never[] },
      ),
    )
}

const schema = schemasOf(3)

/** Requests with a schema: of two tools, and of the answer. */
const REQUESTS: Readonly<
  Record<string, { readonly from: FormatName; readonly of: (schema: unknown, strict: boolean) => object }>
> = {
  'a tool of chat completions': {
    from: CHAT,
    of: (parameters, strict) => ({
      messages: [{ role: 'user', content: 'x' }],
      tools: ['f', 'g'].map(name => ({ type: 'function', function: { name, parameters, strict } })),
    }),
  },
  'a tool of responses': {
    from: 'responses',
    of: (parameters, strict) => ({ input: 'x', tools: [{ type: 'function', name: 'f', parameters, strict }] }),
  },
  'a tool of messages': {
    from: 'messages',
    of: (input_schema, strict) => ({
      max_tokens: 20,
      messages: [{ role: 'user', content: 'x' }],
      tools: [{ name: 'f', input_schema, strict }],
    }),
  },
  'an answer of chat completions': {
    from: CHAT,
    of: (schema, strict) => ({
      messages: [{ role: 'user', content: 'x' }],
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema, strict } },
    }),
  },
  'an answer of responses': {
    from: 'responses',
    of: (schema, strict) => ({ input: 'x', text: { format: { type: 'json_schema', name: 'n', schema, strict } } }),
  },
  'an answer of messages': {
    from: 'messages',
    of: schema => ({
      max_tokens: 20,
      messages: [{ role: 'user', content: 'x' }],
      output_config: { format: { type: 'json_schema', schema } },
    }),
  },
}

for (const [title, { from, of }] of Object.entries(REQUESTS))
  for (const to of NAMES.filter(name => name !== from))
    t.test(`${title} is one that the provider of ${to} accepts`, t => {
      const isAnswer = title.startsWith('an answer')
      let [sentAtAll, strictAtAll] = [0, 0]
      fc.assert(
        fc.property(schema, fc.boolean(), (generated, strict) => {
          // An answer is an object in all formats.
          const root = isAnswer
            ? { ...generated, type: 'object', properties: generated['properties'] ?? {} }
            : generated
          const { sent, refused } = become(from, to, JSON.stringify(of(root, strict)), {})
          if (refused !== undefined) {
            // Only the form of an answer may be refused: it would not be the answer that the client can read.
            if (!isAnswer) throw new Error(refused)
            return
          }
          sentAtAll++
          if (sent?.includes('"strict":true')) strictAtAll++
          const words = refusalOf(to, JSON.parse(sent ?? ''))
          if (words !== undefined) throw new Error(`${words}\n${sent}`)
        }),
        RUNS,
      )
      t.ok(sentAtAll > RUNS.numRuns / 3, `${sentAtAll} of the requests are sent`)
      if (!isAnswer && to === 'messages') t.ok(strictAtAll > 0, `${strictAtAll} are strict`)
      t.end()
    })

const chatTool = (parameters: unknown, strict = true): string => JSON.stringify(REQUESTS['a tool of chat completions']?.of(parameters, strict)) // prettier-ignore
const toolOf = ({ sent }: Fate): any => JSON.parse(sent ?? '{}').tools[0]

t.test('a strict tool keeps what can be enforced, and tells the rest to the model', t => {
  const bounded = {
    type: 'object',
    properties: {
      age: { type: 'integer', description: 'Years.', minimum: 0, maximum: 120 },
      names: { type: 'array', items: { type: 'string', maxLength: 40 }, minItems: 1, maxItems: 3 },
      mode: { oneOf: [{ const: 'a' }, { enum: ['b', 'c'], type: 'string' }] },
      when: { type: ['string', 'null'], format: 'date-time' },
      boss: { $ref: '#/$defs/person' },
    },
    required: ['age'],
    $defs: { person: { type: 'object', properties: { id: { type: 'string', format: 'uuid', pattern: '^x' } } } },
  }
  const fate = become(CHAT, 'messages', chatTool(bounded), {})
  t.strictSame(toolOf(fate), {
    name: 'f',
    strict: true,
    input_schema: {
      $defs: {
        person: {
          type: 'object',
          properties: { id: { type: 'string', format: 'uuid', description: '{pattern: "^x"}' } },
          additionalProperties: false,
        },
      },
      type: 'object',
      properties: {
        age: { description: 'Years.\n\n{minimum: 0, maximum: 120}', type: 'integer' },
        names: {
          type: 'array',
          items: { type: 'string', description: '{maxLength: 40}' },
          minItems: 1,
          description: '{maxItems: 3}',
        },
        mode: { anyOf: [{ const: 'a' }, { enum: ['b', 'c'] }] },
        when: { type: ['string', 'null'], format: 'date-time' },
        boss: { $ref: '#/$defs/person' },
      },
      required: ['age'],
      additionalProperties: false,
    },
  })
  const at = 'tools[].function.parameters'
  t.match(fate.dropped, `${at}.properties.age.minimum`)
  t.match(fate.dropped, `${at}.properties.names.items.maxLength`)
  t.end()
})

t.test('a strict tool whose schema cannot be enforced is not strict, and keeps its schema', t => {
  const cases: readonly [string, FormatName, object][] = [
    ['any members', 'messages', { type: 'object', properties: {}, additionalProperties: { type: 'string' } }],
    ['a schema within itself', 'messages', { type: 'object', properties: { child: { $ref: '#' } } }],
    ['optional members', 'responses', { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false }], // prettier-ignore
    ['open objects', 'responses', { type: 'object', properties: {}, required: [] }],
  ]
  for (const [about, to, parameters] of cases) {
    const fate = become(CHAT, to, chatTool(parameters), {})
    t.notOk(toolOf(fate).strict, about)
    t.strictSame(toolOf(fate).input_schema ?? toolOf(fate).parameters, parameters, about)
    t.equal(fate.dropped, 'strict', about)
  }
  t.end()
})

t.test('the twenty-first strict tool, and one with too many optional members, are not strict', t => {
  const parameters = { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false }
  const tools = Array.from({ length: 30 }, (_, index) => ({ type: 'function', function: { name: `f${index}`, parameters, strict: true } })) // prettier-ignore
  const { sent = '', dropped } = become(CHAT, 'messages', JSON.stringify({ messages: [{ role: 'user', content: 'x' }], tools }), {}) // prettier-ignore
  t.equal(JSON.parse(sent).tools.filter((tool: { strict?: boolean }) => tool.strict).length, 20)
  t.equal(dropped, 'strict')
  t.equal(refusalOf('messages', JSON.parse(sent)), undefined)
  t.end()
})

t.test('an object stays an object, whatever branches restrict it', t => {
  const properties = { a: { type: 'string' }, b: { type: 'string' } }
  for (const branches of [
    { anyOf: [{ required: ['a'] }, { required: ['b'] }] },
    { allOf: [{ required: ['a'] }, { minProperties: 1 }] },
  ]) {
    const request = REQUESTS['an answer of chat completions']?.of({ type: 'object', properties, ...branches }, true)
    const { sent = '{}', dropped } = become(CHAT, 'messages', JSON.stringify(request), {})
    const { schema } = JSON.parse(sent).output_config.format
    t.match(schema, { type: 'object', properties, additionalProperties: false })
    t.match(schema.description, Object.keys(branches)[0])
    t.match(dropped, 'response_format.json_schema.schema.')
  }
  t.end()
})

t.test('a schema that repeats a type grows no further at each level', t => {
  let nested: object = { type: 'string' }
  for (let level = 0; level < 25; level++)
    nested = { type: level % 2 === 0 ? ['object', 'object', 'array'] : ['object', 'array'], properties: { a: nested } }
  const { sent = '' } = become(CHAT, 'messages', JSON.stringify(REQUESTS['an answer of chat completions']?.of(nested, true)), {}) // prettier-ignore
  t.ok(sent.length < 20_000, `${sent.length} bytes`)
  t.end()
})

t.test('an answer that no schema of the provider describes is refused by its path', t => {
  const recursive = { type: 'object', properties: { child: { $ref: '#' } } }
  const request = REQUESTS['an answer of chat completions']?.of(recursive, true)
  const { refused } = become(CHAT, 'messages', JSON.stringify(request), {})
  t.match(refused, /^response_format\.json_schema\.schema: .* refers to itself/)
  t.end()
})

t.test('keywords of older drafts are spelled as in the present one', t => {
  const old = {
    type: 'object',
    properties: {
      pair: { type: 'array', items: [{ type: 'string' }, { type: 'number' }], additionalItems: false },
      above: { type: 'number', minimum: 3, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false },
      name: { type: 'string', required: true },
    },
  }
  const { input_schema } = toolOf(become(CHAT, 'messages', chatTool(old, false), {}))
  t.strictSame(input_schema.properties, {
    pair: { type: 'array', prefixItems: [{ type: 'string' }, { type: 'number' }], items: false },
    above: { type: 'number', maximum: 9, exclusiveMinimum: 3 },
    name: { type: 'string' },
  })
  t.end()
})

t.test('names of members that the provider refuses are left out', t => {
  const parameters = {
    type: 'object',
    properties: { $filter: { type: 'string' }, ok: { type: 'string' } },
    required: ['$filter', 'ok'],
  }
  const fate = become(CHAT, 'messages', chatTool(parameters, false), {})
  t.strictSame(toolOf(fate).input_schema, { ...parameters, properties: { ok: { type: 'string' } }, required: ['ok'] })
  t.match(fate.dropped, 'tools[].function.parameters.properties._filter')
  t.end()
})
