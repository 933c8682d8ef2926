/**
 * What each provider refuses, with its words: from the errors that providers have sent, their documents, and the types
 * of their SDKs. Nothing here comes from the code that translates, and that code imports nothing from here.
 */

type Json = Readonly<Record<string, unknown>>

/** A refusal in the words of the provider. */
export class Refusal extends Error {}

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)
const objects = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])
/** A value as text. */
const words = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value ?? ''))
const refuse = (text: string): never => {
  throw new Refusal(text)
}

const ONE = ['items', 'additionalProperties', 'contains', 'propertyNames', 'not', 'if', 'then', 'else']
const SEVERAL = ['anyOf', 'oneOf', 'allOf', 'prefixItems']
const BY_NAME = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']

/** All schemas within a schema, each with its path. */
function* within(schema: unknown, path: readonly string[] = []): Generator<readonly [Json, string]> {
  if (!isObject(schema)) return
  yield [schema, path.map(step => `'${step}'`).join(', ')]
  for (const name of ONE) yield* within(schema[name], [...path, name])
  for (const name of SEVERAL)
    for (const [index, each] of (Array.isArray(schema[name]) ? (schema[name] as unknown[]) : []).entries())
      yield* within(each, [...path, name, String(index)])
  for (const name of BY_NAME)
    for (const [key, each] of Object.entries(isObject(schema[name]) ? schema[name] : {}))
      yield* within(each, [...path, name, key])
}

const types = ({ type }: Json): unknown[] => (Array.isArray(type) ? type : [type])
const TYPES = ['null', 'boolean', 'object', 'array', 'number', 'string', 'integer']
const NUMBERS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']
const COUNTS = ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties']

/** Why a schema does not follow the draft of 2020-12. Undefined if it does. */
function notASchema(schema: unknown): string | undefined {
  for (const [each] of within(schema)) {
    if (each['type'] !== undefined && !types(each).every(type => TYPES.includes(type as string))) return 'type'
    if (each['required'] !== undefined && !Array.isArray(each['required']))
      return `${words(each['required'])} is not of type 'array'.`
    if (Array.isArray(each['items'])) return 'items'
    for (const name of NUMBERS) if (each[name] !== undefined && typeof each[name] !== 'number') return name
    for (const name of COUNTS) if (each[name] !== undefined && !Number.isInteger(each[name])) return name
    for (const name of SEVERAL)
      if (each[name] !== undefined && !(Array.isArray(each[name]) && (each[name] as unknown[]).length > 0)) return name
    if (each['enum'] !== undefined && !Array.isArray(each['enum'])) return 'enum'
    if (each['properties'] !== undefined && !isObject(each['properties'])) return 'properties'
  }
  return undefined
}

const OPENAI_FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid']

