/** JSON Schemas of tools' inputs, for providers whose root must be a plain object. */
import type { Tool } from './neutral.ts'
import { object, type Json } from './reading.ts'

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
  const { properties, required } = members(schema, schema, new Set())
  const rest = Object.entries(schema).filter(([name]) => !(COMBINING as readonly string[]).includes(name) && name !== 'additionalProperties')
  return {
    ...Object.fromEntries(rest),
    type: 'object',
    properties: Object.fromEntries(
      [...properties].map(([name, schemas]) => [name, schemas.size === 1 ? schemas.values().next().value : { anyOf: [...schemas.values()] }]),
    ),
    ...(required.size > 0 && { required: [...required] }),
  }
}

/** Whether a tool's input was to keep strictly to a schema that had to be put into another form. */
export function loosened({ strict, schema }: Pick<Tool, 'strict' | 'schema'>): boolean {
  return strict === true && COMBINING.some(name => schema?.[name] !== undefined)
}

interface Members {
  /** The different schemas of each property, by their texts. */
  readonly properties: Map<string, Map<string, unknown>>
  readonly required: Set<string>
}

/** More schemas than anybody means to stand at one root. */
const MOST_SCHEMAS = 200

/** @param seen schemas that have been looked at: references may lead in circles */
function members(schema: Json, root: Json, seen: Set<Json>): Members {
  const found: Members = { properties: new Map(), required: new Set() }
  if (seen.has(schema) || seen.size >= MOST_SCHEMAS) return found
  seen.add(schema)
  for (const [name, each] of Object.entries(object(schema['properties']) ?? {})) add(found.properties, name, JSON.stringify(each), each)
  for (const name of Array.isArray(schema['required']) ? schema['required'] : []) if (typeof name === 'string') found.required.add(name)
  const branches = (list: unknown): Members[] =>
    Array.isArray(list) ? list.slice(0, MOST_SCHEMAS).map(branch => members(object(branch) ?? {}, root, seen)) : []
  const referred = object(refersTo(schema['$ref'], root))
  const all = [...branches(schema['allOf']), ...(referred ? [members(referred, root, seen)] : [])]
  for (const branch of all) for (const name of branch.required) found.required.add(name)
  for (const choice of [branches(schema['anyOf']), branches(schema['oneOf'])]) {
    for (const name of choice[0]?.required ?? []) if (choice.every(branch => branch.required.has(name))) found.required.add(name)
    for (const branch of choice) all.push(branch)
  }
  for (const branch of all) for (const [name, schemas] of branch.properties) for (const [text, each] of schemas) add(found.properties, name, text, each)
  return found
}

function add(properties: Members['properties'], name: string, text: string, schema: unknown): void {
  const known = properties.get(name)
  if (known) known.set(text, schema)
  else properties.set(name, new Map([[text, schema]]))
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
