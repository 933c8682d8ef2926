/** JSON Schemas of tools' inputs, for providers whose root must be a plain object. */
import type { Tool } from './neutral.ts'
import { object, text, type Json } from './reading.ts'

/** Combinations of schemas that may stand at a root. */
const COMBINING = ['anyOf', 'oneOf', 'allOf', '$ref'] as const

/**
 * An input schema whose root is a plain object. Branches at the root become one object with the members of all: what
 * several of them have, with the schemas of each; required is what every one of them requires.
 */
export function objectSchema(schema: Json = {}): Json {
  const plain = !COMBINING.some(name => schema[name] !== undefined)
  if (plain && schema['type'] === 'object' && object(schema['properties'])) return schema
  if (plain) return { ...schema, type: 'object', properties: object(schema['properties']) ?? {} }
  const { properties, required } = members(schema, schema, { left: MOST_SCHEMAS })
  const rest = Object.entries(schema).filter(([name]) => !(COMBINING as readonly string[]).includes(name) && name !== 'additionalProperties')
  return {
    ...Object.fromEntries(rest),
    type: 'object',
    properties: Object.fromEntries([...properties].map(([name, schemas]) => [name, schemas.length === 1 ? schemas[0] : { anyOf: schemas }])),
    ...(required.size > 0 && { required: [...required] }),
  }
}

/** Whether a tool's input was to keep strictly to a schema that had to be put into another form. */
export function loosened({ strict, schema }: Pick<Tool, 'strict' | 'schema'>): boolean {
  return strict === true && COMBINING.some(name => schema?.[name] !== undefined)
}

interface Members {
  /** The different schemas of each property. */
  readonly properties: Map<string, unknown[]>
  readonly required: Set<string>
}

/** References may lead in circles, and each circle may branch. */
const MOST_SCHEMAS = 200

function members(schema: Json, root: Json, looked: { left: number }): Members {
  const properties = new Map(Object.entries(object(schema['properties']) ?? {}).map(([name, each]) => [name, [each]]))
  const required = new Set(Array.isArray(schema['required']) ? schema['required'].flatMap(name => text(name) ?? []) : [])
  if (looked.left-- <= 0) return { properties, required }
  const branches = (list: unknown): Members[] =>
    Array.isArray(list) ? list.slice(0, MOST_SCHEMAS).map(branch => members(object(branch) ?? {}, root, looked)) : []
  const referred = object(refersTo(schema['$ref'], root))
  const all = [...branches(schema['allOf']), ...(referred ? [members(referred, root, looked)] : [])]
  for (const branch of all) for (const name of branch.required) required.add(name)
  for (const choice of [branches(schema['anyOf']), branches(schema['oneOf'])]) {
    for (const name of choice[0]?.required ?? []) if (choice.every(branch => branch.required.has(name))) required.add(name)
    all.push(...choice)
  }
  for (const branch of all) for (const [name, schemas] of branch.properties) add(properties, name, schemas)
  return { properties, required }
}

function add(properties: Map<string, unknown[]>, name: string, schemas: readonly unknown[]): void {
  const known = properties.get(name) ?? []
  const texts = new Set(known.map(each => JSON.stringify(each)))
  properties.set(name, [...known, ...schemas.filter(each => !texts.has(JSON.stringify(each)))])
}

/** What a reference within the schema refers to. */
function refersTo(ref: unknown, root: Json): unknown {
  if (typeof ref !== 'string' || !ref.startsWith('#/')) return undefined
  const steps = ref
    .slice(2)
    .split('/')
    .map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
  return steps.reduce<unknown>((at, step) => (object(at) && Object.hasOwn(at as object, step) ? (at as Json)[step] : undefined), root)
}
