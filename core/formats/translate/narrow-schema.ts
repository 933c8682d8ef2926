/** Schemas in the part of JSON Schema that providers of messages can enforce. */
import { refersTo } from './root-schema.ts'
import type { Json } from '../terms.ts'
import { list, object, text, words } from '../json.ts'
import { below, isBigNumber, isTypeOf } from './walk-schema.ts'

/** Keywords that are kept unchanged. */
const KEPT: readonly string[] = words('$ref description title')
/** Keywords that constrain nothing. */
const SILENT: ReadonlySet<string> = new Set(words('$schema $id $comment'))
/** The types of plain values. */
const PLAIN = words('string number boolean null')
/** The formats of strings that are enforced. */
const FORMATS: ReadonlySet<unknown> = new Set(words('date-time time date duration email hostname uri ipv4 ipv6 uuid'))
/** References may lead deeper than makes sense. */
const DEPTH_MAX = 64

/**
 * A schema without the keywords that its provider cannot enforce. The description of the schema tells the model about
 * them, as the vendor's SDKs do.
 */
export class Narrowing {
  readonly schema: Json
  /** The paths of the keywords that are left out. */
  readonly losses: string[] = []
  /** Members that objects may lack, and schemas of several types. A request may only have so many. */
  optional = 0
  unions = 0
  /** A value of any type has become a plain one, or an object with any members one with its own alone. */
  closed = false
  /** Why the schema cannot be described; undefined if it can. */
  impossible: string | undefined

  /** @param schema without keywords of wrong types */
  constructor(schema: Json, at: string) {
    if (isRecursive(schema, schema, new Map(), 0))
      this.impossible = 'its schema refers to itself, or to another document'
    this.schema = this.impossible === undefined ? this.#narrow(schema, at) : schema
  }

  #narrow(schema: Json, at: string): Json {
    const [alone, ...others] = list(schema['allOf'])
    if (object(alone) && others.length === 0) {
      const { allOf: _branch, ...rest } = schema
      return this.#narrow({ ...rest, ...object(alone) }, at)
    }
    const rest = new Map(Object.entries(schema))
    const result: Record<string, unknown> = {}
    const take = (name: string): unknown => {
      const value = rest.get(name)
      rest.delete(name)
      return value
    }
    for (const name of SILENT) rest.delete(name)
    for (const name of ['$defs', 'definitions']) {
      const defined = object(take(name))
      if (defined) result[name] = this.#each(defined, below(at, name))
    }
    for (const name of KEPT) if (rest.has(name)) result[name] = take(name)
    if (result['$ref'] === undefined) this.#describe(schema, result, take, at)
    else for (const name of ['description', 'title']) delete result[name]
    this.#tell(rest, result, at)
    return result
  }

  /** The type of a value, and what is enforced of it. */
  #describe(schema: Json, result: Record<string, unknown>, take: (name: string) => unknown, at: string): void {
    for (const name of ['enum', 'const']) {
      const value = schema[name]
      const values = name === 'enum' ? list(value) : [value]
      if (value !== undefined && values.every(isPrimitive)) result[name] = take(name)
    }
    if (result['enum'] !== undefined || result['const'] !== undefined) return void take('type')
    const branches = ['anyOf', 'oneOf', 'allOf'].find(name => standAlone(schema, name))
    if (branches !== undefined) {
      const name = branches === 'allOf' ? 'allOf' : 'anyOf'
      if (name === 'allOf' && list(schema[branches]).some(each => object(each)?.['$ref'] !== undefined))
        this.impossible ??= 'its schema combines references'
      result[name] = list(take(branches)).map(each => this.#inner(each, below(at, branches)))
      if (name === 'anyOf') this.unions++
      // The branches have types of their own.
      return void take('type')
    }
    let type = take('type') ?? typeOf(schema)
    if (type === undefined) {
      // A value of any type cannot be described. Most are plain.
      type = PLAIN
      this.closed = true
      this.losses.push(below(at, 'type'))
    }
    if (Array.isArray(type) && type.length > 1) {
      this.unions++
      const compound = type.some(each => each === 'object' || each === 'array')
      if (compound) {
        const { description: _told, title: _title, $defs: _defs, definitions: _definitions, ...shared } = schema
        result['anyOf'] = type.map(each => this.#narrow(only(shared, String(each)), at))
        for (const names of Object.values(OF_TYPE)) for (const name of names) take(name)
        return
      }
    }
    result['type'] = Array.isArray(type) && type.length === 1 ? type[0] : type
    if (isTypeOf(result, 'object')) this.#object(schema, result, take, at)
    if (isTypeOf(result, 'array')) this.#list(schema, result, take, at)
    if (isTypeOf(result, 'string') && FORMATS.has(schema['format'])) result['format'] = take('format')
  }

  #object(schema: Json, result: Record<string, unknown>, take: (name: string) => unknown, at: string): void {
    const isOpen = (schema['additionalProperties'] ?? false) !== false
    const properties = object(take('properties')) ?? {}
    const names = Object.keys(properties)
    const required = list(take('required')).filter(name => typeof name === 'string' && Object.hasOwn(properties, name))
    this.optional += names.length - new Set(required).size
    result['properties'] = this.#each(properties, below(at, 'properties'))
    if (required.length > 0) result['required'] = required
    result['additionalProperties'] = false
    // The provider cannot enforce a map. `#tell` describes it.
    if (isOpen) this.closed = true
    else take('additionalProperties')
  }

  #list(schema: Json, result: Record<string, unknown>, take: (name: string) => unknown, at: string): void {
    const items = object(schema['items'])
    if (items) {
      take('items')
      result['items'] = this.#narrow(items, below(at, 'items'))
    } else if (schema['items'] !== undefined) take('items')
    if (schema['minItems'] === 0 || schema['minItems'] === 1) result['minItems'] = take('minItems')
  }

  /** The schemas by their names. */
  #each(named: Json, at: string): Json {
    return Object.fromEntries(Object.entries(named).map(([name, each]) => [name, this.#inner(each, below(at, name))]))
  }

  #inner(value: unknown, at: string): Json {
    return this.#narrow(object(value) ?? {}, at)
  }

  /** Puts what is left out into the description. */
  #tell(rest: ReadonlyMap<string, unknown>, result: Record<string, unknown>, at: string): void {
    if (rest.size === 0) return
    for (const name of rest.keys()) this.losses.push(below(at, name))
    if (result['$ref'] !== undefined) return
    const told = `{${[...rest].map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(', ')}}`
    const description = text(result['description'])
    result['description'] = description ? `${description}\n\n${told}` : told
  }
}

