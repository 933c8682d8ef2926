/** What the decoders and encoders of the formats share. */
import { GatewayError, invalidBody } from '../../errors.ts'
import type { FormatName, Json } from '../terms.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { Item, Part, Request, AnswerFormat, Source, Stop, Tool, ToolChoice } from './neutral.ts'
import { object, text } from '../json.ts'

/** The error for a request that cannot be translated. @param param the member at fault */
export function refused(param: string, message: string): GatewayError {
  return invalidBody(message, param)
}

/** The error for something that only a provider of the client's format can do. */
export function untranslatable(param: string, what: string): GatewayError {
  return refused(param, `"${param}" cannot be translated: ${what}. The model behind this key uses another wire format.`)
}

/** The error for a type that only the client's format has. */
export function unknownType(at: string, type: unknown): GatewayError {
  return refused(`${at}.type`, `"${at}" has a type that cannot be translated: ${String(text(type)).slice(0, 50)}.`)
}

/** The parts of a content that is a string or a list; none for an empty one. @throws GatewayError invalid_body */
export function partsOf(content: unknown, at: string, decodePart: (part: Json, at: string) => Part): Part[] {
  if (content === undefined || content === null || content === '') return []
  if (typeof content === 'string') return [{ kind: 'text', text: content }]
  return arrayAt(content, at).map((part, index) => decodePart(objectAt(part, `${at}[${index}]`), `${at}[${index}]`))
}

/** The format of the answer, by its type. @param schema returns the members that describe a schema */
export function shapeOf(type: unknown, schema: () => Json): AnswerFormat | undefined {
  if (type === 'json_object') return { kind: 'json' }
  if (type !== 'json_schema') return undefined
  const { name, schema: json, strict, description } = schema()
  return present({
    kind: 'schema' as const,
    name: text(name) ?? 'reply',
    schema: json,
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

/** The source that a URL or data URL names. @throws GatewayError invalid_body */
export function sourceOf(url: string, param: string): Source {
  if (/^https?:/i.test(url)) return { from: 'url', url }
  const comma = url.startsWith('data:') ? url.indexOf(',') : -1
  const [mediaType = '', ...parameters] = url.slice('data:'.length, Math.max(comma, 0)).split(';')
  const data = url.slice(comma + 1)
  if (comma === -1 || mediaType === '' || parameters.at(-1) !== 'base64' || data === '')
    throw refused(param, `"${param}" must be an http(s) URL or a base64 data URL.`)
  return { from: 'data', mediaType, data }
}

/** The source as a URL. */
export function urlOf(source: Source): string {
  return source.from === 'url' ? source.url : `data:${source.mediaType};base64,${source.data}`
}

/**
 * The object in the JSON text of a call; empty for empty text. Text that is not an object is kept as a member that says
 * so.
 */
export function inputObject(input: string): Json {
  if (input.trim() === '' || input.trim() === 'null') return {}
  try {
    const json = object(parseExact(input))
    if (json) return json
  } catch {
    // Models sometimes send invalid JSON.
  }
  return { INVALID_JSON: input }
}

/** The input of a freeform tool in the JSON text of its call. If the text was cut off, as much as there is. */
export function freeformInput(input: string): string {
  try {
    const json = object(JSON.parse(input))
    return text(json?.['input']) ?? (json && Object.keys(json).length === 0 ? '' : input)
  } catch {
    const begun = /^\s*\{\s*"input"\s*:\s*"/.exec(input)
    return (begun && cutString(input.slice(begun[0].length))) ?? input
  }
}

/** The text of a JSON string that was cut off, without an incomplete escape at its end. */
function cutString(rest: string): string | undefined {
  for (let less = 0; less <= ESCAPE_MOST; less++) {
    try {
      return JSON.parse(`"${rest.slice(0, rest.length - less)}"`) as string
    } catch {
      // Try again with one character less.
    }
  }
  return undefined
}

/** Characters of the longest escape in a JSON string. */
const ESCAPE_MOST = 6

/** The JSON text of a freeform tool's call. */
export function wrappedInput(input: string): string {
  return JSON.stringify({ input })
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
 * Refuses a request all of whose tools only a provider could run, and notes them as dropped otherwise.
 * @throws GatewayError invalid_body
 */
export function providerTools(
  skippedTools: readonly { type: string; param: string }[],
  tools: readonly Tool[],
  dropped: DroppedFields,
): void {
  const [first] = skippedTools
  if (first && tools.length === 0) throw untranslatable(first.param, `the provider runs "${first.type}" itself`)
  for (const { type } of skippedTools) dropped.add(`tools.${type}`)
}

/** The tools that a choice allows. @throws GatewayError invalid_body if there is none */
export function allowed(tools: readonly Tool[], names: readonly string[]): Tool[] {
  const wanted = new Set(names)
  const found = tools.filter(({ name }) => wanted.has(name))
  if (found.length === 0) throw refused('tool_choice', '"tool_choice" allows no tool that can be translated.')
  return found
}

/** Checks that a choice names a tool that exists. @throws GatewayError invalid_body */
export function checkChoice(choice: ToolChoice | undefined, tools: readonly Tool[]): void {
  if (choice?.kind === 'tool' && !tools.some(({ name }) => name === choice.name)) {
    throw refused(
      'tool_choice',
      `"tool_choice" names "${choice.name.slice(0, 100)}", which is not one of the tools that can be translated.`,
    )
  }
}

/** Tools with distinct names: the first of each name. */
export function distinct(tools: readonly Tool[], dropped: DroppedFields): Tool[] {
  const seen = new Set<string>()
  return tools.filter(({ name }) => {
    const first = !seen.has(name)
    if (!first) dropped.add(`tools.${name}`)
    seen.add(name)
    return first
  })
}

/** The texts of parts that may only be text. @throws GatewayError invalid_body for media */
export function textOnly(parts: readonly Part[], who: string): string[] {
  return parts.map(part => {
    if ('text' in part) return part.text
    throw refused(
      'messages',
      `A message of the ${who} cannot contain media (${part.kind}) in the upstream's format. Only users can send them.`,
    )
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

/** The sampling of a request, unless it reasons: reasoning models refuse sampling. */
export function sampling(request: Request, dropped: DroppedFields): Pick<Request, 'temperature' | 'topP'> {
  const reasons = request.thinking?.on === true
  if (!reasons)
    return {
      ...(request.temperature !== undefined && { temperature: request.temperature }),
      ...(request.topP !== undefined && { topP: request.topP }),
    }
  if (request.temperature !== undefined) dropped.add('temperature')
  if (request.topP !== undefined) dropped.add('top_p')
  return {}
}

/** A stop reason that agrees with whether there are calls. */
export function stopOf(stop: Stop, calls: boolean): Stop {
  if (stop.reason === 'stop' && calls) return { reason: 'calls' }
  return stop.reason === 'calls' && !calls ? { reason: 'stop' } : stop
}
