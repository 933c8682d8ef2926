/**
 * JSON Schemas of tools and answers in the form that each provider accepts. What a provider refuses is left out and
 * named by its path. docs/translation.md has the rules.
 */
import { type DroppedFields, pathOf } from './dropped-fields.ts'
import { Narrowing } from './narrow-schema.ts'
import type { AnswerFormat, Tool } from './neutral.ts'
import { hasBranches, objectSchema } from './root-schema.ts'
import type { FormatName, Json } from '../terms.ts'
import { list, object, words } from '../json.ts'
import { untranslatable } from './decoding.ts'
import { below, everywhere, isTypeOf, withoutWrongValues } from './walk-schema.ts'

/** The schema of a tool, and whether its provider is to enforce it. */
export interface ToolSchema {
  readonly schema: Json
  readonly strict: boolean
}

/** Keywords that a provider refuses at the root of a tool's schema, beside those that combine schemas. */
const REFUSED_AT_ROOT = ['enum', 'const', 'not', 'if', 'then', 'else'] as const

/**
 * The schemas of tools, in the order of the tools. A schema has an object at its root. A tool is enforced if the client
 * asks for that and the provider can enforce its schema.
 */
export function toolSchemas(tools: readonly Tool[], target: FormatName, dropped: DroppedFields): ToolSchema[] {
  const room = new Room()
  return tools.map(tool => {
    // A loss in the schemas of several tools has one name.
    const at = pathOf(tool.at)
    const sound = accepted(rooted(tool.schema ?? {}, at, dropped), at, target, dropped)
    if (tool.strict !== true) return { schema: sound, strict: false }
    const enforced = hasBranches(tool.schema) ? undefined : enforceable(sound, at, target, room)
    if (!enforced) {
      dropped.add('strict')
      return { schema: sound, strict: false }
    }
    for (const loss of enforced.losses) dropped.add(loss)
    return { schema: enforced.schema, strict: true }
  })
}

/**
 * The schema of an answer.
 * @throws GatewayError invalid_body if the provider cannot describe such an answer
 */
export function answerSchema(
  { schema, strict, at }: Extract<AnswerFormat, { kind: 'schema' }>,
  target: FormatName,
  dropped: DroppedFields,
): { readonly schema: unknown; readonly strict: boolean | undefined } {
  const json = object(schema)
  if (!json) return { schema, strict }
  if (target === 'messages') {
    const narrowing = new Narrowing(withoutWrongValues(json, at, dropped), at)
    if (narrowing.impossible !== undefined) throw untranslatable(at, narrowing.impossible)
    for (const loss of narrowing.losses) dropped.add(loss)
    return { schema: narrowing.schema, strict: undefined }
  }
  const root = hasBranches(json) ? rooted(json, at, dropped) : json
  const sound = withoutPropertyNames(accepted(root, at, target, dropped), at, dropped)
  if (strict !== true || fitsStrict(sound)) return { schema: sound, strict }
  dropped.add('strict')
  return { schema: sound, strict: false }
}

/** The schema with an object at its root. */
function rooted(schema: Json, at: string, dropped: DroppedFields): Json {
  const merged = objectSchema(schema)
  const refused = REFUSED_AT_ROOT.filter(name => name in merged)
  if (refused.length === 0) return merged
  for (const name of refused) dropped.add(below(at, name))
  return Object.fromEntries(Object.entries(merged).filter(([name]) => !refused.some(each => each === name)))
}

/** The schema without what its provider refuses whether it enforces the schema or not. */
function accepted(schema: Json, at: string, target: FormatName, dropped: DroppedFields): Json {
  const sound = withoutWrongValues(schema, at, dropped)
  return target === 'messages' ? namedProperties(sound, at, dropped) : everywhere(sound, at, searchable(dropped))
}

