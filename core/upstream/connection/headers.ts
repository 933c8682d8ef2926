/** Allow-lists of headers in both directions. A header that neither this file nor the format names is dropped. */
import type { IncomingHttpHeaders } from 'node:http'
import { presented } from '../../client/credential.ts'
import type { UpstreamAccount } from '../../config/config.ts'
import type { DroppedFields, Format } from '../../formats/index.ts'

/** Client headers that describe the client to its own provider. They are not sent to another provider. */
const OF_ANY = (name: string): boolean => name === 'user-agent' || name === 'accept'

/** What the headers of a request to an upstream depend on beside those of its client. */
export interface HeadersWish {
  /** The upstream's format. */
  readonly format: Format
  readonly account: UpstreamAccount
  /**
   * Appended to a list header that the client sent as well, otherwise set; dropped if the format does not forward it.
   */
  readonly extra?: Readonly<Record<string, string>>
  /** Whether the client uses another format, whose headers have no meaning to the upstream. */
  readonly translated?: boolean
}

/** Returns the headers of the request to the upstream. */
export function upwardHeaders(
  client: Readonly<IncomingHttpHeaders>,
  { format, account, extra = {}, translated = false }: HeadersWish,
): Record<string, string> {
  const headers: Record<string, string> = { ...format.defaultHeaders }
  const secret = presented(client)
  for (const name in client) {
    const value = client[name]
    const passes = translated ? OF_ANY(name) : format.forwards(name)
    if (!passes || typeof value !== 'string' || contains(value, secret)) continue
    const passed = translated || !format.passedValue ? value : format.passedValue(name, value)
    if (passed !== undefined) headers[name] = passed
  }
  for (const [name, value] of Object.entries(extra)) {
    if (format.forwards(name)) headers[name] = headers[name] === undefined ? value : merged(headers[name], value)
  }
  headers['content-type'] = 'application/json'
  headers['accept-encoding'] = 'identity'
  headers[account.header] = account.header === 'authorization' ? `Bearer ${account.key}` : account.key
  return headers
}

/**
 * Returns the query of a request to the upstream, with its question mark.
 * @param query of the client's request
 * @param names the parameters that pass
 * @param secret the client's key, which is passed on nowhere
 */
export function passedQuery(query: string, names: (name: string) => boolean, secret: string | undefined): string {
  if (query === '') return ''
  const passed = new URLSearchParams()
  for (const [name, value] of new URLSearchParams(query))
    if (names(name) && !contains(value, secret)) passed.append(name, value)
  return passed.size === 0 ? '' : `?${passed.toString()}`
}

function contains(text: string, secret: string | undefined): boolean {
  return secret !== undefined && secret !== '' && text.includes(secret)
}

function merged(list: string, value: string): string {
  return list.split(',').some(item => item.trim() === value) ? list : `${list},${value}`
}

/** Headers of a successful reply that describe the reply itself and not the operator's account. */
const DOWNWARD = ['content-type', 'cache-control', 'x-codex-turn-state']

/** Maximum length of such a header, since clients limit the size of the header section. */
const VALUE_MAX = 4096

/** Returns the headers of the reply to the client. */
export function downwardHeaders(
  upstream: Readonly<IncomingHttpHeaders>,
  request: { readonly dropped?: DroppedFields | undefined } | undefined,
): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const name of DOWNWARD) {
    const value = upstream[name]
    if (typeof value === 'string' && value.length <= VALUE_MAX) headers[name] = value
  }
  const dropped = String(request?.dropped ?? '')
  if (dropped !== '') headers['x-tollgate-dropped'] = dropped
  return headers
}
