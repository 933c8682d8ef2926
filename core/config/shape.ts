/** Checks values against JSON Schemas, and words the errors with the schemas' own descriptions. */
import { Ajv, type ErrorObject, type Options, type ValidateFunction } from 'ajv'
import { isRange } from '../lib/addresses.ts'
import { POLICIES, type Policy } from '../formats/policies.ts'
import { FORMATS_OF_UNITS, respelled } from './units.ts'
import { EnvScalar, type Path, type Problem, type Source } from './locate.ts'
import { didYouMean, nearest, suggest } from '../lib/suggest.ts'

const settings: Options = {
  allErrors: true,
  strict: true,
  allowUnionTypes: true,
  useDefaults: true,
  verbose: true,
  formats: { ...FORMATS_OF_UNITS, range: isRange },
  // A schema checks few values in the life of a process. Optimizing its code takes longer than all of them.
  code: { optimize: false },
}

/** Makes an Ajv that also knows what an error says after "expected", for schemas whose type alone says too little. */
function ajvWith(more: Options): Ajv {
  return new Ajv({ ...settings, ...more }).addVocabulary(['expected'])
}

// Tollgate's own schemas are checked by a test. Checking them in each process would take a third of their compilation.
const own = ajvWith({ meta: false, validateSchema: false })

/** Compiles a schema of Tollgate's own. The check also fills in defaults. */
export function compile(schema: unknown): ValidateFunction {
  return own.compile(schema as object)
}

/** For the schemas of others. Most files name no such plugin. */
let checking: Ajv | undefined

/** Compiles a schema like `compile`. @throws Error if it is not a JSON Schema */
export function compileForeign(schema: unknown): ValidateFunction {
  checking ??= ajvWith({})
  return checking.compile(schema as object)
}

/** Converts Ajv's errors to problems, one for each place. `base` is the path of the checked value. */
export function shapeProblems(source: Source, errors: readonly ErrorObject[], base: Path = []): Problem[] {
  const seen = new Set<string>()
  const misspelt = new Set(errors.map(error => `${error.instancePath} ${meantName(error)}`))
  return errors.flatMap(error => {
    // For an anyOf, report the anyOf error and drop those of its branches. For a name, report the rule that it breaks.
    if (error.schemaPath.includes('/anyOf/') || error.keyword === 'propertyNames') return []
    // For an enum, report the enum error and drop the type error.
    if (error.keyword === 'type' && (error.parentSchema as { enum?: unknown } | undefined)?.enum !== undefined)
      return []
    // If a name is misspelled, do not also report it as missing.
    if (
      error.keyword === 'required' &&
      misspelt.has(`${error.instancePath} ${String(error.params['missingProperty'])}`)
    )
      return []
    const problem = shapeProblem(source, error, base)
    const id = `${problem.line}:${problem.col}:${problem.message}`
    if (seen.has(id)) return []
    seen.add(id)
    return [problem]
  })
}

/** Returns the name that an unknown member was probably meant to have. */
function meantName({ keyword, params, parentSchema }: ErrorObject): string | undefined {
  if (keyword !== 'additionalProperties') return undefined
  return nearest(
    String(params['additionalProperty']),
    Object.keys((parentSchema as { properties?: object }).properties ?? {}),
  )
}

function shapeProblem(source: Source, error: ErrorObject, base: Path): Problem {
  const path = [...base, ...pointer(error.instancePath)]
  const schema = (error.parentSchema ?? {}) as Shape
  const expected = `expected ${expectedOf(schema) ?? (error.message ?? 'something else').replace(/^must be /, '')}`
  if (error.propertyName !== undefined) return source.problem([...path, error.propertyName], expected, undefined, 'key')
  switch (error.keyword) {
    case 'additionalProperties': {
      const name = String(error.params['additionalProperty'])
      const known = Object.keys(schema.properties ?? {})
      const row = Object.entries(POLICIES).find(
        ([policy, { members }]: [string, Policy]) => known.includes(policy) && members.includes(name),
      )?.[0]
      const hint = movedHint(name, known, error.data) ?? nameHint(name, row, known)
      return source.problem([...path, name], `there is no setting "${name}" here`, hint, 'key')
    }
    case 'required': {
      const name = String(error.params['missingProperty'])
      return source.problem([...path, name], `"${name}" is missing`, missingHint(name, schema.properties?.[name]))
    }
    case 'enum': {
      const allowed = [...new Set((error.params['allowedValues'] as unknown[]).map(String))]
      const near = typeof error.data === 'string' ? nearest(error.data, allowed) : undefined
      return source.problem(path, `expected one of ${allowed.join(', ')}`, didYouMean(near))
    }
    case 'uniqueItems':
      return source.problem(path, 'this list contains an item twice')
    case 'anyOf':
      return source.problem(path, expected, dedented(error.data))
    case 'minimum':
    case 'maximum':
    case 'exclusiveMinimum':
      return source.problem(path, expected)
    default:
      // Do not show values from the environment.
      return source.problem(path, expected, source.value(path) instanceof EnvScalar ? undefined : meant(error))
  }
}

