/**
 * Values that clients do not read and send back: signatures of other formats, and ids and names that another format
 * would not allow. Each is a function of its original alone. So the same history gives the same bytes, and the gateway
 * remembers nothing between requests.
 */
import { createHash } from 'node:crypto'
import { FORMAT_NAMES, type FormatName, type Json } from '../terms.ts'
import type { Reasoning, Reply, Tool } from './neutral.ts'
import { indexOf, object, text } from '../json.ts'

/** The beginning of signatures and summaries that the gateway made. */
export const SEALED = 'tollgate.'

/** The beginning of a sealed summary. A sealed signature has the name of a format in its place. */
const SUMMARY = `${SEALED}compaction.`

/** A summary of a conversation as a string that clients send back. */
export function sealedSummary(summary: string): string {
  return SUMMARY + base64url(summary)
}

/** The summary in a string that `sealedSummary` made; undefined for any other value. */
export function summaryIn(value: unknown): string | undefined {
  if (typeof value !== 'string' || !value.startsWith(SUMMARY)) return undefined
  return Buffer.from(value.slice(SUMMARY.length), 'base64url').toString('utf8') || undefined
}

/** A summary as a message of the user, for a model that has not seen what it summarises. */
export function summaryText(summary: string): string {
  return `The conversation up to here was summarised:\n\n${summary}`
}

/** Whether a value is a string that `wrapSignature` or `sealedSummary` made. */
export function isSealed(value: unknown): boolean {
  return typeof value === 'string' && value.startsWith(SEALED)
}

/**
 * A reasoning with its signature as a string of `A-Za-z0-9_.-`. The text is included, as clients may change what they
 * display. Without a signature the string says so.
 * @param place where the reasoning stands in its reply, for clients that do not keep the order
 */
export function wrapSignature({ text, signature }: Omit<Reasoning, 'kind'>, place?: Place): string {
  return signature
    ? `${SEALED}${signature.by}.${base64url(JSON.stringify({ text, data: signature.data, place }))}`
    : `${SEALED}none`
}

/** The reasoning in a string that `wrapSignature` made, if it had a signature; undefined for a vendor's own string. */
export function unwrapSignature(string: string): { reasoning?: Reasoning; place?: Place } | undefined {
  if (!string.startsWith(SEALED)) return undefined
  const [by = '', data = ''] = string.slice(SEALED.length).split('.')
  const format = FORMAT_NAMES.find(name => name === by)
  const json = format && parsed(Buffer.from(data, 'base64url').toString('utf8'))
  const given = object(json?.['data'])
  if (!format || !json || !given) return {}
  // Data of another form was damaged, or the client made it up.
  const proof = PROOFS[format](given)
  if (!proof) return {}
  const place = object(json['place'])
  const [said, calls] = [indexOf(place?.['said']), indexOf(place?.['calls'])]
  return {
    reasoning: { kind: 'reasoning', text: text(json['text']) ?? '', signature: { by: format, data: proof } },
    place: { said, calls },
  }
}

/** Most details of a reasoning. */
const DETAILS_MAX = 1000

/** An object of plain values; undefined for anything else. */
function flat(value: unknown): Json | undefined {
  const json = object(value)
  return json && Object.values(json).every(each => each === null || typeof each !== 'object') ? json : undefined
}

/** Whether a value is a detail of a reasoning, as vendors write it. */
function isDetail(value: unknown): boolean {
  const { type, ...members } = flat(value) ?? { type: 0 }
  return (
    (type === undefined || (typeof type === 'string' && type.startsWith('reasoning'))) &&
    !Object.keys(members).some(name => name.endsWith('_id'))
  )
}

/** The data of a signature in the form that its format uses; undefined if it has another one. */
const PROOFS: Readonly<Record<FormatName, (data: Json) => Json | undefined>> = {
  'chat-completions'({ field, details }) {
    const isList = Array.isArray(details) && details.length <= DETAILS_MAX && details.every(isDetail)
    if (typeof field !== 'string' && !isList) return undefined
    return { field: text(field), ...(isList && { details }) }
  },
  responses({ encrypted, id, summary }) {
    if (typeof encrypted !== 'string') return undefined
    const isList =
      Array.isArray(summary) && summary.length <= DETAILS_MAX && summary.every(each => text(each) !== undefined)
    return { encrypted, ...(typeof id === 'string' && { id }), ...(isList && { summary }) }
  },
  messages({ signature, redacted }) {
    if (typeof redacted === 'string') return { redacted }
    return typeof signature === 'string' ? { signature } : undefined
  },
}

