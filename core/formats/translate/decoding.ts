/** What the decoders and encoders of the formats share. */
import { GatewayError, invalidBody } from '../../errors.ts'
import type { FormatName, Json, Reading } from '../terms.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { AnswerFormat, CacheMark, Item, ModelTraits, Part, Request, Stop } from './neutral.ts'
import { object, text } from '../json.ts'

/** The error for a request that cannot be translated. @param param the member at fault */
export function refused(param: string, message: string): GatewayError {
  return invalidBody(message, param)
}

/** The request has something that only a provider of the client's format can do. */
export class Untranslatable extends GatewayError {}

/** The error for something that only a provider of the client's format can do. */
export function untranslatable(param: string, what: string): GatewayError {
  const message = `"${param}" cannot be translated: ${what}. The model behind this key uses another wire format.`
  return new Untranslatable('invalid_body', { param, message })
}

/** Something has an unknown type and no text. */
class UnknownType extends Untranslatable {}

/** The error for a type that only the client's format has. */
export function unknownType(at: string, type: unknown): GatewayError {
  const message = `"${at}" has a type that cannot be translated: ${String(text(type)).slice(0, 50)}.`
  return new UnknownType('invalid_body', { param: `${at}.type`, message })
}

/** What elements need to know of others. */
export interface Elements {
  /** The ids of calls by those of their items: an output may name the item of its call. */
  readonly callIds: ReadonlyMap<unknown, unknown>
  /** The id for the result of a call in the old style, which has none. */
  legacy: string
}

/** Where something stands in a conversation. */
export interface Place {
  /** It is older than the last turn, which is what the client has added since the model's last reply. */
  readonly past: boolean
  readonly dropped: DroppedFields
}

/**
 * The index of the last step before the last turn, or -1. If the request contains the beginning of the reply, this
 * beginning belongs to the last turn.
 * @param isModels whether the model made a step
 */
export function lastPast<S>(steps: readonly S[], isModels: (step: S) => boolean): number {
  const begun = steps.length - 1 - steps.findLastIndex(step => !isModels(step))
  return steps.slice(0, steps.length - begun).findLastIndex(isModels)
}

/**
 * Decodes something of the conversation. What cannot be translated is refused in the last turn. Before, a text names it,
 * so that a conversation can continue with another provider.
 * @param name what it is, for the client and for the model
 * @param named returns what takes its place, from the text that names it
 * @throws GatewayError invalid_body
 */
export function unlessPast<T>(
  { past, dropped }: Place,
  name: string,
  decode: () => T[],
  named: (part: Part) => T,
): T[] {
  try {
    return decode()
  } catch (thrown) {
    if (!past || !(thrown instanceof Untranslatable)) throw thrown
    return [named(namedPart(name, dropped))]
  }
}

/** A text that names what cannot be carried. */
function namedPart(name: string, dropped: DroppedFields): Part {
  dropped.add(name)
  return { kind: 'text', text: `[${name.slice(0, 50)}]` }
}

/** The parts of a content that is a string or a list; none for an empty one. @throws GatewayError invalid_body */
export function partsOf(
  content: unknown,
  at: string,
  place: Place,
  decodePart: (part: Json, at: string, place: Place) => Part[],
): Part[] {
  if (content === undefined || content === null || content === '') return []
  if (typeof content === 'string') return [{ kind: 'text', text: content }]
  const softly = new SoftDecoding(place)
  const parts = arrayAt(content, at).flatMap((value, index) => {
    const part = objectAt(value, `${at}[${index}]`)
    return softly.parts(text(part['type']) ?? 'content', () => decodePart(part, `${at}[${index}]`, place))
  })
  softly.check(parts.length)
  return parts
}

/** Decodes the parts of one content. A text names an unknown part that stands beside known ones. */
export class SoftDecoding {
  readonly #place: Place
  readonly #unknown: UnknownType[] = []

  constructor(place: Place) {
    this.#place = place
  }