/** Returns what to add for a setting that is missing. */
function missingHint(name: string, schema: Shape = {}): string {
  const expected = expectedOf(schema)
  const what = schema.description === undefined ? '' : `: ${schema.description}`
  return `add ${name}${expected === undefined ? '' : `, ${expected}`}${what}`
}

/** Settings of a key type that are among its limits now. */
const MOVED: Readonly<Record<string, string>> = {
  concurrency: 'concurrency',
  concurrencyWait: 'queue',
  addresses: 'addresses',
}

/** Returns the line to write for a setting that has moved. */
function movedHint(name: string, known: readonly string[], data: unknown): string | undefined {
  const moved = known.includes('limits') && known.includes('formats') ? MOVED[name] : undefined
  if (moved === undefined) return undefined
  const value = (data as Readonly<Record<string, unknown>>)[name]
  return `write limits: { ${moved}: ${Array.isArray(value) ? `[${value.join(', ')}]` : String(value)} }`
}

/**
 * Returns a hint about the name of a setting that does not exist.
 * @param row the policy that the name is a member of
 */
function nameHint(name: string, row: string | undefined, known: readonly string[]): string | undefined {
  // `{ input: 1,5 }` has a member `5`: in flow style, a comma begins the next member.
  if (/^\d+$/.test(name)) return 'write decimals with a point'
  if (row !== undefined) return `write ${row}, which it belongs to`
  return suggest(name, known)
}

/** Returns what the values of a schema look like. Undefined if the schema has neither `expected` nor a known type. */
export function expectedOf({ expected, type, minimum, exclusiveMinimum, maximum }: Shape): string | undefined {
  if (expected !== undefined) return expected
  const kind = type === undefined ? undefined : KINDS[type]
  if (kind === undefined) return undefined
  if (exclusiveMinimum !== undefined) return `${kind} above ${exclusiveMinimum}`
  if (minimum === undefined) return kind
  return maximum === undefined ? `${kind} of at least ${minimum}` : `${kind} from ${minimum} to ${maximum}`
}

const KINDS: Readonly<Record<string, string>> = {
  array: 'a list',
  boolean: 'true or false',
  integer: 'a whole number',
  number: 'a plain decimal',
  object: 'a mapping',
  string: 'a string',
}

/** Returns a hint about an option that is indented as far as its stage's name. */
function dedented(stage: unknown): string | undefined {
  const [[name, given] = [], ...others] = Object.entries(stage ?? {})
  const options = others.map(([option]) => option)
  return given === null && options.length > 0
    ? `indent ${options.join(', ')} further: they belong to ${name}`
    : undefined
}

const BOOLEANS: ReadonlyMap<string, string> = new Map(
  Object.entries({ yes: 'true', on: 'true', no: 'false', off: 'false' }),
)

/** The parts of a schema that messages are made from. */
export interface Shape {
  readonly type?: string
  readonly description?: string
  readonly expected?: string
  readonly minimum?: number
  readonly exclusiveMinimum?: number
  readonly maximum?: number
  readonly properties?: Readonly<Record<string, Shape>>
  readonly pattern?: string
  readonly items?: { readonly enum?: readonly unknown[]; readonly format?: string }
  readonly default?: unknown
}

/** Returns the probable meaning of a value of the wrong form. It never returns a value that could be a secret. */
function meant({ data, parentSchema }: ErrorObject): string | undefined {
  const { type, pattern, items, default: standard } = parentSchema as Shape
  const text = String(data)
  switch (type) {
    case 'boolean':
      return /^(?:true|false)$/.test(text) ? UNQUOTED : didYouMean(BOOLEANS.get(text.toLowerCase()))
    case 'integer':
      return /^\d{1,9}$/.test(text) ? UNQUOTED : didYouMean(wholeNumber(text))
    case 'number':
      if (/^\d{1,9}(?:\.\d{1,9})?$/.test(text)) return UNQUOTED
      return /^\d{1,4},\d{1,3}$/.test(text) ? didYouMean(text.replace(',', '.')) : undefined
    case 'array':
      return text
        .split(/, ?/)
        .every(word => items?.enum?.includes(word) || (items?.format === 'range' && isRange(word)))
        ? didYouMean(`[${text}]`)
        : undefined
    default:
      return didYouMean(
        respelled(text, pattern, standard === 'auto' ? 'MiB' : /[A-Za-z]+$/.exec(String(standard))?.[0]),
      )
  }
}

const UNQUOTED = 'write it without quotes'

/** Converts 10,000 or 10_000 or 10k to a number. */
function wholeNumber(text: string): string | undefined {
  if (/^\d{1,3}(?:[,_ ]\d{3}){1,2}$/.test(text)) return text.replaceAll(/\D/g, '')
  const [, digits, unit] = /^(\d{1,4})([km])$/i.exec(text) ?? []
  return digits && `${digits}${unit?.toLowerCase() === 'k' ? '000' : '000000'}`
}

function pointer(instancePath: string): (string | number)[] {
  return instancePath
    .split('/')
    .slice(1)
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map(part => (/^\d+$/.test(part) ? Number(part) : part))
}