/** What came before a reasoning in its reply: characters of text, and calls. */
export interface Place {
  readonly said: number
  readonly calls: number
}

/** A reasoning whose signature is a vendor's own, or one that `wrapSignature` made. */
export function reasoningIn(shown: string, signature: unknown, format: FormatName, member: string): Reasoning {
  const value = text(signature)
  if (value === undefined || value === '') return { kind: 'reasoning', text: shown }
  const through = unwrapSignature(value)
  if (through) return through.reasoning ?? { kind: 'reasoning', text: shown }
  return { kind: 'reasoning', text: shown, signature: { by: format, data: { [member]: value } } }
}

/** The signature for a format: its own unchanged, that of another format wrapped. */
export function writtenSignature(reasoning: Omit<Reasoning, 'kind'>, format: FormatName, member: string): string {
  const { signature } = reasoning
  return (signature?.by === format ? text(signature.data[member]) : undefined) ?? wrapSignature(reasoning)
}

/** Most characters of a call's id that all clients and providers accept. */
const ID_MAX = 64
const WRAPPED_ID = 'tgid_'
/** The beginning of ids of calls whose original is too long to be wrapped. */
const DIGEST_ID = 'tgid-'
/** The beginnings of strings that the gateway made, except ids of items. */
export const OWN_BEGINNINGS: readonly string[] = [SEALED, WRAPPED_ID, DIGEST_ID]

/** An id of at most `most` characters, unchanged if it is short enough. */
export function shortId(id: string, most = ID_MAX): string {
  return id !== '' && id.length <= most ? id : fitId(id, most)
}

/** An id of letters, digits, `_` and `-`, at most `most` of them; unchanged if it fits. */
export function fitId(id: string, most = ID_MAX): string {
  if (/^[\w-]+$/.test(id) && id.length <= most) return id
  const wrapped = WRAPPED_ID + base64url(id)
  return wrapped.length <= most ? wrapped : DIGEST_ID + digest(id, 24)
}

/** The original of an id that `fitId` wrapped, or the id itself. */
export function restoreId(id: string): string {
  return id.startsWith(WRAPPED_ID) ? Buffer.from(id.slice(WRAPPED_ID.length), 'base64url').toString('utf8') : id
}

/** What ids of calls may be, by the format of the upstream. */
const CALL_IDS: Readonly<Record<FormatName, RegExp>> = {
  'chat-completions': /^.{1,40}$/s,
  responses: /^.{1,64}$/s,
  messages: /^[\w-]{1,64}$/,
}

/**
 * The id of a call for a provider of the client's format: without the gateway's wrapping. An id that the format cannot
 * have gets another one, which is a function of the original.
 */
export function ownCallId(id: string, format: FormatName): string {
  if (!id.startsWith(WRAPPED_ID) && !id.startsWith(DIGEST_ID)) return id
  const original = restoreId(id)
  return original !== id && CALL_IDS[format].test(original) ? original : `call_${digest(original, 24)}`
}

/** The id of an item of a translated reply. @param prefix of the item's type @param index of the item in its reply */
export function itemId(reply: string, prefix: string, index: number): string {
  return `${renameId({ id: reply }, prefix)}_${index}`
}

/** Whether the gateway may have made the id of an item. Ids of providers do not end in the index of the item. */
export function mayBeOwnItem(id: string): boolean {
  return /^(?:msg|rs|fc|cmp)_.+_\d+$/.test(id)
}

/** The id of a reply with the prefix of another format. */
export function renameId({ id }: Pick<Reply, 'id'>, prefix: string): string {
  return prefix + id.replace(/^(?:chatcmpl-|resp_|msg_)/, '').replaceAll(/[^\w-]/g, '')
}

/** Ids in use, each with the number of its last variant. */
export type Taken = Map<string, number>

/** The id, or its first variant that is not in use. It is in use afterwards. */
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

const NAME_MAX = 64

/** A tool's name that every format accepts: at most 64 letters, digits, `_` and `-`. */
export function fitName(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name
  return `${name.replaceAll(/[^\w-]/g, '_').slice(0, NAME_MAX - 9)}_${digest(name, 8)}`
}

/** The names of tools, by what `fitName` makes of them. */
export function namesOf(tools: readonly Pick<Tool, 'name'>[]): ReadonlyMap<string, string> {
  return new Map(tools.map(({ name }) => [fitName(name), name]))
}

/** A name of at most 64 characters that stands for the text. */
export function shortened(name: string): string {
  return name.length <= NAME_MAX ? name : digest(name, 32)
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