function isPrimitive(value: unknown): boolean {
  return value === null || typeof value !== 'object' || isBigNumber(value)
}

/**
 * Whether the branches of a schema say all that it says. Branches that only restrict an object or a text beside them
 * cannot be enforced.
 */
function standAlone(schema: Json, name: string): boolean {
  if (!Array.isArray(schema[name]) || schema['properties'] !== undefined) return false
  return schema['type'] === undefined || list(schema[name]).every(isWhole)
}

function isWhole(branch: unknown): boolean {
  return SAYING.some(name => object(branch)?.[name] !== undefined)
}

/** Keywords by which a schema says what it describes. */
const SAYING = words('type properties items enum const $ref anyOf oneOf allOf')

/** The type of a schema that does not state it. */
function typeOf(schema: Json): string | undefined {
  if (schema['properties'] !== undefined || schema['additionalProperties'] !== undefined) return 'object'
  return schema['items'] !== undefined ? 'array' : undefined
}

/** The keywords that matter to one type. */
const OF_TYPE: Readonly<Record<string, ReadonlySet<string>>> = {
  object: new Set(words('properties required additionalProperties')),
  array: new Set(words('items minItems')),
  string: new Set(words('format')),
}

/** A schema for one of its types. */
function only(schema: Json, type: string): Json {
  const kept = OF_TYPE[type]
  return { type, ...Object.fromEntries(Object.entries(schema).filter(([name]) => kept?.has(name) === true)) }
}

/**
 * Whether a schema refers to itself, to another document, or to nothing.
 * @param seen whether each schema has been left; those that have not lead here
 */
function isRecursive(schema: unknown, root: Json, seen: Map<object, boolean>, depth: number): boolean {
  if (typeof schema !== 'object' || schema === null) return false
  const left = seen.get(schema)
  if (left !== undefined) return !left
  if (depth > DEPTH_MAX * 2) return true
  seen.set(schema, false)
  // A member may have this name.
  const ref = Array.isArray(schema) ? undefined : text((schema as Json)['$ref'])
  const target = ref === undefined ? undefined : refersTo(ref, root)
  const found =
    (ref !== undefined && (object(target) === undefined || isRecursive(target, root, seen, depth + 1))) ||
    Object.values(schema).some(each => isRecursive(each, root, seen, depth + 1))
  seen.set(schema, true)
  return found
}
