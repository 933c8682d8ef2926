/** The credential of a client, in either of two headers. */
import type { IncomingHttpHeaders } from 'node:http'
import { GatewayError } from '../errors.ts'

/**
 * The secret that a client presents; undefined if it presents none.
 * @throws GatewayError invalid_key for two different secrets, and for a credential of another kind
 */
export function credentialOf(headers: Readonly<IncomingHttpHeaders>): string | undefined {
  const { authorization } = headers
  const key = headers['x-api-key']
  // An empty header has no credential: clients whose variable is not set send one.
  const hasCredential = authorization !== undefined && !/^(?:bearer)? *$/i.test(authorization)
  const bearer = hasCredential ? /^bearer +(\S+) *$/i.exec(authorization)?.[1] : undefined
  if (hasCredential && bearer === undefined) throw new GatewayError('invalid_key')
  if (typeof key === 'string' && key !== '' && bearer !== undefined && key !== bearer) {
    throw new GatewayError('invalid_key', {
      message: 'Authorization and x-api-key contain different API keys. Send only one.',
    })
  }
  return bearer ?? (typeof key === 'string' && key !== '' ? key : undefined)
}

/** The secret, if exactly one is presented. Never throws. */
export function presented(headers: Readonly<IncomingHttpHeaders>): string | undefined {
  try {
    return credentialOf(headers)
  } catch {
    return undefined
  }
}