  /** @param name as for `unlessPast` */
  parts(name: string, decode: () => Part[]): Part[] {
    const softly = (): Part[] => {
      try {
        return decode()
      } catch (thrown) {
        if (this.#place.past || !(thrown instanceof UnknownType)) throw thrown
        this.#unknown.push(thrown)
        return [namedPart(name, this.#place.dropped)]
      }
    }
    return unlessPast(this.#place, name, softly, each => each)
  }

  /** @param all the number of parts @throws UnknownType if all of them are unknown */
  check(all: number): void {
    const [first] = this.#unknown
    if (first && this.#unknown.length === all) throw first
  }
}

/**
 * A part of an unknown type: its text, if it has any.
 * @throws GatewayError invalid_body without text
 */
export function unknownPart(part: Json, at: string, { dropped }: Place): Part[] {
  const said = textWithin(part)
  if (said === '') throw unknownType(at, part['type'])
  dropped.add(text(part['type']) ?? 'content')
  return [{ kind: 'text', text: said }]
}

/** The members of an unknown item or part that may hold its text. */
const TEXTS = ['text', 'content', 'output', 'summary', 'result'] as const

/** The text in an item or a part of an unknown type; empty if it has none. */
export function textWithin(json: Json): string {
  for (const name of TEXTS) {
    const value = json[name]
    const said = Array.isArray(value) ? value.map(each => text(object(each)?.['text']) ?? '').join('') : text(value)
    if (said) return said
  }
  return ''
}

/** The mark of a part, a message or a tool for the prompt cache. */
export function cacheMark(json: Json, dropped: DroppedFields): CacheMark | undefined {
  const value = json['cache_control']
  if (value === undefined || value === null) return undefined
  const { type, ttl = '5m' } = object(value) ?? {}
  if (type === 'ephemeral' && (ttl === '5m' || ttl === '1h')) return ttl
  dropped.add('cache_control')
  return undefined
}

/**
 * The parts of an element with its mark at the last of them. A mark at a blank text is dropped: providers have no blank
 * texts.
 */
export function marked<P extends Part>(parts: readonly P[], element: Json, dropped: DroppedFields): P[] {
  const cache = cacheMark(element, dropped)
  const last = parts.at(-1)
  if (cache && (!last || ('text' in last && last.text.trim() === ''))) {
    dropped.add('cache_control')
    return [...parts]
  }
  return parts.map((part, index) => (cache && index === parts.length - 1 ? { ...part, cache } : part))
}

/**
 * The format of the answer, by its type.
 * @param at the path of the members that describe a schema, which `schema` returns
 */
export function shapeOf(type: unknown, at: string, schema: () => Json): AnswerFormat | undefined {
  if (type === 'json_object') return { kind: 'json' }
  if (type !== 'json_schema') return undefined
  const { name, schema: json, strict, description } = schema()
  return present({
    kind: 'schema' as const,
    name: text(name) ?? 'reply',
    schema: json,
    at: `${at}.schema`,
    strict: boolean(strict),
    description: text(description),
  })
}

/** A value that must be an object. @throws GatewayError invalid_body */
export function objectAt(value: unknown, param: string): Json {
  const json = object(value)
  if (!json) throw refused(param, `"${param}" must be an object.`)
  return json
}

/** The list that a reply consists of. @throws GatewayError upstream_failed if there is none */
export function contentsOf(reply: Json, member: string): readonly unknown[] {
  const contents = reply[member]
  if (Array.isArray(contents)) return contents
  throw noReply(`a reply without ${member}`)
}

/** The error for an upstream's answer that is not a reply of its format. */
export function noReply(what: string): GatewayError {
  return new GatewayError('upstream_failed', { cause: new Error(what) })
}

/** A value that must be an array. Undefined and null count as an empty one. @throws GatewayError invalid_body */
export function arrayAt(value: unknown, param: string): readonly unknown[] {
  if (value === undefined || value === null) return []
  if (!Array.isArray(value)) throw refused(param, `"${param}" must be an array.`)
  return value
}

/** A value that must be a string. @throws GatewayError invalid_body */
export function textAt(value: unknown, param: string): string {
  if (typeof value !== 'string') throw refused(param, `"${param}" must be a string.`)
  return value
}

/**
 * Refuses members that no other format can carry. Null, false and empty lists ask for nothing.
 * @throws GatewayError invalid_body
 */
export function refuseAll(body: Json, members: Readonly<Record<string, string>>): void {
  for (const [name, why] of Object.entries(members)) {
    const value = body[name]
    if (value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0))
      continue
    throw untranslatable(name, why)
  }
}

/**
 * Refuses a request that only fills the prompt cache, without a reply.
 * @throws GatewayError invalid_body
 */
export function refusePrewarming(body: Json): void {
  if (object(body['prompt_cache_options'])?.['prewarm'] === true)
    throw untranslatable('prompt_cache_options.prewarm', 'only its own providers fill a cache without a reply')
}

/** The value as a number; undefined for anything else. */
export function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined
}

/** The value as a boolean; undefined for anything else. */
export function boolean(value: unknown): boolean | undefined {
  return typeof value === 'boolean' ? value : undefined
}

/** The object without the members that are undefined. */
export function present<T extends object>(members: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as never
}

/** Finds what may be a number beyond a double's precision: at the beginning of a value, and so not within base64. */
const BIG_NUMBER = /[:[,]\s*-?\d{16}/

interface Exact {
  rawJSON?: (text: string) => unknown
  parse(text: string, reviver?: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown
}

/**
 * Parses JSON so that whole numbers beyond 2^53 are written again unchanged, if Node supports it (22 and later). Only
 * for values that are written again, as code cannot calculate with such numbers.
 */
export function parseExact(json: string): unknown {
  const exact = JSON as unknown as Exact
  const { rawJSON } = exact
  if (!rawJSON || !BIG_NUMBER.test(json)) return JSON.parse(json)
  return exact.parse(json, (_key, value, context) => {
    const source = context?.source
    return typeof value === 'number' && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source)
      ? rawJSON(source)
      : value
  })
}

/**
 * Only the reasoning signed by this format. Signatures of other formats prove nothing to its provider, and reasoning
 * without one is dropped.
 */
export function ownReasoning(items: readonly Item[], format: FormatName, dropped: DroppedFields): Item[] {
  return items.filter(item => {
    if (item.kind !== 'reasoning' || item.signature?.by === format) return true
    dropped.add('reasoning')
    return false
  })
}

/** The parts of a result. If the tool failed, they say so, for formats without a member for it. */
export function resultParts(parts: readonly Part[], failed: boolean): readonly Part[] {
  const [first, ...rest] = parts
  const known = first?.kind === 'text' && /^\W*\w*error/i.test(first.text)
  if (!failed || known) return parts
  return first?.kind === 'text'
    ? [{ kind: 'text', text: `Error: ${first.text}` }, ...rest]
    : [{ kind: 'text', text: 'Error' }, ...parts]
}

/** The sampling of a request, unless the model refuses it, or reasons: models that reason refuse it. */
export function sampling(
  { temperature, topP, topK }: Pick<Request, 'temperature' | 'topP' | 'topK'>,
  { sampling: accepts = true }: Pick<ModelTraits, 'sampling'>,
  reasons: boolean,
  dropped: DroppedFields,
): Pick<Request, 'temperature' | 'topP' | 'topK'> {
  if (accepts && !reasons) return present({ temperature, topP, topK })
  if (temperature !== undefined) dropped.add('temperature')
  if (topP !== undefined) dropped.add('top_p')
  if (topK !== undefined) dropped.add('top_k')
  return {}
}

/**
 * A stop reason that agrees with whether there are calls.
 * @param end what the reply says of its end
 * @param sequence the stop sequence that the model produced
 */
export function stopOf({ end = 'stop' }: Pick<Reading, 'end'>, calls: boolean, sequence: string | null = null): Stop {
  if (end === 'failed') throw noReply('a reply that failed')
  if (end === 'sequence') return { reason: 'sequence', sequence }
  if (end === 'stop' && calls) return { reason: 'calls' }
  return { reason: end === 'calls' && !calls ? 'stop' : end }
}
