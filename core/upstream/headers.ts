/** Headers by allow-list, both ways: what is not named here or by the format does not pass. */
import type { IncomingHttpHeaders } from 'node:http'
import type { Account } from '../config/config.ts'
import type { Format, Translation } from '../formats/index.ts'

/** Headers of a client's that tell its own provider about the client alone: of no use to another's. */
const OF_ANY = (name: string): boolean => name === 'user-agent' || name === 'accept'

/**
 * Headers of the request to the upstream.
 * @param format the upstream's
 * @param extra added to a list header that the client sent too, else set; dropped where the format does not forward them
 * @param translated the client speaks another format, whose headers mean nothing here
 */
export function upwardHeaders(
  client: Readonly<IncomingHttpHeaders>,
  format: Format,
  account: Account,
  extra: Readonly<Record<string, string>>,
  translated: boolean,
): Record<string, string> {
  const headers: Record<string, string> = { ...format.defaultHeaders }
  for (const name in client) {
    const value = client[name]
    if (typeof value === 'string' && (translated ? OF_ANY(name) : format.forwards(name))) headers[name] = value
  }
  for (const [name, value] of Object.entries(extra)) {
    if (format.forwards(name)) headers[name] = headers[name] === undefined ? value : merged(headers[name], value)
  }
  headers['content-type'] = 'application/json'
  headers['accept-encoding'] = 'identity'
  headers[account.header] = account.header === 'authorization' ? `Bearer ${account.key}` : account.key
  return headers
}

function merged(list: string, value: string): string {
  return list.split(',').some(item => item.trim() === value) ? list : `${list},${value}`
}

/** Of a success, what tells the client about its own reply and nothing about the account it was bought with. */
const DOWNWARD = ['content-type', 'cache-control', 'x-codex-turn-state']

/** Characters of one of them: clients take no longer heads. */
const VALUE_MAX = 4096

/** Headers of the reply to the client. */
export function downwardHeaders(
  upstream: Readonly<IncomingHttpHeaders>,
  translation: Translation | undefined,
): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const name of DOWNWARD) {
    const value = upstream[name]
    if (typeof value === 'string' && value.length <= VALUE_MAX) headers[name] = value
  }
  const dropped = String(translation?.dropped ?? '')
  if (dropped !== '') headers['x-tollgate-dropped'] = dropped
  return headers
}
