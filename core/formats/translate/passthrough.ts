/**
 * What goes through a client unread and comes back: signatures in the place of another format's, ids and names in the
 * spelling another format allows. All of it is a function of what it stands for alone: the same history gives the same
 * bytes, and nothing need be remembered between requests.
 */
import { createHash } from 'node:crypto'
import { FORMAT_NAMES, type FormatName, type Json } from '../terms.ts'
import type { Reasoning, Reply, Tool } from './neutral.ts'
import { indexOf, object, text } from '../json.ts'

const SEALED = 'tollgate.'

/**
 * A reasoning's signature as one string of `A-Za-z0-9_.-`, with the text it vouches for, as clients may change what they only
 * show; one that signatures nothing is such a string, too.
 * @param place where in its reply the reasoning stands, for clients that do not keep the order
 */
export function wrapSignature({ text, signature }: Omit<Reasoning, 'kind'>, place?: Place): string {
  return signature
    ? `${SEALED}${signature.by}.${base64url(JSON.stringify({ text, data: signature.data, place }))}`
    : `${SEALED}none`
}

/** The reasoning in a string that `wrapSignature` made, without one for what is not sealed; undefined for a vendor's own string. */
export function unwrapSignature(string: string): { reasoning?: Reasoning; place?: Place } | undefined {
  if (!string.startsWith(SEALED)) return undefined
  const [by = '', data = ''] = string.slice(SEALED.length).split('.')
  const format = FORMAT_NAMES.find(name => name === by)
  const json = format && parsed(Buffer.from(data, 'base64url').toString('utf8'))
  const proof = object(json?.['data'])
  if (!format || !json || !proof) return {}
  // What is not what its maker makes was damaged, or is a client's own invention.
  if (!PROVES[format](proof)) return {}
  const place = object(json['place'])
  const [said, calls] = [indexOf(place?.['said']), indexOf(place?.['calls'])]
  return {
    reasoning: { kind: 'reasoning', text: text(json['text']) ?? '', signature: { by: format, data: proof } },
    place: { said, calls },
  }
}

/** Whether the data of a signature are such as its format makes. */
const PROVES: Readonly<Record<FormatName, (data: Json) => boolean>> = {
  'chat-completions': ({ field, details }) => typeof field === 'string' || Array.isArray(details),
  responses: ({ encrypted }) => typeof encrypted === 'string',
  messages: ({ signature, redacted }) => typeof signature === 'string' || typeof redacted === 'string',
}

/** What stood before a reasoning in its reply: characters of text, and calls. */
export interface Place {
  readonly said: number
  readonly calls: number
}

/** The reasoning whose signature stands in the place of `format`'s own: one that came through, or one of its own. */
export function reasoningIn(shown: string, signature: unknown, format: FormatName, member: string): Reasoning {
  const value = text(signature)
  if (value === undefined || value === '') return { kind: 'reasoning', text: shown }
  const through = unwrapSignature(value)
  if (through) return through.reasoning ?? { kind: 'reasoning', text: shown }
  return { kind: 'reasoning', text: shown, signature: { by: format, data: { [member]: value } } }
}

/** What stands in the place of `format`'s own signature: its own as it was, another's sealed. */
export function writtenSignature(reasoning: Omit<Reasoning, 'kind'>, format: FormatName, member: string): string {
  const { signature } = reasoning
  return (signature?.by === format ? text(signature.data[member]) : undefined) ?? wrapSignature(reasoning)
}

/** Longest id of a tool call that every client and provider takes. */
const MOST_ID = 64
const WRAPPED_ID = 'tgid_'

/** An id of at most `most` characters: itself where it is that already. */
export function shortId(id: string, most = MOST_ID): string {
  return id !== '' && id.length <= most ? id : fitId(id, most)
}

/** An id as letters, digits, `_` and `-`, at most `most` long: itself where it is that already. */
export function fitId(id: string, most = MOST_ID): string {
  if (/^[\w-]+$/.test(id) && id.length <= most) return id
  const wrapped = WRAPPED_ID + base64url(id)
  return wrapped.length <= most ? wrapped : `tgid-${digest(id, 24)}`
}

/** The id that `fitId` wrapped, or the id itself. */
export function restoreId(id: string): string {
  return id.startsWith(WRAPPED_ID) ? Buffer.from(id.slice(WRAPPED_ID.length), 'base64url').toString('utf8') : id
}

/** The id of a reply under another format's prefix. */
export function renameId({ id }: Pick<Reply, 'id'>, prefix: string): string {
  return prefix + id.replace(/^(?:chatcmpl-|resp_|msg_)/, '').replaceAll(/[^\w-]/g, '')
}

/** Ids that have been given, each with the number of its last variant. */
export type Taken = Map<string, number>

/** The id, or where it is taken already the first of its further variants that is not; it is taken then. */
export function ownId(id: string, taken: Taken): string {
  let last = taken.get(id)
  let own = id
  if (last !== undefined) {
    do own = `${id}-${++last}`
    while (taken.has(own))
    taken.set(id, last)
  }
  taken.set(own, 1)
  return own
}

const MOST_NAME = 64

/** A tool's name as every format allows it: at most 64 letters, digits, `_` and `-`. */
export function fitName(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name
  return `${name.replaceAll(/[^\w-]/g, '_').slice(0, MOST_NAME - 9)}_${digest(name, 8)}`
}

/** The names of tools by what `fitName` made of them. */
export function namesOf(tools: readonly Pick<Tool, 'name'>[]): ReadonlyMap<string, string> {
  return new Map(tools.map(({ name }) => [fitName(name), name]))
}

/** A name of at most 64 characters that stands for the text: for members that have such a limit. */
export function shortened(name: string): string {
  return name.length <= MOST_NAME ? name : digest(name, 32)
}

function digest(of: string, length: number): string {
  return createHash('sha256').update(of).digest('hex').slice(0, length)
}

function base64url(of: string): string {
  return Buffer.from(of).toString('base64url')
}

function parsed(of: string): Json | undefined {
  try {
    return object(JSON.parse(of))
  } catch {
    return undefined
  }
}
