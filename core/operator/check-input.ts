/** Checks what operators and shops send against JSON Schemas, and words the first mistake. */
import type { ErrorObject } from 'ajv'
import { suggestion } from '../lib/suggest.ts'
import { compile, expectedOf, type Shape } from '../config/shape.ts'

/** A mistake in what was sent. */
export interface InputFault {
  /** The member at fault, such as `keys.0.name`; empty for the whole. */
  readonly member: string
  readonly message: string
}

/**
 * Returns a function that checks a value and fills in defaults.
 * @param schema whose `expected` members say what a value looks like
 */
export function checkerOf(schema: object): (value: unknown) => InputFault | undefined {
  // Compiling takes milliseconds, and a process uses few of the schemas.
  let valid: ReturnType<typeof compile> | undefined
  return value => {
    valid ??= compile(schema)
    if (valid(value)) return undefined
    const [first] = (valid.errors ?? []).filter(({ schemaPath }) => !schemaPath.includes('/anyOf/'))
    return first ? faultOf(first) : { member: '', message: 'The value is not valid.' }
  }
}

function faultOf({ keyword, instancePath, params, parentSchema, message }: ErrorObject): InputFault {
  const shape = (parentSchema ?? {}) as Shape
  const at = instancePath.slice(1).replaceAll('/', '.')
  const within = (name: string): string => (at === '' ? name : `${at}.${name}`)
  if (keyword === 'required') {
    const name = String(params['missingProperty'])
    return { member: within(name), message: `"${within(name)}" is missing.` }
  }
  if (keyword === 'additionalProperties') {
    const name = String(params['additionalProperty'])
    return {
      member: within(name),
      message: `There is no member "${within(name)}"${suggestion(name, Object.keys(shape.properties ?? {}))}.`,
    }
  }
  const allowed = (params['allowedValues'] as unknown[] | undefined)?.join(', ')
  const rule = (message ?? 'something else').replace(/^must /, '')
  const expected = shape.expected ?? (allowed === undefined ? undefined : `one of ${allowed}`) ?? expectedOf(shape)
  const isBound = ['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems'].includes(keyword)
  const said =
    expected === undefined || (isBound && shape.expected === undefined) ? `must ${rule}` : `must be ${expected}`
  return { member: at, message: at === '' ? `The body ${said}.` : `"${at}" ${said}.` }
}
