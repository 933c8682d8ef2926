/** Schemas with an object at their root, which providers require of tools. */
import { refused } from './decoding.ts'
import type { Json } from '../terms.ts'
import { object } from '../json.ts'

/** Keywords that combine schemas. */
const COMBINING = ['anyOf', 'oneOf', 'allOf', '$ref'] as const

/**
 * A schema with an object at its root. Branches at the root become one object with the members of all: a member of
 * several branches has the schemas of each, and only what every branch requires is required.
 */
export function objectSchema(schema: Json = {}): Json {
  const plain = !COMBINING.some(name => schema[name] !== undefined)
  if (plain && schema['type'] === 'object' && object(schema['properties'])) return schema
  if (plain) return { ...schema, type: 'object', properties: object(schema['properties']) ?? {} }
  const members = new Members(schema)
  const required = members.of(schema, 0) ?? new Set()
  const rest = Object.entries(schema).filter(
    ([name]) => !(COMBINING as readonly string[]).includes(name) && name !== 'additionalProperties',
  )
  return {
    ...Object.fromEntries(rest),
    type: 'object',
    properties: Object.fromEntries(
      [...members.properties].map(([name, schemas]) => [
        name,
        schemas.size === 1 ? schemas.values().next().value : { anyOf: [...schemas.values()] },
      ]),
    ),
    ...(required.size > 0 && { required: [...required] }),
  }
}

/** Whether a schema combines others at its root, so that `objectSchema` changes what it accepts. */
export function hasBranches(schema: Json | undefined): boolean {
  return COMBINING.some(name => schema?.[name] !== undefined)
}

/** References may form circles, or go deeper than makes sense. */
const DEPTH_MAX = 64
/** Most required members that are kept. */
const REQUIRED_MAX = 1000

/**
 * How large the properties may become together: this many times the text of the schema, and some characters more. Each
 * reference to a schema repeats it.
 */
const COPIES_MAX = 2
const SPARE_CHARACTERS = 16_384

/** The members of all branches at the root. Each schema is read once, however often it is referred to. */
class Members {
  /** The different schemas of each property, by their text. */
  readonly properties = new Map<string, Map<string, unknown>>()
  readonly #root: Json
  /** Characters that are still allowed. */
  #left: number
  /** What each schema requires; undefined while it is being read. */
  readonly #required = new Map<Json, ReadonlySet<string> | undefined>()

  constructor(root: Json) {
    this.#root = root
    this.#left = COPIES_MAX * JSON.stringify(root).length + SPARE_CHARACTERS
  }

  /** Adds the properties of a schema. @returns what it requires; undefined if a reference leads back to it */
  of(schema: Json, depth: number): ReadonlySet<string> | undefined {
    if (this.#required.has(schema) || depth > DEPTH_MAX) return this.#required.get(schema)
    this.#required.set(schema, undefined)
    for (const [name, each] of Object.entries(object(schema['properties']) ?? {})) this.#add(name, each)
    const own = Array.isArray(schema['required']) ? schema['required'].filter(name => typeof name === 'string') : []
    const branches = (list: unknown): ReadonlySet<string>[] =>
      Array.isArray(list) ? list.flatMap(branch => this.of(object(branch) ?? {}, depth + 1) ?? []) : []
    const referred = object(refersTo(schema['$ref'], this.#root))
    const required = united([
      new Set(own),
      ...branches(schema['allOf']),
      ...(referred ? [this.of(referred, depth + 1) ?? new Set<string>()] : []),
      shared(branches(schema['anyOf'])),
      shared(branches(schema['oneOf'])),
    ])
    this.#required.set(schema, required)
    return required
  }

  /** @throws GatewayError invalid_body if the properties become too large together */
  #add(name: string, schema: unknown): void {
    const text = JSON.stringify(schema)
    const known = this.properties.get(name)
    if (known?.has(text)) return
    this.#left -= text.length
    if (this.#left < 0)
      throw refused('tools', 'The schema of a tool becomes several times larger when its references are resolved.')
    if (known) known.set(text, schema)
    else this.properties.set(name, new Map([[text, schema]]))
  }
}

function united(sets: readonly ReadonlySet<string>[]): ReadonlySet<string> {
  const filled = sets.filter(({ size }) => size > 0)
  if (filled.length <= 1) return filled[0] ?? new Set()
  const all = new Set<string>()
  for (const set of filled) for (const name of set) if (all.size < REQUIRED_MAX) all.add(name)
  return all
}

function shared([first, ...others]: readonly ReadonlySet<string>[]): ReadonlySet<string> {
  return new Set([...(first ?? [])].slice(0, REQUIRED_MAX).filter(name => others.every(set => set.has(name))))
}

/** What a reference within a schema refers to. */
export function refersTo(ref: unknown, root: Json): unknown {
  if (typeof ref !== 'string' || !ref.startsWith('#/')) return undefined
  const steps = ref
    .slice(2)
    .split('/')
    .map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
  return steps.reduce<unknown>(
    (at, step) => (object(at) && Object.hasOwn(at as object, step) ? (at as Json)[step] : undefined),
    root,
  )
}