/** Schemas of chat completions and responses. */
function openaiSchema(schema: Json, what: string, strict: boolean, isTool: boolean): void {
  const bad = (words: string): never => refuse(`Invalid schema for ${what}: ${words}`)
  if (schema['type'] !== 'object')
    bad(`schema must be a JSON Schema of 'type: "object"', got 'type: ${JSON.stringify(schema['type'] ?? null)}'.`)
  if (isTool && ['oneOf', 'anyOf', 'allOf', 'enum', 'not'].some(name => name in schema))
    bad("schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.")
  if (isTool && !isObject(schema['properties'])) bad('In context=(), object schema missing properties.')
  const wrong = notASchema(schema)
  if (wrong !== undefined) bad(wrong)
  for (const [each, path] of within(schema)) {
    if (types(each).includes('array') && each['items'] === undefined)
      bad(`In context=(${path}), array schema missing items.`)
    if (/\(\?<?[=!]/.test(words(each['pattern'])))
      refuse(`Invalid JSON schema: regex lookaround is not supported. Found at ${path}.`)
    if (!isTool && 'propertyNames' in each) bad(`In context=(${path}), 'propertyNames' is not permitted.`)
    if (strict) openaiStrict(each, path, bad)
  }
}

function openaiStrict(each: Json, path: string, bad: (words: string) => never): void {
  for (const name of [
    'allOf',
    'oneOf',
    'not',
    'if',
    'then',
    'else',
    'dependentRequired',
    'dependentSchemas',
    'propertyNames',
  ])
    if (name in each) bad(`In context=(${path}), '${name}' is not permitted.`)
  if ('$ref' in each) {
    if (Object.keys(each).some(name => name !== '$ref' && name !== '$defs'))
      bad(`context=(${path}), $ref cannot have keywords`)
    return
  }
  if (!['type', 'anyOf', 'enum', 'const'].some(name => name in each))
    bad(`In context=(${path}), schema must have a 'type' key.`)
  if ('format' in each && !OPENAI_FORMATS.includes(String(each['format'])))
    bad(`'${String(each['format'])}' is not a valid format.`)
  if (!types(each).includes('object')) return
  if (each['additionalProperties'] !== false)
    bad(`In context=(${path}), 'additionalProperties' is required to be supplied and to be false.`)
  const names = Object.keys(isObject(each['properties']) ? each['properties'] : {})
  const required = Array.isArray(each['required']) ? each['required'] : []
  const missing = names.find(name => !required.includes(name))
  if (missing !== undefined)
    bad(
      `In context=(${path}), 'required' is required to be supplied and to be an array including every key in properties. Missing '${missing}'.`,
    )
  const extra = required.find(name => !names.includes(name as string))
  if (extra !== undefined)
    bad(`In context=(${path}), 'required' is required to be supplied. Extra required key '${String(extra)}' supplied.`)
}

/** An input schema of messages. */
function inputSchema(schema: unknown, at: string): void {
  if (!isObject(schema)) refuse(`${at}.input_schema: Field required`)
  const json = schema as Json
  if (json['type'] !== 'object') refuse(`${at}.input_schema.type: Field required`)
  if (['oneOf', 'allOf', 'anyOf'].some(name => name in json))
    refuse(`${at}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level`)
  if (
    Object.keys(isObject(json['properties']) ? json['properties'] : {}).some(
      name => !/^[a-zA-Z0-9_.-]{1,64}$/.test(name),
    )
  )
    refuse(`${at}.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'`)
  if (notASchema(json) !== undefined)
    refuse(`${at}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12`)
}

const ENFORCED_FORMATS = [...OPENAI_FORMATS, 'uri']
const BOUNDS: Readonly<Record<string, readonly string[]>> = {
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  string: ['minLength', 'maxLength'],
  array: ['maxItems', 'uniqueItems', 'contains', 'prefixItems'],
  object: ['minProperties', 'maxProperties', 'patternProperties', 'propertyNames'],
}
const isPrimitive = (value: unknown): boolean => value === null || typeof value !== 'object'

/** A schema that a provider of messages is to enforce. @returns its optional members, and its unions */
function enforced(schema: Json, at: string): { optional: number; unions: number } {
  const counts = { optional: 0, unions: 0 }
  const bad = (words: string): never => refuse(`${at}: ${words}`)
  if (notASchema(schema) !== undefined) bad('Invalid schema')
  for (const [each] of within(schema)) {
    if ('oneOf' in each) bad("Schema type 'oneOf' is not supported")
    for (const name of ['not', 'if', 'then', 'else', 'dependentSchemas', 'dependentRequired', 'unevaluatedProperties'])
      if (name in each) bad(`Schema type '${name}' is not supported`)
    if ('$ref' in each) {
      if (!String(each['$ref']).startsWith('#/')) bad('External references are not supported')
      continue
    }
    if (!['type', 'anyOf', 'allOf', 'enum', 'const'].some(name => name in each))
      bad('Invalid schema: Schema type is missing')
    for (const value of Array.isArray(each['enum']) ? each['enum'] : [])
      if (!isPrimitive(value)) bad('Enum values of complex types are not supported')
    if (Array.isArray(each['allOf']) && objects(each['allOf']).some(branch => '$ref' in branch)) bad('allOf with $ref')
    if ('anyOf' in each || types(each).length > 1) counts.unions++
    for (const type of types(each)) {
      const refused = (BOUNDS[String(type)] ?? []).filter(name => name in each)
      if (refused.length > 0) bad(`For '${String(type)}' type, property '${refused.join(', ')}' is not supported`)
    }
    if (
      types(each).includes('array') &&
      each['minItems'] !== undefined &&
      each['minItems'] !== 0 &&
      each['minItems'] !== 1
    )
      bad("For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    if ('format' in each && !ENFORCED_FORMATS.includes(String(each['format']))) bad('format')
    if (/\(\?|\\[1-9bB]/.test(words(each['pattern']))) bad('pattern')
    if (!types(each).includes('object')) continue
    if (each['additionalProperties'] !== false)
      bad("For 'object' type, 'additionalProperties' must be explicitly set to false")
    const names = Object.keys(isObject(each['properties']) ? each['properties'] : {})
    counts.optional += names.filter(
      name => !(Array.isArray(each['required']) ? each['required'] : []).includes(name),
    ).length
  }
  if (circular(schema)) bad('Circular reference detected in schema definitions')
  return counts
}

/** Whether a schema leads back to itself, or to nothing. */
function circular(root: Json): boolean {
  const visit = (schema: unknown, trail: readonly unknown[]): boolean => {
    for (const [each] of within(schema)) {
      if (typeof each['$ref'] !== 'string') continue
      const target = each['$ref']
        .slice(2)
        .split('/')
        .reduce<unknown>((value, step) => (isObject(value) ? value[step] : undefined), root)
      if (target === undefined || trail.includes(target) || trail.length > 100 || visit(target, [...trail, target]))
        return true
    }
    return false
  }
  return visit(root, [root])
}

const IMAGES = ['image/jpeg', 'image/png', 'image/gif', 'image/webp']
const SIGNATURES: Readonly<Record<string, string>> = {
  '/9j/': 'image/jpeg',
  iVBOR: 'image/png',
  R0lGO: 'image/gif',
  UklGR: 'image/webp',
}

/** Marks of the gateway's own. No provider may see them. */
function foreign(body: Json): void {
  const text = JSON.stringify(body)
  if (text.includes('tollgate.')) refuse('The encrypted content could not be verified.')
}

function names(tools: readonly Json[]): void {
  for (const { name } of tools)
    if (name !== undefined && !/^[a-zA-Z0-9_-]{1,64}$/.test(words(name))) refuse(`Invalid name: ${words(name)}`)
}

/** The rules of each format. */
const RULES: Readonly<Record<string, (body: Json) => void>> = {
  'chat-completions'(body) {
    for (const tool of objects(body['tools'])) {
      const declared = isObject(tool['function']) ? tool['function'] : {}
      names([declared])
      if (isObject(declared['parameters']))
        openaiSchema(
          declared['parameters'],
          `function '${String(declared['name'])}'`,
          declared['strict'] === true,
          true,
        )
    }
    const format = isObject(body['response_format']) ? body['response_format']['json_schema'] : undefined
    if (isObject(format)) answer(format, 'response_format.json_schema.name')
    for (const message of objects(body['messages']))
      for (const call of objects(message['tool_calls']))
        if (String(call['id']).length > 40) refuse(`Invalid 'messages.tool_calls.id': string too long.`)
  },
  responses(body) {
    for (const tool of objects(body['tools'])) {
      names([tool])
      if (tool['type'] === 'function' && isObject(tool['parameters']))
        openaiSchema(tool['parameters'], `function '${String(tool['name'])}'`, tool['strict'] === true, true)
    }
    const format = isObject(body['text']) ? body['text']['format'] : undefined
    if (isObject(format) && format['type'] === 'json_schema') answer(format, 'text.format.name')
    const most = body['max_output_tokens']
    if (typeof most === 'number' && most < 16)
      refuse(
        `Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got ${most} instead.`,
      )
  },
  messages(body) {
    let [count, optional, unions] = [0, 0, 0]
    for (const [index, tool] of objects(body['tools']).entries()) {
      if (tool['type'] !== undefined && tool['type'] !== 'custom') continue
      const at = `tools.${index}.custom`
      names([tool])
      inputSchema(tool['input_schema'], at)
      if (tool['strict'] !== true) continue
      const counts = enforced(tool['input_schema'] as Json, at)
      count++
      optional += counts.optional
      unions += counts.unions
    }
    if (count > 20) refuse(`Too many strict tools (${count}). The maximum number of strict tools supported is 20`)
    const config = isObject(body['output_config']) ? body['output_config']['format'] : undefined
    if (isObject(config) && isObject(config['schema'])) enforced(config['schema'], 'output_config.format.schema')
    if (optional > 24) refuse(`Schemas contains too many optional parameters (${optional})`)
    if (unions > 16) refuse(`Schemas contains too many parameters with union types (${unions})`)
    if (!(Number(body['max_tokens']) >= 0)) refuse('max_tokens: Field required')
    const blocks = objects(body['messages']).flatMap(({ content }) => objects(content))
    const inner = blocks.flatMap(({ content }) => objects(content))
    for (const { source } of [...blocks, ...inner]) if (isObject(source)) image(source)
    const marks = [body, ...objects(body['tools']), ...objects(body['system']), ...blocks, ...inner]
    const marked = marks.filter(each => isObject(each['cache_control'])).length
    if (marked > 4) refuse(`A maximum of 4 blocks with cache_control may be provided. Found ${marked}.`)
    newest(body)
  },
}

/** The schema of an answer of chat completions or responses. */
function answer(format: Json, at: string): void {
  if (!/^[a-zA-Z0-9_-]{1,64}$/.test(String(format['name'])))
    refuse(
      `Invalid '${at}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.`,
    )
  if (isObject(format['schema']))
    openaiSchema(format['schema'], `response_format '${String(format['name'])}'`, format['strict'] === true, false)
}

function image(source: Json): void {
  const { type, media_type, data } = source
  if (type !== 'base64' || !String(media_type).startsWith('image/')) return
  if (!IMAGES.includes(String(media_type))) refuse(`media_type: Input should be ${IMAGES.join(', ')}`)
  const begins = Object.entries(SIGNATURES).find(([beginning]) => String(data).startsWith(beginning))
  if (begins && begins[1] !== media_type) refuse('Image does not match the provided media type')
}

/** What the newest models refuse. */
function newest(body: Json): void {
  const model = String(body['model'])
  if (/large-(?:5|4\.[78])$|medium-5$/.test(model))
    for (const name of ['temperature', 'top_p', 'top_k'])
      if (body[name] !== undefined) refuse(`\`${name}\` is deprecated for this model.`)
  const thinking = isObject(body['thinking']) ? body['thinking']['type'] : undefined
  if (model.endsWith('large-5') && thinking === 'disabled') refuse('thinking: this model cannot turn thinking off')
}

/** The words in which a provider of a format refuses a request; undefined if it accepts it. */
export function refusalOf(format: string, body: unknown): string | undefined {
  if (!isObject(body)) return 'The body is no object.'
  try {
    foreign(body)
    RULES[format]?.(body)
    return undefined
  } catch (thrown) {
    if (thrown instanceof Refusal) return thrown.message
    throw thrown
  }
}