/** A regular expression that looks ahead or behind. */
const LOOKAROUND = /\(\?<?[=!]/

/** Providers of chat completions and responses refuse a list without a schema of its items, and expressions that look around. */
function searchable(dropped: DroppedFields) {
  return (schema: Json, at: string): Json => {
    const { pattern, ...rest } = schema
    const looksAround = typeof pattern === 'string' && LOOKAROUND.test(pattern)
    if (looksAround) dropped.add(below(at, 'pattern'))
    const fit = looksAround ? rest : schema
    return isTypeOf(fit, 'array') && fit['items'] === undefined ? { ...fit, items: {} } : fit
  }
}

/** The names of members that the provider of messages accepts at the root of a tool's schema. */
const NAME = /^[\w.-]{1,64}$/

/** The schema without the members at its root whose names its provider refuses. */
function namedProperties(schema: Json, at: string, dropped: DroppedFields): Json {
  const properties = object(schema['properties']) ?? {}
  const refused = Object.keys(properties).filter(name => !NAME.test(name))
  if (refused.length === 0) return schema
  for (const name of refused) dropped.add(below(`${at}.properties`, name))
  const required = list(schema['required']).filter(name => NAME.test(String(name)))
  return {
    ...schema,
    properties: Object.fromEntries(Object.entries(properties).filter(([name]) => NAME.test(name))),
    ...(schema['required'] !== undefined && { required }),
  }
}

/** Providers of chat completions and responses refuse this keyword in every schema of an answer. */
function withoutPropertyNames(schema: Json, at: string, dropped: DroppedFields): Json {
  return everywhere(schema, at, (each, place) => {
    const { propertyNames, ...rest } = each
    if (propertyNames === undefined) return each
    dropped.add(below(place, 'propertyNames'))
    return rest
  })
}

/** What a provider of messages enforces together in one request. */
class Room {
  #tools = 20
  #optional = 24
  #unions = 16

  /** Whether there is room for another tool. If so, it is taken. */
  takes({ optional, unions }: Narrowing): boolean {
    if (this.#tools < 1 || optional > this.#optional || unions > this.#unions) return false
    this.#tools--
    this.#optional -= optional
    this.#unions -= unions
    return true
  }
}

/** The schema as its provider can enforce it, and what it loses; undefined if it cannot. */
function enforceable(
  schema: Json,
  at: string,
  target: FormatName,
  room: Room,
): { readonly schema: Json; readonly losses: readonly string[] } | undefined {
  if (target !== 'messages') return fitsStrict(schema) ? { schema, losses: [] } : undefined
  const narrowing = new Narrowing(schema, at)
  // An object with any members becomes one without members, which no call could fill.
  if (narrowing.impossible !== undefined || narrowing.closed || !room.takes(narrowing)) return undefined
  return narrowing
}

/** Keywords that the providers of chat completions and responses refuse if they enforce a schema. */
const NOT_ENFORCED = words(`
  allOf oneOf not if then else dependentRequired dependentSchemas propertyNames prefixItems contains unevaluatedItems
  unevaluatedProperties
`)
/** The formats of strings that they know. */
const FORMATS: ReadonlySet<unknown> = new Set(words('date-time time date duration email hostname ipv4 ipv6 uuid'))

/** Whether the providers of chat completions and responses can enforce a schema. */
function fitsStrict(schema: Json): boolean {
  let fits = isTypeOf(schema, 'object')
  everywhere(schema, '', each => {
    fits &&= NOT_ENFORCED.every(name => each[name] === undefined) && hasMeaning(each) && isClosed(each)
    fits &&= each['format'] === undefined || FORMATS.has(each['format'])
    return each
  })
  return fits
}

/** Whether a schema says what it describes. A reference must stand alone. */
function hasMeaning(schema: Json): boolean {
  if (schema['$ref'] !== undefined) return Object.keys(schema).every(name => name === '$ref' || name === '$defs')
  return ['type', 'anyOf', 'enum', 'const'].some(name => schema[name] !== undefined)
}

/** Whether an object has only the members that are listed, and requires all of them. */
function isClosed(schema: Json): boolean {
  if (!isTypeOf(schema, 'object') && schema['properties'] === undefined) return true
  const names = Object.keys(object(schema['properties']) ?? {})
  const required = new Set(list(schema['required']))
  return (
    schema['additionalProperties'] === false &&
    required.size === names.length &&
    names.every(name => required.has(name))
  )
}
