/** Shapes: JSON Schemas compiled, and their complaints in the words of the schema's own descriptions. */
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import { isRange } from '../lib/addresses.ts'
import { POLICIES, type Policy } from '../formats/policies.ts'
import { FORMATS_OF_UNITS, respelled } from './units.ts'
import { didYouMean, EnvScalar, nearest, type Path, type Problem, type Source, suggest } from './locate.ts'

const ajv = new Ajv({
  allErrors: true,
  strict: true,
  allowUnionTypes: true,
  useDefaults: true,
  verbose: true,
  formats: { ...FORMATS_OF_UNITS, range: isRange },
})

/** A check for values of a schema; it fills in the schema's defaults. @throws when the schema itself is wrong */
export function compile(schema: unknown): ValidateFunction {
  return ajv.compile(schema as object)
}

/** Ajv's errors as problems, one for each place. `base` is the path at which the checked value stands. */
export function shapeProblems(source: Source, errors: readonly ErrorObject[], base: Path = []): Problem[] {
  const seen = new Set<string>()
  const misspelt = new Set(errors.map(error => `${error.instancePath} ${meantName(error)}`))
  return errors.flatMap(error => {
    // The branches of an anyOf fail one by one; what counts is that none held.
    // And a name that fails its rule is reported by the rule.
    if (error.schemaPath.includes('/anyOf/') || error.keyword === 'propertyNames') return []
    // What is none of the words that may stand there need not be told that it is no word either.
    if (error.keyword === 'type' && (error.parentSchema as { enum?: unknown } | undefined)?.enum !== undefined)
      return []
    // A name that is misspelt is not missing, too.
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

/** Settings of earlier versions, and what has come in their place. */
const MOVED: Readonly<Record<string, string>> = {
  failuresPerMinute:
    'take it out: limits.anonymous is how many requests without a valid key one address may make in a minute',
}

/** The name that a member of no known name was meant to have. */
function meantName({ keyword, params, parentSchema }: ErrorObject): string | undefined {
  if (keyword !== 'additionalProperties') return undefined
  return nearest(
    String(params['additionalProperty']),
    Object.keys((parentSchema as { properties?: object }).properties ?? {}),
  )
}

function shapeProblem(source: Source, error: ErrorObject, base: Path): Problem {
  const path = [...base, ...pointer(error.instancePath)]
  const description = (error.parentSchema as { description?: string } | undefined)?.description
  const expected = description === undefined ? (error.message ?? 'is not valid') : `expected ${description}`
  if (error.propertyName !== undefined) return source.problem([...path, error.propertyName], expected, undefined, 'key')
  switch (error.keyword) {
    case 'additionalProperties': {
      const name = String(error.params['additionalProperty'])
      const known = Object.keys((error.parentSchema as { properties?: object } | undefined)?.properties ?? {})
      // In brackets a comma begins the next member.
      const row = Object.entries(POLICIES).find(
        ([policy, { members }]: [string, Policy]) => known.includes(policy) && members.includes(name),
      )?.[0]
      const hint = /^\d+$/.test(name)
        ? 'a decimal is written with a point'
        : row !== undefined
          ? `it belongs to ${row}`
          : (MOVED[name] ?? suggest(name, known))
      return source.problem([...path, name], `there is no setting "${name}" here`, hint, 'key')
    }
    case 'required':
      return source.problem(
        path,
        `"${String(error.params['missingProperty'])}" is missing`,
        description && `this is ${description}`,
      )
    case 'enum': {
      const allowed = (error.params['allowedValues'] as unknown[]).map(String)
      const near = typeof error.data === 'string' ? nearest(error.data, allowed) : undefined
      return source.problem(path, `expected one of ${allowed.join(', ')}`, didYouMean(near))
    }
    case 'uniqueItems':
      return source.problem(path, 'the same stands twice in this list')
    case 'anyOf':
      return source.problem(path, expected, dedented(error.data))
    case 'minimum':
    case 'maximum':
    case 'exclusiveMinimum':
      return source.problem(path, expected, error.message)
    default:
      // What came from the environment is not shown.
      return source.problem(path, expected, source.value(path) instanceof EnvScalar ? undefined : meant(error))
  }
}

/** Options that stand beside their stage's name rather than below it. */
function dedented(stage: unknown): string | undefined {
  const [[name, given] = [], ...others] = Object.entries(stage ?? {})
  const options = others.map(([option]) => option)
  return given === null && options.length > 0
    ? `indent ${options.join(', ')} further, to stand below ${name}`
    : undefined
}

const BOOLEANS: ReadonlyMap<string, string> = new Map(
  Object.entries({ yes: 'true', on: 'true', no: 'false', off: 'false' }),
)

/** What is looked at of a schema. */
interface Shape {
  readonly type?: string
  readonly pattern?: string
  readonly items?: { readonly enum?: readonly unknown[]; readonly format?: string }
  readonly default?: unknown
}

/** What a value of the wrong form was meant to be, where that is plain. It shows only what cannot be a secret. */
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

/** 10,000 and 10_000 and 10k as a number. */
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
