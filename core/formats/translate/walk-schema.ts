/** Goes through JSON Schemas, and mends values of keywords that every provider refuses. */
import type { DroppedFields } from './dropped-fields.ts'
import type { Json } from '../terms.ts'
import { list, object, words } from '../json.ts'

/** The keywords whose values are schemas: one, a list, or one for each name. */
const ONE: ReadonlySet<string> = new Set(
  words(`
    items additionalProperties unevaluatedItems unevaluatedProperties contains propertyNames not if then else
  `),
)
const LIST: ReadonlySet<string> = new Set(words('anyOf oneOf allOf prefixItems'))
const NAMED: ReadonlySet<string> = new Set(words('properties patternProperties dependentSchemas $defs definitions'))

/** Most characters of a name, and of a path, that are kept: the last ones. */
const NAME_MAX = 64
const PATH_MAX = 160

/** The path of something within a schema. */
export function below(at: string, name: string): string {
  const path = `${at}.${name.slice(-NAME_MAX)}`
  return path.length > PATH_MAX ? path.slice(-PATH_MAX) : path
}

/**
 * Applies a rule to every schema within a schema, the inner ones first. A schema may be a boolean, which stays.
 * @param rule what becomes of one schema. `at` is its path
 */
export function everywhere(schema: Json, at: string, rule: (schema: Json, at: string) => Json): Json {
  const inner = (value: unknown, path: string): unknown => {
    const each = object(value)
    return each ? everywhere(each, path, rule) : value
  }
  const entries = Object.entries(schema).map(([name, value]): [string, unknown] => {
    const path = below(at, name)
    if (ONE.has(name) && !Array.isArray(value)) return [name, inner(value, path)]
    // Older drafts have a list of schemas for the items.
    if (LIST.has(name) || name === 'items') return [name, list(value).map(each => inner(each, path))]
    const named = NAMED.has(name) ? object(value) : undefined
    if (!named) return [name, value]
    return [name, Object.fromEntries(Object.entries(named).map(([key, each]) => [key, inner(each, below(path, key))]))]
  })
  return rule(Object.fromEntries(entries), at)
}

/** Whether a schema states a type, alone or beside others. */
export function isTypeOf({ type }: Json, name: string): boolean {
  return type === name || (Array.isArray(type) && type.includes(name))
}

const TYPES: ReadonlySet<unknown> = new Set(words('null boolean object array number string integer'))

const isNumber = (value: unknown): boolean => typeof value === 'number' || isBigNumber(value)
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0
const isText = (value: unknown): boolean => typeof value === 'string'
const isSchema = (value: unknown): boolean => typeof value === 'boolean' || object(value) !== undefined
const isList = (value: unknown, of: (each: unknown) => boolean): boolean => Array.isArray(value) && value.every(of)
const isMap = (value: unknown, of: (each: unknown) => boolean): boolean =>
  object(value) !== undefined && Object.values(value as Json).every(of)

/** A number that a double cannot hold, which `parseExact` keeps as its text. */
export function isBigNumber(value: unknown): boolean {
  return (JSON as unknown as { isRawJSON?: (value: unknown) => boolean }).isRawJSON?.(value) === true
}

/** A schema with a type twice would be read twice, and so would each schema within. */
function isListOfTypes(value: unknown): boolean {
  const types = list(value)
  return types.length > 0 && types.every(type => TYPES.has(type)) && new Set(types).size === types.length
}

/** Which value each keyword may have. Others may have any. */
const VALUES: readonly (readonly [string, (value: unknown) => boolean])[] = [
  ['type', value => TYPES.has(value) || isListOfTypes(value)],
  ['enum', value => list(value).length > 0],
  ['required', value => isList(value, isText)],
  ['minimum maximum exclusiveMinimum exclusiveMaximum multipleOf', isNumber],
  ['minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains', isCount],
  ['pattern format title description $ref', isText],
  ['uniqueItems', value => typeof value === 'boolean'],
  [[...ONE].join(' '), isSchema],
  [[...LIST].join(' '), value => isList(value, isSchema) && list(value).length > 0],
  [[...NAMED].join(' '), value => isMap(value, isSchema)],
]
const VALUE_OF = new Map(VALUES.flatMap(([names, isRight]) => words(names).map(name => [name, isRight] as const)))

/**
 * A schema as the present draft has it, without keywords whose value is of a wrong type. Providers refuse the whole
 * request for one of them.
 */
export function withoutWrongValues(schema: Json, at: string, dropped: DroppedFields): Json {
  return everywhere(schema, at, (each, place) => {
    const present = modern(each)
    const wrong = Object.keys(present).filter(name => VALUE_OF.get(name)?.(present[name]) === false)
    if (wrong.length === 0) return present
    for (const name of wrong) dropped.add(below(place, name))
    return Object.fromEntries(Object.entries(present).filter(([name]) => !wrong.includes(name)))
  })
}

/** A schema in which lists of items, and bounds that do not count, are spelled as in the present draft. */
function modern(schema: Json): Json {
  const { items, additionalItems, minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema
  const isOld = Array.isArray(items) || typeof exclusiveMinimum === 'boolean' || typeof exclusiveMaximum === 'boolean'
  if (!isOld) return schema
  const changed = new Map(Object.entries(schema))
  if (Array.isArray(items)) {
    changed.set('prefixItems', items)
    changed.delete('items')
    changed.delete('additionalItems')
    if (additionalItems !== undefined) changed.set('items', additionalItems)
  }
  const bound = (name: string, exclusive: string, excludes: unknown, value: unknown): void => {
    if (typeof excludes !== 'boolean') return
    changed.delete(exclusive)
    if (!excludes || value === undefined) return
    changed.delete(name)
    changed.set(exclusive, value)
  }
  bound('minimum', 'exclusiveMinimum', exclusiveMinimum, minimum)
  bound('maximum', 'exclusiveMaximum', exclusiveMaximum, maximum)
  return Object.fromEntries(changed)
}
