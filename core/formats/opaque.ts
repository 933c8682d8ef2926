/**
 * What goes through a client unread and comes back: seals in the place of another format's, ids and names in the
 * spelling another format allows. All of it is a function of what it stands for alone: the same history gives the same
 * bytes, and nothing need be remembered between requests.
 */
import { createHash } from 'node:crypto'
import type { FormatName } from './format.ts'
import { FORMAT_NAMES } from './format.ts'
import type { Reply, Seal, Tool } from './neutral.ts'
import { object, text, type Json } from './reading.ts'

const SEALED = 'tollgate.'

/** A seal as one string of `A-Za-z0-9_.-`; one that seals nothing is one too. */
export function sealed(seal: Seal | undefined): string {
  return seal ? `${SEALED}${seal.by}.${base64url(JSON.stringify(seal.data))}` : `${SEALED}none`
}

/** The seal in a string that `sealed` made; undefined for a string of the vendor's own. */
export function unsealed(string: string): { seal: Seal | undefined } | undefined {
  if (!string.startsWith(SEALED)) return undefined
  const [by = '', data = ''] = string.slice(SEALED.length).split('.')
  const format = FORMAT_NAMES.find(name => name === by)
  const json = format && parsed(Buffer.from(data, 'base64url').toString('utf8'))
  return { seal: format && json ? { by: format, data: json } : undefined }
}

/** The seal in what stands in the place of `format`'s own: one that came through, or one of its own. */
export function sealIn(string: unknown, format: FormatName, member: string): Seal | undefined {
  const value = text(string)
  if (value === undefined || value === '') return undefined
  const through = unsealed(value)
  return through ? through.seal : { by: format, data: { [member]: value } }
}

const WRAPPED_ID = 'tgid_'

/** An id of at most `most` characters: itself where it is that already. */
export function shortId(id: string, most: number): string {
  return id !== '' && id.length <= most ? id : fitId(id, most)
}

/** An id as letters, digits, `_` and `-`, at most `most` long: itself where it is that already. */
export function fitId(id: string, most: number): string {
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

const MOST_NAME = 64

/** A tool's name as every format allows it: at most 64 letters, digits, `_` and `-`. */
export function fitName(name: string): string {
  if (/^[\w-]{1,64}$/.test(name)) return name
  return `${name.replaceAll(/[^\w-]/g, '_').slice(0, MOST_NAME - 9)}_${digest(name, 8)}`
}

/** The tool that the upstream means by a name that it was given by `fitName`. */
export function toolNamed(name: string, tools: readonly Tool[]): Tool | undefined {
  return tools.find(tool => fitName(tool.name) === name)
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
